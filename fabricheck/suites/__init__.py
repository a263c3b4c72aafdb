"""The vendor suites: where their sources are, how they are built, which of their benchmarks measure what.

Here: OSU, nccl-tests, rccl-tests, Intel MPI Benchmarks. Not here: third-party code; readers of their output (results).
"""
