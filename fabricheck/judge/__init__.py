"""Judging: samples against what the hardware allows and what the system once gave."""
