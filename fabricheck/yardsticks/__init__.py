"""What a metric is held against: the policy, a system's references, values of the same part elsewhere, of NICs and of
papers.

Here: their files, and which value fits which metric. Not here: what a link graph allows (limits); the verdict (judge).
"""
