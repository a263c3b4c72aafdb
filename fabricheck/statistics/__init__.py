"""Statistics of numbers, whatever they are of: arrays in, estimates, bounds and probabilities out.

Here: how far values stray, which of several is wild, how a level goes on, and the numbers that several rules decide by.
Not here: metrics, files, GPUs, and what a result means.
"""
