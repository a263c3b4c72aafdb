"""When two benchmarks agree, and when nothing was shown."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.diagnosis.cross_check import CrossCheckedSize, compare, compare_rounds, one_way_us
from fabricheck.records.metrics import LARGE_BYTES
from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict


def judged(*ratios: float, size: int = LARGE_BYTES) -> CrossCheckedSize:
    return compare("allreduce", size, [(100 * each, 100.0) for each in ratios], unit="Gb/s", tool="osu")


def samples(
    *times: int, size: int = LARGE_BYTES, statistic: str = "iterations", operation: str = "alltoall"
) -> Samples:
    return Samples(
        operation,
        "library",
        "uncontended",
        -1,
        (0, 1),
        size,
        0,
        "fixed",
        0,
        np.array(times),
        statistic,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("ratios", "size", "verdict"),
    [
        ([1.0, 1.01, 0.99, 1.02, 0.98, 1.0], LARGE_BYTES, Verdict.PASS),
        ([0.971] * 6, LARGE_BYTES, Verdict.PASS),
        ([1.029] * 6, LARGE_BYTES, Verdict.PASS),
        ([0.969] * 6, LARGE_BYTES, Verdict.DEGRADED),
        ([1.031] * 6, LARGE_BYTES, Verdict.DEGRADED),
        ([0.8, 0.9, 1.0, 1.0, 1.1, 1.2], LARGE_BYTES, Verdict.DEGRADED),  # too noisy to agree
        ([2.0] * 6, 8, Verdict.PASS),  # small sizes are not judged
        ([1.0] * 5, 8, Verdict.INCOMPLETE),
        ([1.0] * 5, LARGE_BYTES, Verdict.INCOMPLETE),
        ([], LARGE_BYTES, Verdict.INCOMPLETE),
    ],
)
def test_two_agree_within_three_per_cent_or_not(ratios: list[float], size: int, verdict: Verdict) -> None:
    assert judged(*ratios, size=size).verdict is verdict


@pytest.mark.parametrize("number", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("size", [8, LARGE_BYTES])
def test_what_is_no_measurement_is_invalid(number: float, size: int) -> None:
    for bad in ((number, 1.0), (1.0, number)):
        found = compare("allreduce", size, [(1.0, 1.0)] * 6 + [bad], unit="us", tool="osu")
        assert found.verdict is Verdict.INVALID


@given(st.lists(st.floats(0.5, 2), min_size=6, max_size=30), st.floats(0.1, 1e6))
def test_what_drifts_from_round_to_round_cancels(drift: list[float], theirs: float) -> None:
    rounds = [(1.01 * each * theirs, each * theirs) for each in drift]
    found = compare("allreduce", LARGE_BYTES, rounds, unit="us", tool="osu")
    assert found.verdict is Verdict.PASS
    assert found.ratio == pytest.approx(1.01)
    assert found.interval[0] <= found.ratio <= found.interval[1]


def test_a_mean_is_compared_with_the_mean() -> None:
    ours = samples(1000, 1000, 4000)
    assert one_way_us(ours) == 1.0
    assert one_way_us(ours, "mean") == 2.0
    (found,) = compare_rounds([[ours]] * 6, [[samples(2000, statistic="mean")]] * 6, "osu")
    assert found.ratio == 1.0
    assert found.unit == "Gb/s"
    assert found.ours == pytest.approx(8 * LARGE_BYTES / 2000)


def test_a_round_trip_counts_half() -> None:
    small = samples(2000, size=8, operation="pingpong")
    (found,) = compare_rounds([[small]] * 6, [[small]] * 6, "osu")
    assert (found.ours, found.unit) == (1.0, "us")


def test_a_size_that_the_suite_does_not_have_is_incomplete() -> None:
    ours = [[samples(1000), samples(1000, size=2 * LARGE_BYTES)]] * 6
    found = compare_rounds(ours, [[samples(1000)]] * 6, "osu")
    assert [each.verdict for each in found] == [Verdict.PASS, Verdict.INCOMPLETE]


def test_what_is_over_at_once_is_not_judged() -> None:
    """16 MiB at 3,000 Gb/s take 45 us, of which the start is a part that counts."""
    rounds = [(1.05 * 3000, 3000.0)] * 6
    assert compare("alltoall", LARGE_BYTES, rounds, unit="Gb/s", tool="osu").verdict is Verdict.PASS
    assert compare("alltoall", 16 * LARGE_BYTES, rounds, unit="Gb/s", tool="osu").verdict is Verdict.DEGRADED
