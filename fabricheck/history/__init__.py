"""The sample store, and what many runs say: references from healthy ones, what changed, and what got worse.

The store has every metric of every run, append-only Parquet in folders. Here: its writing and reading;
calibrate, compare, watch, and their statistics. Not here: what one run means (judge).
"""
