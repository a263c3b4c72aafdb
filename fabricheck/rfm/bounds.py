"""What judged a metric, as ReFrame writes a reference: value, and lower and upper bound as shares of it."""

from __future__ import annotations

import math

from fabricheck.records.judgement import Judgement
from fabricheck.records.verdict import Verdict

#: A value and its relative bounds; None: unbounded on that side.
Bounds = tuple[float, float | None, float | None]

#: ReFrame's own reference where there is none: every value meets it.
NO_BOUNDS: Bounds = (0, None, None)

# Who multiplies must not come to another result than who divided.
_ROUNDING = 1e-9


def bounds_of(judged: Judgement) -> Bounds:
    """The reference that decided, or the floor; NO_BOUNDS where neither is known.

    Who compares a value that passed with these bounds finds nothing wrong: one that passed although noise carried it
    beyond its bound lies on the bound that is given here.
    """
    value, lower, upper = _yardstick(judged)
    if judged.verdict is Verdict.PASS and math.isfinite(judged.value) and value > 0:
        share = judged.value / value - 1
        lower = None if lower is None else min(lower, share - _ROUNDING)
        upper = None if upper is None else max(upper, share + _ROUNDING)
    return value, lower, upper


def _yardstick(judged: Judgement) -> Bounds:
    if judged.reference is not None:
        return judged.reference.value, judged.reference.lower, judged.reference.upper
    expected, share = judged.expectation.expected, judged.expectation.floor_fraction
    if expected is None or not share > 0:
        return NO_BOUNDS
    return (expected, share - 1, None) if judged.better == "higher" else (expected, None, 1 / share - 1)
