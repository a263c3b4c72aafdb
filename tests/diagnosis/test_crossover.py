"""*CCL beside MPI: who is faster from which size on, and when nobody can say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fabricheck.diagnosis.case_runs import CaseRun
from fabricheck.diagnosis.crossover import Crossover, comparisons, crossover, find_crossovers
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from tests.support.findings import bad_finding
from tests.support.made_runs import MIB, made_case, made_run, made_samples, noisy

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
