"""Which of very many groups of equals can have an outlier: `statistics.outliers` for simulations of sessions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fabricheck.statistics import outliers as judge
from fabricheck.statistics.outliers import PRIOR_FREEDOM, CrossedParts, Floats, T


def may_be_outliers(
    values: Floats, inside: Floats, parts: Sequence[CrossedParts[T]], least_spread: float, error: float
) -> npt.NDArray[np.bool_]:
    """Whether `outliers` can find any in each of several groups, whose members cross the same parts: shape (groups,),
    of `values` and `inside` of shape (groups, n). Much faster where few groups have any: only splits are looked at that
    were beyond chance if nothing were left within their sides."""
    count = values.shape[-1]
    prior = np.maximum(least_spread, np.median(inside, axis=-1))
    shared = judge._shared(parts)
    masks = judge._masks(shared, count)
    within = PRIOR_FREEDOM / (PRIOR_FREEDOM + max(count - 2, 0)) * prior**2
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    outlying = np.zeros(len(values), dtype=bool)
    for number in range(-1, len(masks)):
        mask, tests = (masks[number], len(shared)) if number >= 0 else (np.arange(count) == count - 1, count)
        own = values if number >= 0 else ordered  # a single one is the worst
        sizes = mask.sum(), count - mask.sum()
        bound = judge._quantile(error / (2 * tests), int(judge._freedom(*sizes)))
        weight = judge._weight(sizes[0]) + judge._weight(sizes[1])
        reach = bound * np.sqrt(within * weight)
        slow = _middle(np.sort(own[:, mask], axis=-1))
        fastest = _middle(ordered[:, : sizes[1]])  # the rest has no smaller median
        left = np.flatnonzero(~outlying & (slow - fastest > reach))
        rest = _middle(np.sort(own[left][:, ~mask], axis=-1))
        left = left[slow[left] - rest > reach[left]]
        if left.size:
            sides = np.broadcast_to(mask, (left.size, 1, count))
            own_inside = inside if number >= 0 else np.take_along_axis(inside, order, axis=-1)
            outlying[left] = judge._split(own[left], own_inside[left], sides, prior[left]).statistic[:, 0] > bound
    return outlying


def _middle(ordered: Floats) -> Floats:
    """The median of sorted values, shape (..., n)."""
    count = ordered.shape[-1]
    return np.asarray((ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2)
