"""What is usual for each metric: its level, its days of the week, what it shares with all others, and its spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

from fabricheck.history.robust import centre_and_spread
from fabricheck.history.rows import Arrays, by_rows, sample_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Sessions that a level that wanders is the mean of, with exponential weights.
_MEMORIES = (30.0, 10.0, 3.0)
# A shorter memory has to predict this much better, lest a metric that stands still is taken for one that wanders; what
# is not better than this in squares, cut off at _REACH, is not looked at closely.
_GAIN = 0.85
_WORTH_A_LOOK = 0.95
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
    of the common factor a metric has, in whole spreads; `factor_reach`: the factor's usual range. `decay`: of a level
    that wanders, what a session more leaves of the weight of those before; 0 of one that stands. `total` and `weight`
    make it after the window. `error`: the values less all that is known.
    """

    count: Ints
    centre: Floats
    whole_spread: Floats
    own_spread: Floats
    season: Floats
    loading: Floats
    factor_reach: float
    decay: Floats
    total: Floats
    weight: Floats
    error: Floats


def fit(values: Floats, days: Ints, lag: int, shared: npt.NDArray[np.bool_]) -> Baseline:
    """The baseline of a window of sessions, shape (metrics, sessions); more is worse, NaN is not measured.

    `days`: the day of the week of each session, shape (sessions,). `lag`: a level is known so many sessions later.
    `shared`: which metrics tell, and have, what all have in common.
    """

    def levels(rows: slice) -> Arrays:
        known = centre_and_spread(values[rows])
        centred = values[rows] - known.centre[:, None]
        season = _season(centred, days)
        rest = centred - season[:, days]
        return known.count, known.centre, season, np.maximum(centre_and_spread(rest).spread, 1e-12), rest

    parts = by_rows(levels, len(values))
    count, centre, season, whole, rest = cast("tuple[Ints, Floats, Floats, Floats, Floats]", parts)
    factor = factor_of(rest, whole, np.flatnonzero(shared))
    # A factor that is hardly there says nothing: as if there were sessions in which it did nothing.
    square = max(float((factor**2).sum()) + 0.05 * factor.size, 1e-12)

    def errors(rows: slice) -> Arrays:
        kept = np.clip(np.nan_to_num(rest[rows] / whole[rows, None]), -_REACH, _REACH)
        loading = np.where(shared[rows], kept @ factor / square, 0.0)
        left = rest[rows] - (loading * whole[rows])[:, None] * factor
        spread = centre_and_spread(left).spread
        decay, total, weight, error = _wander(left, spread, lag)
        wandering = np.flatnonzero(decay)
        if wandering.size:
            spread[wandering] = centre_and_spread(error[wandering]).spread
        return loading, np.maximum(spread, 1e-12), decay, total, weight, error

    loading, own, decay, total, weight, error = cast("tuple[Floats, ...]", by_rows(errors, len(values)))
    reach = _REACH * float(factor.std()) if factor.size else 0.0
    return Baseline(count, centre, whole, own, season, loading, reach, decay, total, weight, error)


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


def _wander(rest: Floats, spread: Floats, lag: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Of the memory whose level predicts best `lag` sessions ahead: decay, total and weight after all sessions, and
    what the level leaves of `rest`, whose spreads are given. 0, and all of it, of a level that stands."""
    decay, total, weight = np.zeros(len(rest)), np.zeros(len(rest)), np.zeros(len(rest))
    error, least = rest, _GAIN * spread
    there = np.isfinite(rest)
    values = np.where(there, rest, 0.0)
    reach = _REACH * spread[:, None]
    square = (np.clip(values, -reach, reach) ** 2).sum(axis=1) / np.maximum(there.sum(axis=1), 1)
    for memory in _MEMORIES:
        each = float(np.exp(-1 / memory))
        totals = lfilter([1.0], [1.0, -each], values, axis=1)
        weights = lfilter([1.0], [1.0, -each], there.astype(np.float64), axis=1)
        predicted = np.full(rest.shape, np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            known = np.where(weights > 1e-6, totals / weights, 0.0)
        predicted[:, lag + 1 :] = known[:, : max(rest.shape[1] - lag - 1, 0)]
        left = rest - predicted
        # A level that stands is predicted worse by any memory; that is told without putting values in order.
        kept = np.clip(np.nan_to_num(left), -reach, reach)
        mean = (kept**2).sum(axis=1) / np.maximum(np.isfinite(left).sum(axis=1), 1)
        rows = np.flatnonzero(mean < _WORTH_A_LOOK * square)
        found = centre_and_spread(left[rows]).spread
        better = found < least[rows]
        rows = rows[better]
        if rows.size:
            error = error.copy() if error is rest else error
            least[rows] = found[better]
            error[rows], decay[rows] = left[rows], each
            total[rows], weight[rows] = totals[rows, -1], weights[rows, -1]
    return decay, total, weight, error
