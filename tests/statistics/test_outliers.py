"""Which of several equals are slow: the right ones, named by what they share, and none that are healthy."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.statistics.outliers import CrossedParts, Outlier, critical_value, outliers

LEAST, ERROR = 0.0015, 1.2e-5


def pairs(gpus: int) -> tuple[list[tuple[int, int]], list[CrossedParts[str]]]:
    ways = list(permutations(range(gpus), 2))
    parts = [
        CrossedParts((f"gpu{a}", f"gpu{b}"), (f"gpu{min(a, b)}-gpu{max(a, b)}", f"gpu{a} sending", f"gpu{b} receiving"))
        for a, b in ways
    ]
    return ways, parts


def found(values: np.ndarray, parts: list[CrossedParts[str]], inside: float = 0.001) -> tuple[Outlier, ...]:
    return outliers(values, np.full(values.size, inside), parts, LEAST, ERROR)


@given(
    gpus=st.integers(2, 6),
    slow=st.integers(0, 29),
    loss=st.floats(0.03, 0.5),
    level=st.floats(-10, 10),
    seed=st.integers(0, 1000),
)
def test_one_slow_pair_is_found_and_no_other(gpus: int, slow: int, loss: float, level: float, seed: int) -> None:
    ways, parts = pairs(gpus)
    values = level + np.random.default_rng(seed).normal(0, 0.0005, len(ways))
    values[slow % len(ways)] += loss
    (one,) = found(values, parts)
    assert one.members == (slow % len(ways),)
    assert one.equals == len(ways) - 1
    assert one.excess == pytest.approx(loss, abs=0.005)
    assert one.p < ERROR


@pytest.mark.parametrize("gpus", [3, 4, 8])
def test_a_slow_gpu_is_found_as_one(gpus: int) -> None:
    ways, parts = pairs(gpus)
    values = np.random.default_rng(gpus).normal(0, 0.0005, len(ways)) + [0.03 * (1 in way) for way in ways]
    (one,) = found(values, parts)
    assert {ways[member] for member in one.members} == {way for way in ways if 1 in way}


def test_what_is_slow_in_one_direction_and_two_slow_gpus_are_found_as_one() -> None:
    ways, parts = pairs(4)
    noise = np.random.default_rng(1).normal(0, 0.0005, len(ways))
    for slow in (
        [way[0] == 2 for way in ways],
        [set(way) == {0, 3} for way in ways],
        [{0, 3} & {*way} for way in ways],
    ):
        (one,) = found(noise + [0.03 * bool(each) for each in slow], parts)
        assert list(one.members) == np.flatnonzero(np.array(slow, dtype=bool)).tolist()


def test_gpus_whose_levels_differ_are_not_slow_and_one_that_is_far_from_the_others_is() -> None:
    """Their levels vary by 0.4%, four times the noise of a pair, for as long as the session lasts."""
    ways, parts = pairs(8)
    accused = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        values = rng.normal(0, 0.004, 8)[np.asarray(ways)].sum(axis=1) + rng.normal(0, 0.001, len(ways))
        accused += bool(found(values, parts))
        over = {member for member, way in enumerate(ways) if 1 in way}
        assert over in [{*one.members} for one in found(values + [0.06 * (1 in way) for way in ways], parts)]
    assert accused <= 1


def test_two_faults_of_another_size_are_both_found() -> None:
    ways, parts = pairs(4)
    values = np.random.default_rng(1).normal(0, 0.0005, len(ways))
    values[[1, 10]] += [0.4, 0.03]
    assert [one.members for one in found(values, parts)] == [(1,), (10,)]


def test_iterations_that_vary_in_one_direction_do_not_hide_the_other() -> None:
    """Seen on an emulated node: a link at half its rate, and one way three of eight iterations were slower still."""
    ways, parts = pairs(4)
    values = np.random.default_rng(4).normal(0, 0.004, len(ways))
    inside = np.full(len(ways), 0.02)
    noisy, steady = ways.index((0, 1)), ways.index((1, 0))
    values[[noisy, steady]] += 0.87, 0.69
    inside[noisy] = 0.4
    assert [one.members for one in outliers(values, inside, parts, LEAST, ERROR)] == [(steady,)]


def test_of_two_equals_the_slower_one_is_named_where_the_iterations_tell() -> None:
    _, parts = pairs(2)
    values = np.array([0.0, 0.06])
    assert [one.members for one in found(values, parts)] == [(1,)]
    assert found(values, parts, inside=0.01) == ()  # iterations that vary by 1% say nothing of 6% between two
    assert found(np.zeros(2), parts) == ()


def test_a_fast_one_makes_no_other_slow() -> None:
    ways, parts = pairs(4)
    values = np.random.default_rng(2).normal(0, 0.0005, len(ways))
    values[3] -= 0.5
    assert found(values, parts) == ()


def test_the_critical_value_is_where_a_single_equal_is_found() -> None:
    _, parts = pairs(2)
    reach = critical_value(2, np.full(2, 0.001), LEAST, ERROR)
    assert found(np.array([0.0, reach * 1.001]), parts) != ()
    assert found(np.array([0.0, reach * 0.999]), parts) == ()
