"""What is usual for each metric: its level, its days of the week, what it shares with all others, and its spread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabricheck.history.robust import CUT, centre_and_spread

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Sessions that a level is the mean of, with exponential weights; the first is all of the window alike.
_MEMORIES = (np.inf, 30.0, 10.0, 3.0)
# A shorter memory has to predict this much better, lest a metric that stands still is taken for one that wanders.
_GAIN = 0.85
# Days of the week are told from each other from so many sessions of each on.
_FEWEST_OF_DAY = 6
# Fewer metrics tell too little of what all have in common.
FEWEST_FOR_COMMON = 20
# What at least so many of the metrics do is what all do.
_OUTER = 0.35
# A session of a baseline moves the fit of what is common by no more than this, in spreads.
_REACH = 3.0


@dataclass(frozen=True, eq=False)
class Baseline:
    """What is usual, shapes (metrics,); `season` has (metrics, 7), `rest` (metrics, sessions of the window).

    `own_spread` is that of what is left after all that is known, `whole_spread` that of the values. `loading`: how much
    of the common factor a metric has, in whole spreads; `factor_reach`: the factor's usual range. `memory`: which of
    the memories. `rest`: the window less all of it but the wandering level; `error`: less that too.
    """

    count: Ints
    centre: Floats
    whole_spread: Floats
    own_spread: Floats
    season: Floats
    loading: Floats
    factor_reach: float
    memory: Ints
    rest: Floats
    error: Floats


def fit(values: Floats, days: Ints, lag: int, shared: npt.NDArray[np.bool_]) -> Baseline:
    """The baseline of a window of sessions, shape (metrics, sessions); more is worse, NaN is not measured.

    `days`: the day of the week of each session, shape (sessions,). `lag`: a level is known so many sessions later.
    `shared`: which metrics tell, and have, what all have in common.
    """
    known = centre_and_spread(values)
    centred = values - known.centre[:, None]
    season = _season(centred, days)
    rest = centred - season[:, days]
    whole = np.maximum(centre_and_spread(rest).spread, 1e-12)
    scores = rest / whole[:, None]
    factor = factor_of(scores[shared])
    kept = np.clip(np.nan_to_num(scores), -_REACH, _REACH)
    # A factor that is hardly there says nothing: as if there were sessions in which it did nothing.
    square = float((factor**2).sum()) + 0.05 * factor.size
    loading = np.where(shared, kept @ factor / max(square, 1e-12), 0.0)
    rest = rest - (loading * whole)[:, None] * factor
    memory, error = _memory(rest, lag)
    return Baseline(
        count=known.count,
        centre=known.centre,
        whole_spread=whole,
        own_spread=np.maximum(centre_and_spread(error).spread, 1e-12),
        season=season,
        loading=loading,
        factor_reach=_REACH * float(factor.std()) if factor.size else 0.0,
        memory=memory,
        rest=rest,
        error=error,
    )


def factor_of(scores: Floats) -> Floats:
    """What the metrics of each session have in common, shape (sessions,), of their scores, (metrics, sessions)."""
    enough = np.isfinite(scores).sum(axis=0) >= FEWEST_FOR_COMMON
    found = np.zeros(scores.shape[1])
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


def _memory(rest: Floats, lag: int) -> tuple[Ints, Floats]:
    """The memory whose level predicts best `lag` sessions ahead, and what it leaves; a level that stands is 0."""
    best = np.zeros(len(rest), dtype=np.int64)
    error = rest
    least = _GAIN * centre_and_spread(rest).spread
    for number, memory in enumerate(_MEMORIES[1:], start=1):
        level = Level.empty(len(rest), memory)
        predicted = np.full(rest.shape, np.nan)
        for session in range(lag + 1, rest.shape[1]):
            level.add(rest[:, session - lag - 1])
            predicted[:, session] = level.value
        left = rest - predicted
        spread = centre_and_spread(left).spread
        better = spread < least
        best = np.where(better, number, best)
        error = np.where(better[:, None], left, error)
        least = np.where(better, spread, least)
    return best, error


@dataclass
class Level:
    """A mean with exponential weights of what was added, shape (metrics,); NaN is left out."""

    decay: float
    total: Floats
    weight: Floats

    @staticmethod
    def empty(metrics: int, memory: float) -> Level:
        return Level(float(np.exp(-1 / memory)), np.zeros(metrics), np.zeros(metrics))

    def add(self, values: Floats) -> None:
        there = np.isfinite(values)
        self.total = self.decay * self.total + np.where(there, values, 0.0)
        self.weight = self.decay * self.weight + there

    @property
    def value(self) -> Floats:
        with np.errstate(invalid="ignore"):
            return np.where(self.weight > 1e-6, self.total / self.weight, 0.0)


def levels(baseline: Baseline, until: int) -> Floats:
    """The wandering level of each metric after the first `until` sessions of the window; 0 for those that stand."""
    found = np.zeros(len(baseline.memory))
    for number, memory in enumerate(_MEMORIES[1:], start=1):
        rows = np.flatnonzero(baseline.memory == number)
        if rows.size:
            weights = np.exp(-(until - 1 - np.arange(until)) / memory)
            values = baseline.rest[rows, :until]
            there = np.isfinite(values)
            total = np.where(there, values, 0.0) @ weights
            found[rows] = total / np.maximum(there @ weights, 1e-9)
    return found


def deviations(baseline: Baseline) -> Floats:
    """The sessions of the window in spreads from what was predicted, cut off nowhere; shape (metrics, sessions)."""
    return np.asarray(baseline.error / baseline.own_spread[:, None])


__all__ = ["CUT", "FEWEST_FOR_COMMON", "Baseline", "deviations", "factor_of", "fit", "levels", "shift_of_all"]
