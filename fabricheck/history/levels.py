"""How the level of a metric goes on from session to session: it stands, or its sessions are alike and it is followed.

A level that is followed is the steady filter of one beneath noise of launches (Muth, JASA 55, 1960; Harvey,
*Forecasting, Structural Time Series Models and the Kalman Filter*, 1989, section 4.1): a session is predicted from
those before, and what counts is the error of that, which is independent of the errors before.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt

from fabricheck.history.robust import CUT, centre_and_spread
from fabricheck.history.rows import by_rows, sample_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Levels that are tried: what share of a session's error belongs to the level, and what share of the distance from the
# centre a session leaves. The first stand, and some of them have neighbours that are alike. How common each is before
# anything was measured, as if of so many metrics.
_STAND = 3
_GAINS = np.asarray([0.0, 1.0, 1.0, 0.1, 0.25, 0.5, 1.0])
_KEEPS = np.asarray([1.0, 0.35, 0.6, 1.0, 1.0, 1.0, 1.0])
_PRIOR = np.asarray([0.5, 0.1, 0.1, *np.full(4, 0.075)])
_PRIOR_METRICS, _ROUNDS, _TELLING = 2.0, 50, 1024
# The first errors are of a level that nobody knows yet.
FIRST = 5
# Many metrics tell between them what their levels do, and only what stands this surely is taken to: to follow costs
# less than to take for a loss what a level does. One of few is followed only where it is as sure that
# it does not stand.
_SURE, _FEWEST = 0.99, 64


def errors_of(rest: Floats, reach: Floats, gains: Floats, keeps: npt.ArrayLike = 1.0) -> Floats:
    """What is left of values, shape (metrics, sessions), when each is predicted from those before: one that stands by
    their mean. A session moves its level by what is within `reach`; `keeps`: what it leaves of the distance from the
    mean."""
    keeps = np.broadcast_to(keeps, gains.shape)
    centre, level, seen = (np.zeros(len(rest)) for _ in range(3))
    returns = keeps < 1
    found = np.empty_like(rest)
    for session in range(rest.shape[1]):
        error = found[:, session] = rest[:, session] - centre - level
        there = np.isfinite(error)
        seen += there
        first = 1 / np.maximum(seen, 1)
        moved = np.where(there, np.clip(error, -reach, reach), 0.0)
        centre += np.where(returns, first * moved, 0.0)
        after = keeps * (level + np.where(returns, gains, np.maximum(gains, first)) * moved)
        level = np.where(there, after, level)
    return found


def level_of(rest: Floats, reach: Floats, gains: Floats) -> Floats:
    """The level that is followed after values, shape (metrics, sessions), whose centre is 0: (metrics,)."""
    level = np.zeros(len(rest))
    for session in range(rest.shape[1]):
        error = rest[:, session] - level
        level += np.where(np.isfinite(error), gains * np.clip(error, -reach, reach), 0.0)
    return level


def gains_of(rest: Floats, least: float) -> Floats:
    """What share of a session's error belongs to the level of each metric, (metrics,), 0 where it stands: by what
    predicts it best, and by how common each level is among all (empirical Bayes: Robbins, 1956). `least`: the least
    spread."""

    def likelihood(values: Floats, kinds: Ints) -> Floats:
        reach = np.maximum(CUT * centre_and_spread(values).spread, least)
        number = np.maximum(np.isfinite(values).sum(axis=1) - FIRST, 0)
        gains, keeps = (np.repeat(each[kinds], len(values)) for each in (_GAINS, _KEEPS))
        errors = errors_of(np.tile(values, (kinds.size, 1)), np.tile(reach, kinds.size), gains, keeps)
        spread = np.nan_to_num(centre_and_spread(errors[:, FIRST:]).spread).reshape(kinds.size, -1)
        logs = np.full((len(values), _GAINS.size), -np.inf)
        logs[:, kinds] = (-number * np.log(np.maximum(spread, least))).T
        return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))

    sample = sample_of(np.arange(len(rest)), _TELLING)
    known, share = likelihood(rest[sample], np.arange(_GAINS.size)), _PRIOR
    for _ in range(_ROUNDS):
        weights = known * share
        weights /= weights.sum(axis=1, keepdims=True)
        share = (weights.sum(axis=0) + _PRIOR_METRICS * _PRIOR) / (len(sample) + _PRIOR_METRICS)
    if len(sample) < len(rest):
        common = np.flatnonzero(share > _PRIOR_METRICS / len(sample))
        (known,) = cast("tuple[Floats]", by_rows(lambda rows: (likelihood(rest[rows], common),), len(rest)))
    weights = known * share
    sure = _SURE if len(rest) >= _FEWEST else 1 - _SURE
    stands = weights[:, :_STAND].sum(axis=1) > sure * weights.sum(axis=1)
    return np.asarray(np.where(stands, 0.0, _GAINS[_STAND:][weights[:, _STAND:].argmax(axis=1)]))
