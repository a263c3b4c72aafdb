"""Whether metrics shifted between two sets of runs: a test of all metrics at once that knows how much each varies."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import digamma, polygamma
from scipy.stats import norm, t

from fabricheck.errors import UserError
from fabricheck.history.hazard import KINDS
from fabricheck.history.noise import kinds_of_noise
from fabricheck.history.robust import FEWEST, centre_and_spread

Floats = npt.NDArray[np.float64]

# Runs further than this from their median, in spreads, count as if they were here: one bad run is no change.
_CUT = 2.0
# Metrics that vary less, relative, are taken to vary by this: the resolution of a clock is no certainty.
_LEAST_SPREAD = 0.001
# A prior of more than this many degrees of freedom is as good as a known spread.
_MOST_FREEDOM = 1e6
_FEWEST_FOR_PRIOR = 10
_FEWEST_FOR_CORRELATION = 20


@dataclass(frozen=True)
class CompareOptions:
    """`false_discovery`: the share of metrics called regressed that are not, and likewise of those called improved.
    `margin`: a metric is the same where a loss of this share would have been seen and was not. `power`: how surely.
    `confidence` of the intervals of the changes, each by itself.
    """

    false_discovery: float = 0.01
    margin: float = 0.05
    power: float = 0.95
    confidence: float = 0.95

    def __post_init__(self) -> None:
        for name in ("false_discovery", "margin", "power", "confidence"):
            if not 0 < getattr(self, name) < 1:
                raise UserError(f"{name.replace('_', ' ')} is a share between 0 and 1, not {getattr(self, name)}")


@dataclass(frozen=True)
class Tested:
    """The statistics of matched metrics, shapes (metrics,); logarithms, with more being worse."""

    shift: Floats
    error: Floats
    freedom: Floats
    spread: Floats
    p_worse: Floats
    p_better: Floats
    worse: npt.NDArray[np.bool_]
    better: npt.NDArray[np.bool_]
    smallest: Floats


def moderated_test(base: Floats, candidate: Floats, earlier: Floats, options: CompareOptions) -> Tested:
    """Test every metric for a shift; `base` and `candidate` have shapes (metrics, runs), NaN where there is none.

    Values are logarithms with the sign that makes more worse. The spread between runs is taken to be the same on both
    sides. It is estimated from the runs of both, from `earlier` runs, shape (metrics, runs) in the order of time, by
    their successive differences, and from all the other metrics (moderated t: Smyth, Statistical Applications in
    Genetics and Molecular Biology 3, 2004): five runs a side alone know too little of it. Where there are enough
    earlier runs to tell that neighbouring runs are alike, the errors are the larger for it. Which shifts are real is
    decided over all metrics at once with the two-stage step-up procedure of Benjamini, Krieger and Yekutieli
    (Biometrika 93, 2006), each direction by itself.
    """
    n1, n2 = count_runs(base), count_runs(candidate)
    correlation = _correlation(earlier)
    squares = sum(_squares(each) / _within(count_runs(each), correlation) for each in (base, candidate))
    freedom = np.maximum(n1 - 1, 0) + np.maximum(n2 - 1, 0)
    more, known = _from_differences(earlier, correlation)
    squares, freedom = squares + more * known, freedom + known
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.maximum(squares / freedom, _LEAST_SPREAD**2)
    prior_variance, prior_freedom = _prior(variance, freedom)
    total = freedom + prior_freedom
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = (np.where(freedom > 0, freedom * variance, 0.0) + prior_freedom * prior_variance) / total
    spread = np.sqrt(pooled)
    error = spread * np.sqrt(_of_mean(n1, correlation) + _of_mean(n2, correlation))
    shift = centre(candidate, spread) - centre(base, spread)
    with np.errstate(invalid="ignore", divide="ignore"):
        statistic = shift / error
    known_spread = np.isfinite(statistic) & (total > 0)
    p_worse = np.where(known_spread, t.sf(statistic, np.maximum(total, 1e-9)), 1.0)
    p_better = np.where(known_spread, t.sf(-statistic, np.maximum(total, 1e-9)), 1.0)
    worse, threshold = discoveries(p_worse, options.false_discovery)
    better, _ = discoveries(p_better, options.false_discovery)
    smallest = _smallest_shift(error, total, threshold, options.power)
    return Tested(shift, error, total, spread, p_worse, p_better, worse, better, smallest)


def discoveries(p: Floats, rate: float) -> tuple[npt.NDArray[np.bool_], float]:
    """Which of the p-values, shape (n,), are discoveries at a false discovery rate, and the largest p that would be one
    if it were one more: Benjamini and Hochberg (1995) in two stages (Benjamini, Krieger,
    Yekutieli, 2006, definition 6).
    """
    number = p.size
    if number == 0:
        return np.zeros(0, dtype=np.bool_), rate
    level = rate / (1 + rate)
    first = _step_up(p, level)
    null = number - first
    if first in (0, number):
        found = first
        slope = level / number
    else:
        slope = level / null
        found = _step_up(p, level * number / null)
    order = np.argsort(p, kind="stable")
    chosen = np.zeros(number, dtype=np.bool_)
    chosen[order[:found]] = True
    return chosen, min(slope * min(found + 1, number), 0.5)


def _step_up(p: Floats, level: float) -> int:
    ordered = np.sort(p)
    below = np.flatnonzero(ordered <= level * np.arange(1, p.size + 1) / p.size)
    return int(below[-1]) + 1 if below.size else 0


def count_runs(values: Floats) -> npt.NDArray[np.int64]:
    return np.asarray(np.isfinite(values).sum(axis=1))


def _squares(values: Floats) -> Floats:
    number = np.maximum(count_runs(values), 1)
    mean = np.nansum(values, axis=1) / number
    return np.asarray(np.nansum((values - mean[:, None]) ** 2, axis=1))


def _correlation(earlier: Floats) -> Floats:
    """Correlation of successive runs of each metric; 0 for those with too few earlier runs to tell; (metrics,)."""
    found = np.zeros(len(earlier))
    rows = np.flatnonzero(count_runs(earlier) >= _FEWEST_FOR_CORRELATION)
    if rows.size:
        known = centre_and_spread(earlier[rows])
        spread = np.maximum(known.spread, _LEAST_SPREAD)[:, None]
        weights = kinds_of_noise((earlier[rows] - known.centre[:, None]) / spread)
        found[rows] = weights @ np.asarray([each.correlation for each in KINDS])
    return found


def _of_mean(number: npt.NDArray[np.int64], correlation: Floats) -> Floats:
    """Variance of the mean of successive runs over that of one run; (metrics,)."""
    found = np.ones(len(number))
    for lag in range(1, int(number.max(initial=1))):
        found += 2 * np.maximum(1 - lag / np.maximum(number, 1), 0) * correlation**lag
    return np.asarray(found / np.maximum(number, 1))


def _within(number: npt.NDArray[np.int64], correlation: Floats) -> Floats:
    """The share of the squares around their own mean that correlated runs have of those of independent ones."""
    several = np.maximum(number, 2)
    return np.asarray((1 - _of_mean(several, correlation)) / (1 - 1 / several))


def _from_differences(earlier: Floats, correlation: Floats) -> tuple[Floats, Floats]:
    """Variance of runs from the differences of successive ones, and the degrees of freedom it is worth.

    Differences leave out slow changes; that of an upgrade is one among many and is winsorised. n of them are worth two
    thirds of n values (von Neumann, Annals of Mathematical Statistics 12, 1941).
    """
    if earlier.shape[1] < 2:
        return np.zeros(len(earlier)), np.zeros(len(earlier))
    found = centre_and_spread(np.diff(earlier, axis=1))
    enough = found.count >= FEWEST
    variance = np.where(enough, found.spread**2 / (2 * (1 - correlation)), 0.0)
    return variance, np.where(enough, found.count * (1 - correlation) * 2 / 3, 0.0)


def _prior(variance: Floats, freedom: Floats) -> tuple[float, float]:
    """Typical variance of all metrics and the degrees of freedom it is worth to each of them (Smyth, section 6.2)."""
    use = (freedom > 0) & np.isfinite(variance)
    if use.sum() < _FEWEST_FOR_PRIOR:
        return 0.0, 0.0
    half = freedom[use] / 2
    e = np.log(variance[use]) - digamma(half) + np.log(half)
    mean = float(e.mean())
    extra = float(((e - mean) ** 2).sum() / (e.size - 1) - polygamma(1, half).mean())
    if extra <= 0:
        return math.exp(mean), _MOST_FREEDOM
    prior_half = _inverse_trigamma(extra)
    return math.exp(mean + float(digamma(prior_half)) - math.log(prior_half)), 2 * prior_half


def _inverse_trigamma(value: float) -> float:
    """Newton's method of Smyth, appendix."""
    y = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, y))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, y))
        y += step
        if -step / y < 1e-10:
            break
    return y


def centre(values: Floats, spread: Floats) -> Floats:
    """Mean of the runs, each of them no further from their median than _CUT spreads; (metrics,)."""
    number = np.maximum(count_runs(values), 1)
    middle = np.asarray([np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in values])
    # Without a spread nothing can be told to be wild.
    reach = np.where(np.isfinite(spread), _CUT * spread, np.inf)[:, None]
    kept = np.clip(values, middle[:, None] - reach, middle[:, None] + reach)
    return np.asarray(np.nansum(kept, axis=1) / number)


def _smallest_shift(error: Floats, freedom: Floats, threshold: float, power: float) -> Floats:
    """The shift whose test statistic, noncentral t, is beyond the threshold with probability `power`; (metrics,).

    By the normal approximation of Abramowitz and Stegun, 26.7.10.
    """
    known = np.maximum(freedom, 1.0)
    critical = t.isf(threshold, known)
    shift = critical * (1 - 1 / (4 * known)) + norm.ppf(power) * np.sqrt(1 + critical**2 / (2 * known))
    return np.where((freedom >= 1) & np.isfinite(error), shift * error, np.inf)
