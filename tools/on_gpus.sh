#!/bin/bash
# on_gpus.sh FOLDER [STEP...]: what is measured again whenever GPUs are at hand, from the root of a checkout; results go to FOLDER.
#
#     night   smoke and two nightlies of this machine, as docs/results/nights has them
#     papers  acceptance
#     data    every byte of each transport checked, and a planted wrong byte found
#     beside  nvbandwidth ($NVBANDWIDTH, the program) and nccl-tests ($NCCL_TESTS, a folder of programs) in turn with fabricbench
#     nics    libfabric's checks, where it is there
#     nodes   as root: the two nodes of docs/results/two-gpu-nodes, on two GPUs or one
#
# Without STEP all of them. NVLink multicast stays off.
set -u
[ $# -gt 0 ] || { sed -n '2,11s/^#//p' "$0"; exit 2; }
folder=$1; shift
mkdir -p "$folder" && folder=$(cd "$folder" && pwd) || exit 2
export NCCL_NVLS_ENABLE=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
sites=$folder/sites begin=$(date +%s) gpus=$(nvidia-smi -L | wc -l)
python=python3; [ -x .venv/bin/python ] && python=$PWD/.venv/bin/python
say() { echo "[$(( $(date +%s) - begin )) s] $*"; }
fabricheck() { FABRICHECK_SITES=$sites $python -m fabricheck "$@"; }
checks() { # NAME OPTION...: one run of this machine, whose words are kept
    local name=$1; shift
    fabricheck run --system here --output "$folder/output" "$@" > "$folder/$name.txt" 2>&1
    say "$name: exit status $?"
}
program() { find "$folder/output/cache" -name fabricbench -type f -perm -1 2>/dev/null | head -1; }
bench() { # OPTION...: exit status of fabricbench on all GPUs
    number=$((${number:-0} + 1))
    timeout 120 mpirun --map-by slot:PE=2 --bind-to core -np "$gpus" "$(program)" --quiet --output="$folder/data-$number.jsonl" "$@" \
        > "$folder/data-$number.txt" 2>&1
    say "exit status $?: $*"
}

night() { checks smoke --tag smoke; checks nightly --tag nightly; checks nightly-again --tag nightly; }
papers() { checks acceptance --tag acceptance; }
data() {
    [ "$gpus" -gt 1 ] || { say "data: needs two GPUs"; return; }
    local pairs=pingpong,unidirectional,bidirectional all=allreduce,allgather,alltoall,reduce_scatter,broadcast transport
    for transport in copy kernel ccl staging; do
        bench --transport=$transport --operations=$pairs --verify=every --sizes=8B,4KiB,1MiB,64MiB --iterations=300
        [ $transport = kernel ] || # it has no collectives
            bench --transport=$transport --operations=$all --verify=every --sizes=1KiB,1MiB,64MiB --iterations=200
    done
    for transport in copy kernel; do
        bench --transport=$transport --operations=unidirectional,bidirectional --train=32 --verify=every --sizes=4KiB,1MiB --iterations=200
        bench --transport=$transport --operations=unidirectional --access=read --verify=every --sizes=8B,1MiB,64MiB --iterations=300
    done
    say "a wrong byte is planted: exit status 5 is right"
    bench --transport=ccl --operations=unidirectional --sizes=1MiB --iterations=20 --inject=wrong-byte
}
beside() {
    local peers=()
    [ -n "${NVBANDWIDTH:-}" ] && peers+=(--nvbandwidth "$NVBANDWIDTH")
    [ -n "${NCCL_TESTS:-}" ] && peers+=(--nccl-tests "$NCCL_TESTS")
    [ ${#peers[@]} -gt 0 ] || { say "beside: NVBANDWIDTH and NCCL_TESTS name no program"; return; }
    $python -m benchmarks.side_by_side --fabricbench "$(program)" --ranks "$gpus" --rounds 3 --output "$folder/beside.md" \
        --mpirun "mpirun --map-by slot:PE=2 --bind-to core" "${peers[@]}" > "$folder/beside.txt" 2>&1
    say "beside: exit status $?"
}
nics() { checks nics --name "^Nic"; checks groups --name GroupCollectives; }
nodes() {
    [ "$(id -u)" = 0 ] || { say "nodes: needs root"; return; }
    mkdir -p "$folder/built/openmpi" && cp "$(program)" "$folder/built/openmpi/" &&
        BUILT=$folder/built RES=$folder/nodes TIMES=10 PEERS=${NCCL_TESTS:-} DUO_AT=$folder/duo \
            bash docs/results/two-gpu-nodes/recipe/run.sh green half minus5 pausing quota preload offloads cotenant clock mtu management \
            blocked > "$folder/nodes.txt" 2>&1
    $python docs/results/two-gpu-nodes/recipe/table.py "$folder/nodes"
}

[ -d "$sites" ] || fabricheck init --system here --site "$sites" > "$folder/init.txt" 2>&1 || { cat "$folder/init.txt"; exit 2; }
# What is not built yet is built by the first run.
[ -n "$(program)" ] || checks smoke --tag smoke
for step in ${*:-nodes data beside nics night papers}; do
    case $step in night | papers | data | beside | nics | nodes) "$step";; *) echo "on_gpus.sh: unknown step $step" >&2; exit 2;; esac
done
say "the results are in $folder"
