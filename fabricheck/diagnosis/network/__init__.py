"""Pairs of all nodes in rounds, and which component of the network explains slow pairs.

Routes may be unknown, and of several that pairs take at once each gets a share: so the table has probabilities, and
what explains it is fitted. Here: plans of rounds, routes, the fit. Not here: verdicts of metrics.
"""
