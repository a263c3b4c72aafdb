"""How the level of a metric goes on from session to session: it stands, comes back to its centre, or goes about.

A level that is followed is the steady filter of one beneath noise of launches (Muth, JASA 55, 1960; Harvey,
*Forecasting, Structural Time Series Models and the Kalman Filter*, 1989, section 4.1): a session is predicted from
those before, and what counts is the error of that, which is independent of the errors before.

Few sessions in a row do not show how far levels go: where neighbours are correlated, twenty sessions vary less than the
next hundred will, and noise of launches hides it. For references the same levels are told by restricted maximum
likelihood, but come back in up to a year; bounds are widened by what the sessions to come vary beyond those that were
seen. Where these have shown little of that, there are none.
"""

from __future__ import annotations

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
    FIRST_ERRORS,
    LEAST_SPREAD,
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


# Levels beneath noise of launches that are tried for references: for how many sessions neighbours stay alike, up to a
# year, by what share of a session's error belongs to the level. Before anything was measured, one in two stands, and
# what lasts twice as long is half as common.
_TIMES = np.geomspace(0.5, YEAR, 15)
_SHARES = np.asarray([0.05, 0.1, 0.25, 0.5, 1.0])
_ALIKE = np.append(np.repeat(np.exp(-1 / _TIMES), _SHARES.size), 0.0)
_OF_LEVEL = np.append(np.tile(_SHARES, _TIMES.size), 0.0)
_COMMON = np.append(np.repeat(0.5 / _TIMES / np.sum(1 / _TIMES) / _SHARES.size, _SHARES.size), 0.5)


@dataclass(frozen=True)
class Persistence:
    """`correlation`: of neighbouring sessions. `widening`: by how much sessions to come stray more from the mean of
    the `sessions` that were seen than these did, over independent ones; as probably less as more. `spread`: that of
    the middle metric in these, relative."""

    correlation: float
    widening: float
    sessions: int
    spread: float

    @property
    def lasts(self) -> bool:
        """Whether neighbouring sessions are correlated, so that launches of one session are, too."""
        return self.correlation > CORRELATED

    @property
    def wanders(self) -> bool:
        """Whether these sessions tell too little of what the level does."""
        return self.widening**2 > WANDERS


def persistence_of(values: Floats) -> Persistence:
    """That of metrics of a kind, which together tell it: `values`, shape (metrics, sessions), are logarithms, NaN where
    a metric was not measured.

    By restricted maximum likelihood (Harville, JASA 72, 1977), each metric around its own centre. What metrics have in
    common is told once: they count for as many as would have a mean that varies as theirs does (Kish, *Survey
    Sampling*, 1965, section 8.2).
    """
    values = values[:, -YEAR:]
    sessions = values.shape[1]
    values = values[np.isfinite(values).sum(axis=1) >= FEWEST]
    levels = centre_and_spread(values)
    varies = levels.spread > LEAST_SPREAD  # what varies less shows how its clock is rounded
    if not varies.any():
        return Persistence(0.0, 1.0, sessions, 0.0)
    centre, spread = levels.centre[varies, None], levels.spread[varies, None]
    scaled = np.clip((values[varies] - centre) / spread, -CUT, CUT)
    variance, of_all = np.nanvar(scaled), np.nanvar(_of_all(scaled))
    likelihood = _likelihoods(scaled[sample_of(np.arange(len(scaled)), AT_ONCE)]).mean(axis=1)
    likelihood *= variance / max(of_all, variance / len(scaled))
    weights = _COMMON * np.exp(likelihood - likelihood.max())
    weights /= weights.sum()
    wider = _widening(sessions)
    order = np.argsort(wider)
    middle = order[np.searchsorted(np.cumsum(weights[order]), 0.5)]
    return Persistence(float(weights @ (_shared() * _ALIKE)), float(wider[middle]), sessions, float(np.median(spread)))


def _likelihoods(values: Floats) -> Floats:
    """Restricted log likelihoods, shape (levels, metrics), of the sessions in which a metric was measured."""
    white, ones, determinant = _whitening(values.shape[1])
    there = np.isfinite(values)
    order = np.argsort(~there, axis=1, kind="stable")
    packed = np.nan_to_num(np.take_along_axis(values, order, axis=1))
    last = there.sum(axis=1) - 1
    rest = np.swapaxes(white @ packed.T, 1, 2) * (np.arange(values.shape[1]) <= last[:, None])
    weight = np.cumsum(ones**2, axis=1)[:, last]
    squares = (rest**2).sum(axis=2) - np.einsum("lmt,lt->lm", rest, ones) ** 2 / weight
    return np.asarray(-0.5 * (last * np.log(squares) + determinant[:, last] + np.log(weight)))


def _shared() -> Floats:
    """The level's share of the variance of a session, (levels,): an error moves it by its share, which is kept."""
    kept = (_OF_LEVEL * _ALIKE) ** 2 / (1 - _ALIKE**2)
    return np.asarray((_OF_LEVEL + kept) / (1 + kept))


def _covariances(sessions: int) -> Floats:
    """Of sessions, in the variance of one; (levels, sessions, sessions)."""
    lags = np.abs(np.subtract.outer(np.arange(sessions), np.arange(sessions)))
    return np.asarray(np.where(lags, _shared()[:, None, None], 1.0) * _ALIKE[:, None, None] ** lags)


@lru_cache(maxsize=4)
def _whitening(sessions: int) -> tuple[Floats, Floats, Floats]:
    """What makes sessions of each level independent, (levels, sessions, sessions), what it makes of a constant, and the
    logarithms of the determinants of the covariances of the first sessions, both (levels, sessions)."""
    white = np.linalg.inv(np.linalg.cholesky(_covariances(sessions)))
    return white, white.sum(axis=2), -2 * np.cumsum(np.log(np.einsum("ltt->lt", white)), axis=1)


@lru_cache(maxsize=4)
def _widening(sessions: int) -> Floats:
    """By how much the deviation of a session to come from the mean of `sessions` exceeds what their spread says, over
    independent sessions; (levels,)."""
    mean = _covariances(sessions).mean(axis=(1, 2))  # the variance of the mean, in that of one session
    seen = (1 - mean) * sessions / (sessions - 1)
    return np.asarray(np.sqrt((1 + mean) / seen / (1 + 1 / sessions)))


def _of_all(values: Floats) -> Floats:
    """The mean of the metrics in each session; NaN where none was measured."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(axis=0) / known.sum(axis=0))
