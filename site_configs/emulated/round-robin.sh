#!/bin/sh
# Slurm's task prolog: what it prints as `export` is set for the task. Even ranks of a node use its first port, odd ones
# its second.
echo "export OMPI_MCA_btl_tcp_if_include=hsn$((SLURM_LOCALID % 2))"
