"""What many runs say: references from healthy ones, what changed, and what got worse.

Here: calibrate, compare, watch, and the series that they take. Not here: what one run means (judge), how it is kept
(store), and statistics that know no metric (statistics).
"""
