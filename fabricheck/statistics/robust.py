"""Robust centre and spread of few values, and how far one more value may lie from them.

Both come from values winsorised around the median: nearly as efficient as mean and standard deviation where the values
are normal, and a few wild values move them little (Maronna, Martin, Yohai, Robust Statistics, 2006, chapter 2). Wild is
what lies beyond `CUT` times the larger of two scales, of the median absolute deviation and of the distance between
the 10% and 90% quantiles: a second mode that holds a tenth of the values or more belongs to the spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, stdtr, stdtrit  # scipy.stats takes half a second to import

from fabricheck.statistics.constants import CUT, FEWEST

#: (new value - centre) / (spread · sqrt(1 + 1/n)) of n independent normal values has nearly the quantiles of WIDTH
#: times a t distribution with n - LOST_FREEDOM degrees of freedom: fitted at 99%, 99.9% and 99.99% to simulated sets of
#: 8 to 200 values; `benchmarks/regression.py` measures the coverage.
LOST_FREEDOM, WIDTH = 1.4, 1.006
#: Half of a robust width has this share of the values outside, on each side; a second mode that holds more belongs to
#: the spread. Chosen.
OUTSIDE = 0.1

Floats = npt.NDArray[np.float64]

# Median absolute deviation of the standard normal distribution.
MAD_OF_NORMAL = float(ndtri(0.75))
_WIDTH_OF_NORMAL = float(2 * ndtri(1 - OUTSIDE))


def sd_of_winsorised(cut: npt.ArrayLike) -> Floats:
    """The standard deviation of a standard normal value that is winsorised at `cut`."""
    cut = np.asarray(cut, dtype=np.float64)
    density = np.exp(-(cut**2) / 2) / math.sqrt(2 * math.pi)
    return np.asarray(np.sqrt(2 * (ndtr(cut) - 0.5 - cut * density + cut**2 * ndtr(-cut))))


@dataclass(frozen=True)
class Spread:
    """Centre and spread along the last axis of the values, and how many values they are of; shapes (...,)."""

    centre: Floats
    spread: Floats
    count: npt.NDArray[np.int64]


def centre_and_spread(values: npt.ArrayLike) -> Spread:
    """Winsorised mean and standard deviation of `values` along the last axis, shape (..., n); NaN is left out.

    The spread is consistent for the standard deviation of a normal distribution; NaN where there are fewer than two
    values.
    """
    kept, middle, count = _cut(np.asarray(values, dtype=np.float64))
    mean = np.nansum(kept, axis=-1) / np.maximum(count, 1)
    squares = np.nansum((kept - mean[..., None]) ** 2, axis=-1)
    return Spread(middle + mean, _spread(squares, count), count)


def median(values: Floats) -> Floats:
    """Along the last axis of values, shape (..., n), NaN left out; NaN where there are none."""
    return _quantile(np.sort(values, axis=-1), np.isfinite(values).sum(axis=-1), 0.5)


def of_the_others(values: Floats) -> Spread:
    """As `centre_and_spread` of all `values` but one, shape (n,), for each that is left out, cut off where all of them
    are. All are numbers."""
    kept, middle, count = _cut(values)
    number = np.full(values.size, count - 1)
    mean = (kept.sum() - kept) / number
    squares = (kept**2).sum() - kept**2 - number * mean**2
    return Spread(middle + mean, _spread(np.maximum(squares, 0.0), number), number)


def _cut(values: Floats) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """Values along the last axis from their median, cut off; that median, NaN where there are none; how many."""
    ordered = np.sort(values, axis=-1)  # NaN comes last
    count = np.isfinite(ordered).sum(axis=-1)
    middle = _quantile(ordered, count, 0.5)
    deviation = _quantile(np.sort(np.abs(ordered - middle[..., None]), axis=-1), count, 0.5) / MAD_OF_NORMAL
    width = (_quantile(ordered, count, 1 - OUTSIDE) - _quantile(ordered, count, OUTSIDE)) / _WIDTH_OF_NORMAL
    reach = (CUT * np.maximum(deviation, width))[..., None]
    # More than half of the values are equal: there is no scale to tell a wild value by.
    reach = np.where(reach > 0, reach, np.inf)
    return np.clip(values - middle[..., None], -reach, reach), middle, count


def _spread(squares: Floats, count: npt.NDArray[np.int64]) -> Floats:
    """By the sum of squares around the centre of so many; NaN below two."""
    return np.asarray(np.sqrt(squares / np.where(count > 1, count - 1, np.nan)) / sd_of_winsorised(CUT))


def _quantile(ordered: Floats, count: npt.NDArray[np.int64], share: float) -> Floats:
    """Quantile along the last axis, linear between neighbours, of values in order, of which the first `count` are
    numbers; NaN where none is."""
    place = share * (np.maximum(count, 1) - 1)
    before = np.floor(place).astype(np.int64)
    low = np.take_along_axis(ordered, before[..., None], axis=-1)[..., 0]
    high = np.take_along_axis(ordered, np.ceil(place).astype(np.int64)[..., None], axis=-1)[..., 0]
    return low + (high - low) * (place - before)


def prediction_factor(count: npt.ArrayLike, false_alarms: float, freedom: npt.ArrayLike | None = None) -> Floats:
    """How many spreads from the centre of `count` values one more value lies on one side with probability
    `false_alarms`: the one-sided prediction interval of a normal distribution, whose width knows how few values
    centre and spread are of (Hahn and Meeker, Statistical Intervals, 1991, section 4.7, for robust estimates).

    `freedom`: of the spread, where others tell it too. ValueError for fewer than FEWEST values.
    """
    count = np.asarray(count)
    if (count < FEWEST).any():
        raise ValueError(f"{count.min()} values have no prediction interval")
    quantile = -stdtrit(np.asarray(count - LOST_FREEDOM if freedom is None else freedom), false_alarms)
    return np.asarray(WIDTH * quantile * np.sqrt(1 + 1 / count))


def normal_score(deviation: Floats, count: npt.ArrayLike) -> Floats:
    """The standard normal value that is as improbable as a `deviation` (in spreads) of one more value from the centre
    of `count` values; deviations have been divided by the error of such a difference. NaN below FEWEST values.
    """
    freedom = np.maximum(count, FEWEST) - LOST_FREEDOM
    # Of the two tails the smaller one, lest a probability next to 1 be rounded to it.
    size = -ndtri(stdtr(freedom, -np.abs(deviation) / WIDTH))
    score = np.sign(deviation) * np.minimum(size, 38.0)
    return np.where(np.asarray(count) >= FEWEST, score, np.nan)
