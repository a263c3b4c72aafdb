"""When two benchmarks agree, and when nothing was shown."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.diagnosis.cross_check import (
    CrossCheckedSize,
    Round,
    compare,
    compare_rounds,
    one_way_us,
    table,
)
from fabricheck.records.metrics import LARGE_BYTES
from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict


def judged(*ratios: float, size: int = LARGE_BYTES) -> CrossCheckedSize:
    return compare("allreduce", size, [Round(100 * each, 100) for each in ratios], unit="Gb/s", tool="osu")


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


def test_two_that_agree() -> None:
    assert judged(*[1.0, 1.01, 0.99, 1.02, 0.98, 1.0]).verdict is Verdict.PASS


@pytest.mark.parametrize("ratio", [0.969, 1.031])
def test_outside_three_per_cent_is_degraded_with_both_numbers(ratio: float) -> None:
    found = judged(*[ratio] * 6)
    assert found.verdict is Verdict.DEGRADED
    for said in (f"fabricbench {100 * ratio:.4g} Gb/s", "osu 100 Gb/s", f"ratio {ratio:.3f}", "6 rounds"):
        assert said in found.reason


@pytest.mark.parametrize("ratio", [0.971, 1.029])
def test_inside_three_per_cent_is_not(ratio: float) -> None:
    assert judged(*[ratio] * 6).verdict is Verdict.PASS


def test_noise_is_no_agreement() -> None:
    found = judged(*[0.8, 0.9, 1.0, 1.0, 1.1, 1.2])
    assert found.ratio == pytest.approx(1.0)
    assert found.verdict is Verdict.DEGRADED
    assert "too noisy" in found.reason


def test_small_sizes_are_reported_and_not_judged() -> None:
    found = judged(*[2.0] * 6, size=8)
    assert found.verdict is Verdict.PASS
    assert "not judged" in found.reason


@pytest.mark.parametrize("size", [8, LARGE_BYTES])
def test_too_few_rounds_are_incomplete(size: int) -> None:
    assert judged(*[1.0] * 5, size=size).verdict is Verdict.INCOMPLETE
    assert judged(size=size).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("number", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("size", [8, LARGE_BYTES])
def test_what_is_no_measurement_is_invalid(number: float, size: int) -> None:
    rounds = [Round(1, 1)] * 6
    for bad in (Round(number, 1), Round(1, number)):
        found = compare("allreduce", size, [*rounds, bad], unit="us", tool="osu")
        assert found.verdict is Verdict.INVALID


@given(st.lists(st.floats(0.5, 2), min_size=6, max_size=30), st.floats(0.1, 1e6))
def test_what_drifts_from_round_to_round_cancels(drift: list[float], theirs: float) -> None:
    rounds = [Round(1.01 * each * theirs, each * theirs) for each in drift]
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


def test_without_rounds_nothing_is_compared() -> None:
    assert compare_rounds([], [], "osu") == ()


def test_the_table_has_a_line_for_each() -> None:
    (line,) = table([judged(*[1.0] * 6)]).splitlines()[2:]
    assert line == f"| allreduce | {LARGE_BYTES} | 100 | 100 | Gb/s | 1.000 | 1.000 to 1.000 | PASS |"


def test_what_is_over_at_once_is_not_judged() -> None:
    """16 MiB at 3,000 Gb/s take 45 us, of which the start is a part that counts."""
    rounds = [Round(1.05 * 3000, 3000)] * 6
    assert compare("alltoall", LARGE_BYTES, rounds, unit="Gb/s", tool="osu").verdict is Verdict.PASS
    assert compare("alltoall", 16 * LARGE_BYTES, rounds, unit="Gb/s", tool="osu").verdict is Verdict.DEGRADED
