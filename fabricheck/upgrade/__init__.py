"""Two software stacks in one job: what the new one costs, and which of its parts does.

Here: the comparison of sessions that were measured interleaved, and the search for the guilty part. Not here: how a
session is run (session), and what nights show (history).
"""
