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

from fabricheck.judge.constants import CUT, FEWEST, LOST_FREEDOM, OUTSIDE, WIDTH

Floats = npt.NDArray[np.float64]

# Median absolute deviation of the standard normal distribution.
MAD_OF_NORMAL = float(ndtri(0.75))
_WIDTH_OF_NORMAL = float(2 * ndtri(1 - OUTSIDE))
# Standard deviation of a standard normal value winsorised at CUT.
_SD_OF_WINSORISED = float(
    np.sqrt(2 * (ndtr(CUT) - 0.5 - CUT * math.exp(-(CUT**2) / 2) / math.sqrt(2 * math.pi) + CUT**2 * ndtr(-CUT)))
)  # fmt: skip


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
    ordered = np.sort(np.asarray(values, dtype=np.float64), axis=-1)  # NaN comes last
    count = np.isfinite(ordered).sum(axis=-1)
    middle = _median(ordered, count)
    deviation = _median(np.sort(np.abs(ordered - middle[..., None]), axis=-1), count) / MAD_OF_NORMAL
    width = (_quantile(ordered, count, 1 - OUTSIDE) - _quantile(ordered, count, OUTSIDE)) / _WIDTH_OF_NORMAL
    reach = (CUT * np.maximum(deviation, width))[..., None]
    # More than half of the values are equal: there is no scale to tell a wild value by.
    reach = np.where(reach > 0, reach, np.inf)
    kept = np.clip(ordered, middle[..., None] - reach, middle[..., None] + reach)
    number = np.maximum(count, 1)
    centre = np.nansum(kept, axis=-1) / number
    squares = np.nansum((kept - centre[..., None]) ** 2, axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.sqrt(squares / (count - 1)) / _SD_OF_WINSORISED
    centre = np.where(count > 0, centre, np.nan)
    return Spread(centre, np.where(count > 1, spread, np.nan), count)


def of_the_others(values: Floats) -> Spread:
    """As `centre_and_spread` of all `values` but one, shape (n,), for each that is left out. All are numbers.

    Whichever that is, the others have one of three medians and are cut off in one of few places.
    """
    number = values.size
    order = np.argsort(values, kind="stable")
    ordered, place, rank = values[order], np.arange(number), np.empty(number, dtype=np.int64)
    rank[order] = place
    middle = _without(ordered, place, 0.5)
    width = (_without(ordered, place, 1 - OUTSIDE) - _without(ordered, place, OUTSIDE)) / _WIDTH_OF_NORMAL
    deviation = np.empty(number)
    for median in np.unique(middle):
        away = np.abs(ordered - median)
        nearest = np.argsort(away, kind="stable")
        deviation[nearest] = np.where(
            middle[nearest] == median, _without(away[nearest], place, 0.5) / MAD_OF_NORMAL, deviation[nearest]
        )
    reach = CUT * np.maximum(deviation, width)
    reach = np.where(reach > 0, reach, ordered[-1] - ordered[0])
    # Pairs of numbers are put in order as complex ones are: by the first, then by the second.
    ends, where = np.unique(middle + 1j * reach, return_inverse=True)
    kept = np.clip(ordered, (ends.real - ends.imag)[:, None], (ends.real + ends.imag)[:, None])
    kept -= ordered[number // 2]  # sums of squares are of what lies around 0
    own = kept[where, place]
    centre = (kept.sum(axis=1)[where] - own) / (number - 1)
    squares = (kept**2).sum(axis=1)[where] - own**2 - (number - 1) * centre**2
    spread = np.sqrt(np.maximum(squares, 0.0) / (number - 2)) / _SD_OF_WINSORISED
    return Spread((centre + ordered[number // 2])[rank], spread[rank], np.full(number, number - 1))


def _without(ordered: Floats, rank: npt.NDArray[np.int64], share: float) -> Floats:
    """The quantile of values in order, linear between neighbours, without that of each `rank`."""
    place = share * (ordered.size - 2)
    low, high = math.floor(place), math.ceil(place)
    before, after = ordered[low + (rank <= low)], ordered[high + (rank <= high)]
    return np.asarray(before + (after - before) * (place - low))


def _median(ordered: Floats, count: npt.NDArray[np.int64]) -> Floats:
    return _quantile(ordered, count, 0.5)


def _quantile(ordered: Floats, count: npt.NDArray[np.int64], share: float) -> Floats:
    """Quantile along the last axis, linear between neighbours, of values in order, of which the first `count` are
    numbers; NaN where none is."""
    place = share * (np.maximum(count, 1) - 1)
    before = np.floor(place).astype(np.int64)
    low = np.take_along_axis(ordered, before[..., None], axis=-1)[..., 0]
    high = np.take_along_axis(ordered, np.ceil(place).astype(np.int64)[..., None], axis=-1)[..., 0]
    return low + (high - low) * (place - before)


def prediction_factor(count: int, false_alarms: float) -> float:
    """How many spreads from the centre of `count` values one more value lies on one side with probability
    `false_alarms`: the one-sided prediction interval of a normal distribution, whose width knows how few values
    centre and spread are of (Hahn and Meeker, Statistical Intervals, 1991, section 4.7, for robust estimates).

    ValueError for fewer than FEWEST values.
    """
    if count < FEWEST:
        raise ValueError(f"{count} values have no prediction interval")
    quantile = -float(stdtrit(count - LOST_FREEDOM, false_alarms))
    return WIDTH * quantile * float(np.sqrt(1 + 1 / count))


def normal_score(deviation: Floats, count: npt.ArrayLike) -> Floats:
    """The standard normal value that is as improbable as a `deviation` (in spreads) of one more value from the centre
    of `count` values; deviations have been divided by the error of such a difference. NaN below FEWEST values.
    """
    freedom = np.maximum(count, FEWEST) - LOST_FREEDOM
    # Of the two tails the smaller one, lest a probability next to 1 be rounded to it.
    size = -ndtri(stdtr(freedom, -np.abs(deviation) / WIDTH))
    score = np.sign(deviation) * np.minimum(size, 38.0)
    return np.where(np.asarray(count) >= FEWEST, score, np.nan)
