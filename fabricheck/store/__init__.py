"""The store: every metric of every run, in append-only Parquet files in folders.

Here: its writing and reading, and what a session's software was. Not here: what many sessions show (history).
"""
