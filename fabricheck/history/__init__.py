"""The sample store, and what many runs say: references from healthy ones, what changed, and what got worse.

The store is what every run measured, append-only Parquet in folders. Here: its writing, reading, upkeep and replay;
calibrate, compare, watch, and their statistics. Not here: what one run means (judge).
"""
