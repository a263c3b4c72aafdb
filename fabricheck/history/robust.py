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
    """As `centre_and_spread`, of all values along the last axis but one: of each, shape (..., n), that of the others.

    In the time that it takes to put them in order: what is cut off changes with a value in few ways. All are numbers.
    """
    number = values.shape[-1]
    order = np.argsort(values, axis=-1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=-1)
    # Sums of squares are of what lies around 0.
    origin = ordered[..., number // 2, None]
    ordered = ordered - origin
    place = np.broadcast_to(np.arange(number), ordered.shape)
    middle = _quantile_without(ordered, place, 0.5)
    width = (
        _quantile_without(ordered, place, 1 - OUTSIDE) - _quantile_without(ordered, place, OUTSIDE)
    ) / _WIDTH_OF_NORMAL
    deviation = np.empty_like(ordered)
    # The median is one of three: without a value before, of or after the middle.
    inner = (number - 2) / 2
    for of in (place <= math.floor(inner), place > math.ceil(inner), (place > inner) & (place <= math.ceil(inner))):
        if of.any():
            first = int(of.reshape(-1, number)[0].argmax())
            away = np.abs(ordered - middle[..., first, None])
            rank = np.argsort(np.argsort(away, axis=-1, kind="stable"), axis=-1, kind="stable")
            medians = _quantile_without(np.sort(away, axis=-1), rank, 0.5)
            deviation = np.where(of, medians, deviation)
    reach = CUT * np.maximum(deviation / MAD_OF_NORMAL, width)
    reach = np.where(reach > 0, reach, np.abs(ordered).max(axis=-1, keepdims=True) + np.abs(middle))
    low, high = middle - reach, middle + reach
    below, until = _count_below(ordered, low), _count_below(ordered, high)
    own = np.clip(ordered, low, high)

    def total(power: int) -> Floats:
        sums = np.cumsum(ordered**power, axis=-1)
        sums = np.concatenate([np.zeros_like(sums[..., :1]), sums], axis=-1)
        inside = np.take_along_axis(sums, until, axis=-1) - np.take_along_axis(sums, below, axis=-1)
        return np.asarray(below * low**power + inside + (number - until) * high**power - own**power)

    centre = total(1) / (number - 1)
    squares = np.maximum(total(2) - (number - 1) * centre**2, 0.0)
    spread = np.sqrt(squares / max(number - 2, 1)) / _SD_OF_WINSORISED
    back = np.argsort(order, axis=-1, kind="stable")
    centre, spread = (np.take_along_axis(each, back, axis=-1) for each in (centre + origin, spread))
    return Spread(centre, spread, np.full(values.shape, number - 1))


def _quantile_without(ordered: Floats, rank: npt.NDArray[np.int64], share: float) -> Floats:
    """Quantile along the last axis of values in order, without the one of each `rank`."""
    place = share * (ordered.shape[-1] - 2)
    low, high = math.floor(place), math.ceil(place)
    bounds = [np.take_along_axis(ordered, each + (rank <= each), axis=-1) for each in (low, high)]
    return np.asarray(bounds[0] + (bounds[1] - bounds[0]) * (place - low))


def _count_below(ordered: Floats, bounds: Floats) -> npt.NDArray[np.int64]:
    """How many of the values along the last axis are less than each bound."""
    order = np.argsort(np.concatenate([bounds, ordered], axis=-1), axis=-1, kind="stable")
    counts = np.empty_like(order)
    np.put_along_axis(counts, order, np.cumsum(order >= bounds.shape[-1], axis=-1), axis=-1)
    return counts[..., : bounds.shape[-1]]


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
