#!/bin/bash
# run.sh STEP...: the two-node set on one machine with two GPUs, as root, from the root of a checkout.
# $BUILT: folder with openmpi/fabricbench; $PEERS: with sendrecv_perf; $RES: for what comes back; $LIMIT: seconds in all.
H=$(cd "$(dirname "$0")" && pwd); T0=$(date +%s); LIMIT=${LIMIT:-480}; RES=${RES:-/tmp/res}; PEERS=${PEERS:-/tmp/peers/bin}
say() { echo "[$(( $(date +%s) - T0 )) s] $*"; }
left() { echo $(( LIMIT - $(date +%s) + T0 )); }
unset OMPI_MCA_plm; export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PYTHONDONTWRITEBYTECODE=1
# Sites of two nodes (duo), of four on the same GPUs (quad), and of two under commands with Slurm's names (flot).
export DUO=${DUO_AT:-/tmp/duo-run}; export FABRICHECK_SITES=$DUO FABRICHECK_LAUNCHES=1; S=$DUO/site_configs; R=$DUO/reference_values
rm -rf "$DUO"; mkdir -p "$RES" "$DUO" && cp -r "$H"/* "$DUO"
[ -n "$UNBOUND" ] && sed -i 's/"mpi": "openmpi",/"mpi": "site",/; s#"launcher_options": \[#"launcher_options": ["--bind-to", "none", #' $S/duo/settings.py
cp -r $S/duo $S/quad; cp -r $S/duo $S/flot
for s in quad flot; do sed "s/duo/$s/" $R/duo.yaml > $R/$s.yaml; sed -i "s/\"duo\"/\"$s\"/g" $S/$s/settings.py; sed -i "s/^system: duo/system: $s/" $S/$s/topology.yaml; done
sed -i 's/"nodes": 2/"nodes": 4/; s/ 16 if gpu/ 8 if gpu/; s#/hosts"#/hosts4"#' $S/quad/settings.py; sed -i 's/nid\[001-002\]/nid[001-004]/g' $S/quad/topology.yaml
sed -i 's/"scheduler": "local"/"scheduler": "squeue"/; s/"launcher": "mpirun"/"launcher": "srun"/; s/"launcher_options": .*\],/"launcher_options": [],/' $S/flot/settings.py
for n in 1 2 3 4; do echo "10.79.0.$n slots=1"; done > $DUO/hosts4
nvidia-smi -L 2>/dev/null | sed -n 's/.*UUID: \(GPU-[^)]*\)).*/\1/p' | { n=0; while read u; do echo $u > $DUO/uuid$n; n=$((n+1)); done; }
[ -e $DUO/uuid0 ] && export DUO_GPU=1; T=${DUO_GPU:+ccl}; T=${T:-mpi}; cores() { echo $1 > $DUO/cores; }; cores $(( $(nproc) / 2 ))
[ -e /sys/fs/cgroup/cgroup.subtree_control ] && echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control
sh $H/net.sh up ${RATE:-10gbit}

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
  d=$(ls -d /tmp/out/$1/runs/*/ 2>/dev/null | tail -1); [ -n "$d" ] || return; mkdir -p $RES/$1; cp $d/verdict.json $RES/$1/ 2>/dev/null
  find $d -name "*.jsonl" -size +0 -size -200k | while read f; do cp $f $RES/$1/$(basename $(dirname $f))-$(basename $f); done
  find $d -name rfm_job.err -size +0 | while read f; do tail -40 $f > $RES/$1/$(basename $(dirname $f)).err; done; }
fc() { # NAME WORDS...: one run of fabricheck, whose judging goes on beside the start of the next one
  n=$1; shift; [ $(left) -lt 20 ] && { say "no time for $n"; return; }
  rm -rf /tmp/out/$n; mkdir -p /tmp/out/$n
  (timeout $(left) python3 -m fabricheck run --system ${SYSTEM:-duo} --built ${BUILT:-/tmp/built} --no-store --output /tmp/out/$n "$@" > $RES/$n.txt 2>&1; echo "exit $?" >> $RES/$n.txt; touch /tmp/out/$n/ended) &
  until [ -e /tmp/out/$n/ended ] || [ $(find /tmp/out/$n/runs -name judgement.json 2>/dev/null | wc -l) -ge ${TESTS:-1} ]; do sleep 0.1; done; say "$n measured"; }
pair() { n=$1; shift; fc $n --name "^NodePairs %transport=$T" "$@"; }
signal() { (timeout 60 python3 $H/signal_rank.py $1 nid002 ${2:-0.6} &); }
net() { sh $H/net.sh "$@"; }
tell() { wait; for n in "$@"; do echo "== $n: $(tail -1 $RES/$n.txt)"; grep -E "^(PASS|DEGRADED|FAIL|INVALID|INCOMPLETE|SUSPECT|Error) " -A1 $RES/$n.txt | grep -v "^--" | head -${LINES_:-8}; keep $n; done; }
step() { case $1 in
  green) TESTS=${TIMES:-10} pair green -- --repeat=${TIMES:-10};;
  half) net rate nid002 5gbit; pair half; net rate nid002 10gbit;;
  minus10) net rate nid002 9gbit; pair minus10; net rate nid002 10gbit;;
  minus5) net rate nid002 9.5gbit out; pair minus5; net rate nid002 10gbit;;
  smoke6) net rate nid002 9.4gbit out; fc smoke6 --name "^SmokeNodes %transport=$T"; net rate nid002 10gbit;;
  smoke) fc smoke --name "^SmokeNodes %transport=$T";;
  network) TESTS=2 fc network --name "^NodeGroups %transport=$T" --name "^NetworkCollectives %transport=$T %nodes=2";;
  mtu) net mtu nid002 1400; pair mtu; net mtu nid002 1500;;
  down) net port nid002 down; pair down -- -S NodePairs.timeout=5; net port nid002 up;;
  management) DUO_IFNAME=mgmt0 pair management;;
  variable) echo 'export NCCL_SOCKET_NTHREADS=2' > $DUO/env.nid002; pair variable; rm $DUO/env.nid002;;
  conf) touch /etc/nccl.conf; cp /etc/nccl.conf $DUO/conf.nid002; echo 'NCCL_NSOCKS_PERTHREAD=2' >> $DUO/conf.nid002; pair conf; rm $DUO/conf.nid002;;
  debug) for n in 1 2; do echo 'export NCCL_DEBUG=WARN' > $DUO/env.nid00$n; done; pair debug; rm $DUO/env.nid00?;;
  library) L=$(find / -name "libnccl.so.2" -path "*site-packages*" -not -path "/proc/*" 2>/dev/null | head -1); echo "export LD_LIBRARY_PATH=$(dirname $L)" > $DUO/env.nid002; pair library; rm $DUO/env.nid002;;
  killed) signal KILL; pair killed -- -S NodePairs.budget=1;;
  hang) signal STOP; pair hang -- -S NodePairs.timeout=5 -S NodePairs.budget=1; python3 $H/signal_rank.py KILL nid002 0 1;;
  slow) unshare --pid --fork --mount-proc python3 $H/burn.py 60 1 > $RES/burn.txt 2>&1 & b=$!; sleep 5; SYSTEM=flot PATH=$DUO/bin:$PATH TESTS=99 fc slow --tag smoke --nodes all; kill $b;;
  fleet) SYSTEM=flot PATH=$DUO/bin:$PATH TESTS=99 fc fleet --tag smoke --nodes all;;
  victims) net up ${RATE:-10gbit} nid003 nid004; cores $(( $(nproc) / 4 )); SYSTEM=quad fc victims --name "^NetworkVictims %transport=$T"; cores $(( $(nproc) / 2 ));;
  tuning) TESTS=1 fc tuning --name "^TuningBetweenNodes %transport=$T";;
  cross) fc cross --name "^CrossCheckNccl %operation=bidirectional" -- -P nodes=2;;
  esac; done_="$done_ $1"; }
for s in "$@"; do step $s; done
tell $done_; say end
