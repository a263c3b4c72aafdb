#!/bin/bash
# The two-node set on one machine with two GPUs. Words: what to run.
H=$(cd "$(dirname "$0")" && pwd); T0=$(date +%s); LIMIT=${LIMIT:-530}
say() { echo "[$(( $(date +%s) - T0 )) s] $*"; }
left() { echo $(( LIMIT - $(date +%s) + T0 )); }
unset OMPI_MCA_plm; export PATH=/usr/local/cuda/bin:$PATH CUDACXX=/usr/local/cuda/bin/nvcc; export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PYTHONDONTWRITEBYTECODE=1 NCCL_NVLS_ENABLE=0
mkdir -p /tmp/site /tmp/fc /tmp/old /tmp/duo /tmp/built/openmpi /tmp/nt /tmp/res
if [ ! -e /tmp/ready ]; then
tar xJf $H/repo.tar.xz -C /tmp/fc; tar xJf $H/old.tar.xz -C /tmp/old; tar xJf $H/nccl-tests.tar.xz -C /tmp/nt; tar xJf $H/duo.tar.xz -C /tmp/duo
tar xJf $H/ip.tar.xz -C /tmp; (tar xJf $H/site.tar.xz -C /tmp/site; touch /tmp/site.done) &
build() { cmake -S $1/src -B $2 -G Ninja -DCMAKE_BUILD_TYPE=Release -DFABRICHECK_BACKEND=cuda -DCMAKE_CUDA_ARCHITECTURES=90 -DMPI_CXX_COMPILER=/usr/bin/mpicxx.openmpi > $2.log 2>&1 && cmake --build $2 --parallel 14 --target fabricbench >> $2.log 2>&1 || tail -20 $2.log; }
build /tmp/fc /tmp/bnew & build /tmp/old /tmp/bold &
(cd /tmp/nt && make -j8 -C src MPI=1 MPI_HOME=/usr/lib/x86_64-linux-gnu/openmpi NCCL_HOME=/usr NVCC_GENCODE="-gencode=arch=compute_90,code=sm_90" BUILDDIR=/tmp/nt/build /tmp/nt/build/sendrecv_perf > /tmp/nt.log 2>&1 || tail -5 /tmp/nt.log) &
fi
for t in ip tc; do printf '#!/bin/sh\nLD_LIBRARY_PATH=/tmp/iproute2/lib exec /tmp/iproute2/%s "$@"\n' $t > /usr/local/bin/$t; chmod +x /usr/local/bin/$t; done
echo "nccl.conf:"; cat /etc/nccl.conf; cat /etc/openmpi/openmpi-mca-params.conf 2>/dev/null | grep -v '^#' | grep .; nvidia-smi -L; nproc; env | grep -E "^(NCCL|OMPI|UCX|CUDA)"; ls /sys/fs/cgroup | head -3
python3 -c "import nvidia.nccl as n; print(n.__path__)"; ls /usr/lib/x86_64-linux-gnu/libnccl.so*
nvidia-smi -L | sed -n 's/.*UUID: \(GPU-[^)]*\)).*/\1/p' | { n=0; while read u; do echo $u > /tmp/duo/uuid$n; n=$((n+1)); done; }
chmod +x /tmp/duo/*.sh; echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control
sh /tmp/duo/net.sh up 10gbit; wait; touch /tmp/ready
cp /tmp/bnew/fabricbench /tmp/built/openmpi/; ls -la /tmp/bnew/fabricbench /tmp/bold/fabricbench /tmp/nt/build/sendrecv_perf
export PYTHONPATH=/tmp/fc:/tmp/site FABRICHECK_SITES=/tmp/duo DUO_GPU=1 DUO=/tmp/duo
say "ready"; cd /tmp/fc; python3 -c "import fabricheck; print(fabricheck.__file__)"
MP="mpirun -np 2 --hostfile /tmp/duo/hosts -mca plm_rsh_agent /tmp/duo/agent.sh -mca pml ob1 -mca btl tcp,self -mca btl_tcp_if_include hsn0 -mca oob_tcp_if_include 10.79.0.0/24 -x NCCL_SOCKET_IFNAME=hsn0"
one="--map-by core --bind-to core"; four="--map-by slot:PE=4 --bind-to core"; sixteen="--map-by slot:PE=16 --bind-to core"; none="--bind-to none"
bench() { # program binding transport
  f=/tmp/res/ratio-$1-$2-$3.jsonl; timeout 45 $MP ${!2} /tmp/b$1/fabricbench --transport=$3 --operations=unidirectional,bidirectional --sizes=8B,64MiB --budget=0.4 --min-iterations=12 --warmup=2 --timeout=30 --output=$f 2>&1 | grep -E "^(uni|bi)dir|rror|say" | sed "s/^/$1 $2 $3: /"; }
nccl() { timeout 45 $MP ${!1} /tmp/nt/build/sendrecv_perf -b 8 -e 67108864 -f 8388608 -n 20 -w 3 -z $2 2>&1 | grep -E "^ +(8|67108864) " | sed "s/^/nccl-tests -z $2 $1: /"; }
fc() { # name words...: one run of fabricheck
  n=$1; shift; [ $(left) -lt 25 ] && { say "no time for $n"; return; }
  timeout $(left) python3 -m fabricheck run --system duo --built /tmp/built --no-store --launches 1 --output /tmp/out/$n "$@" > /tmp/res/$n.txt 2>&1; say "== $n: exit $?"; grep -vE "^ *[0-9]+/[0-9]+ " /tmp/res/$n.txt | head -${LINES_:-14}
  d=$(ls -d /tmp/out/$n/runs/*/ 2>/dev/null | tail -1); [ -n "$d" ] && { mkdir -p /tmp/res/$n; cp $d/verdict.json /tmp/res/$n/ 2>/dev/null; find $d -name result.jsonl -size -3M | while read f; do cp $f /tmp/res/$n/$(basename $(dirname $f)).jsonl; done; find $d -name "*.log" -path "*node-state*" -size +0 | while read f; do cp $f /tmp/res/$n/$(basename $f).txt; done; find $d -name rfm_job.err -size +0 | while read f; do tail -40 $f > /tmp/res/$n/$(basename $(dirname $f)).err; done; }; }
