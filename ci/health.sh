#!/bin/sh
# Slurm's HealthCheckProgram, beside prolog.sh on a disk of each node. Slurm asks nothing of its exit status, so that it
# drains this node itself where prolog.sh says why, and leaves one alone that is drained already. In slurm.conf:
#   HealthCheckProgram=/etc/slurm/fabricheck/health.sh
#   HealthCheckInterval=3600
#   HealthCheckNodeState=IDLE,CYCLE
#
#   MOST  percent of a partition's nodes that may be drained because of Fabricheck, and always one: most_drained of
#         config/policy.yaml. More at a time point to a switch, software or a setting: then the log says so, and none is
#         drained. NHC has no such limit; NVSentinel's circuit breaker and the node repair of Amazon EKS have.
said=$("$(dirname "$0")/prolog.sh")
[ $? -eq 1 ] && [ -n "$said" ] || exit 0
node=${SLURMD_NODENAME:-$(hostname -s)}
state=$(scontrol show node --oneliner "$node") || exit 0
case $state in
    *State=*DRAIN* | *State=DOWN*) exit 0 ;;
esac
said="fabricheck: $(printf '%s' "$said" | head -n 1 | cut -c 1-160)"

# Ends with 1 where this node would be one too many, or sinfo does not list it; says so in the log.
allowed() {
    why=$(sinfo --all --noheader --Node --format='%R|%N|%T|%E' | awk -F'|' -v node="$node" -v most="${MOST:-5}" '
        { size[$1]++ }
        $2 == node { mine[$1] }
        $2 != node && $3 ~ /^(drain|down|fail)/ && $4 ~ /^fabricheck/ { drained[$1]++ }
        END {
            for (name in mine) {
                listed = 1
                if (drained[name] > 0 && (drained[name] + 1) * 100 > most * size[name]) {
                    printf "of %s %d of %d nodes are: suspect a switch or software", name, drained[name], size[name]
                    exit
                }
            }
            if (!listed) printf "sinfo does not list it"
        }')
    [ -z "$why" ] || { logger -t fabricheck "$node is not drained ($why): $said"; return 1; }
}

# Once before, and once after: Slurm starts this on all nodes at a time where they boot, and without CYCLE.
allowed || exit 0
scontrol update NodeName="$node" State=DRAIN Reason="$said"
allowed && exit 0
case $(scontrol show node --oneliner "$node") in
    *"Reason=$said"*) scontrol update NodeName="$node" State=UNDRAIN ;; # unless somebody gave another since
esac
