from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fabricheck.diagnosis.ratios import (
    find_slowdowns,
    slowdown,
    slowdowns,
)
from fabricheck.errors import UserError
from fabricheck.judge.expectations import expect_from_topology
from fabricheck.judge.policy import Policy
from fabricheck.records.run import Samples
from fabricheck.results.fabricbench import read_run
from tests.support.made_runs import MIB, made_case, made_run, made_samples
from tests.support.nodes import system
from tests.support.result_files import PATTERNS

NODE = ["nid001"] * 4
SIZES = [1 << 10, 1 << 14, 1 << 18, 1 << 22]


def test_slowdowns_of_a_run_are_of_every_victim_and_size() -> None:
    found = list(slowdowns(read_run(PATTERNS)))
    assert [(each.alone.operation, each.alone.bytes) for each in found] == [
        ("victim_pingpong_incast", 1024),
        ("victim_pingpong_incast", 262144),
        ("victim_alltoall_alltoall", 1024),
        ("victim_alltoall_alltoall", 262144),
    ]
    first = found[0]
    assert first.median == pytest.approx(np.median(first.beside.times_ns) / np.median(first.alone.times_ns))


def test_twice_the_time_is_a_slowdown_of_two() -> None:
    alone = next(slowdowns(read_run(PATTERNS))).alone
    found = slowdown(alone, replace(alone, schedule="contended", times_ns=alone.times_ns * 2))
    assert [found.median, found.p99] == pytest.approx([2, 2])


def test_a_slowdown_is_of_one_victim_in_this_order() -> None:
    one, other = list(slowdowns(read_run(PATTERNS)))[:2]
    for alone, beside in ((one.beside, one.alone), (one.alone, other.beside), (one.alone, one.alone)):
        with pytest.raises(UserError, match="one victim"):
            slowdown(alone, beside)


def test_every_pattern_of_a_run_has_an_expectation() -> None:
    run = read_run(PATTERNS)
    expect = expect_from_topology(run, system("local"), Policy())
    for samples in run.samples:
        found = expect(samples, "goodput")
        assert found.expected is not None, samples.operation
        assert found.floor_fraction > 0
    alone, beside = (expect(each, "goodput") for each in run.samples[-2:])
    assert beside.floor_fraction == pytest.approx(alone.floor_fraction / 2)


def victim(size: int, schedule: str, gbps: list[float]) -> Samples:
    return made_samples("victim_alltoall_incast", (0, 2), size, gbps, schedule=schedule)


def test_the_worst_victim_of_a_pattern_is_named_for_the_median_and_for_the_tail() -> None:
    samples = [
        victim(1024, "uncontended", [10.0] * 100),
        victim(1024, "contended", [5.0] * 100),
        victim(MIB, "uncontended", [10.0] * 100),
        victim(MIB, "contended", [8.0] * 95 + [1.0] * 5),
    ]
    run = made_run(["nid1", "nid2", "nid3", "nid4"], samples)
    (found,) = find_slowdowns(made_case(run))
    assert not found.is_problem
    assert found.message.startswith("victim_alltoall_incast (mpi, openmpi): ")
    assert "under competing traffic the median time is up to 2 x (1KiB, ranks 0, 2)" in found.message
    assert "the 99th percentile 10 x (1MiB, ranks 0, 2)" in found.message
    assert not list(find_slowdowns(made_case(replace(run, footer=None))))
    assert not list(find_slowdowns(made_case(replace(run, samples=run.samples[:1]))))
    assert [each.message.split(" ")[0] for each in find_slowdowns(made_case(read_run(PATTERNS)))] == [
        "victim_pingpong_incast",
        "victim_alltoall_alltoall",
    ]