pair() { n=$1; shift; fc $n --name "^NodePairs %transport=ccl" "$@"; }
victim() { for p in $(pgrep -f "fabricbench --transport"); do grep -qz "^CUDA_VISIBLE_DEVICES=$(cat /tmp/duo/uuid1)" /proc/$p/environ && echo $p; done; }
later() { (for i in $(seq 300); do v=$(victim); [ -n "$v" ] && { sleep ${3:-4}; kill -$1 $v; break; }; sleep 0.2; done) & }
$MP $sixteen sh -c 'hostname; taskset -cp $$; grep Mems_allowed_list /proc/self/status; ls /dev/nvidia*' 2>&1 | tail -20
if ! $MP $sixteen true > /dev/null 2>&1; then say "no binding here"; sed -i 's/"mpi": "openmpi",/"mpi": "site",/; s#"launcher_options": \[#"launcher_options": ["--bind-to", "none", #' /tmp/duo/site_configs/duo/settings.py; fi
step() { case $1 in
  ratios) for b in one four none; do bench new $b ccl; nccl $b 1; done; bench old one ccl; bench old none ccl; bench new sixteen ccl; nccl none 0; bench new sixteen staging; say ratios;;
  shm) echo 64k > /tmp/duo/shm.nid002; pair shm; rm /tmp/duo/shm.nid002;;
  narrow) LINES_=40 fc narrow --name "^NodePairs %transport=ccl" -- -S NodePairs.warmup=1;;
  smoke) LINES_=30 fc smoke --tag smoke;;
  nightly) LINES_=30 fc network --name "^(NodePairs|NodeGroups) %transport=ccl" --name "^NetworkCollectives %transport=ccl %nodes=2";;
  half) sh /tmp/duo/net.sh rate nid002 5gbit; pair half; sh /tmp/duo/net.sh rate nid002 10gbit;;
  minus10) sh /tmp/duo/net.sh rate nid002 9gbit; pair minus10; sh /tmp/duo/net.sh rate nid002 10gbit;;
  minus5) sh /tmp/duo/net.sh rate nid002 9.5gbit out; pair minus5; sh /tmp/duo/net.sh rate nid002 10gbit;;
  smoke6) sh /tmp/duo/net.sh rate nid002 9.4gbit out; fc smoke6 --name "^SmokeNodes %transport=ccl"; sh /tmp/duo/net.sh rate nid002 10gbit;;
  mtu) sh /tmp/duo/net.sh mtu nid002 1400; pair mtu; sh /tmp/duo/net.sh mtu nid002 1500;;
  down) sh /tmp/duo/net.sh port nid002 down; pair down -- -S NodePairs.timeout=15; sh /tmp/duo/net.sh port nid002 up;;
  management) DUO_IFNAME=mgmt0 pair management;;
  variable) echo 'export NCCL_SOCKET_NTHREADS=2' > /tmp/duo/env.nid002; pair variable; rm /tmp/duo/env.nid002;;
  conf) touch /etc/nccl.conf; cp /etc/nccl.conf /tmp/duo/conf.nid002; echo 'NCCL_NSOCKS_PERTHREAD=2' >> /tmp/duo/conf.nid002; pair conf; rm /tmp/duo/conf.nid002;;
  debug) printf 'export NCCL_DEBUG=WARN\n' > /tmp/duo/env.nid001; cp /tmp/duo/env.nid001 /tmp/duo/env.nid002; pair debug; rm /tmp/duo/env.nid00?;;
  library) L=$(find / -name "libnccl.so.2" -path "*site-packages*" -not -path "/proc/*" 2>/dev/null | head -1); echo "other NCCL: $L"; echo "export LD_LIBRARY_PATH=$(dirname $L)" > /tmp/duo/env.nid002; pair library; rm /tmp/duo/env.nid002;;
  tenant) (cd /tmp; unshare --pid --fork --mount-proc python3 $H/burn.py 40) & b=$!; sleep 9; fc tenant --name "^SmokeHostCopies"  --name "^LocalCopies"; kill $b; wait $b 2>/dev/null; sleep 2;;
  local) fc local --name "^SmokeHostCopies"  --name "^LocalCopies";;
  killed) later 9 x 2; pair killed;;
  hang) later STOP x 2; pair hang -- -S NodePairs.timeout=12; v=$(victim); [ -n "$v" ] && kill -9 $v;;
  green) i=0; while [ $(left) -gt 40 ] && [ $i -lt 10 ]; do i=$((i+1)); LINES_=1 pair green$i; done;;
  esac; }
for s in "$@"; do step $s; done
cat > /tmp/res/README <<X
$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1); kernel $(uname -r); $(mpirun --version | head -1)
X
tar cJf $OUT/results.tar.xz -C /tmp res; ls -la $OUT; say end
