#!/bin/sh
# Slurm's HealthCheckProgram, beside prolog.sh on a disk of each node. Slurm asks nothing of its exit status, so that it
# drains this node itself where prolog.sh says why, and leaves one alone that is drained already. In slurm.conf:
#   HealthCheckProgram=/etc/slurm/fabricheck/health.sh
#   HealthCheckInterval=3600
#   HealthCheckNodeState=IDLE
said=$("$(dirname "$0")/prolog.sh") && exit 0
node=${SLURMD_NODENAME:-$(hostname -s)}
case $(scontrol show node --oneliner "$node") in
    *State=*DRAIN* | *State=DOWN*) exit 0 ;;
esac
scontrol update NodeName="$node" State=DRAIN Reason="fabricheck: $(printf '%s' "$said" | head -n 1 | cut -c 1-160)"
