#!/bin/sh
# The tests: the C++ unit tests, then everything else with pytest. `make test` calls it, with .venv/bin on the path, and
# has FULL=1 in the environment where everything is to run. Words for pytest, such as the name of a file, choose among
# the latter.
set -u
cd "$(dirname "$0")/.." || exit
python -m tools.build host-openmpi && ctest --test-dir build/host-openmpi --output-on-failure --no-tests=error || exit
[ $# -eq 0 ] || exec python -m pytest "$@"
FABRICHECK_NOT_RUN=$(mktemp) || exit
export FABRICHECK_NOT_RUN
trap 'rm -f "$FABRICHECK_NOT_RUN"' EXIT
status=0
python -m pytest --durations=10 -m 'not quiet' --numprocesses=auto --dist=worksteal || status=$?
python -m pytest --durations=30 -m quiet || status=$?
# Both parts count what is left out of the whole suite.
sort -u "$FABRICHECK_NOT_RUN" | sed 's/^/fabricheck: tests: /'
exit "$status"
