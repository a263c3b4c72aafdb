#!/bin/sh
# All tests: the C++ unit tests, then everything else with pytest. `make test` calls it, with .venv/bin on the path.
# Words for pytest, such as the name of a file, choose among the latter.
set -u
cd "$(dirname "$0")/.." || exit
python -m tools.build host-openmpi && ctest --test-dir build/host-openmpi --output-on-failure --no-tests=error || exit
[ $# -eq 0 ] || exec python -m pytest "$@"
status=0
python -m pytest --durations=10 -m 'not quiet' --numprocesses=auto --dist=worksteal || status=$?
python -m pytest --durations=30 -m quiet || status=$?
exit "$status"
