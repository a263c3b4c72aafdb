from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fabricheck.diagnosis.case_runs import CaseRun
from fabricheck.diagnosis.ratios import (
    Crossover,
    comparisons,
    crossover,
    find_crossovers,
    find_slowdowns,
    slowdown,
    slowdowns,
)
from fabricheck.errors import UserError
from fabricheck.judge.expectations import expect_from_topology
from fabricheck.judge.policy import Policy
from fabricheck.records.finding import Finding
from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from tests.support.findings import bad_finding
from tests.support.made_runs import MIB, made_case, made_run, made_samples, noisy
from tests.support.nodes import system
from tests.support.result_files import PATTERNS

NODE = ["nid001"] * 4
SIZES = [1 << 10, 1 << 14, 1 << 18, 1 << 22]


def session(ratios: Sequence[float], *, noise: float = 0.01, seed: int = 0) -> list[CaseRun]:
    """*CCL is `ratios` times as fast as MPI, size by size."""
    mpi, ccl = (
        [
            made_samples(
                "allreduce", range(4), size, noisy(100 * factor, noise=noise, seed=of), implementation="library"
            )
            for of, (size, factor) in enumerate(zip(SIZES, factors, strict=True), start=seed + start)
        ]
        for start, factors in ((0, [1.0] * 4), (50, ratios))
    )
    return [
        made_case(made_run(NODE, ccl, transport="ccl", devices=True), environment="openmpi"),
        made_case(made_run(NODE, mpi, devices=True), environment="mpich"),
    ]


@pytest.mark.parametrize(
    ("ratios", "found", "said"),
    [
        ([2, 2, 3, 4], Crossover("*CCL"), "*CCL is always faster"),
        ([0.5, 0.4, 0.3, 0.9], Crossover("MPI"), "MPI is always faster, *CCL never"),
        ([0.5, 0.9, 2, 4], Crossover("*CCL", SIZES[1], SIZES[2]), "between 16KiB and 256KiB"),
        ([0.5, 1, 1, 4], Crossover("*CCL", SIZES[0], SIZES[3]), "between 1KiB and 4MiB"),
        ([1, 2, 3, 4], Crossover("*CCL", None, SIZES[1]), "from 16KiB or less on, and never slower"),
        (
            [2, 0.5, 0.5, 0.5],
            Crossover("MPI", SIZES[0], SIZES[1]),
            "MPI is faster for large sizes; the crossover is between 1KiB and 16KiB",
        ),
        ([2, 0.5, 2, 4], Crossover("*CCL", SIZES[1], SIZES[2]), "between 16KiB and 256KiB"),
        ([2, 2, 2, 1], Crossover(""), "neither is certainly faster"),
    ],
)
def test_a_crossover_lies_between_the_sizes_at_which_each_is_certainly_faster(
    ratios: list[float], found: Crossover, said: str
) -> None:
    (comparison,) = comparisons(session(ratios))
    assert comparison.crossover == found
    assert said in comparison.message
    assert [each.ratio for each in comparison.sizes] == pytest.approx(ratios, rel=0.01)
    assert comparison.environment == "mpich"


def test_noise_seldom_makes_one_faster() -> None:
    """The intervals hold at 95%: of a hundred comparisons of the same, at most five may say otherwise."""
    wrong = 0
    for seed in range(25):
        ccl, mpi = session([1, 1, 1, 1], noise=0.2, seed=100 * seed)
        (comparison,) = comparisons([ccl, mpi])
        wrong += sum(each.faster != "" for each in comparison.sizes)
    assert wrong <= 5


def test_a_pair_that_is_otherwise_is_inconclusive() -> None:
    mpi = [made_samples("pingpong", pair, MIB, 100) for pair in ((0, 1), (1, 0))]
    ccl = [made_samples("pingpong", pair, MIB, gbps) for pair, gbps in (((0, 1), 200), ((1, 0), 90))]
    runs = [made_case(made_run(NODE, ccl, transport="ccl", devices=True)), made_case(made_run(NODE, mpi, devices=True))]
    (comparison,) = comparisons(runs)
    (at_size,) = comparison.sizes
    assert (at_size.ratio, *at_size.interval) == pytest.approx((1.45, 0.9, 2.0), rel=1e-4)
    assert comparison.crossover == Crossover("")
    assert "pingpong, 2 pairs on 1 node" in comparison.message


def test_only_the_same_test_on_the_same_devices_is_compared() -> None:
    ccl, mpi = session([2, 2, 2, 2])
    elsewhere = made_case(made_run(["nid002"] * 4, mpi.run.samples, devices=True))
    assert not list(comparisons([ccl, elsewhere]))
    assert not list(comparisons([ccl, made_case(mpi.run, test="Other")]))
    assert not list(comparisons([ccl, made_case(mpi.run, trusted=False)]))
    broken = bad_finding(Verdict.INVALID, "another transport")
    assert not list(comparisons([ccl, made_case(made_run(NODE, mpi.run.samples, devices=True, problems=[broken]))]))
    mixed = made_run(NODE, mpi.run.samples, devices=True, plan={"buffers": "host-device"})
    assert not list(comparisons([ccl, made_case(mixed)]))
    assert len(list(comparisons([ccl, mpi]))) == 1


def test_a_library_that_needs_no_mpi_stands_beside_every_mpi_library() -> None:
    ccl, mpi = session([2, 2, 2, 2])
    found = list(comparisons([ccl, mpi, made_case(mpi.run, environment="openmpi")]))
    assert [each.environment for each in found] == ["mpich", "openmpi"]
    assert [type(each) for each in find_crossovers([ccl, mpi])] == [Finding]


def test_repetitions_count_together() -> None:
    ccl, mpi = session([2, 2, 2, 2])
    slow, _ = session([0.5, 0.5, 0.5, 0.5])
    (comparison,) = comparisons([ccl, slow, mpi])
    assert not any(each.faster for each in comparison.sizes)


def test_no_sizes_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least one"):
        crossover([])


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
