"""Of many groups of equals at once none with an outlier is left out."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.many_groups import may_be_outliers
from tests.statistics.test_outliers import ERROR, LEAST, found, pairs


@given(gpus=st.integers(3, 8), seed=st.integers(0, 10_000), loss=st.floats(0, 0.02))
def test_no_group_with_an_outlier_is_left_out(gpus: int, seed: int, loss: float) -> None:
    ways, parts = pairs(gpus)
    values = np.random.default_rng(seed).normal(0, 0.0015, (4, len(ways)))
    values[1, 0] += loss
    values[2] += [loss * (1 in way) for way in ways]
    inside = np.full(values.shape, 0.001)
    together = may_be_outliers(values, inside, parts, LEAST, ERROR).tolist()
    alone = [bool(found(each, parts)) for each in values]
    assert all(may or not is_one for may, is_one in zip(together, alone, strict=True))
