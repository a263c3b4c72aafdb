#!/bin/sh
# All tests: the C++ unit tests, then everything else with pytest. `make test` calls it, with .venv/bin on the path.
set -eu
cd "$(dirname "$0")/.."
python -m ci.build host-openmpi
ctest --test-dir build/host-openmpi --output-on-failure --no-tests=error
exec python -m pytest "$@"
