#!/bin/sh
# The host backend with GCC's sanitizers: unit tests and runs of two ranks with addresses and undefined behaviour watched,
# with FULL=1 also threads. `make sanitize` calls it, with .venv/bin on the path.
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export ASAN_OPTIONS UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS="suppressions=$PWD/tools/tsan.supp"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
number=0

run() { # build, operations, other options
    number=$((number + 1))
    mpirun.openmpi --oversubscribe --mca mpi_yield_when_idle 1 -n 2 "build/$1/fabricbench" --operations "$2" \
        --output "$folder/$number.jsonl" --sizes 8B,1000B,64KiB --iterations 6 --warmup 2 --quiet $3
}

python -m tools.build sanitize
ASAN_OPTIONS=detect_leaks=1
build/sanitize/tests/unit_tests
# Open MPI does not free all, and its plug-ins are gone when leaks are looked for: no suppression can name them.
ASAN_OPTIONS=detect_leaks=0
run sanitize pingpong,allreduce,alltoall ""
run sanitize unidirectional,bidirectional "--train 40"
[ "${FULL:-}" = 1 ] || exit 0
python -m tools.build --without-tests sanitize-threads
run sanitize-threads pingpong,allreduce ""
run sanitize-threads host_stream "--transport cores"
