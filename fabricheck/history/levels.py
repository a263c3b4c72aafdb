"""How the level of a metric goes on from session to session: it stands, comes back to its centre, or goes about.

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

# Levels that are tried: what share of a session's error belongs to the level (`gain`), and what share of its distance
# from the centre a session leaves (`keep`). The first come back to it: one that keeps nothing stands. How common each
# is before anything was measured, as if of so many metrics.
_BACK = 6
_KINDS = slice(0, _BACK), slice(_BACK, None)
_GAINS = np.asarray([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.1, 0.25, 0.5, 1.0])
_KEEPS = np.asarray([0.0, 0.2, 0.4, 0.55, 0.7, 0.85, 1.0, 1.0, 1.0, 1.0])
_PRIOR = np.asarray([0.5, *np.full(5, 0.05), *np.full(4, 0.0625)])
_PRIOR_METRICS, _ROUNDS, _TELLING = 2.0, 50, 1024
# What keeps less of its distance than this stands, as most metrics do: it would explain 1 in 400 of the variance.
_STANDS = 0.05
# The first errors are of a level that nobody knows yet.
FIRST = 5
# Many metrics tell between them what their levels do, and only what comes back this surely is taken to: to follow costs
# less than to take for a loss what a level does. One of few is taken to go about only where that is sure. The three are
# chosen by losses found in simulated histories of nodes (tests/history/test_node_effects.py), for want of a source.
_SURE, _SURE_OF_FEW, _FEWEST = 0.9, 0.9999, 64


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
    level is among all (empirical Bayes: Robbins, 1956). `least`: the least spread."""

    def likelihood(values: Floats, kinds: Ints) -> Floats:
        reach = np.maximum(CUT * centre_and_spread(values).spread, least)
        number = np.maximum(np.isfinite(values).sum(axis=1) - FIRST, 0)
        gains, keeps = (np.repeat(each[kinds], len(values)) for each in (_GAINS, _KEEPS))
        errors = errors_of(np.tile(values, (kinds.size, 1)), np.tile(reach, kinds.size), gains, keeps)
        # A constant error is one too: around 0, and not around its mean.
        errors = errors[:, FIRST:]
        most = CUT * centre_and_spread(errors).spread[:, None]
        squares = np.nansum(np.clip(errors, -most, most) ** 2, axis=1) / np.maximum(np.isfinite(errors).sum(axis=1), 1)
        spread = np.sqrt(squares).reshape(kinds.size, -1)
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
    sure = _SURE if len(rest) >= _FEWEST else 1 - _SURE_OF_FEW
    back = weights[:, :_BACK].sum(axis=1) > sure * weights.sum(axis=1)
    keep = np.where(back, _mean(back, weights, _KEEPS), 1.0)
    return _mean(back, weights, _GAINS), np.where(keep < _STANDS, 0.0, keep)


def _mean(back: npt.NDArray[np.bool_], weights: Floats, values: Floats) -> Floats:
    """Of what comes back or of what goes about, as probable as each is."""
    means = [weights[:, kinds] @ values[kinds] / weights[:, kinds].sum(axis=1) for kinds in _KINDS]
    return np.asarray(np.where(back, *means))
