from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter
from scipy.stats import binom

from fabricheck.statistics.iterations import fewest_for_interval, median_interval

values = st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=300)


@given(values)
def test_the_interval_is_made_of_values_and_holds_the_median(data: list[float]) -> None:
    low, high = median_interval(data)
    assert low in data
    assert high in data
    assert low <= np.median(data) <= high


@given(st.integers(1, 500), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_interval_is_the_narrowest_that_covers_enough(count: int, confidence: float) -> None:
    low, high = median_interval(np.arange(1, count + 1), confidence)
    k = int(low)
    assert high == count + 1 - k
    covered = 1 - 2 * binom.cdf(k - 1, count, 0.5)
    if count >= fewest_for_interval(confidence):
        assert covered >= confidence
        assert 1 - 2 * binom.cdf(k, count, 0.5) < confidence or 2 * k >= count
    else:
        assert (low, high) == (1, count)
        assert covered < confidence


def autocorrelated(correlation: float, shape: tuple[int, int]) -> np.ndarray:
    noise = np.random.default_rng(20261123).normal(0, math.sqrt(1 - correlation**2), shape)
    noise[:, 0] /= math.sqrt(1 - correlation**2)
    return np.asarray(lfilter([1], [1, -correlation], noise, axis=1))


@pytest.mark.parametrize(
    ("correlation", "count", "independent"),
    [(0.0, 100, 0.93), (0.5, 200, 0.85), (0.9, 1000, 0.45), (0.98, 400, 0.25)],
)
def test_the_interval_of_iterations_that_depend_on_each_other_covers_their_median(
    correlation: float, count: int, independent: float
) -> None:
    def covered(in_order: bool) -> float:
        bounds = [median_interval(row, in_order=in_order) for row in series]
        return float(np.mean([low <= 0 <= high for low, high in bounds]))

    series = autocorrelated(correlation, (1000, count))
    assert covered(in_order=True) >= 0.91
    assert correlation == 0 or covered(in_order=False) <= independent


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=300), st.sampled_from([0.5, 0.95, 0.999]))
def test_the_interval_of_a_series_is_never_narrower_than_that_of_independent_values(
    data: list[float], confidence: float
) -> None:
    low, high = median_interval(data, confidence, in_order=True)
    inner_low, inner_high = median_interval(data, confidence)
    assert low <= inner_low <= np.median(data) <= inner_high <= high
    if len(data) < 20:
        assert (low, high) == (inner_low, inner_high)


def test_a_series_that_drifts_has_a_wide_interval_and_equal_values_one_of_no_width() -> None:
    assert median_interval(np.arange(100), in_order=True) == (0, 99)
    assert median_interval(np.ones(100), in_order=True) == (1, 1)


@pytest.mark.parametrize("bad", [[], [1.0, math.nan], [math.inf], [[1.0, 2.0]]])
def test_what_has_no_statistics_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="finite values"):
        median_interval(bad)


@pytest.mark.parametrize("confidence", [0.0, 1.0, math.nan])
def test_a_confidence_is_between_0_and_1(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence"):
        median_interval([1.0], confidence)
