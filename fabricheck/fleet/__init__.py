"""Many nodes in one job: which nodes, what runs on each or on all of them, and which is at fault where that fails.

Here: nodes chosen from the scheduler, steps of one allocation with a watchdog each, the nodes that are excluded, and
the verdict of a node. Not here: what is measured (checks), parsing, judging of metrics.
"""
