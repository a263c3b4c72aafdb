"""Two sets of runs, metric by metric: what changed, how surely, and what could not have been seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import digamma, polygamma
from scipy.stats import nct, t

from fabricheck.errors import UserError
from fabricheck.regression.history import KEY, NO_MEASUREMENT, MetricKey

Floats = npt.NDArray[np.float64]

# Runs further than this from their median, in spreads, count as if they were here: one bad run is no change.
_CUT = 2.0
# Metrics that vary less, relative, are taken to vary by this: the resolution of a clock is no certainty.
_LEAST_SPREAD = 0.001
# A prior of more than this many degrees of freedom is as good as a known spread.
_MOST_FREEDOM = 1e6
_FEWEST_FOR_PRIOR = 10


class Change(str, Enum):
    """What can be said of a metric between two sets of runs."""

    REGRESSED = "regressed"
    CANNOT_SAY = "cannot say"
    SAME = "same"
    IMPROVED = "improved"


@dataclass(frozen=True)
class Finding:
    """One metric in both sets.

    `base` and `candidate` are robust centres in `unit`. `change` is candidate / base - 1, with its confidence
    `interval`; `effect` is the change in between-run spreads, positive where it is better. `smallest_change` is the
    least relative loss that runs as many and as noisy would have shown as regressed with the power of the options.
    `p_worse` and `p_better` are one-sided and not corrected for the number of metrics.
    """

    key: MetricKey
    unit: str
    better: str
    base: float
    candidate: float
    base_runs: int
    candidate_runs: int
    change: float
    interval: tuple[float, float]
    effect: float
    spread: float  # between runs, relative
    p_worse: float
    p_better: float
    smallest_change: float
    verdict: Change
    unequal: tuple[str, ...]
    components: tuple[str, ...]


@dataclass(frozen=True)
class Side:
    """One of the two sets: the selection as it was asked for, and what it came to."""

    selection: str
    sessions: tuple[str, ...]
    runs: int
    software: tuple[str, ...]
    not_measured: int  # rows left out because they are INVALID or INCOMPLETE


@dataclass(frozen=True)
class Comparison:
    """All findings, worst first. `vanished` and `new` are metrics of one side only."""

    system: str
    base: Side
    candidate: Side
    options: CompareOptions
    findings: tuple[Finding, ...]
    vanished: tuple[MetricKey, ...]
    new: tuple[MetricKey, ...]
    software_changes: tuple[str, ...]
    unequal: tuple[str, ...]

    def count(self, verdict: Change) -> int:
        return sum(each.verdict is verdict for each in self.findings)

    @property
    def exit_status(self) -> int:
        """1 where something regressed; else 4 where a metric vanished or nothing can be said of one; else 0."""
        if self.count(Change.REGRESSED):
            return 1
        return 4 if self.vanished or self.count(Change.CANNOT_SAY) or not self.findings else 0


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


def test_shift(base: Floats, candidate: Floats, earlier: Floats | None, options: CompareOptions) -> Tested:
    """Test every metric for a shift; `base` and `candidate` have shapes (metrics, runs), NaN where there is none.

    Values are logarithms with the sign that makes more worse. The spread between runs is taken to be the same on both
    sides. It is estimated from the runs of both, from `earlier` runs, shape (metrics, runs) in the order of time, by
    their successive differences, and from all the other metrics (moderated t: Smyth, Statistical Applications in
    Genetics and Molecular Biology 3, 2004): five runs a side alone know too little of it. Which shifts are real is
    decided over all metrics at once with the two-stage step-up procedure of Benjamini, Krieger and Yekutieli
    (Biometrika 93, 2006), each direction by itself.
    """
    n1, n2 = _count(base), _count(candidate)
    squares = _squares(base) + _squares(candidate)
    freedom = np.maximum(n1 - 1, 0) + np.maximum(n2 - 1, 0)
    if earlier is not None and earlier.shape[1] > 1:
        more, known = _from_differences(earlier)
        squares, freedom = squares + more * known, freedom + known
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.maximum(squares / freedom, _LEAST_SPREAD**2)
    prior_variance, prior_freedom = _prior(variance, freedom)
    total = freedom + prior_freedom
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = (np.where(freedom > 0, freedom * variance, 0.0) + prior_freedom * prior_variance) / total
    spread = np.sqrt(pooled)
    error = spread * np.sqrt(1 / n1 + 1 / n2)
    shift = _centre(candidate, spread) - _centre(base, spread)
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
    if it were one more: Benjamini and Hochberg (1995) in two stages (Benjamini, Krieger, Yekutieli, 2006, definition 6).
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


def _count(values: Floats) -> npt.NDArray[np.int64]:
    return np.isfinite(values).sum(axis=1)


def _squares(values: Floats) -> Floats:
    number = np.maximum(_count(values), 1)
    mean = np.nansum(values, axis=1) / number
    return np.asarray(np.nansum((values - mean[:, None]) ** 2, axis=1))


def _from_differences(earlier: Floats) -> tuple[Floats, Floats]:
    """Variance between successive runs and how many degrees of freedom it is worth; (metrics,) each.

    Differences leave out slow changes and, by their median, upgrades. That of n - 1 differences of normal values has
    the precision of about 0.27 n degrees of freedom (its variance was simulated).
    """
    variance = np.zeros(len(earlier))
    number = np.zeros(len(earlier))
    for row, values in enumerate(earlier):
        known = values[np.isfinite(values)]
        if known.size >= 10:
            # 0.6745: median of |N(0, 1)|; a difference has twice the variance.
            variance[row] = (np.median(np.abs(np.diff(known))) / 0.67449) ** 2 / 2
            number[row] = 0.27 * known.size
    return variance, number


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


def _centre(values: Floats, spread: Floats) -> Floats:
    """Mean of the runs, each of them no further from their median than _CUT spreads; (metrics,)."""
    number = np.maximum(_count(values), 1)
    middle = np.asarray([np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in values])
    # Without a spread nothing can be told to be wild.
    reach = np.where(np.isfinite(spread), _CUT * spread, np.inf)[:, None]
    kept = np.clip(values, middle[:, None] - reach, middle[:, None] + reach)
    return np.asarray(np.nansum(kept, axis=1) / number)


def _smallest_shift(error: Floats, freedom: Floats, threshold: float, power: float) -> Floats:
    """The shift whose test statistic is beyond the threshold with probability `power`: noncentral t; (metrics,)."""
    found = np.full(error.shape, np.inf)
    for value in np.unique(freedom[(freedom > 0) & np.isfinite(error)]):
        rows = freedom == value
        found[rows] = _noncentrality(float(value), threshold, power) * error[rows]
    return found


def _noncentrality(freedom: float, threshold: float, power: float) -> float:
    critical = float(t.isf(threshold, freedom))
    low, high = 0.0, critical + float(t.isf(1 - power, freedom)) * 2 + 10
    high = max(high, 2 * critical)
    for _ in range(60):
        middle = (low + high) / 2
        # scipy's noncentral t is slow to settle for many degrees of freedom, where it is normal.
        reached = float(nct.sf(critical, freedom, middle)) if freedom < 1e4 else float(t.sf(critical - middle, freedom))
        if reached < power:
            low = middle
        else:
            high = middle
    return high
