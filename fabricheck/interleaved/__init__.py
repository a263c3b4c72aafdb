"""A and B interleaved in one job: does a setting still help, and does another tool get the same.

Here: the rounds and the statistics of their ratios. Not here: how the rounds are started (rfm).
"""
