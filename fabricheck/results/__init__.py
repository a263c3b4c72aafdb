"""Readers of benchmark output: every reader turns text into the same records and guards them."""
