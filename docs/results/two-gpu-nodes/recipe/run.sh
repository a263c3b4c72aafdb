#!/bin/bash
# run.sh STEP...: the two-node set on one machine with two GPUs (or one, which both nodes then share), as root, from the root of a checkout.
# $BUILT: folder with openmpi/fabricbench; $PEERS: with sendrecv_perf; $RES: for what comes back; $LIMIT: seconds in all.
H=$(cd "$(dirname "$0")" && pwd); T0=$(date +%s); LIMIT=${LIMIT:-480}; RES=${RES:-/tmp/res}; PEERS=${PEERS:-/tmp/peers/bin}
say() { echo "[$(( $(date +%s) - T0 )) s] $*"; }
left() { echo $(( LIMIT - $(date +%s) + T0 )); }
unset OMPI_MCA_plm; export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PYTHONDONTWRITEBYTECODE=1
# Sites of two nodes (duo, with a tuning profile tuna), of four on the same GPUs (quad), and under commands with Slurm's names (flot).
export DUO=${DUO_AT:-/tmp/duo-run}; export FABRICHECK_SITES=$DUO FABRICHECK_LAUNCHES=1; S=$DUO/site_configs; R=$DUO/reference_values
rm -rf "$DUO"; mkdir -p "$RES" "$DUO" && cp -r "$H"/* "$DUO"
[ -n "$UNBOUND" ] && sed -i 's/"mpi": "openmpi",/"mpi": "site",/; s#"launcher_options": \[#"launcher_options": ["--bind-to", "none", #' $S/duo/settings.py
sed -i "s#rate: 10 Gb/s#rate: $(echo ${RATE:-10gbit} | sed 's/gbit/ Gb\/s/; s/mbit/ Mb\/s/')#" $S/duo/topology.yaml
for s in quad flot tuna; do cp -r $S/duo $S/$s; done
for s in quad flot tuna; do sed "s/duo/$s/" $R/duo.yaml > $R/$s.yaml; sed -i "s/\"duo\"/\"$s\"/g" $S/$s/settings.py; sed -i "s/^system: duo/system: $s/" $S/$s/topology.yaml; done
sed -i "s/ 16 if gpu/ $(( $(nproc) / 2 )) if gpu/" $S/*/settings.py
sed -i "s/\"nodes\": 2/\"nodes\": 4/; s/ $(( $(nproc) / 2 )) if gpu/ $(( $(nproc) / 4 )) if gpu/; s#/hosts\"#/hosts4\"#" $S/quad/settings.py; sed -i 's/"tuning_profile": "default"/"tuning_profile": "alps"/' $S/tuna/settings.py; sed -i 's/nid\[001-002\]/nid[001-004]/g' $S/quad/topology.yaml
sed -i 's/"scheduler": "local"/"scheduler": "squeue"/; s/"launcher": "mpirun"/"launcher": "srun"/; s/"launcher_options": .*\],/"launcher_options": [],/' $S/flot/settings.py
for n in 1 2 3 4; do echo "10.79.0.$n slots=1"; done > $DUO/hosts4
nvidia-smi -L 2>/dev/null | sed -n 's/.*UUID: \(GPU-[^)]*\)).*/\1/p' | { n=0; while read u; do echo $u > $DUO/uuid$n; n=$((n+1)); done; }
# The files describe H100; another model is written into them.
model=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1 | sed 's/^NVIDIA //'); [ -n "$model" ] && sed -i "s/H100 80GB HBM3/$model/" $S/*/settings.py $S/*/topology.yaml
# One GPU for both nodes: by MPS their kernels run side by side; without it they take turns of some 2 ms.
if [ -e $DUO/uuid0 ] && [ ! -e $DUO/uuid1 ]; then
  export DUO_SHARED=1 CUDA_MPS_PIPE_DIRECTORY=$DUO/mps CUDA_MPS_LOG_DIRECTORY=$DUO/mps
  mkdir -p $DUO/mps && nvidia-cuda-mps-control -d && trap 'echo quit | nvidia-cuda-mps-control' EXIT
fi
[ -e $DUO/uuid0 ] && export DUO_GPU=1; T=${DUO_GPU:+ccl}; T=${T:-mpi}; cores() { echo $1 > $DUO/cores; }; cores $(( $(nproc) / 2 ))
[ -e /sys/fs/cgroup/cgroup.subtree_control ] && echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control
sh $H/net.sh up ${RATE:-10gbit}; for h in nid001 nid002; do sh $H/net.sh rate $h ${RATE:-10gbit}; done

