"""What bad sessions each metric has, judged from its own sessions and from those of all others."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import cast

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from fabricheck.history.hazard import BAD_SESSIONS
from fabricheck.history.rows import Arrays, by_rows, sample_of

Floats = npt.NDArray[np.float64]

# The worse side is what false alarms come from: how many sessions lie between these many spreads tells how it looks.
_EDGES = np.asarray([-np.inf, 0.75, 1.25, 1.75, 2.25, 3.0, np.inf])
# What is taken to be so before anything was measured, as if of this many metrics: most are quiet, some dip or have a
# second mode. A few metrics are judged by it, a thousand by themselves.
_PRIOR_METRICS = 5.0
_PRIOR = np.asarray([0.52, 0.08, 0.08, 0.08, 0.05, 0.03, 0.01, 0.01, *np.full(len(BAD_SESSIONS) - 8, 0.028)])
_ROUNDS, _SETTLED = 100, 1e-6  # of EM, until nothing changes by more than this


def kinds_of_noise(deviations: Floats) -> Floats:
    """How probable each of BAD_SESSIONS is for each metric, shape (metrics, kinds); each row adds up to 1.

    `deviations`, shape (metrics, sessions): distance of the sessions from what was expected of the metric, in its
    spreads, worse side positive, NaN where there is none. Dips and modes are told from how many sessions lie how far on
    the worse side. How common a kind is among metrics comes from all of them (empirical Bayes: Robbins, 1956;
    nonparametric maximum likelihood by EM, Laird, JASA 73, 1978), so that a metric whose few sessions cannot tell is
    taken for what its peers are.
    """

    def likelihoods(rows: slice) -> Arrays:
        some = deviations[rows]
        counts = np.stack([((some > low) & (some <= high)).sum(axis=1) for low, high in pairwise(_EDGES)], axis=1)
        logs = counts @ np.log(_shares()).T
        return (np.exp(logs - logs.max(axis=1, keepdims=True)),)

    (likelihood,) = cast("tuple[Floats]", by_rows(likelihoods, len(deviations)))
    likelihood *= _shares_of_kinds(likelihood[sample_of(np.arange(len(likelihood)))], len(likelihood))
    likelihood /= likelihood.sum(axis=1, keepdims=True)
    return likelihood


@lru_cache(maxsize=1)
def _shares() -> Floats:
    """How probable a session between two of _EDGES is, shape (kinds, intervals)."""
    rows = []
    for bad in BAD_SESSIONS:
        mean, width = bad.others
        row = (1 - bad.rate) * np.diff(norm.cdf((_EDGES - mean) / width))
        if bad.width > 0:
            row += bad.rate * np.diff(norm.cdf((_EDGES - bad.depth) / bad.width))
        else:
            row[-1] += bad.rate
        rows.append(row)
    return np.asarray(rows)


def _shares_of_kinds(likelihood: Floats, metrics: int) -> Floats:
    """How common each kind is among so many metrics, by the likelihood of some of them, shape (some, kinds)."""
    share, alike = _PRIOR, metrics / len(likelihood)
    for _ in range(_ROUNDS - 1):
        weights = share * (alike * (1 / (likelihood @ share)) @ likelihood)  # added up over the metrics
        before, share = share, (weights + _PRIOR_METRICS * _PRIOR) / (metrics + _PRIOR_METRICS)
        if np.abs(share - before).max() < _SETTLED:
            break
    return share
