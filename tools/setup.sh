#!/bin/sh
# Makes .venv ready for a goal: run, lab, lint or test (tools/setup.py says what each needs). Finds a Python for it first.
set -eu
cd "$(dirname "$0")/.."

usable() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1
}

if [ -n "${PYTHON:-}" ]; then
    usable "$PYTHON" || { echo "fabricheck: PYTHON=$PYTHON is not a Python 3.10 or newer; set PYTHON to one" >&2; exit 2; }
else
    for candidate in python3 python3.13 python3.12 python3.11 python3.10 python3.14; do
        if usable "$candidate"; then PYTHON=$candidate; break; fi
    done
    [ -n "${PYTHON:-}" ] || { echo "fabricheck: found no Python 3.10 or newer; install one or set PYTHON to it" >&2; exit 2; }
fi
exec "$PYTHON" -m tools.setup "$@"
