"""A cluster on one machine: real Slurm on nodes that are network namespaces, with links shaped to their nominal rates.

It is built from a topology.yaml like that of any other system, so what the model expects of it is known, and faults can
be planted and have to be found. Linux, root, and the Debian packages that `PACKAGES` in cluster.py names.

Here: what is built, broken and fixed again. Not here: anything that a real run imports.
"""
