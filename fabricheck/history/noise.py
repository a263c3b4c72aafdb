"""What kind of noise each metric has, judged from its own sessions and from those of all others."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import cast

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln
from scipy.stats import norm

from fabricheck.history.hazard import BAD_SESSIONS, CORRELATIONS, KINDS
from fabricheck.history.robust import CUT
from fabricheck.history.rows import Arrays, by_rows, sample_of

Floats = npt.NDArray[np.float64]

# The worse side is what false alarms come from: how many sessions lie between these many spreads tells how it looks.
_EDGES = np.asarray([-np.inf, 0.75, 1.25, 1.75, 2.25, 3.0, np.inf])
# What is taken to be so before anything was measured, as if of this many metrics: most are quiet, some dip, have a
# second mode or are correlated. A few metrics are judged by it, a thousand by themselves.
_PRIOR_METRICS = 5.0
_PRIOR = np.outer(
    [0.5, 0.2, 0.14, 0.08, 0.04, 0.02, 0.01, 0.01], [0.5, 0.08, 0.08, 0.08, 0.05, 0.03, 0.01, 0.01, *[0.012] * 15]
).ravel()
# Sums of a week that stray by so much more, in squares, than neighbours say have a level beneath the launches' noise.
# Fewer than four weeks tell too little of that.
_RUN, _LONGER, _WEEKS = 7, 1.25, 4
_ROUNDS, _SETTLED = 100, 1e-6  # of EM, until nothing changes by more than this

_CORRELATION = np.asarray([each.correlation for each in KINDS])
_LONG_RUN = (1 + _CORRELATION) / (1 - _CORRELATION)
_INDEPENDENT = (1 - _CORRELATION**2) / (1 + _CORRELATION**2)


def kinds_of_noise(deviations: Floats) -> Floats:
    """How probable each of KINDS is for each metric, shape (metrics, kinds); each row adds up to 1.

    `deviations`, shape (metrics, sessions): distance of the sessions from the metric's centre in its spreads, worse
    side positive, NaN where there is none. The correlation is told from that of successive sessions, dips and modes
    from how many sessions lie how far on the worse side. How common a kind is among metrics comes from all of them
    (empirical Bayes: Robbins, 1956; nonparametric maximum likelihood by EM, Laird, JASA 73, 1978), so that a metric
    whose few sessions cannot tell is taken for what its peers are.
    """

    def likelihoods(rows: slice) -> Arrays:
        some = deviations[rows]
        told, of_runs = _log_of_correlation(*_correlation(some)), _log_of_runs(some)
        long = _long_run(of_runs) > _LONGER * _long_run(told)
        told = np.where(long[:, None], of_runs, told)
        logs = told[:, :, None] + _log_of_bad_sessions(some)[:, None, :]
        logs = logs.reshape(len(some), -1)
        return (np.exp(logs - logs.max(axis=1, keepdims=True)),)

    (likelihood,) = cast("tuple[Floats]", by_rows(likelihoods, len(deviations)))
    likelihood *= _shares_of_kinds(likelihood[sample_of(np.arange(len(likelihood)))], len(likelihood))
    likelihood /= likelihood.sum(axis=1, keepdims=True)
    return likelihood


def _correlation(deviations: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Of successive sessions of each metric, and the number of their pairs."""
    kept = np.clip(deviations, -CUT, CUT)
    there = np.isfinite(kept)
    kept = np.where(there, kept, 0.0)
    pairs = (there[:, :-1] & there[:, 1:]).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        covariance = np.einsum("ij,ij->i", kept[:, :-1], kept[:, 1:]) / pairs
        return covariance / (np.einsum("ij,ij->i", kept, kept) / there.sum(axis=1)), pairs


def _long_run(logs: Floats) -> Floats:
    """Variance of a sum of many sessions over that of independent ones, (metrics,), by likelihoods of CORRELATIONS."""
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    correlation = likelihood @ np.asarray(CORRELATIONS) / likelihood.sum(axis=1)
    return np.asarray((1 + correlation) / (1 - correlation))


def _log_of_runs(deviations: Floats) -> Floats:
    """Logarithm of the likelihood of each of CORRELATIONS, shape (metrics, correlations), by how far sums of _RUN
    successive sessions stray: white noise of launches hides from neighbours what a level does to these. NaN where too
    few sessions tell."""
    rho = np.asarray(CORRELATIONS)
    kept = np.clip(deviations, -CUT, CUT)
    there = np.isfinite(kept)
    kept = np.where(there, kept, 0.0)
    count = there.sum(axis=1)
    sums, number = (np.cumsum(each, axis=1) for each in (kept, there.astype(np.float64)))
    sums, number = (each[:, _RUN:] - each[:, :-_RUN] for each in (sums, number))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (sums**2).sum(axis=1) / number.sum(axis=1) / ((kept**2).sum(axis=1) / count)
    lags = np.arange(1, _RUN)
    expected = 1 + 2 * ((1 - lags / _RUN) * rho[:, None] ** lags).sum(axis=1)
    # Around their own mean sums stray less.
    many = np.maximum(count, 1)[:, None]
    expected = expected * (1 - np.minimum(_RUN / many, 0.8))
    half = 0.75 * many / np.maximum(_RUN, (1 + rho) / (1 - rho))
    value = (half - 1) * np.log(np.maximum(found, 1e-9))[:, None] - half * found[:, None] / expected
    value += half * np.log(half / expected) - gammaln(half)
    return np.where(((count >= _WEEKS * _RUN) & np.isfinite(found))[:, None], value, np.nan)


def _log_of_correlation(found: Floats, pairs: npt.NDArray[np.int64]) -> Floats:
    """Logarithm of the likelihood of each of CORRELATIONS, shape (metrics, correlations)."""
    rho = np.asarray(CORRELATIONS)
    number = np.maximum(pairs, 1)[:, None]
    # Bias and error of the estimate: Kendall, Biometrika 41, 1954; Bartlett, 1946.
    expected = rho - (1 + 3 * rho) / number
    variance = (1 - rho**2) / number + 1e-4
    value = -((found[:, None] - expected) ** 2) / (2 * variance) - 0.5 * np.log(variance)
    return np.where(((pairs >= 3) & np.isfinite(found))[:, None], value, 0.0)


def _log_of_bad_sessions(deviations: Floats) -> Floats:
    """Logarithm of the likelihood of each of BAD_SESSIONS, shape (metrics, bad sessions)."""
    counts = np.stack(
        [((deviations > low) & (deviations <= high)).sum(axis=1) for low, high in pairwise(_EDGES)], axis=1
    )
    return np.asarray(counts @ np.log(_shares()).T)


@lru_cache(maxsize=1)
def _shares() -> Floats:
    """How probable a session between two of _EDGES is, shape (bad sessions, intervals)."""
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


def long_run_variance(weights: Floats) -> Floats:
    """Variance of a sum of many sessions over that of as many independent ones, by the kinds of noise; (metrics,)."""
    return np.asarray(weights @ _LONG_RUN)


def independent_share(weights: Floats) -> Floats:
    """Share of the sessions that counts for the spread (Bayley and Hammersley, 1946), by kind of noise; (metrics,)."""
    return np.asarray(weights @ _INDEPENDENT)
