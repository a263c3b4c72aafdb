"""What many runs say: references from healthy ones, what changed between two sets, what got worse and when.

Here: calibrate, compare, watch, and their statistics. Not here: the store's files.
"""
