#!/bin/bash
# the remote shell of mpirun: AGENT HOST COMMAND...; $DUO: the folder of its settings, $CORES: cores of a node
case $1 in 10.79.0.*) h=nid00${1##*.};; *) h=$1;; esac; shift; export DUO_CMD="$*" DUO_HOST=$h
D=${DUO:-/tmp/duo}; C=$(cat $D/cores 2>/dev/null || echo 16); n=$(( ${h#nid00} - 1 )); first=$((n*C)); last=$((n*C+C-1))
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then G=/sys/fs/cgroup/$h; mkdir -p $G && echo $first-$last > $G/cpuset.cpus && echo $$ > $G/cgroup.procs
else G=/sys/fs/cgroup/cpuset/duo-$h; mkdir -p $G && echo 0 > $G/cpuset.mems && echo $first-$last > $G/cpuset.cpus && echo $$ > $G/tasks; [ -d /sys/fs/cgroup/cpu/duo-$h ] && echo $$ > /sys/fs/cgroup/cpu/duo-$h/tasks; fi
export DUO_FOLDER=$D; [ -d $D/mps ] && export CUDA_MPS_PIPE_DIRECTORY=$D/mps
exec nsenter --net=/run/netns/$h unshare --uts --mount --ipc bash -c '
hostname $DUO_HOST; mount -t sysfs sysfs /sys 2>/dev/null; [ -e /proc/self/cgroup ] && grep -q ^0:: /proc/self/cgroup && mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null
[ -e /sys/fs/cgroup/cgroup.controllers ] || { mount -t tmpfs none /sys/fs/cgroup && mkdir -p /sys/fs/cgroup/cpuset && mount -t cgroup -o cpuset none /sys/fs/cgroup/cpuset; } 2>/dev/null
n=$(( ${DUO_HOST#nid00} - 1 )); gpus=$(ls /dev | grep -c "^nvidia[0-9]"); c=$(cat $DUO_FOLDER/cores); [ $gpus -gt 0 ] && n=$(( n * c * gpus / $(nproc --all) ))
U=$DUO_FOLDER/uuid$n; [ -e $U ] && export CUDA_VISIBLE_DEVICES=$(cat $U)
[ -e $DUO_FOLDER/conf.$DUO_HOST ] && mount --bind $DUO_FOLDER/conf.$DUO_HOST /etc/nccl.conf
if [ -e /dev/nvidia$n ]; then
  D=/tmp/dev.$DUO_HOST.$$; mkdir -p $D; mount -t tmpfs -o mode=755 tmpfs $D
  for f in null zero full random urandom tty nvidiactl nvidia-uvm nvidia-uvm-tools nvidia$n kmsg; do [ -e /dev/$f ] && cp -a /dev/$f $D/; done
  [ -d /dev/nvidia-caps ] && cp -a /dev/nvidia-caps $D/
  mkdir -p $D/shm $D/pts; mount -t tmpfs -o mode=1777,size=$(cat $DUO_FOLDER/shm.$DUO_HOST 2>/dev/null || echo 50%) tmpfs $D/shm; mount --bind /dev/pts $D/pts; ln -s /proc/self/fd $D/fd; ln -s pts/ptmx $D/ptmx
  mount --move $D /dev
else mount -t tmpfs -o mode=1777 tmpfs /dev/shm; fi
E=$DUO_FOLDER/env.$DUO_HOST; [ -e $E ] && . $E
exec bash -c "$DUO_CMD"'
