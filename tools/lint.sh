#!/bin/sh
# Style, types and warnings: all of them are errors. With --fix brings the style in order instead. `make lint` and
# `make format` call it, with .venv/bin on the path.
set -eu
cd "$(dirname "$0")/.."

compiled_sources() {
    git ls-files --cached --others --exclude-standard '*.cpp' '*.hpp' '*.cu' '*.h'
}

if [ "${1:-}" = --fix ]; then
    ruff check --fix .
    ruff format .
    compiled_sources | xargs clang-format -i
    exit
fi
ruff check .
ruff format --check .
mypy &
types=$!
trap 'kill "$types" 2>/dev/null || :' EXIT
compiled_sources | xargs clang-format --dry-run -Werror
# With CI=true the tests' own build treats GCC's warnings as errors.
[ "${CI:-}" = true ] || python -m tools.build lint-gcc
if command -v clang++ >/dev/null || [ "${CI:-}" = true ]; then
    python -m tools.build lint-clang
else
    echo "fabricheck: no clang++ here, so only GCC's warnings were looked at" >&2
fi
wait "$types"
