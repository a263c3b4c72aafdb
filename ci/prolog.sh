#!/bin/sh
# Slurm's Prolog or Epilog, and a command of Flux's perilog, to be copied to a disk of each node: ends with 1, which drains
# it, only where Fabricheck said that this node is at fault, and with 0 where Fabricheck is not there, does not start or does
# not end. Says why on stdout. health.sh and pbs_hook.py beside it call it.
#   PROGRAM  such as /shared/fabricheck/.venv/bin/fabricheck
#   SYSTEM   such as site:gpu
said=$(timeout -k 1 9 "${PROGRAM:-/shared/fabricheck/.venv/bin/fabricheck}" doctor --system "${SYSTEM:-site:gpu}" --prolog)
case $? in
    1 | 3 | 4) printf '%s\n' "$said" | grep -E '^(DEGRADED|FAIL|INCOMPLETE): ' && exit 1 ;;
esac
exit 0
