"""How much each of many metrics varies, where each was measured only a few times: by itself, and by those like it.

Moderated variances: Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import digamma, polygamma

from fabricheck.statistics.constants import BATCHES, LEAST_SPREAD

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Prior:
    """Typical variance of metrics of a kind, and the degrees of freedom it is worth to each; shapes (metrics,)."""

    variance: Floats
    freedom: Floats

    def moderate(self, squares: Floats, freedom: Floats) -> Floats:
        """Variance of each metric by its sum of squares and by the others; NaN where nothing is known."""
        least = np.where(freedom > 0, np.maximum(squares, freedom * LEAST_SPREAD**2), 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((least + self.freedom * self.variance) / (freedom + self.freedom))


@dataclass(frozen=True)
class Moderated:
    """Variances and their degrees of freedom, shapes (metrics,)."""

    variance: Floats
    freedom: Floats
    prior: Prior


def moderate(
    squares: Floats, freedom: Floats, kind: Ints, *, trend: Floats | None = None, independent: float = np.inf
) -> Moderated:
    """Variances by sums of squares and their degrees of freedom; all shapes (metrics,), equal for those of a `kind`.

    `trend`: the logarithm of the typical variance is a parabola of this (Sartor and others, BMC Bioinformatics 7:538,
    2006). `independent`: the degrees of freedom of all together at most, where metrics share their noise.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.maximum(squares / freedom, LEAST_SPREAD**2)
    use = (freedom > 0) & np.isfinite(variance)
    # Kinds of few metrics are one kind.
    numbers, inverse, count = np.unique(kind, return_inverse=True, return_counts=True)
    group = np.where(count >= BATCHES, np.arange(numbers.size), numbers.size)[inverse]
    typical, worth = np.zeros(len(squares)), np.zeros(len(squares))
    x = np.ones((len(squares), 1)) if trend is None else np.vander(trend - trend.mean(), 3)
    for group_number in np.unique(group):
        of = group == group_number
        known = of & use
        if known.sum() < BATCHES:
            continue
        coefficients, worth[of] = _prior(variance[known], freedom[known], x[known], independent)
        typical[of] = np.exp(x[of] @ coefficients)
    prior = Prior(typical, worth)
    return Moderated(prior.moderate(squares, freedom), freedom + worth, prior)


def _prior(variance: Floats, freedom: Floats, x: Floats, independent: float) -> tuple[Floats, float]:
    """The logarithm of the typical variance, by coefficients of the columns of `x`, (metrics, columns), of which the
    last is 1; and its degrees of freedom, no more than the metrics have. By the method of moments (Smyth, section
    6.2)."""
    half, most = freedom / 2, min(float(freedom.sum()), independent)
    e = np.log(variance) - digamma(half) + np.log(half)
    coefficients, _, rank, _ = np.linalg.lstsq(x, e, rcond=None)
    extra = float(((e - x @ coefficients) ** 2).sum() / (e.size - rank) - polygamma(1, half).mean())
    if extra <= 0:
        return coefficients, most
    from scipy.optimize import brentq  # takes a third of a second to import

    # Between these the trigamma function falls from above to below.
    prior_half = float(brentq(lambda half: polygamma(1, half) - extra, 1 / extra, 1 / extra + 1))
    coefficients[-1] += float(digamma(prior_half)) - np.log(prior_half)
    return coefficients, min(2 * prior_half, most)
