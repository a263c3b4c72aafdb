"""Which order statistics stand for a long series, and the series that they stand for.

fabricbench keeps the same ones (`kept_ranks` in src/fabricbench/statistics.cpp).
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

import numpy as np
import numpy.typing as npt

#: A longer series is kept whole.
LONGEST = 1 << 20

# Every 5% of the series, and every quarter of its square root around the middle, as far as six standard deviations of
# the median's rank (half that root), so that an interval of the median is cut short by none.
_SHARES = 20
_STEPS = 12


@lru_cache(maxsize=4096)  # runs have few different numbers of iterations, and many series
def kept_ranks(count: int) -> npt.NDArray[np.int64]:
    """The places from 0 up, in ascending order, of the values that are kept of a sorted series of `count`."""
    last, root = count - 1, isqrt(count)
    quantiles = {last * share // _SHARES for share in range(_SHARES + 1)}
    steps = [step * root // 4 for step in range(_STEPS + 1)]
    middle = {place for step in steps for place in (last // 2 - step, (last + 1) // 2 + step)}
    ranks = np.array(sorted(place for place in quantiles | middle if 0 <= place <= last), dtype=np.int64)
    ranks.flags.writeable = False
    return ranks


def as_series(kept: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.float64]:
    """A series of `count` values, ascending, with those that were kept in their places; linear in between."""
    series: npt.NDArray[np.float64] = np.interp(np.arange(count), kept_ranks(count), kept.astype(np.float64))
    return series
