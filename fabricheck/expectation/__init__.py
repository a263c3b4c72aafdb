"""What the link graph allows: nominal, expected and highest plausible value of each kind of measurement.

Here: pure functions of a topology; inside a node, between nodes, host memory, NICs. Not here: results, verdicts,
references.
"""
