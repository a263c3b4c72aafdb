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
# run is starting. What lost a library since then, is damaged (sums.txt) or could have been changed by another user, is built
# again: users trust what root, they themselves or the owner of the sources built, and nobody else may write to.
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

me=$(id -u)
maker=$(stat -c %u "$sources")
# Whether nobody but this user, root and who owns the sources could have changed a folder. Only of one that is, programs
# are run or copied: whoever may write to a shared cache could leave one there under the right name.
trusted() {
    others=$(find "$1" ! -user "$me" ! -user 0 ! -user "$maker" -o ! -type l -perm -020 -o ! -type l -perm -002) && [ -z "$others" ]
} 2>/dev/null
# Whether the entries of a folder can be replaced by those who do not own them.
shared() {
    [ -z "$(find "$1" -maxdepth 0 \( -user "$me" -o -user 0 -o -user "$maker" \) \( -perm -1000 -o ! -perm -020 ! -perm -002 \))" ]
}
sums() {
    (cd "$1/installed" && find . -type f -exec "$digest" {} + | LC_ALL=C sort -k 2)
} 2>/dev/null
# Not every program finds its libraries where it is built: a login node may have no GPU driver.
complete() {
    ! find "$1" -type f -perm -100 -exec ldd {} + 2>&1 | grep -q 'not found'
}
# Why the kept folder is not taken; empty where it is whole, and nobody else's.
why_not() {
    if ! trusted "$1"; then
        echo "could have been changed by another user"
    elif ! cmp -s "$1/built-from.txt" "$scratch/built-from.txt" || [ "$(sums "$1")" != "$(cat "$1/sums.txt" 2>/dev/null)" ]; then
        echo "is damaged"
    elif [ -e "$1/complete" ] && ! complete "$1/installed"; then
        echo "lost a library"
    fi
}

advice="set FABRICHECK_CACHE to a folder that login and compute nodes share"
mkdir -p "$cache" || fail "cannot write below $cache: $advice"
[ ! -O "$cache" ] || ! shared "$cache" || chmod +t "$cache"
if shared "$cache"; then
    echo "fabricheck: $cache is another user's, or others may rename what is in it (chmod +t): $name is not kept there"
    mkdir -p "$result" && scratch=$(mktemp -d "$result/.building-XXXXXX") || fail "cannot write below $result"
    keep=""
else
    scratch=$(mktemp -d "$cache/.building-XXXXXX") || fail "cannot write below $cache: $advice"
    keep=yes
fi
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
state "$@" >"$scratch/built-from.txt"
key=$("$digest" <"$scratch/built-from.txt" | cut -c1-20)
key=${key%% *}

# One that cannot be taken is moved away; where another user's sticks, this user has a folder of its own.
for folder in ${keep:+"$cache/$name-$key" "$cache/$name-$key-$me"} ""; do
    [ -n "$folder" ] && [ -e "$folder" ] || break
    why=$(why_not "$folder")
    [ -n "$why" ] || break
    echo "fabricheck: $folder $why, so it is built again"
    mv "$folder" "$scratch/${folder##*/}" 2>/dev/null && break
done
if [ -n "$folder" ] && [ -e "$folder" ]; then
    echo "fabricheck: $name was built before: $folder"
    whole=$folder
else
    jobs=$(nproc 2>/dev/null || echo 2)
    [ "$jobs" -le 8 ] || jobs=8
    whole=$scratch/whole
    prefix=$whole/installed
    mkdir -p "$prefix" "$scratch/work" || fail "cannot write below $cache"
    (set +u && cd "$scratch/work" && eval "$commands") || exit
    cp "$scratch/built-from.txt" "$whole/" && sums "$whole" >"$whole/sums.txt" || fail "cannot write below $cache"
    complete "$prefix" && : >"$whole/complete"
    chmod -R go-w "$whole"
fi
mkdir -p "$result" && cp -af "$whole/installed/." "$result/" || fail "cannot copy $whole/installed to $result"
# Where another run was faster, its folder is there already and as good.
if [ "$whole" != "$folder" ] && [ -n "$folder" ]; then
    mv -T "$whole" "$folder" 2>/dev/null || [ -d "$folder/installed" ] || fail "cannot write to $folder"
fi
