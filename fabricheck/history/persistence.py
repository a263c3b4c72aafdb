"""How long levels stay away from their mean: what few sessions in a row do not show of the sessions to come.

Half the mean square of the differences of neighbouring sessions (variogram: Matheron 1963) is the variance of
independent sessions. Where neighbours are correlated it is less, and twenty sessions vary less than the next hundred
will: bounds are widened by that. Where they are strongly correlated, these sessions do not show how far the level goes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fabricheck.history.robust import CUT, FEWEST, centre_and_spread
from fabricheck.judge.spread import LEAST_SPREAD

Floats = npt.NDArray[np.float64]

# Correlations of neighbours that are told.
_CORRELATIONS = np.linspace(0.0, 0.95, 20)
# A level wanders whose neighbours are more alike, in what so many metrics do not have in common; of fewer eight
# sessions say so by chance (`benchmarks.calibration --levels`).
_WANDERS, _FEWEST_METRICS = 0.85, 12
_OF_NEIGHBOURS = 1.35
# More than twelve independent metrics of twenty sessions show by chance (three standard errors).
_ALIKE = 0.2
_SIMULATED, _MOST_SESSIONS = 2_000, 400


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
        """Whether neighbouring sessions are correlated, so that launches of one session are, too."""
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
    levels = centre_and_spread(values)
    varies = levels.spread > LEAST_SPREAD  # what varies less shows how its clock is rounded
    kept, centre, spread = values[varies], levels.centre[varies, None], levels.spread[varies, None]
    if sessions < FEWEST or kept.size == 0:
        return Persistence(0.0, False, sessions, 0.0, 0.0)
    scaled = np.clip((kept - centre) / spread, -CUT, CUT)
    near, far = _variogram(scaled, range(1, 2)), _variogram(scaled, range(sessions // 2, 3 * sessions // 4 + 1))
    level = float(np.median(spread)) * np.sqrt(2.0)
    # What all have in common is one series, which tells nothing.
    wanders = len(scaled) >= _FEWEST_METRICS and _correlation(scaled - _of_all(scaled)) > _WANDERS
    return Persistence(_correlation(scaled), wanders, sessions, level * math.sqrt(near), level * math.sqrt(far))


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


def _correlation(values: Floats) -> float:
    """Of neighbouring sessions, by how much these differ, in the variance of all sessions around their mean."""
    variance = float(np.nanmean(np.nanvar(values, axis=1, ddof=1)))
    if variance < 1e-9:  # rounding: all metrics did the same
        return 0.0
    expected = np.asarray(_near_of(min(values.shape[1], _MOST_SESSIONS)))
    return float(np.interp(-_variogram(values, range(1, 2)) / variance, -expected, _CORRELATIONS))


@lru_cache(maxsize=64)
def _near_of(sessions: int) -> tuple[float, ...]:
    """The variogram of neighbours, in the variance of so many sessions around their mean, by correlation: of normal
    processes of first order, the same at each call."""
    shares = []
    for correlation in _CORRELATIONS.tolist():
        values = np.asfortranarray(np.random.default_rng(sessions).standard_normal((_SIMULATED, sessions)))
        values[:, 0] /= np.sqrt(1 - correlation**2)
        for session in range(1, sessions):
            values[:, session] += correlation * values[:, session - 1]
        shares.append(float(np.mean(np.mean(np.diff(values, axis=1) ** 2, axis=1) / 2 / values.var(axis=1, ddof=1))))
    return tuple(shares)


def _variogram(values: Floats, lags: range) -> float:
    """Its mean over some lags; 1 where no two sessions are so far apart."""
    differences = [values[:, lag:] - values[:, :-lag] for lag in lags]
    squares = np.concatenate([each[np.isfinite(each)] ** 2 for each in differences])
    return float(squares.mean() / 2) if squares.size else 1.0


def _of_all(values: Floats) -> Floats:
    """The mean of the metrics in each session; NaN where none was measured."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(axis=0) / known.sum(axis=0))
