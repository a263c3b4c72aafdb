# net.sh up RATE [NODE...] | rate NODE RATE [out|in|both] | port NODE up|down | mtu NODE N | down : nodes (two where none is named), each with mgmt0 and hsn0
IP=${IP:-ip}; TC=${TC:-tc}
out() { nsenter --net=/run/netns/$1 $TC qdisc replace dev hsn0 root tbf rate $2 burst ${BURST:-1mb} latency 20ms; }
in_() { $TC qdisc replace dev h-$1 root tbf rate $2 burst ${BURST:-1mb} latency 20ms; }
shape() { out $1 $2; in_ $1 $2; }
if [ $1 = up ]; then rate=$2; shift 2
  $IP link show brm > /dev/null 2>&1 || { $IP link add brm type bridge; $IP link add brh type bridge; $IP link set brm up; $IP link set brh up; $IP addr add 10.79.0.254/24 dev brm; $IP link set lo up; }
  for h in ${@:-nid001 nid002}; do n=${h##nid00}; [ -e /run/netns/$h ] && continue; mkdir -p /run/netns; $IP netns add $h
    $IP link add m-$h type veth peer name mgmt0 netns $h; $IP link add h-$h type veth peer name hsn0 netns $h
    $IP link set m-$h master brm up; $IP link set h-$h master brh up
    for d in lo mgmt0 hsn0; do $IP -n $h link set $d up; done; $IP -n $h addr add 10.79.0.$n/24 dev mgmt0; $IP -n $h addr add 10.78.0.$n/24 dev hsn0
    shape $h $rate
  done
elif [ $1 = rate ]; then case ${4:-both} in out) out $2 $3;; in) in_ $2 $3;; *) shape $2 $3;; esac
elif [ $1 = port ]; then $IP -n $2 link set hsn0 $3; [ $3 = up ] && $IP -n $2 addr replace 10.78.0.${2##nid00}/24 dev hsn0
elif [ $1 = mtu ]; then $IP -n $2 link set hsn0 mtu $3
elif [ $1 = down ]; then for h in $(ls /run/netns | grep "^nid"); do $IP netns del $h; done; $IP link del brm; $IP link del brh
fi
