"""What is usual for each metric: its level and its spread, and what all metrics have lost in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from fabricheck.history.levels import FIRST, errors_of, level_of, levels_of
from fabricheck.history.robust import CUT, centre_and_spread
from fabricheck.history.rows import Arrays, by_rows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Fewer metrics tell too little of what all have in common.
FEWEST_FOR_COMMON = 20
# What at least so many of the metrics do is what all do.
_OUTER = 0.35


@dataclass(frozen=True, eq=False)
class Baseline:
    """What is usual, shapes (metrics,); `error` has (metrics, sessions of the window).

    `whole_spread` is that of the values, `own_spread` that of `error`: the values less all that is known before. `gain`
    and `keep`: those of the level (`levels`), which is at `level` after the window.
    """

    count: Ints
    centre: Floats
    whole_spread: Floats
    own_spread: Floats
    gain: Floats
    keep: Floats
    level: Floats
    error: Floats


def fit(values: Floats, until: int, shared: npt.NDArray[np.bool_], least: float) -> Baseline:
    """The baseline of a window of sessions, shape (metrics, sessions); more is worse, NaN is not measured. Those from
    `until` on tell only where a level is that is followed.

    `shared`: which metrics tell what all have in common. `least`: the least spread.
    """

    def known(rows: slice) -> Arrays:
        found = centre_and_spread(values[rows, :until])
        return found.count, found.centre, np.maximum(found.spread, 1e-12), values[rows] - found.centre[:, None]

    parts = by_rows(known, len(values))
    count, centre, whole, error = cast("tuple[Ints, Floats, Floats, Floats]", parts)
    gain, keep, level, own = np.ones(len(values)), np.zeros(len(values)), np.zeros(len(values)), whole.copy()
    for rows in (shared, ~shared):  # what all have in common is one series, of which they tell nothing
        gain[rows], keep[rows] = levels_of(error[rows, :until], least)
    follows = np.flatnonzero(keep)
    if follows.size:
        filtered = CUT * whole[follows], gain[follows], keep[follows]
        level[follows] = level_of(error[follows], *filtered)
        error[follows, :until] = errors_of(error[follows, :until], *filtered)
        error[follows, :FIRST] = np.nan
        own[follows] = np.maximum(centre_and_spread(error[follows, :until]).spread, 1e-12)
    return Baseline(count, centre, whole, own, gain, keep, level, error[:, :until])


def shift_of_all(values: Floats, spread: Floats) -> tuple[float, float]:
    """What all metrics of one session, shape (metrics,), have lost in common: their median by weight, and what at least
    65% of the weight is beyond, 0 where it is not on one side. A weight is one over the spread; NaN where too few tell.
    """
    there = np.flatnonzero(np.isfinite(values) & np.isfinite(spread))
    if there.size < FEWEST_FOR_COMMON:
        return float("nan"), 0.0
    order = there[np.argsort(values[there], kind="stable")]
    share = np.cumsum(1 / spread[order])
    places = np.searchsorted(share, np.asarray([_OUTER, 0.5, 1 - _OUTER]) * share[-1])
    low, middle, high = (float(values[order[min(each, order.size - 1)]]) for each in places)
    return middle, low if low > 0 else high if high < 0 else 0.0
