#!/bin/sh
# Slurm's task prolog: what it prints as `export` is set for the task. Ranks 0 and 1 of a node use its first port, 2 and 3
# its second.
echo "export OMPI_MCA_btl_tcp_if_include=hsn$((SLURM_LOCALID / 2))"
