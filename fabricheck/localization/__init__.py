"""Pairs of all nodes in rounds, and which component of the network explains what is slow.

Here: plans of rounds, routes, the fit of faults. Not here: verdicts of metrics.
"""
