#!/bin/sh
# Builds a program once for each state of what it is made from, and copies what was built into the folder RESULT:
#
#     build_once.sh NAME SOURCES CACHE RESULT COMMANDS OPTION...
#
# COMMANDS are run by this shell in an empty folder. They find the folder SOURCES as $sources, the options as "$@" (CMake's,
# by which the compilers are told here too) and how many processes may compile as $jobs, and leave what is to be kept
# below $prefix. What they leave may not know where it lies.
#
# CACHE holds a folder NAME-… for each state: what is below SOURCES, commands and options, the machine's architecture, the
# compilers and the MPI library with their versions, and the variables that CMake and compilers read. `built-from.txt` in it
# says all of that. It is a shell script, since it runs where the compilers are: in the environment of a job, perhaps on
# another architecture than that of the login node and its Python. A finished folder appears as a whole or not at all and
# never changes, so several runs may use one cache, also on file systems without locks; all folders may be deleted when no
# run is starting. What lost a library since then is built again.
set -u
fail() {
    echo "fabricheck: $*" >&2
    exit 1
}

[ $# -ge 5 ] || fail "usage: build_once.sh NAME SOURCES CACHE RESULT COMMANDS OPTION..."
name=$1 sources=$2 cache=$3 result=$4 commands=$5
shift 5
[ -d "$sources" ] || fail "there is no folder $sources to build $name from"
case $commands in
*cmake*)
    command -v cmake >/dev/null || fail "there is no cmake on the PATH: load its module in the environment, or install it"
    ;;
esac

# The value of a CMake option of ours, else what follows the name.
option() {
    wanted=$1 value=$2
    shift 2
    for each; do
        case $each in "-D$wanted="* | "-D$wanted:"*=*) value=${each#*=} ;; esac
    done
    echo "$value"
}
backend=$(option FABRICHECK_BACKEND host "$@")
cxx=$(option CMAKE_CXX_COMPILER "${CXX:-c++}" "$@")
nvcc=$(option CMAKE_CUDA_COMPILER "${CUDACXX:-nvcc}" "$@")
mpicc=$(option MPI_C_COMPILER "" "$@")
mpicxx=$(option MPI_CXX_COMPILER mpicxx "$@")
nccl=$(option NCCL_ROOT "${NCCL_HOME:-}" "$@")
rccl=$(option RCCL_ROOT "${ROCM_PATH:-/opt/rocm}" "$@")

command -v "$cxx" >/dev/null ||
    fail "there is no C++ compiler $cxx on the PATH: name it in the environment (cxx, CC where ReFrame is told nothing)"

digest=sha256sum
command -v sha256sum >/dev/null || digest=cksum
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
    # The unit tests of fabricbench are none of it.
    [ "$name" = fabricbench ] && unused=./tests || unused=
    (cd "$sources" && find . -path "$unused" -prune -o -type f -exec "$digest" {} + | LC_ALL=C sort -k 2)
    echo "== commands and options"
    printf '%s\n' "$commands"
    printf '%s\n' "$@"
    echo "== machine"
    uname -sm
    said cmake --version
    for compiler in "$cxx" "$mpicxx"; do
        said "$compiler" --version
        versions mpi.h "$compiler"
    done
    said "$mpicxx" -show
    said "$mpicc" --version
    said "$mpicc" -show
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
key=$("$digest" <"$scratch/built-from.txt" | cut -c1-20)
folder=$cache/$name-${key%% *}

# Not every program finds its libraries where it is built: a login node may have no GPU driver.
complete() {
    ! find "$1" -type f -perm -100 -exec ldd {} + 2>&1 | grep -q 'not found'
}
if [ -e "$folder/complete" ] && ! complete "$folder/installed"; then
    echo "fabricheck: $folder lost a library, so it is built again"
    mv "$folder" "$scratch/broken"
fi
if [ -e "$folder" ]; then
    echo "fabricheck: $name was built before: $folder"
else
    jobs=$(nproc 2>/dev/null || echo 2)
    [ "$jobs" -le 8 ] || jobs=8
    prefix=$scratch/whole/installed
    mkdir -p "$prefix" "$scratch/work" || fail "cannot write below $cache"
    (set +u && cd "$scratch/work" && eval "$commands") || exit
    cp "$scratch/built-from.txt" "$scratch/whole/" || fail "cannot write below $cache"
    complete "$prefix" && : >"$scratch/whole/complete"
    # Where another run was faster, its folder is there already and as good.
    mv -T "$scratch/whole" "$folder" 2>/dev/null || [ -d "$folder/installed" ] || fail "cannot write to $folder"
fi
mkdir -p "$result" && cp -af "$folder/installed/." "$result/" || fail "cannot copy $folder/installed to $result"
