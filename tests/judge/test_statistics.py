from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from fabricheck.judge.statistics import fewest_for_interval, median_interval, summarize

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


@pytest.mark.parametrize(("count", "low", "high"), [(6, 1, 6), (9, 2, 8), (20, 6, 15), (100, 40, 61)])
def test_the_ranks_of_the_interval(count: int, low: int, high: int) -> None:
    def tail(k: int) -> float:
        return float(sum(math.comb(count, i) for i in range(k)) / 2**count)

    assert tail(low) <= 0.025 < tail(low + 1)
    assert median_interval(np.arange(1, count + 1)) == (low, high)


def test_six_values_are_the_fewest_for_95_percent() -> None:
    assert fewest_for_interval() == 6
    assert fewest_for_interval(0.5) == 2


@pytest.mark.parametrize("count", [6, 25, 200])
@pytest.mark.parametrize("distribution", ["lognormal", "two modes", "uniform"])
def test_the_coverage_holds_for_skewed_and_bimodal_times(count: int, distribution: str) -> None:
    random = np.random.default_rng(20261121)
    trials = 4000
    if distribution == "lognormal":
        data, truth = random.lognormal(0, 1, (trials, count)), 1.0
    elif distribution == "uniform":
        data, truth = random.uniform(0, 1, (trials, count)), 0.5
    else:
        slow = random.random((trials, count)) < 0.3
        data = random.normal(10, 1, (trials, count)) + np.where(slow, 100.0, 0.0)
        truth = 10 + 0.5659488219328631  # normal quantile of 0.5 / 0.7
    bounds = np.array([median_interval(row) for row in data])
    covered = float(np.mean((bounds[:, 0] <= truth) & (truth <= bounds[:, 1])))
    rank, _ = median_interval(np.arange(1, count + 1))
    exact = float(1 - 2 * binom.cdf(rank - 1, count, 0.5))
    assert exact >= 0.95
    # Four standard deviations of a simulation with this many trials.
    assert covered == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / trials))


@given(values)
def test_a_summary_is_in_order(data: list[float]) -> None:
    found = summarize(data)
    assert found.count == len(data)
    assert found.min <= found.p5 <= found.p25 <= found.median <= found.p75 <= found.p95 <= found.max
    assert found.min <= found.mean <= found.max
    assert (found.min, found.max) == (min(data), max(data))


def test_a_summary_of_known_values() -> None:
    found = summarize(np.arange(101))
    assert (found.p5, found.p25, found.median, found.p75, found.p95, found.mean) == (5, 25, 50, 75, 95, 50)


@pytest.mark.parametrize("bad", [[], [1.0, math.nan], [math.inf], [[1.0, 2.0]]])
def test_what_has_no_statistics_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="finite values"):
        summarize(bad)
    with pytest.raises(ValueError, match="finite values"):
        median_interval(bad)


@pytest.mark.parametrize("confidence", [0.0, 1.0, math.nan])
def test_a_confidence_is_between_0_and_1(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence"):
        median_interval([1.0], confidence)
