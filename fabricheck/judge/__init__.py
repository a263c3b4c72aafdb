"""The verdict of a metric, a run and a session, and the evidence that a node's state gives.

Here: what decides. Not here: what it is held against (yardsticks), what is only told (findings), where a fault is
(diagnosis), what changed (history).
"""
