"""Ratios of medians: what their intervals cover, and what tests of them come to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricheck.statistics.iterations import RatioTest, Truth, ratio_interval
from tests.support.effort import effort


def ratio_test(
    ratio: float, *, bound: float = 1.0, noise: float = 0.0, above: bool = True, count: int = 30
) -> RatioTest:
    spread = 1 + noise * np.linspace(-1, 1, count)
    return RatioTest([ratio * spread], [np.ones(count)], bound, above=above)


@settings(max_examples=effort(30))
@given(
    values=st.lists(st.floats(0.1, 10), min_size=30, max_size=60),
    others=st.lists(st.floats(0.1, 10), min_size=30, max_size=60),
    factor=st.floats(0.1, 10),
)
def test_an_interval_has_the_ratio_in_it_and_goes_with_the_unit(
    values: list[float], others: list[float], factor: float
) -> None:
    low, high = ratio_interval([values], [others])
    assert low <= np.median(values) / np.median(others) <= high
    assert ratio_interval([np.array(values) * factor], [others]) == pytest.approx((low * factor, high * factor))
    assert ratio_interval([others], [values]) == pytest.approx((1 / high, 1 / low))
    wider = ratio_interval([values], [others], 0.999)
    assert wider[0] <= low and high <= wider[1]
    both_ways = ratio_interval([values, others], [others, values])
    assert both_ways[0] <= 1 + 1e-9 and both_ways[1] >= 1 - 1e-9


def test_an_interval_covers_as_often_as_it_says() -> None:
    generator = np.random.default_rng(7)
    covered = 0
    for _ in range(200):
        low, high = ratio_interval([generator.lognormal(0.3, 0.2, 40)], [generator.lognormal(0, 0.4, 25)])
        covered += low <= np.exp(0.3) <= high
    assert covered >= 0.95 * 200


def test_too_few_values_say_nothing() -> None:
    assert ratio_interval([[2.0] * 6], [[1.0] * 40]) == (0, float("inf"))
    assert ratio_interval([[2.0] * 7], [[1.0] * 40]) == (2, 2)
    assert ratio_test(2, count=6).truth() is None
    assert ratio_test(2, count=8).truth() is True
    assert ratio_test(2, count=8).truth(100) is None
    with pytest.raises(ValueError, match="above 0"):
        ratio_interval([[0.0] * 9], [[1.0] * 9])


@pytest.mark.parametrize(
    ("ratio", "noise", "truth"),
    [(1.2, 0, True), (0.8, 0, False), (1.02, 0.2, None), (0.98, 0.2, None), (1.0, 0, False)],
)
def test_a_ratio_is_inconclusive_where_the_bound_lies_in_the_interval(ratio: float, noise: float, truth: Truth) -> None:
    assert ratio_test(ratio, noise=noise).truth() is truth
    assert ratio_test(ratio, noise=noise, above=False).truth() is (None if truth is None else not truth)
