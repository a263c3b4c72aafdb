"""The eight observations on planted data: each holds, does not hold, and cannot be tested."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from fabricheck.diagnosis.case_runs import CaseRun
from fabricheck.diagnosis.observations import TAG, Answer, Observation, find_observations, observe
from fabricheck.judge.policy import Policy
from fabricheck.judge.system import SystemJudge
from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict
from tests.support.findings import bad_finding
from tests.support.made_runs import GIB, MIB, made_case, made_run, made_samples, noisy
from tests.support.nodes import system

NODE = ["nid001"] * 4
PAIRS = [(a, b) for a in range(4) for b in range(4) if a != b]
JUDGE = SystemJudge(system("hgx-h200"), None, Policy())
EMULATED = SystemJudge(system("emulated"), None, Policy())


def answers(number: int, runs: Iterable[CaseRun], judge: SystemJudge = JUDGE) -> list[Observation]:
    return [each for each in observe(runs, judge) if each.number == number]


def verdict(number: int, runs: Iterable[CaseRun], judge: SystemJudge = JUDGE) -> Answer:
    (found,) = answers(number, runs, judge)
    assert found.evidence
    return found.verdict


def gpus(transport: str, samples: Iterable[Samples], hosts: list[str] = NODE, **others: str) -> CaseRun:
    return made_case(made_run(hosts, samples, transport=transport, devices=True, environment=others))


def pingpongs(gbps: float, *, noise: float = 0.005, seed: int = 0, small: float = 0.01) -> list[Samples]:
    """Every pair of the GPUs of a node at 8 B and at 1 GiB."""
    return [
        made_samples("pingpong", pair, size, noisy(value, noise=noise, seed=seed + 2 * number + (size > MIB)))
        for number, pair in enumerate(PAIRS)
        for size, value in ((8, small), (GIB, gbps))
    ]


def collectives(
    gbps: Callable[[str, int], float], ranks: int = 4, *, noise: float = 0.005, implementation: str = "library"
) -> list[Samples]:
    """Two collectives at two sizes; `gbps` by operation and size."""
    return [
        made_samples(operation, range(ranks), size, noisy(gbps(operation, size), noise=noise, seed=size % 89 + ranks),
                     implementation=implementation)
        for operation in ("alltoall", "allreduce")
        for size in (2 * MIB, GIB)
    ]  # fmt: skip


def test_without_measurements_nothing_can_be_tested_and_each_says_what_is_missing() -> None:
    found = observe([], JUDGE)
    assert [each.number for each in found] == list(range(1, 9))
    assert {each.verdict for each in found} == {"cannot be tested here"}
    assert all(each.evidence.startswith("not measured: ") for each in found)
    assert all(each.statement and each.hypothesis and "SC24" in each.source for each in found)


# 1


@pytest.mark.parametrize(
    ("factor", "noise", "expected"),
    [
        (1.5, 0.01, "holds"),
        (0.7, 0.01, "does not hold"),
        (1.0, 0.005, "does not hold"),
        (1.03, 0.05, "cannot be tested here"),
    ],
)
def test_tuning(factor: float, noise: float, expected: Answer) -> None:
    default = gpus("ccl", pingpongs(100, noise=noise))
    tuned = gpus("ccl", pingpongs(100 * factor, noise=noise, seed=500, small=0.01), NCCL_P2P_LEVEL="NVL")
    assert verdict(1, [default, tuned]) == expected
    (found,) = answers(1, [default, tuned])
    assert "NCCL_P2P_LEVEL=NVL" in found.evidence


def test_tuning_needs_the_same_with_more_and_with_fewer_variables() -> None:
    default, tuned = gpus("ccl", pingpongs(100)), gpus("ccl", pingpongs(200), NCCL_P2P_LEVEL="NVL")
    other = gpus("ccl", pingpongs(200), NCCL_P2P_LEVEL="LOC")
    for runs in ([default], [tuned, other], [default, gpus("mpi", pingpongs(200), NCCL_P2P_LEVEL="NVL")]):
        assert verdict(1, runs) == "cannot be tested here"
    level = gpus("ccl", pingpongs(200), NCCL_IB_SL="1")
    assert verdict(1, [default, level]) == "cannot be tested here"  # is about noise


# 2 and 3


@pytest.mark.parametrize(
    ("ccl", "copy", "expected"),
    [
        (0.7, 1.0, "holds"),
        (0.7, 1.01, "holds"),
        (1.5, 0.9, "does not hold"),
        (0.9, 1.2, "does not hold"),
    ],
)
def test_mpi_has_the_highest_goodput_in_a_node(ccl: float, copy: float, expected: Answer) -> None:
    runs = [
        gpus("mpi", pingpongs(100)),
        gpus("ccl", pingpongs(100 * ccl, seed=100)),
        gpus("copy", pingpongs(100 * copy, seed=200)),
    ]
    assert verdict(2, runs) == expected


def test_mpi_is_not_highest_where_one_pair_is_not() -> None:
    slow = [
        replace(each, times_ns=each.times_ns * 2) if each.ranks == (2, 3) else each for each in pingpongs(100, seed=7)
    ]
    (found,) = answers(2, [gpus("mpi", slow), gpus("copy", pingpongs(100))])
    assert found.verdict == "does not hold"
    assert "copy ÷ MPI at most 2" in found.evidence
    assert "latency at 8B: " in found.evidence


def test_staging_alone_or_host_memory_is_no_test_of_gpu_aware_mpi() -> None:
    assert verdict(2, [gpus("mpi", pingpongs(100)), gpus("staging", pingpongs(10))]) == "cannot be tested here"
    hosts = [made_case(made_run(NODE, pingpongs(100), transport=way)) for way in ("mpi", "ccl", "copy")]
    assert {each.verdict for each in observe(hosts, JUDGE)} == {"cannot be tested here"}


@pytest.mark.parametrize(
    ("factor", "noise", "expected"),
    [(0.4, 0.01, "holds"), (0.9, 0.01, "does not hold"), (0.5, 0.1, "cannot be tested here")],
)
def test_ccl_underuses_links_of_some_pair(factor: float, noise: float, expected: Answer) -> None:
    ccl = [
        replace(each, times_ns=(each.times_ns / factor).astype(int)) if each.ranks == (0, 3) else each
        for each in pingpongs(100, noise=noise)
    ]
    runs = [gpus("ccl", ccl), gpus("copy", pingpongs(100, seed=100)), gpus("mpi", pingpongs(60, seed=200))]
    assert verdict(3, runs) == expected
    assert verdict(3, runs[:1]) == "cannot be tested here"


# 4 and 7


@pytest.mark.parametrize(
    ("small", "large", "expected"),
    [(2, 3, "holds"), (0.5, 0.9, "does not hold"), (0.5, 2, "does not hold"), (1.0, 1.01, "does not hold")],
)
def test_ccl_wins_most_collectives_of_a_node(small: float, large: float, expected: Answer) -> None:
    mpi = gpus("mpi", collectives(lambda *_: 1000))
    ccl = gpus("ccl", collectives(lambda _, size: 1000 * (small if size < GIB else large)))
    (found,) = answers(4, [mpi, ccl])
    assert found.verdict == expected
    assert found.where == "openmpi"
    assert "of 4 operations and sizes" in found.evidence
    assert "its allreduce of 1GiB reaches" in found.evidence and "of the model" in found.evidence


def test_lists_of_transfers_are_not_the_mpi_librarys_collectives() -> None:
    mpi = gpus("mpi", collectives(lambda *_: 1000, implementation="transfers"))
    assert verdict(4, [mpi, gpus("ccl", collectives(lambda *_: 2000))]) == "cannot be tested here"


def over_nodes(transport: str, nodes: int, gbps: Callable[[str, int], float], noise: float = 0.005) -> CaseRun:
    hosts = [f"nid{number:03d}" for number in range(1, nodes + 1)]
    return gpus(transport, collectives(gbps, nodes, noise=noise), hosts)


@pytest.mark.parametrize(
    ("few", "many", "small", "expected"),
    [
        (3.0, 1.5, 0.5, "holds"),
        (1.5, 3.0, 0.5, "does not hold"),  # leads by more at more nodes
        (3.0, 1.5, 2.0, "does not hold"),  # and by more with small transfers
        (0.9, 0.5, 0.5, "does not hold"),  # is no faster at all
    ],
)
def test_ccl_leads_at_few_nodes_and_large_transfers(few: float, many: float, small: float, expected: Answer) -> None:
    runs = [over_nodes("mpi", nodes, lambda *_: 10) for nodes in (2, 8)]
    runs += [
        over_nodes("ccl", nodes, lambda _, size, lead=lead: 10 * lead * (1 if size == GIB else small))  # type: ignore[misc]
        for nodes, lead in ((2, few), (8, many))
    ]
    (found,) = answers(7, runs)
    assert found.verdict == expected
    assert "alltoall of 1GiB on 2 nodes: *CCL ÷ MPI" in found.evidence
    assert verdict(7, [runs[0], runs[2]]) == "cannot be tested here"


# 5 and 6

NODES = [f"nid{number:03d}" for number in range(1, 9)]


def between_nodes(
    small: float, large: float, *, noise: float = 0.005, far: float = 1.0, seed: int = 0
) -> list[Samples]:
    """All pairs of eight nodes at 8 B and 1 MiB; those on different leaves have `far` of the goodput."""
    found = []
    for a, b in ((a, b) for a in range(8) for b in range(8) if a != b):
        share = far if (a < 4) != (b < 4) else 1.0
        for size, gbps in ((8, small), (MIB, large)):
            values = noisy(gbps * share, noise=noise, seed=seed + 100 * a + 10 * b + size % 7)
            found.append(made_samples("unidirectional", (a, b), size, values, schedule="contended"))
    return found


@pytest.mark.parametrize(
    ("small", "large", "expected"),
    [(5, 1.5, "holds"), (5, 0.8, "does not hold"), (0.8, 1.5, "does not hold"), (1.0, 1.0, "does not hold")],
)
def test_mpi_wins_between_nodes(small: float, large: float, expected: Answer) -> None:
    runs = [
        gpus("mpi", between_nodes(0.01 * small, 100 * large), NODES),
        gpus("ccl", between_nodes(0.01, 100, seed=5), NODES),
    ]
    assert verdict(5, runs, SystemJudge(None, None, Policy())) == expected
    assert verdict(5, runs[:1], SystemJudge(None, None, Policy())) == "cannot be tested here"


@pytest.mark.parametrize(
    ("far", "noise", "expected"),
    [
        (1.0, 0.001, "holds"),
        (0.8, 0.001, "does not hold"),  # goodput, as on Leonardo
        (0.99, 0.05, "cannot be tested here"),
    ],
)
def test_location_in_the_network(far: float, noise: float, expected: Answer) -> None:
    run = made_case(made_run(NODES, between_nodes(0.01, 0.09, far=far, noise=noise)))
    (found,) = answers(6, [run], EMULATED)
    assert found.verdict == expected
    assert "32 pairs same-group ÷ 24 same-switch" in found.evidence
    assert found.where == "mpi, openmpi"
    assert verdict(6, [run], SystemJudge(None, None, Policy())) == "cannot be tested here"


def test_latency_may_rise_by_less_than_a_third() -> None:
    for far, expected in ((1 / 1.2, "holds"), (1 / 1.5, "does not hold")):
        only_small = [each for each in between_nodes(0.01, 0.09, far=far) if each.bytes == 8]
        assert verdict(6, [made_case(made_run(NODES, only_small))], EMULATED) == expected


def test_few_pairs_of_nodes_are_no_sample() -> None:
    few = [each for each in between_nodes(0.01, 0.09, far=0.5) if set(each.ranks) <= {0, 1, 4}]
    assert verdict(6, [made_case(made_run(NODES, few))], EMULATED) == "cannot be tested here"


# 8


def victims(beside: float, noise: float = 0.01, operation: str = "victim_alltoall_incast") -> list[Samples]:
    return [
        made_samples(operation, (0, 2), MIB, noisy(100 * share, noise=noise, seed=seed), schedule=schedule)
        for seed, (schedule, share) in enumerate((("uncontended", 1.0), ("contended", beside)))
    ]


@pytest.mark.parametrize(
    ("beside", "noise", "expected"),
    [(0.5, 0.01, "holds"), (1.0, 0.01, "does not hold"), (0.97, 0.2, "cannot be tested here")],
)
def test_noise_of_an_aggressor(beside: float, noise: float, expected: Answer) -> None:
    assert verdict(8, [made_case(made_run(NODES[:4], victims(beside, noise)))], EMULATED) == expected


def test_victims_of_one_node_or_of_another_pattern_say_nothing_of_the_network() -> None:
    assert verdict(8, [made_case(made_run(NODE, victims(0.5)))]) == "cannot be tested here"
    pingpong = victims(0.5, operation="victim_pingpong_incast")
    assert verdict(8, [made_case(made_run(NODES[:4], pingpong))], EMULATED) == "cannot be tested here"
    wrong = [replace(each, wrong_bytes=1) for each in victims(0.5)]
    assert verdict(8, [made_case(made_run(NODES[:4], wrong))], EMULATED) == "cannot be tested here"


@pytest.mark.parametrize(("gain", "expected"), [(1.3, "holds"), (1.0, "does not hold")])
def test_noise_that_another_service_level_is_spared(gain: float, expected: Answer) -> None:
    default = gpus("ccl", collectives(lambda *_: 10, 2), NODES[:2])
    other = gpus("ccl", collectives(lambda *_: 10 * gain, 2), NODES[:2], NCCL_IB_SL="1")
    assert verdict(8, [default, other]) == expected
    elsewhere = gpus("ccl", collectives(lambda *_: 10 * gain, 2), NODES[4:6], NCCL_IB_SL="1")
    assert verdict(8, [default, elsewhere]) == "cannot be tested here"


# All of them


def test_noise_alone_gives_hardly_an_answer() -> None:
    """Where nothing differs from a bound but by noise, at most one of twenty answers may be wrong."""
    wrong = 0
    for seed in range(20):
        runs = [
            gpus("mpi", pingpongs(100, noise=0.1, seed=1000 * seed)),
            gpus("copy", pingpongs(103, noise=0.1, seed=1000 * seed + 500)),
        ]
        wrong += verdict(2, runs) != "cannot be tested here"
    assert wrong <= 1


@pytest.mark.parametrize("bad", ["problem", "check", "cut off", "wrong bytes", "planted", "program", "mean"])
def test_nothing_rests_on_a_run_that_cannot_be_trusted(bad: str) -> None:
    mpi, copy = gpus("mpi", pingpongs(100)), gpus("copy", pingpongs(200))
    assert verdict(2, [mpi, copy]) == "does not hold"
    run = copy.run
    spoilt = {
        "problem": replace(copy, run=replace(run, problems=(bad_finding(Verdict.INVALID, "another device"),))),
        "check": replace(copy, trusted=False),
        "cut off": replace(copy, run=replace(run, footer=None)),
        "wrong bytes": replace(copy, run=replace(run, samples=tuple(replace(s, wrong_bytes=3) for s in run.samples))),
        "planted": replace(
            copy, run=replace(run, header={**run.header, "plan": {**run.header["plan"], "injected": "hang"}})
        ),
        "program": replace(copy, run=replace(run, header={**run.header, "program": "osu_latency"})),
        "mean": replace(copy, run=replace(run, samples=tuple(replace(s, statistic="mean") for s in run.samples))),
    }
    assert verdict(2, [mpi, spoilt[bad]]) == "cannot be tested here"


def test_a_session_reports_them_where_a_test_is_about_them() -> None:
    runs = [gpus("mpi", pingpongs(100)), gpus("copy", pingpongs(200))]
    assert not list(find_observations(runs, JUDGE))
    first, last = find_observations([replace(each, tags=("nightly", TAG)) for each in runs], JUDGE)
    assert not first.is_problem and not last.is_problem
    assert first.message.startswith("observation 2 (openmpi) does not hold: inside a node no other transport")
    assert last.message.startswith("observations that cannot be tested here: 1, 3, 4, 5, 6, 7, 8; ")
