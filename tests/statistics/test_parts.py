"""The metrics of a part together: whose sum is beyond what healthy ones share."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.statistics.parts import Together, parts_of, scores_of, slow_parts, standardised

PAIRS = list(itertools.permutations(range(4), 2))
NONE = Together({}, 0.0, {}, 5.0)


def crossed(node: str) -> list[list[str]]:
    return [[node, f"{node}:gpu{a}", f"{node}:gpu{b}", f"{node}:gpu{min(a, b)}-gpu{max(a, b)}"] for a, b in PAIRS]


COMPONENTS = [*crossed("n1"), *crossed("n2")]
LAUNCH = np.repeat([0, 1], len(PAIRS))
PARTS = parts_of(COMPONENTS, LAUNCH)


def named(values: np.ndarray, together: Together = NONE) -> list[tuple[str, ...]]:
    return [each.part.names for each in slow_parts(values, 0.01 * values, LAUNCH, PARTS, together)]


def test_parts_are_what_two_metrics_cross() -> None:
    names = {each.names for each in PARTS}
    assert names == {
        (),
        *((node,) for node in ("n1", "n2")),
        *((f"{node}:gpu{gpu}",) for node in ("n1", "n2") for gpu in range(4)),
        *((f"{node}:gpu{a}-gpu{b}",) for node in ("n1", "n2") for a, b in itertools.combinations(range(4), 2)),
    }
    (node,) = (each for each in PARTS if each.names == ("n1",))
    assert node.kinds == ("launch", "node")
    (session,) = (each for each in PARTS if each.names == ())
    assert (session.kinds, session.metrics.size) == (("session",), 24)


def test_a_part_of_several_launches_is_judged_in_each_and_in_all() -> None:
    parts = parts_of([["n1"]] * 4, np.array([0, 0, 1, 1]))
    assert sorted(each.metrics.tolist() for each in parts) == [[0, 1], [0, 1, 2, 3], [2, 3]]


def test_a_slow_gpu_is_named_although_no_metric_alone_is_slow_and_a_second_one_after_it() -> None:
    values = np.random.default_rng(1).standard_normal(24)
    assert named(values) == []
    values[[0 in pair for pair in PAIRS] + [False] * 12] += 3
    assert named(values) == [("n1:gpu0",)]
    values[[False] * 12 + [set(pair) == {2, 3} for pair in PAIRS]] += 6
    assert sorted(named(values)) == [("n1:gpu0",), ("n2:gpu2-gpu3",)]


def test_a_level_of_all_that_drifts_by_less_than_is_measured_hides_no_part() -> None:
    values = np.random.default_rng(1).standard_normal(24) + 3
    worse = np.full(24, 0.0022)
    assert list(slow_parts(values, worse, LAUNCH, PARTS, NONE)) == []
    of_gpu = np.array([0 in pair for pair in PAIRS] + [False] * 12)
    found = slow_parts(values + of_gpu, worse + 0.005 * of_gpu, LAUNCH, PARTS, NONE)
    assert [each.part.names for each in found] == [("n1:gpu0",)]


def test_what_launches_share_in_healthy_sessions_is_no_slow_part() -> None:
    values = np.random.default_rng(2).standard_normal(24) + np.repeat([2.5, 0.0], 12)
    assert named(values) == [("n1",)]
    assert named(values / np.sqrt(7.25), Together({}, 0.86, {}, 5.0)) == []
    assert named(values, Together({}, 0.0, {"node": 2.0, "gpu": 2.0, "gpu-gpu": 2.0, "session": 2.0}, 5.0)) == []


@given(st.integers(0, 2**32 - 1), st.floats(0, 0.9))
def test_scores_are_standard_normal_whatever_launches_share(seed: int, shared: float) -> None:
    rng = np.random.default_rng(seed)
    own = rng.standard_normal((400, 24))
    values = np.sqrt(shared) * rng.standard_normal((400, 2))[:, LAUNCH] + np.sqrt(1 - shared) * own
    scores = np.array([standardised(*scores_of(one, LAUNCH, PARTS, shared), PARTS, {}) for one in values])
    assert np.abs(scores.mean(axis=0)).max() < 0.3
    assert scores.std(axis=0) == pytest.approx(np.ones(len(PARTS)), abs=0.25)


def test_metrics_that_say_nothing_count_for_nothing() -> None:
    values = np.full(24, np.nan)
    assert named(values) == []
    values[:12] = 4.0
    assert named(values)[0] == ("n1",)
    assert list(slow_parts(np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64), (), NONE)) == []
