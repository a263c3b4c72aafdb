"""Equals of a run judge each other: what is not PASS, by what name, and what has no equals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fabricheck.diagnosis.causes import diagnose
from fabricheck.judge.siblings import Compared
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Reference
from fabricheck.records.run import Run
from fabricheck.records.split import Split
from fabricheck.records.verdict import Verdict
from tests.support.equal_runs import judge_of, pairs, run_of
from tests.support.findings import bad_finding
from tests.support.made_runs import MIB

PASS, DEGRADED, FAIL, INCOMPLETE, INVALID = Verdict


def compared(*runs: Run, test: str = "Made") -> Compared:
    judge = judge_of()
    return judge.compare([replace(judge.judge_alone(each), test=test) for each in runs])


def blamed(found: Compared) -> tuple[Finding, ...]:
    return tuple(each for each in diagnose(found.runs, found.problems).problems if each.components)


def verdicts(found: Compared, run: int = 0) -> dict[tuple[int, ...], Verdict]:
    return {each.samples.ranks: each.verdict for each in found.runs[run].judgements}


def test_a_slow_pair_is_degraded_by_its_siblings_and_named() -> None:
    found = compared(run_of(["vm"] * 4, pairs(4), slower={(2, 3): 0.03}))
    assert verdicts(found) == {way: DEGRADED if way == (2, 3) else PASS for way in pairs(4)}
    assert found.runs[0].verdict is DEGRADED
    bad = next(each for each in found.runs[0].judgements if each.verdict is DEGRADED)
    assert bad.yardstick is not None and bad.yardstick.kind == "siblings"
    assert bad.value == pytest.approx(0.97 * bad.yardstick.value, rel=2e-3)
    (problem,) = blamed(found)
    assert (problem.verdict, problem.place) == (DEGRADED, "vm:gpu2 → vm:gpu3")
    assert problem.code == "slow-pair"
    assert problem.p is not None and problem.p < 1e-4


def test_what_all_lost_alike_is_no_part() -> None:
    found = compared(run_of(["vm"] * 4, pairs(4), level=2600.0))
    assert {each.judged_by for each in found.runs[0].judgements} == {"achievable"}
    assert set(verdicts(found).values()) == {DEGRADED}
    assert found.problems == ()
    assert [each.finding.code for each in diagnose(found.runs, ()).causes] == ["all-slow"]


def test_a_part_that_is_slower_than_all_that_are_slow_is_named_too() -> None:
    slower = {way: 0.1 for way in pairs(4) if 0 in way}
    found = compared(run_of(["vm"] * 4, pairs(4), level=2600.0, slower=slower))
    (problem,) = blamed(found)
    assert problem.components[0].text == "vm:gpu0"


@pytest.mark.parametrize("slow", [[(2, 3)], [way for way in pairs(4) if 2 in way]], ids=["a pair", "a GPU"])
def test_a_reference_knows_better(slow: list[tuple[int, int]]) -> None:
    judge = judge_of()
    alone = judge.judge_alone(run_of(["vm"] * 4, pairs(4), slower=dict.fromkeys(slow, 0.03)))
    assert judge.compare([alone]).runs[0].verdict is DEGRADED
    reference = Reference(3055.0, -0.01, 0.01, "Gb/s", "made")
    judgements = []
    for each in alone.judgements:
        yardstick = replace(each.yardstick, kind="reference") if each.yardstick is not None else None
        judgements.append(replace(each, reference=reference, calibrated=True, yardstick=yardstick))
    found = judge.compare([replace(alone, judgements=tuple(judgements))])
    assert set(verdicts(found).values()) == {PASS}
    assert (found.problems, found.runs[0].verdict) == ((), PASS)


def test_one_of_sixteen_nodes_is_named_over_their_launches() -> None:
    runs = [
        run_of([f"nid{node:03}"] * 4, pairs(4), level=3150.0 * (0.97 if node == 7 else 1), seed=node)
        for node in range(16)
    ]
    found = compared(*runs)
    assert [run.verdict for run in found.runs] == [DEGRADED if node == 7 else PASS for node in range(16)]
    (problem,) = blamed(found)
    assert problem.node == "nid007"
    assert blamed(compared(*runs, test="")) == ()  # nobody says that they are runs of one test


def test_equals_on_many_nodes_of_one_run_are_one_group() -> None:
    hosts = [f"nid{node:03}" for node in range(8) for _ in range(4)]
    ways = [way for node in range(8) for way in pairs(4, 4 * node)]
    found = compared(run_of(hosts, ways, slower={way: 0.03 for way in pairs(4, 8)}))
    (problem,) = blamed(found)
    assert problem.node == "nid002"
    assert {way for way, verdict in verdicts(found).items() if verdict is DEGRADED} == set(pairs(4, 8))


@pytest.mark.parametrize(
    ("change", "plan"),
    [
        ({"transport": "staging"}, {}),
        ({"transport": "mpi"}, {"buffers": "host-device"}),
        ({}, {"shared_devices": True}),
    ],
)
def test_where_processors_copy_or_share_nothing_is_equal(change: dict[str, Any], plan: dict[str, Any]) -> None:
    found = compared(run_of(["vm"] * 4, pairs(4), slower={(2, 3): 0.3}, level=300.0, **change, **plan))
    assert found.problems == ()
    assert "siblings" not in {each.judged_by for each in found.runs[0].judgements}


@pytest.mark.parametrize(("kind", "equal"), [("pinned", True), ("pageable", False), ("managed", False)])
def test_only_page_locked_memory_is_equal_for_all_gpus(kind: str, equal: bool) -> None:
    ways: list[tuple[int, ...]] = [(gpu,) for gpu in range(4)]
    run = run_of(
        *(["vm"] * 4, ways),
        operation="host_to_device",
        level=439.0,
        slower={(1,): 0.2},
        bytes_=64 * MIB,
        host_memory=kind,
    )
    found = compared(run)
    assert ["vm:gpu1" in each.place for each in blamed(found)] == ([True] if equal else [])


def test_a_run_that_measured_something_else_has_no_equals() -> None:
    run = run_of(["vm"] * 4, pairs(4), slower={(2, 3): 0.03})
    assert compared(replace(run, problems=(bad_finding(INVALID, "something else"),))).problems == ()


def test_a_metric_that_nothing_else_judges_is_judged_by_its_siblings() -> None:
    judge = replace(judge_of(), policy=replace(judge_of().policy, floors=(), latencies=()))
    ways: list[tuple[int, ...]] = [(gpu,) for gpu in range(4)]
    topology = judge.topology
    assert topology is not None
    judge = replace(judge, topology=replace(topology, gpu_memory_gbps=None))
    run = run_of(["vm"] * 4, ways, operation="local_copy", level=16_700.0)
    assert {each.judged_by for each in judge.judge_alone(run).judgements} == {"unjudged"}
    assert judge.judge_alone(run).verdict is INCOMPLETE
    assert {each.judged_by for each in judge.judge(run).judgements} == {"siblings"}
    assert judge.judge(run).verdict is PASS


def now_and_then(run: Run, slow: set[tuple[int, ...]]) -> Run:
    """Of the series of `slow`, one iteration in twelve takes twice as long."""
    samples = []
    for each in run.samples:
        times = each.times_ns.copy()
        if each.ranks in slow:
            times[::12] *= 2
        samples.append(replace(each, times_ns=times))
    return replace(run, samples=tuple(samples))


def slow_at_first(run: Run, slow: set[tuple[int, ...]], iterations: int = 8, times: float = 3.0) -> Run:
    """Iterations of a tenth of a second, of which those of `slow` have the first ones `times` as long."""
    samples = []
    for each in run.samples:
        taken = np.full(24, 100_000_000) + np.arange(24) * 1000
        if each.ranks in slow:
            taken[:iterations] = taken[:iterations] * times
        samples.append(replace(each, times_ns=taken))
    return replace(run, samples=tuple(samples))


@pytest.mark.parametrize(
    ("slow", "iterations", "times"),
    [
        (set(pairs(4)), 8, 3.0),  # so such a measurement begins
        ({(2, 3)}, 1, 9.0),  # of a stall
        ({(2, 3)}, 3, 1.4),
        ({(2, 3)}, 3, 1.6),  # too little is lost
    ],
)
def test_a_start_that_is_usual_is_not_told(slow: set[tuple[int, ...]], iterations: int, times: float) -> None:
    run = slow_at_first(run_of(["vm"] * 4, pairs(4)), slow, iterations, times)
    assert not [each for each in compared(run).problems if "at first" in each.message]


def test_a_single_series_with_a_long_tail_is_no_part() -> None:
    assert compared(now_and_then(run_of(["vm"] * 4, pairs(4)), {(0, 1)})).problems == ()


def test_where_most_are_slow_the_two_gpus_that_these_share_are_named() -> None:
    slower = {way: 0.2 for way in pairs(4) if way not in ((2, 3), (3, 2))}
    found = compared(run_of(["vm"] * 4, pairs(4), slower=slower))
    assert {each.components[0].text for each in blamed(found)} == {"vm:gpu0", "vm:gpu1"}


@pytest.mark.parametrize(
    ("name", "ways", "operation", "transport"),
    [
        ("dgx-a100", pairs(8), "unidirectional", "kernel"),
        ("dgx-a100", pairs(8), "pingpong", "ccl"),
        ("leonardo", pairs(4), "bidirectional", "copy"),
        ("perlmutter", pairs(4), "unidirectional", "ccl"),
        ("lumi", pairs(8), "unidirectional", "kernel"),
        ("lumi", pairs(8), "unidirectional", "copy"),
        ("aurora", [(0, 2), (0, 4), (2, 4), (2, 6)], "unidirectional", "copy"),
        ("sierra", [(0, 1), (1, 0)], "unidirectional", "ccl"),
    ],
)
@pytest.mark.parametrize("share", [0.56, 0.85])
def test_equals_that_all_lose_alike_are_degraded(
    name: str, ways: list[tuple[int, ...]], operation: str, transport: str, share: float
) -> None:
    """Two thirds of what the links give while healthy: no equal can show it, and what links carry of data does."""
    judge = judge_of(name)
    ranks = 1 + max(rank for way in ways for rank in way)
    made = run_of(["n"] * ranks, ways, operation=operation, transport=transport, level=10.0)
    expected = [each.expectation.expected or 0.0 for each in judge.judge_alone(made).judgements]
    samples = [
        replace(each, times_ns=(each.times_ns * 10.0 / (share * most)).astype("int64"))
        for each, most in zip(made.samples, expected, strict=True)
    ]
    found = judge.compare([judge.judge_alone(replace(made, samples=tuple(samples)))])
    verdicts = {each.verdict for run in found.runs for each in run.judgements}
    assert verdicts == ({Verdict.DEGRADED} if share < 0.6 else {Verdict.PASS})


@pytest.mark.parametrize(
    ("split", "named"), [(Split(4, 1), {"nid002"}), (Split(3, 4), {f"nid{node:03}:gpu2" for node in range(3)})]
)
def test_one_slow_group_among_those_at_once_is_named(split: Split, named: set[str]) -> None:
    """Tensor-parallel groups, each a node, and rails: the same collective on equal parts at the same time."""
    hosts = [f"nid{node:03}" for node in range(3) for _ in range(4)]
    groups = list(split.groups(12))

    def measured(slower: dict[tuple[int, ...], float]) -> Compared:
        made = run_of(hosts, groups, slower=slower, operation="allreduce", level=500.0, schedule="contended")
        return compared(replace(made, header={**made.header, "transport": "ccl"}))

    assert measured({}).problems == ()
    found = measured({groups[2]: 0.2})
    assert {ranks for ranks, verdict in verdicts(found).items() if verdict is not PASS} == {groups[2]}
    (problem,) = blamed(found)
    assert {each.text for each in problem.components} == named
