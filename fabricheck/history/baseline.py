"""What is usual for each metric: its level, its days of the week, what it shares with all others, and its spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from fabricheck.history.levels import FIRST, errors_of, level_of, levels_of
from fabricheck.history.robust import centre_and_spread
from fabricheck.history.rows import Arrays, by_rows, sample_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Days of the week are told from each other from so many sessions of each on.
_FEWEST_OF_DAY = 6
# Fewer metrics tell too little of what all have in common.
FEWEST_FOR_COMMON = 20
# So many tell it as well as more.
_TELLING = 16384
# What at least so many of the metrics do is what all do.
_OUTER = 0.35
# A session of a baseline moves the fit of what is common by no more than this, in spreads.
_REACH = 3.0


@dataclass(frozen=True, eq=False)
class Baseline:
    """What is usual, shapes (metrics,); `season` has (metrics, 7), `error` (metrics, sessions of the window).

    `own_spread` is that of what is left after all that is known, `whole_spread` that of the values. `loading`: how much
    of the common factor a metric has, in whole spreads; `factor_reach`: the factor's usual range. `gain` and `keep`:
    those of the level (`levels`), which is at `level` after the window. `error`: the values less all that is known
    before.
    """

    count: Ints
    centre: Floats
    whole_spread: Floats
    own_spread: Floats
    season: Floats
    loading: Floats
    factor_reach: float
    gain: Floats
    keep: Floats
    level: Floats
    error: Floats


def fit(values: Floats, days: Ints, until: int, shared: npt.NDArray[np.bool_], least: float) -> Baseline:
    """The baseline of a window of sessions, shape (metrics, sessions); more is worse, NaN is not measured. Those from
    `until` on tell only where a level is that is followed.

    `days`: the day of the week of each session, shape (sessions,). `shared`: which metrics tell, and have, what all
    have in common. `least`: the least spread.
    """

    def levels(rows: slice) -> Arrays:
        known = centre_and_spread(values[rows, :until])
        centred = values[rows] - known.centre[:, None]
        season = _season(centred[:, :until], days[:until])
        rest = centred - season[:, days]
        spread = np.maximum(centre_and_spread(rest[:, :until]).spread, 1e-12)
        return known.count, known.centre, season, spread, rest

    parts = by_rows(levels, len(values))
    count, centre, season, whole, rest = cast("tuple[Ints, Floats, Floats, Floats, Floats]", parts)
    factor = factor_of(rest, whole, np.flatnonzero(shared))
    usual = factor[:until]
    # A factor that is hardly there says nothing: as if there were sessions in which it did nothing.
    square = max(float((usual**2).sum()) + 0.05 * usual.size, 1e-12)
    reach = _REACH * float(usual.std()) if usual.size else 0.0
    factor[until:] = np.clip(factor[until:], -reach, reach)

    def left(rows: slice) -> Arrays:
        kept = np.clip(np.nan_to_num(rest[rows, :until] / whole[rows, None]), -_REACH, _REACH)
        loading = np.where(shared[rows], kept @ usual / square, 0.0)
        error = rest[rows] - (loading * whole[rows])[:, None] * factor
        return loading, error, np.maximum(centre_and_spread(error[:, :until]).spread, 1e-12)

    loading, error, own = cast("tuple[Floats, ...]", by_rows(left, len(values)))
    gain, keep, level = np.ones(len(values)), np.zeros(len(values)), np.zeros(len(values))
    for rows in (shared, ~shared):  # what all have in common is one series, of which they tell nothing
        gain[rows], keep[rows] = levels_of(error[rows, :until], least)
    follows = np.flatnonzero(keep)
    if follows.size:
        filtered = _REACH * own[follows], gain[follows], keep[follows]
        level[follows] = level_of(error[follows], *filtered)
        error[follows, :until] = errors_of(error[follows, :until], *filtered)
        error[follows, :FIRST] = np.nan
        own[follows] = np.maximum(centre_and_spread(error[follows, :until]).spread, 1e-12)
    return Baseline(count, centre, whole, own, season, loading, reach, gain, keep, level, error[:, :until])


def factor_of(rest: Floats, spread: Floats, rows: Ints) -> Floats:
    """What some metrics have in common in each session, shape (sessions,), in spreads: of what is left of their values,
    shape (metrics, sessions), and their spreads, (metrics,)."""
    found = np.zeros(rest.shape[1])
    rows = sample_of(rows, _TELLING)
    scores = rest[rows] / spread[rows, None]
    enough = np.isfinite(scores).sum(axis=0) >= FEWEST_FOR_COMMON
    if enough.any():
        found[enough] = np.nanmedian(scores[:, enough], axis=0)
    return found


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


def _season(centred: Floats, days: Ints) -> Floats:
    """What each day of the week differs from the level by, shape (metrics, 7).

    Differences that the noise could have made are drawn to 0 (James and Stein, 1961, the positive part).
    """
    found = np.zeros((len(centred), 7))
    counts = np.stack([np.isfinite(centred[:, days == day]).sum(axis=1) for day in range(7)], axis=1)
    rows = np.flatnonzero((counts >= _FEWEST_OF_DAY).all(axis=1))
    if rows.size:
        known = [centre_and_spread(centred[np.ix_(rows, np.flatnonzero(days == day))]) for day in range(7)]
        level = np.stack([each.centre for each in known], axis=1)
        inside = np.mean([each.spread**2 for each in known], axis=0)
        between = (counts[rows] * level**2).sum(axis=1) / 6
        with np.errstate(divide="ignore", invalid="ignore"):
            found[rows] = level * np.clip(1 - 2 * inside / between, 0, 1)[:, None]
    return np.nan_to_num(found)
