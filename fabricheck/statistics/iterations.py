"""Statistics of measured iterations, of which no distribution is assumed, and of few repetitions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fabricheck.statistics.constants import BATCHES, CONFIDENCE

#: A batch outlasts what neighbours have in common, as so many correlation times do (Sokal, Monte Carlo Methods in
#: Statistical Mechanics, 1997, section 3).
CORRELATION_TIMES = 5


def median_interval(
    values: npt.ArrayLike, confidence: float = 0.95, *, in_order: bool = False, rank_error: float = 0.0
) -> tuple[float, float]:
    """Nonparametric confidence interval of the median of `values`, shape (n,), in their unit.

    The k-th smallest and the k-th largest value for the largest k at which the interval still covers the median with
    probability `confidence` or more: the number of values below the median is binomial (n, 1/2), whatever the
    distribution (Hoefler and Belli, SC15, section 3.1.3, with the exact binomial for their normal approximation).

    Values are taken to be independent of each other. Iterations are not: where `values` are `in_order`, as they were
    measured, and two or more for each of `BATCHES` batches, the interval is the wider one of that and of the one whose
    ranks are as uncertain as the share of values below the median differs from batch to batch (batch means, with
    Student's t: Law and Kelton, Simulation Modeling and Analysis, section 9.5.3). Batches are five correlation times
    long; a series too short for two of them has its range. Of values whose order is lost `rank_error` may be known: the
    standard error of the median's rank by these batches.

    Fewer than `fewest_for_interval(confidence)` values have no such interval: the range of the values is returned, and
    the caller has to know that it covers less. ValueError where there are no values or one is not finite.
    """
    series = _checked(values)
    data = np.sort(series)
    k = max(_rank_of_bound(data.size, confidence), 1)
    if in_order and data.size >= 2 * BATCHES:
        rank_error = rank_error_of(series)
    if rank_error > 0:
        k = min(k, max(int(np.floor((data.size + 1) / 2 - _student(confidence, BATCHES) * rank_error)), 1))
    return float(data[k - 1]), float(data[data.size - k])


def rank_error_of(series: npt.NDArray[np.float64]) -> float:
    """The standard error of the rank of the median of a series of iterations that depend on each other; that of fewer
    batches than `BATCHES` is as much larger as Student's t is."""
    count = min(BATCHES, int(series.size / (CORRELATION_TIMES * correlation_time(series))))
    if count < 2:
        return float(series.size)
    length = series.size // count
    batches = series[series.size - count * length :].reshape(count, length)
    # One half for each value above the median, minus one half for each below, so that equal values count for none.
    shares = np.sign(batches - np.median(series)).mean(axis=1) / 2
    error = float(shares.std(ddof=1) * series.size / np.sqrt(count))
    return error * _student(0.95, count) / _student(0.95, BATCHES)


def correlation_time(series: npt.NDArray[np.float64]) -> float:
    """Over how many iterations those of a series depend on each other, as in src/fabricbench/statistics.cpp."""
    sides = np.sign(series - np.median(series))
    sides -= sides.mean()
    variance = float(sides @ sides)
    if variance == 0:
        return 1.0
    time = longest = 1.0
    for lag in range(1, series.size // 2):
        time += 2 * float(sides[:-lag] @ sides[lag:]) / variance
        longest = max(longest, time)
        if lag >= CORRELATION_TIMES * longest:
            break
    return longest


@lru_cache(maxsize=64)
def _student(confidence: float, batches: int) -> float:
    from scipy.special import stdtrit  # that of scipy.stats.t, which takes half a second to import

    return float(stdtrit(batches - 1, (1 + confidence) / 2))


def ratio_interval(
    numerators: Sequence[npt.ArrayLike], denominators: Sequence[npt.ArrayLike], confidence: float = 0.95
) -> tuple[float, float]:
    """Interval of the product of the medians of `numerators` over that of `denominators`; all values above 0.

    From the lower bounds of one over the upper ones of the other to the opposite. The interval of each of the k medians
    is taken at the confidence 1 - (1 - `confidence`) / k, so that all hold at once with `confidence` (Bonferroni).
    Where one has too few values for that, nothing is known: (0, inf). ValueError as for `median_interval`, and where a
    value is not above 0.
    """
    level = 1 - (1 - confidence) / (len(numerators) + len(denominators))
    low, high = 1.0, 1.0
    for group, inverse in ((numerators, False), (denominators, True)):
        for values in map(_checked, group):
            if values.min() <= 0:
                raise ValueError("a ratio needs values above 0")
            if _rank_of_bound(values.size, level) < 1:
                return 0.0, float("inf")
            least, most = median_interval(values, level)
            low, high = (low / most, high / least) if inverse else (low * least, high * most)
    return low, high


def fewest_for_interval(confidence: float = 0.95) -> int:
    """The smallest number of values that have a confidence interval of the median: 6 for 95%."""
    return next(count for count in itertools.count(1) if _rank_of_bound(count, confidence))


@lru_cache(maxsize=4096)  # runs have few different numbers of iterations, and many series
def _rank_of_bound(count: int, confidence: float) -> int:
    """The largest k for which 1 - 2 P(X < k) ≥ confidence, X binomial (count, 1/2); 0 where there is none."""
    from scipy.special import bdtr  # that of scipy.stats.binom

    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, not {confidence}")
    tail = (1 - confidence) / 2
    cumulative = bdtr(np.arange(count + 1), count, 0.5)
    k = int(np.searchsorted(cumulative, tail))  # the smallest with P(X ≤ k) ≥ tail
    return k + 1 if cumulative[k] <= tail else k  # where the two are equal one more value can go


def _checked(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or data.size == 0 or not np.isfinite(data).all():
        raise ValueError("statistics need one or more finite values")
    return data


# True, False, or None where the data are inconclusive.
Truth = bool | None


@dataclass(frozen=True)
class Ratio:
    """The ratio of medians, and its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True)
class RatioTest:
    """That the product of the medians of `numerators` over that of `denominators` is above `bound`.

    With `above` False, that it is not. Each is an array of values above 0, shape (iterations,).
    """

    numerators: Sequence[npt.NDArray[np.float64]]
    denominators: Sequence[npt.NDArray[np.float64]]
    bound: float
    above: bool = True

    @property
    def ratio(self) -> Ratio:
        """With the interval of this test alone, at 95%."""
        return self._ratio(1)

    def truth(self, among: int = 1) -> Truth:
        """By an interval at which as many tests as `among` hold together with 95% (Bonferroni).

        None where the bound lies in the interval.
        """
        ratio = self._ratio(among)
        if ratio.low <= self.bound < ratio.high:
            return None
        return (ratio.low > self.bound) == self.above

    def _ratio(self, among: int) -> Ratio:
        value = np.prod([np.median(each) for each in self.numerators]) / np.prod(
            [np.median(each) for each in self.denominators]
        )
        confidence = 1 - (1 - CONFIDENCE) / among
        return Ratio(float(value), *ratio_interval(self.numerators, self.denominators, confidence))
