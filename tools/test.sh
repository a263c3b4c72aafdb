#!/bin/sh
# The tests: the C++ unit tests, then everything else with pytest. `make test` calls it, with .venv/bin on the path, and
# has FULL=1 in the environment where everything is to run. Words for pytest, such as the name of a file, choose among
# the latter.
set -u
cd "$(dirname "$0")/.." || exit
# Else each of some thousand processes compiles the package again.
unset PYTHONDONTWRITEBYTECODE
python -m tools.build host-openmpi && ctest --test-dir build/host-openmpi --output-on-failure --no-tests=error || exit
[ $# -eq 0 ] || exec python -m pytest "$@"
FABRICHECK_NOT_RUN=$(mktemp) || exit
export FABRICHECK_NOT_RUN
trap 'rm -f "$FABRICHECK_NOT_RUN"' EXIT
status=0
python -m pytest --durations=10 -m 'not quiet' --numprocesses=auto --dist=worksteal || status=$?
# Named, since to collect the others too takes as long as ten tests. No name of a test's file has a blank.
# shellcheck disable=SC2046
python -m pytest --durations=30 -m quiet $(grep -rlF --include='test_*.py' pytest.mark.quiet tests | sort) || status=$?
sort -u "$FABRICHECK_NOT_RUN" | sed 's/^/fabricheck: tests: /'
exit "$status"
