"""How long levels stay away from their mean: what few sessions in a row do not show of the sessions to come.

Half the mean square of the differences of sessions so many apart, the variogram (Matheron 1963), is flat for
independent sessions. Where neighbours are correlated it begins lower, and twenty sessions vary less than the next
hundred will: bounds are widened by that. Where it still grows over half of the sessions, these do not tell how far the
level goes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

from fabricheck.history.robust import CUT, FEWEST, centre_and_spread

Floats = npt.NDArray[np.float64]

# Correlations of neighbours that a bound is widened for.
_CORRELATIONS = np.linspace(0.0, 0.95, 20)
# A level wanders where its variogram grows by more than this, and by more than that of a process of first order with
# this correlation does once in 10,000 calibrations.
_GROWTH, _SETTLES, _QUANTILE = 1.5, 0.5, 3.7
_OF_NEIGHBOURS = 1.35
# More than twelve independent metrics of twenty sessions show by chance (three standard errors).
_ALIKE = 0.2
# Fewer independent metrics do not tell.
_FEWEST_METRICS = 4.0
_SIMULATED = 20_000
_MOST_SESSIONS = 400  # of those that are simulated


@dataclass(frozen=True)
class Persistence:
    """`correlation`: of neighbouring sessions, at most 0.95. `wanders`: the level does not settle in these `sessions`;
    `near` and `far`: the standard deviations of the difference of neighbours, and of sessions half of all apart."""

    correlation: float
    wanders: bool
    sessions: int
    near: float
    far: float

    @property
    def lasts(self) -> bool:
        """Whether neighbouring sessions are alike, so that launches of one session are, too."""
        return self.correlation > _ALIKE

    @property
    def widening(self) -> float:
        """By how much sessions to come stray more than those that were seen, over independent ones.

        Those that were seen are held against neighbours, which stray with them: that makes more of it, fitted to
        simulated processes of 8 to 40 sessions with correlations from 0.2 to 0.9, at the 99%, 99.9% and 99.99%
        quantile of their deviations.
        """
        return float(widening(self.correlation, self.sessions) ** _OF_NEIGHBOURS)


def persistence_of(values: Floats) -> Persistence:
    """That of metrics of a kind, which together tell it: `values`, shape (metrics, sessions), are logarithms, NaN where
    a metric was not measured."""
    sessions = values.shape[1]
    counts = np.isfinite(values).sum(axis=1)
    values = values[counts >= FEWEST]
    found = centre_and_spread(values)
    kept = values[found.spread > 0]
    centre, spread = found.centre[found.spread > 0][:, None], found.spread[found.spread > 0][:, None]
    if sessions < FEWEST or kept.size == 0:
        return Persistence(0.0, False, sessions, 0.0, 0.0)
    scaled = np.clip((kept - centre) / spread, -CUT, CUT)
    near, far = (_variogram(scaled, lags) for lags in (range(1, 2), _lags(sessions)[1]))
    level = float(np.median(spread)) * np.sqrt(2.0)
    variance = float(np.nanmean(np.nanvar(scaled, axis=1, ddof=1)))
    expected = _near_of(min(sessions, _MOST_SESSIONS))
    correlation = float(np.interp(-near / variance, -np.asarray(expected), _CORRELATIONS))
    # What all have in common is one series, which tells nothing.
    own = scaled - _of_all(scaled)
    short, long = (_variogram(own, lags) for lags in _lags(sessions))
    metrics = _independent(own)
    wanders = metrics >= _FEWEST_METRICS and long > short * max(_GROWTH, _most_growth(sessions, metrics))
    return Persistence(correlation, bool(wanders), sessions, level * math.sqrt(near), level * math.sqrt(far))


def as_most_do(kinds: Sequence[Persistence]) -> tuple[Persistence, ...]:
    """The kinds of metrics with one unit: where more than half of them wander, those do that do not show it."""
    if 2 * sum(each.wanders for each in kinds) <= len(kinds):
        return tuple(kinds)
    return tuple(replace(each, wanders=each.far > 0) for each in kinds)


def widening(correlation: float, sessions: int) -> float:
    """By how much the deviation of a session to come from the mean of `sessions` exceeds what their spread says, over
    independent sessions, for a process of first order."""
    mean = _of_mean(correlation, sessions)
    seen = (1 - mean) * sessions / (sessions - 1)
    return float(np.sqrt((1 + mean) / seen / (1 + 1 / sessions)))


def _of_mean(correlation: float, sessions: int) -> float:
    """The variance of the mean, in that of one session."""
    lags = np.arange(1, sessions)
    return float((1 + 2 * np.sum((1 - lags / sessions) * correlation**lags)) / sessions)


def _lags(sessions: int) -> tuple[range, range]:
    return range(max(1, sessions // 6), max(1, sessions // 4) + 1), range(sessions // 2, 3 * sessions // 4 + 1)


def _variogram(values: Floats, lags: range) -> float:
    """Its mean over some lags; 1 where no two sessions are so far apart."""
    found = [values[:, lag:] - values[:, :-lag] for lag in lags]
    squares = np.concatenate([each[np.isfinite(each)] ** 2 for each in found])
    return float(squares.mean() / 2) if squares.size else 1.0


def _of_all(values: Floats) -> Floats:
    """The mean of the metrics in each session; NaN where none was measured."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(axis=0) / known.sum(axis=0))


def _independent(values: Floats) -> float:
    """How many independent metrics tell as much as these, by the correlations of their changes."""
    changes = np.nan_to_num(np.diff(values, axis=1))
    size = np.sqrt((changes**2).sum(axis=1, keepdims=True))
    changes = changes / np.where(size > 0, size, 1.0)
    number, steps = changes.shape
    # Changes of independent sessions are correlated by a half, so that they are worth two thirds of their number.
    by_chance = 1.5 * number**2 / steps
    return float(np.clip(number**2 / max(float(((changes.T @ changes) ** 2).sum()) - by_chance, number), 1.0, number))


def _process(correlation: float, metrics: int, sessions: int) -> Floats:
    """Metrics whose sessions are a normal process of first order, the same at each call."""
    noise = np.random.default_rng(sessions).standard_normal((metrics, sessions))
    noise[:, 0] /= np.sqrt(1 - correlation**2)
    return np.asarray(lfilter([1.0], [1.0, -correlation], noise, axis=1))


@lru_cache(maxsize=64)
def _near_of(sessions: int) -> tuple[float, ...]:
    """The variogram of neighbours, in the variance of so many sessions around their mean, by correlation."""
    found = []
    for each in _CORRELATIONS:
        values = _process(float(each), _SIMULATED // 10, sessions)
        found.append(float(np.mean(np.mean(np.diff(values, axis=1) ** 2, axis=1) / 2 / values.var(axis=1, ddof=1))))
    return tuple(found)


@lru_cache(maxsize=64)
def _growth(sessions: int) -> tuple[float, float]:
    """Logarithm of the growth of the variogram of a process that settles, and its standard deviation for one metric."""
    values = _process(_SETTLES, _SIMULATED, sessions)
    short, long = (
        np.mean([((values[:, lag:] - values[:, :-lag]) ** 2).mean(axis=1) for lag in lags], axis=0)
        for lags in _lags(sessions)
    )
    spread = float(np.std(long / long.mean() - short / short.mean()))
    return float(np.log(long.mean() / short.mean())), spread


def _most_growth(sessions: int, metrics: float) -> float:
    middle, spread = _growth(min(sessions, _MOST_SESSIONS))
    return float(np.exp(middle + _QUANTILE * spread / np.sqrt(metrics)))
