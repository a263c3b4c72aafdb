#!/bin/sh
# Builds fabricbench once for each state of what it is made from, and copies it to PROGRAM:
#
#     build_once.sh SOURCES CACHE PROGRAM CMAKE_OPTION...
#
# CACHE holds a folder for each state: what is below SOURCES, the options, the machine's architecture, the compilers and
# the MPI library with their versions, and the variables that CMake and compilers read. `built-from.txt` in it says all of
# that. It is a shell script, since it runs where the compilers are: in the environment of a job, perhaps on another
# architecture than that of the login node and its Python. A finished folder appears as a whole or not at all and never
# changes, so several runs may use one cache, also on file systems without locks; all folders may be deleted when no run is
# starting. What does not start any more, such as for a library that is gone, is built again.
set -u
fail() {
    echo "fabricheck: $*" >&2
    exit 1
}

[ $# -ge 3 ] || fail "usage: build_once.sh SOURCES CACHE PROGRAM CMAKE_OPTION..."
sources=$1 cache=$2 program=$3
shift 3
[ -f "$sources/CMakeLists.txt" ] || fail "$sources has no CMakeLists.txt: it has to be the folder src/ of the suite"
command -v cmake >/dev/null || fail "there is no cmake on the PATH: load its module in the environment, or install it"

# The value of a CMake option of ours, else what follows the name.
option() {
    name=$1 value=$2
    shift 2
    for each; do
        case $each in "-D$name="* | "-D$name:"*=*) value=${each#*=} ;; esac
    done
    echo "$value"
}
backend=$(option FABRICHECK_BACKEND host "$@")
cxx=$(option CMAKE_CXX_COMPILER "${CXX:-c++}" "$@")
nvcc=$(option CMAKE_CUDA_COMPILER "${CUDACXX:-nvcc}" "$@")
mpicxx=$(option MPI_CXX_COMPILER mpicxx "$@")
nccl=$(option NCCL_ROOT "${NCCL_HOME:-}" "$@")
rccl=$(option RCCL_ROOT "${ROCM_PATH:-/opt/rocm}" "$@")

command -v "$cxx" >/dev/null ||
    fail "there is no C++ compiler $cxx on the PATH: name it in the environment (cxx, CC where ReFrame is told nothing)"

digest() {
    if command -v sha256sum >/dev/null; then sha256sum "$@"; else cksum "$@"; fi
}
# What a program says, under its name and path; nothing where it is not there.
said() {
    command -v "$1" >/dev/null || return 0
    echo "== $*" "($(command -v "$1"))"
    "$@" 2>&1 </dev/null
}
# The version macros that a header and the compiler in front of it define.
versions() {
    header=$1
    shift
    command -v "$1" >/dev/null || return 0
    echo "== $header by $*"
    echo "#include <$header>" | "$@" -x c++ -E -dM - 2>/dev/null | grep -i version | sort
}
state() {
    echo "== sources"
    (cd "$sources" && find . -path ./tests -prune -o -path ./data -prune -o -type f -print | LC_ALL=C sort |
        while IFS= read -r file; do digest "$file"; done)
    echo "== options"
    printf '%s\n' "$@"
    echo "== machine"
    uname -sm
    said cmake --version
    for compiler in "$cxx" "$mpicxx"; do
        said "$compiler" --version
        versions mpi.h "$compiler"
    done
    said "$mpicxx" -show
    if [ "$backend" != host ]; then
        said "$nvcc" --version
        said hipcc --version
        versions nccl.h "$cxx" ${nccl:+"-I$nccl/include"}
        versions rccl/rccl.h "$cxx" "-I$rccl/include"
    fi
    echo "== variables"
    env | grep -E '^(LOADEDMODULES|CC|CXX|CUDACXX|C(PP|XX|UDA)?FLAGS|LDFLAGS|CPATH|CPLUS_INCLUDE_PATH|LIBRARY_PATH)=' | sort
    env | grep -E '^(CMAKE_[A-Z_]*|[A-Z]*(CUDA|NCCL|ROCM|RCCL|MPI|CMPLR|CCL)_?(HOME|ROOT|PATH|DIR))=' | sort
}

mkdir -p "$cache" && scratch=$(mktemp -d "$cache/.building-XXXXXX") ||
    fail "cannot write below $cache: set FABRICHECK_CACHE to a folder that login and compute nodes share"
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
state "$@" >"$scratch/built-from.txt"
key=$(digest <"$scratch/built-from.txt" | cut -c1-20)
folder=$cache/fabricbench-${key%% *}

# Not every program starts where it is built: a login node may have no GPU driver.
if [ -e "$folder/starts" ] && ! "$folder/fabricbench" --version >/dev/null 2>&1; then
    echo "fabricheck: $folder/fabricbench does not start any more, so it is built again"
    mv "$folder" "$scratch/broken"
fi
if [ -e "$folder" ]; then
    echo "fabricheck: fabricbench was built before: $folder"
else
    jobs=$(nproc 2>/dev/null || echo 2)
    [ "$jobs" -le 8 ] || jobs=8
    cmake -S "$sources" -B "$scratch/build" "$@" || exit 1
    cmake --build "$scratch/build" --parallel "$jobs" --target fabricbench || exit 1
    mkdir "$scratch/whole"
    cp "$scratch/build/fabricbench" "$scratch/built-from.txt" "$scratch/whole/" || fail "cannot write below $cache"
    "$scratch/whole/fabricbench" --version >/dev/null 2>&1 && : >"$scratch/whole/starts"
    # Where another run was faster, its folder is there already and as good.
    mv -T "$scratch/whole" "$folder" 2>/dev/null || [ -x "$folder/fabricbench" ] || fail "cannot write to $folder"
fi
rm -f "$program"
cp "$folder/fabricbench" "$program" || fail "cannot copy $folder/fabricbench to $program"