# Of Slurm what `fabricheck run --nodes` asks for: steps are started by mpirun.
mkdir -p $DUO/bin; put() { { echo '#!/bin/bash'; cat; } > $DUO/bin/$1; chmod +x $DUO/bin/$1; }
put sinfo <<< 'case "$*" in *%R*) w=gpu;; *) w=idle;; esac; for n in nid001 nid002; do echo $n $w; done'
put salloc <<< 'echo "salloc: Granted job allocation 36" >&2'
put scancel <<< 'exit 0'
put squeue <<< 'case "$*" in *%N*) echo "nid[001-002]";; *) echo RUNNING;; esac'
put srun <<'X'
r=1; for w; do case $w in --nodelist=*) n=${w#*=};; --ntasks-per-node=*) r=${w#*=};; -*) ;; *) break;; esac; shift; done
list=$(for h in ${n//,/ }; do echo -n ",10.79.0.${h#nid00}:$r"; done); count=$(echo $n | tr , '\n' | wc -l)
exec mpirun -np $((r * count)) --host ${list#,} --bind-to none "$@"
X

keep() { # NAME: what comes back of a run
  d=$(ls -d $DUO/out/$1/runs/*/ 2>/dev/null | tail -1); [ -n "$d" ] || return; mkdir -p $RES/$1; cp $d/verdict.json $RES/$1/ 2>/dev/null
  find $d -name "*.jsonl" -size +0 -size -200k -not -path "*/rounds/*" | while read f; do cp $f $RES/$1/$(basename $(dirname $f))-$(basename $f); done
  find $d -name rfm_job.err -size +0 | while read f; do tail -40 $f > $RES/$1/$(basename $(dirname $f)).err; done; }
fc() { # NAME WORDS...: starts one run of fabricheck, whose job waits for its turn
  local n=$1; shift; rm -rf $DUO/out/$n; mkdir -p $DUO/out/$n
  (timeout $(left) env DUO_TURN=$n python3 -m fabricheck ${DO:-run --no-store} --system ${SYSTEM:-duo} --built ${BUILT:-/tmp/built} --output $DUO/out/$n "$@" > $RES/$n.txt 2>&1; echo "exit $?" >> $RES/$n.txt; touch $DUO/out/$n/ended) & }
turn() { # NAME TESTS: until its job has ended; its judging goes on
  echo $1 > $DUO/turn
  until [ -e $DUO/out/$1/ended ] || [ $(find $DUO/out/$1/runs -name judgement.json 2>/dev/null | wc -l) -ge $2 ]; do sleep 0.1; done; say "$1 measured"; }
pair() { local n=$1; shift; fc $n --name "^NodePairs %transport=$T" "$@"; }
fleet() { SYSTEM=flot PATH=$DUO/bin:$PATH fc $1 --tag smoke --nodes all; }
signal() { (timeout 60 python3 $H/signal_rank.py $1 nid002 ${2:-2} &); }
net() { sh $H/net.sh "$@"; }
add() { echo "$2" >> $DUO/env.$1; }
# What of a step comes first: its run; then, once nothing else measures, what is planted; what undoes it is for all.
begin() { case $1 in
  green) pair green -- --repeat=${TIMES:-10};;
  smoke|smoke6) fc $1 --name "^SmokeNodes %transport=$T";;
  network) fc network --name "^NodeGroups %transport=$T" --name "^NetworkCollectives %transport=$T %nodes=2";;
  down) pair down -- -S NodePairs.timeout=5;;
  management) DUO_IFNAME=mgmt0 pair management;;
  killed) pair killed -- -S NodePairs.budget=2;;
  blocked) pair blocked -- -S NodePairs.timeout=5;;
  pausing|loss|preload) pair $1 -- -S NodePairs.budget=2;;
  offloads) fc offloads --name "^SmokeNodes %transport=$T" --name "^NodePairs %transport=$T";;
  quota) pair quota -- -S NodePairs.budget=2;;
  hang) pair hang -- -S NodePairs.timeout=5 -S NodePairs.budget=2;;
  fleet|slow) fleet $1;;
  local|tenant) fc $1 --name "^SmokeHostCopies";;
  victims) SYSTEM=quad fc victims --name "^NetworkVictims %transport=$T";;
  tuning) SYSTEM=tuna DO="upgrade openmpi without:NCCL_IGNORE_CPU_AFFINITY" fc tuning --name "^NodePairs %transport=$T";;
  cross) FABRICHECK_NCCL_TESTS=$PEERS fc cross --name "^CrossCheckNccl %operation=bidirectional %nodes=2" -- -S CrossCheckNccl.iterations=20 -S CrossCheckNccl.rounds=6;;
  *) pair $1;; esac; }
plant() { case $1 in
  half) net rate nid002 5gbit;;
  minus10) net rate nid002 9gbit;;
  minus5) net rate nid002 9.5gbit out;;
  smoke6) net rate nid002 9.4gbit out;;
  mtu) net mtu nid002 1400;;
  down) net port nid002 down;;
  variable) add nid002 'export NCCL_SOCKET_NTHREADS=2';;
  conf) touch /etc/nccl.conf; cp /etc/nccl.conf $DUO/conf.nid002; echo 'NCCL_NSOCKS_PERTHREAD=2' >> $DUO/conf.nid002;;
  debug) add nid001 'export NCCL_DEBUG=WARN'; add nid002 'export NCCL_DEBUG=WARN';;
  library) add nid002 "export LD_LIBRARY_PATH=$(dirname $(find / -name "libnccl.so.2" -path "*site-packages*" -not -path "/proc/*" 2>/dev/null | head -1))";;
  killed) signal KILL;;
  hang) signal STOP;;
  pausing) (timeout 60 python3 $H/signal_rank.py PAUSE nid002 ${2:-2} & echo $! > $DUO/pausing);;
  quota) quota nid002 60000;;
  blocked) nft add table bridge duo; nft add chain bridge duo forward '{ type filter hook forward priority 0; }'; nft add rule bridge duo forward iifname h-nid001 oifname h-nid002 ether type ip drop;;
  offloads) nsenter --net=/run/netns/nid002 ethtool -K hsn0 tso off gso off gro off sg off > /dev/null 2>&1;;
  loss) nft add table bridge duo; nft add chain bridge duo forward '{ type filter hook forward priority 0; }'
    nft add rule bridge duo forward iifname h-nid002 oifname h-nid001 numgen random mod 1000 '<' 3 drop;;
  preload) g++ -O2 -shared -fPIC $H/slow_send.cpp -o $DUO/libslow.so; add nid002 "export LD_PRELOAD=$DUO/libslow.so";;
  clock) g++ -O2 -shared -fPIC tests/data/programs/wrong_clock.cpp -o $DUO/libclock.so; add nid002 "export LD_PRELOAD=$DUO/libclock.so RATE=0.97 WRONG_RANK=all";;
  slow|cotenant) burn $(( $(nvidia-smi -L | wc -l) - 1 ));;
  tenant) burn 0;;
  victims) net up ${RATE:-10gbit} nid003 nid004; cores $(( $(nproc) / 4 ));;
  esac; }
# Microseconds of a CPU in 100 ms for the ranks of a node; max: all.
quota() { if [ -e /sys/fs/cgroup/cgroup.controllers ]; then echo +cpu > /sys/fs/cgroup/cgroup.subtree_control; echo "$2 100000" > /sys/fs/cgroup/$1/cpu.max
  else mkdir -p /sys/fs/cgroup/cpu/duo-$1; echo ${2/max/-1} > /sys/fs/cgroup/cpu/duo-$1/cpu.cfs_quota_us; fi; }
# unshare itself does not end by SIGTERM.
burn() { unshare --pid --fork --kill-child --mount-proc env -u CUDA_MPS_PIPE_DIRECTORY python3 $H/burn.py 60 $1 > $RES/burn.txt 2>&1 & b=$!; sleep 6; }
undo() {
  net rate nid002 ${RATE:-10gbit}; net mtu nid002 1500; net port nid002 up; rm -f $DUO/env.* $DUO/conf.*; cores $(( $(nproc) / 2 ))
  [ $1 = quota ] && quota nid002 max; [ $1 = blocked -o $1 = loss ] && nft delete table bridge duo
  [ $1 = offloads ] && nsenter --net=/run/netns/nid002 ethtool -K hsn0 sg on tso on gso on gro off > /dev/null 2>&1
  [ -e $DUO/pausing ] && kill $(cat $DUO/pausing) 2>/dev/null; rm -f $DUO/pausing
  [ -n "$b" ] && kill -KILL $b; b=; [ $1 = hang ] && python3 $H/signal_rank.py KILL nid002 0 1; }
tests() { case $1 in green) echo ${TIMES:-10};; network|offloads) echo 2;; fleet|slow) echo 99;; *) echo 1;; esac; }
tell() { local n; for n in "$@"; do
  echo "== $n: $(tail -1 $RES/$n.txt)"; grep -E "^(PASS|DEGRADED|FAIL|INVALID|INCOMPLETE|SUSPECT|Error) " -A1 $RES/$n.txt | grep -v "^--" | head -${LINES_:-8}; keep $n; done; }
steps=("$@"); begin $1
for k in "${!steps[@]}"; do n=${steps[$k]}; next=${steps[$((k+1))]}
  plant $n; [ -n "$next" ] && [ $(left) -gt 30 ] && begin $next
  turn $n $(tests $n); undo $n; done_="$done_ $n"
  [ -e $DUO/out/$next ] || { [ -n "$next" ] && say "no time for $next and later"; break; }
done
wait; tell $done_; say end
