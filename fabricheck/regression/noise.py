"""What kind of noise each metric has, judged from its own nights and from those of all others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from fabricheck.regression.hazard import CORRELATIONS, DIP_RATES, KINDS
from fabricheck.regression.robust import CUT, normal_score

Floats = npt.NDArray[np.float64]

# How often a normal value lies beyond CUT on one side.
_NORMAL_RATE = 0.00135
# What is taken to be so before anything was measured, as if of this many metrics: most metrics are quiet, some dip or
# are correlated. A few metrics are judged by it, a thousand by themselves.
_PRIOR_METRICS = 5.0
_PRIOR = np.outer([0.5, 0.2, 0.15, 0.08, 0.05, 0.02], [0.6, 0.1, 0.1, 0.1, 0.05, 0.03, 0.02]).ravel()
_ROUNDS = 30

_CORRELATION = np.asarray([each.correlation for each in KINDS])
_LONG_RUN = (1 + _CORRELATION) / (1 - _CORRELATION)
_INDEPENDENT = (1 - _CORRELATION**2) / (1 + _CORRELATION**2)


def kinds_of_noise(deviations: Floats, count: npt.NDArray[np.int64]) -> Floats:
    """How probable each of KINDS is for each metric, shape (metrics, kinds); each row adds up to 1.

    `deviations`, shape (metrics, nights): distance of the nights from the metric's centre in its spreads, worse side
    positive, NaN where there is none; `count`, shape (metrics,): how many there are. The correlation is told from that
    of successive nights, the rate of dips from the nights beyond three spreads. How common a kind is among metrics
    comes from all of them (empirical Bayes: Robbins, 1956; nonparametric maximum likelihood by EM, Laird, JASA 73,
    1978), so that a metric whose few nights cannot tell is taken for what its peers are.
    """
    kept = np.clip(deviations, -CUT, CUT)
    first, second = kept[:, :-1], kept[:, 1:]
    both = np.isfinite(first) & np.isfinite(second)
    pairs = both.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        covariance = np.where(both, first * second, 0).sum(axis=1) / pairs
        found = covariance / np.nanmean(np.where(np.isfinite(kept), kept**2, np.nan), axis=1)
    with np.errstate(invalid="ignore"):
        far = normal_score(deviations, count[:, None]) > CUT
    dips = far.sum(axis=1)
    logs = _log_of_correlation(found, pairs)[:, :, None] + _log_of_dips(dips, count)[:, None, :]
    return _posterior(logs.reshape(len(deviations), -1))


def _log_of_correlation(found: Floats, pairs: npt.NDArray[np.int64]) -> Floats:
    """Logarithm of the likelihood of each of CORRELATIONS, shape (metrics, correlations)."""
    rho = np.asarray(CORRELATIONS)
    number = np.maximum(pairs, 1)[:, None]
    # Bias and error of the estimate: Kendall, Biometrika 41, 1954; Bartlett, 1946.
    expected = rho - (1 + 3 * rho) / number
    variance = (1 - rho**2) / number + 1e-4
    value = -((found[:, None] - expected) ** 2) / (2 * variance) - 0.5 * np.log(variance)
    return np.where(((pairs >= 3) & np.isfinite(found))[:, None], value, 0.0)


def _log_of_dips(dips: npt.NDArray[np.int64], count: npt.NDArray[np.int64]) -> Floats:
    rate = np.asarray(DIP_RATES) + _NORMAL_RATE
    return np.asarray(binom.logpmf(dips[:, None], np.maximum(count, dips)[:, None], rate))


def _posterior(logs: Floats) -> Floats:
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    share = _PRIOR
    for _ in range(_ROUNDS):
        weights = likelihood * share
        weights /= weights.sum(axis=1, keepdims=True)
        share = (weights.sum(axis=0) + _PRIOR_METRICS * _PRIOR) / (len(logs) + _PRIOR_METRICS)
    return weights


def long_run_variance(weights: Floats) -> Floats:
    """Variance of a sum of many nights over that of as many independent ones, by the kinds of noise; (metrics,)."""
    return weights @ _LONG_RUN


def independent_share(weights: Floats) -> Floats:
    """What share of the nights counts for the spread, by the kinds of noise (Bayley and Hammersley, 1946); (metrics,)."""
    return weights @ _INDEPENDENT
