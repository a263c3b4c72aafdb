"""How the level of a metric goes on from session to session: it stands, comes back to its centre, or goes about.

A level that is followed is the steady filter of one beneath noise of launches (Muth, JASA 55, 1960; Harvey,
*Forecasting, Structural Time Series Models and the Kalman Filter*, 1989, section 4.1): a session is predicted from
those before, and what counts is the error of that, which is independent of the errors before.

Few sessions in a row do not show how long levels stay away from their mean. Half the mean square of the differences of
neighbouring sessions (variogram: Matheron 1963) is the variance of independent sessions. Where neighbours are
correlated it is less, and twenty sessions vary less than the next hundred will: bounds are widened by that. Where they
are strongly correlated, these sessions do not show how far the level goes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
import numpy.typing as npt

from fabricheck.history.robust import centre_and_spread
from fabricheck.history.rows import by_rows, sample_of, shares_of
from fabricheck.judge.constants import (
    AT_ONCE,
    CORRELATED,
    CUT,
    FEWEST,
    FEWEST_OF_LEVELS,
    FEWEST_THAT_WANDER,
    FIRST_ERRORS,
    LEAST_SPREAD,
    OF_NEIGHBOURS,
    PRIOR_METRICS,
    STANDS,
    SURE,
    SURE_OF_FEW,
    WANDERS,
    YEAR,
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Levels that are tried: what share of a session's error belongs to the level (`gain`), and what share of its distance
# from the centre a session leaves (`keep`). The first come back to it: one that keeps nothing stands. How common each
# is before anything was measured.
_GAINS = np.asarray([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.1, 0.25, 0.5, 1.0])
_KEEPS = np.asarray([0.0, 0.2, 0.4, 0.55, 0.7, 0.85, 1.0, 1.0, 1.0, 1.0])
_BACK = int((_KEEPS < 1).sum())
_KINDS = slice(0, _BACK), slice(_BACK, None)
_PRIOR = np.asarray([0.5, *np.full(5, 0.05), *np.full(4, 0.0625)])


def errors_of(rest: Floats, reach: Floats, gains: Floats, keeps: Floats) -> Floats:
    """What is left of values, shape (metrics, sessions), when each is predicted from those before: by their mean, and
    by the level around it. A session moves that by what is within `reach`."""
    centre, level, seen = (np.zeros(len(rest)) for _ in range(3))
    back = keeps < 1
    errors = np.empty_like(rest)
    for session in range(rest.shape[1]):
        error = errors[:, session] = rest[:, session] - centre - level
        there = np.isfinite(error)
        seen += there
        moved = np.where(there, np.clip(error, -reach, reach), 0.0)
        # The fewer sessions there were, the more one tells of the centre, and the less of the level around it.
        first = 1 / (1 + np.maximum(seen - 1, 0) * np.where(back, 1 - keeps, 1.0))
        centre += np.where(back, first * moved, 0.0)
        level = keeps * (level + np.where(back, gains * (1 - first), np.maximum(gains, first)) * moved)
    return errors


def level_of(rest: Floats, reach: Floats, gains: Floats, keeps: Floats) -> Floats:
    """The level, a logarithm like the values, after values, shape (metrics, sessions), whose centre is 0:
    (metrics,)."""
    level = np.zeros(len(rest))
    for session in range(rest.shape[1]):
        error = np.nan_to_num(rest[:, session] - level)
        level = keeps * (level + gains * np.clip(error, -reach, reach))
    return level


def levels_of(rest: Floats, least: float) -> tuple[Floats, Floats]:
    """Gain and keep of the level of each metric, both (metrics,): by what predicts it best, and by how common each
    level is among all (`shares_of`). `least`: the least spread."""

    def likelihood(values: Floats, kinds: Ints) -> Floats:
        reach = np.maximum(CUT * centre_and_spread(values).spread, least)
        number = np.maximum(np.isfinite(values).sum(axis=1) - FIRST_ERRORS, 0)
        gains, keeps = (np.repeat(each[kinds], len(values)) for each in (_GAINS, _KEEPS))
        errors = errors_of(np.tile(values, (kinds.size, 1)), np.tile(reach, kinds.size), gains, keeps)
        # A constant error is one too: around 0, and not around its mean.
        errors = errors[:, FIRST_ERRORS:]
        most = CUT * centre_and_spread(errors).spread[:, None]
        squares = np.nansum(np.clip(errors, -most, most) ** 2, axis=1) / np.maximum(np.isfinite(errors).sum(axis=1), 1)
        spread = np.sqrt(squares).reshape(kinds.size, -1)
        logs = np.full((len(values), _GAINS.size), -np.inf)
        logs[:, kinds] = (-number * np.log(np.maximum(spread, least))).T
        return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))

    sample = sample_of(np.arange(len(rest)), AT_ONCE)
    known = likelihood(rest[sample], np.arange(_GAINS.size))
    share = shares_of(known, _PRIOR)
    if len(sample) < len(rest):
        common = np.flatnonzero(share > PRIOR_METRICS / len(sample))
        (known,) = cast("tuple[Floats]", by_rows(lambda rows: (likelihood(rest[rows], common),), len(rest)))
    weights = known * share
    sure = SURE if len(rest) >= FEWEST_OF_LEVELS else 1 - SURE_OF_FEW
    back = weights[:, :_BACK].sum(axis=1) > sure * weights.sum(axis=1)
    keep = np.where(back, _mean(back, weights, _KEEPS), 1.0)
    return _mean(back, weights, _GAINS), np.where(keep < STANDS, 0.0, keep)


def _mean(back: npt.NDArray[np.bool_], weights: Floats, values: Floats) -> Floats:
    """Of what comes back or of what goes about, as probable as each is."""
    means = [weights[:, kinds] @ values[kinds] / weights[:, kinds].sum(axis=1) for kinds in _KINDS]
    return np.asarray(np.where(back, *means))


# Correlations of neighbours that are told.
_CORRELATIONS = np.linspace(0.0, 0.95, 20)


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
        return self.correlation > CORRELATED

    @property
    def widening(self) -> float:
        """By how much sessions to come stray more than those that were seen, over independent ones.

        Those that were seen are held against neighbours, which stray with them: that makes more of it, fitted to
        simulated processes of 8 to 40 sessions with correlations from 0.2 to 0.9, at the 99%, 99.9% and 99.99%
        quantile of their deviations.
        """
        return float(widening(self.correlation, self.sessions) ** OF_NEIGHBOURS)


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
    wanders = len(scaled) >= FEWEST_THAT_WANDER and _correlation(scaled - _of_all(scaled)) > WANDERS
    return Persistence(_correlation(scaled), wanders, sessions, level * math.sqrt(near), level * math.sqrt(far))


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
    expected = np.asarray(_near_of(min(values.shape[1], YEAR)))
    return float(np.interp(-_variogram(values, range(1, 2)) / variance, -expected, _CORRELATIONS))


@lru_cache(maxsize=64)
def _near_of(sessions: int) -> tuple[float, ...]:
    """The variogram of neighbours, in the variance of so many sessions around their mean, by correlation: of normal
    processes of first order, the same at each call."""
    shares = []
    for correlation in _CORRELATIONS.tolist():
        values = np.asfortranarray(np.random.default_rng(sessions).standard_normal((AT_ONCE, sessions)))
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
