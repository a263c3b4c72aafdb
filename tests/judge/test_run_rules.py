"""A run that stood still for seconds is told, and DEGRADED where it did so again or a link went down."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fabricheck.judge.run_rules import find_pauses, find_stalls
from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from tests.support import states
from tests.support.effort import effort
from tests.support.result_files import HOST

NODES = ("nid001", "nid002", "nid003", "nid004")


def run_with(*seconds: float, problems: tuple[Finding, ...] = ()) -> RunJudgement:
    """A run of 3,000 iterations, of which the last took so long."""
    run = read_run(HOST)
    times = np.full(3000, 400_000, dtype=np.int64)
    if seconds:
        times[-len(seconds) :] = [round(each * 1e9) for each in seconds]
    first, *others = run.samples
    stalled = replace(run, samples=(replace(first, times_ns=times), *others))
    return RunJudgement(stalled, Verdict.PASS, problems, ())


FLAP = Finding("nic-flaps", Verdict.DEGRADED, "hsn0 went down")


@pytest.mark.parametrize(
    ("run", "verdicts"),
    [
        (run_with(), []),
        (run_with(0.5, 0.9), []),  # as on busy nodes
        (run_with(20.0), [Verdict.PASS]),
        (run_with(20.0, 3.0), [Verdict.DEGRADED]),
        (run_with(20.0, problems=(FLAP,)), [Verdict.DEGRADED]),
    ],
)
def test_what_stood_still(run: RunJudgement, verdicts: list[Verdict]) -> None:
    found = [*find_stalls(run)]
    assert [each.verdict for each in found] == verdicts
    assert {each.code for each in found} <= {"stalled"}


def test_slow_by_seconds_each_time_is_no_stall() -> None:
    run = run_with(*[3.0] * 3000)
    assert [*find_stalls(run)] == []


def test_a_session_tells_it() -> None:
    judge = SystemJudge.of_any("nowhere")
    once, twice = run_with(20.0).run, run_with(20.0, 3.0).run
    compared = judge.compare([judge.judge_alone(once)])
    assert "stalled" in {each.code for each in compared.findings}
    assert "stalled" not in {each.code for each in compared.runs[0].problems}
    assert "stalled" in {each.code for each in judge.judge(twice).problems}
    assert judge.judge(twice).final_verdict is not Verdict.PASS


def pausing_run(paused_s: dict[str, float], throttled_s: dict[str, float], busy: Sequence[str] = ()) -> RunJudgement:
    """A run of 10 s on four nodes, a rank each, which paused ten times for so long in all, or were throttled."""
    before = [states.node(host, busy_cores=40.0 if host in busy else 0.2) for host in NODES]
    pauses: dict[str, dict[str, object]] = {}
    for rank, host in enumerate(NODES):
        of_rank: dict[str, object] = {"throttled_ns": int(throttled_s.get(host, 0.0) * 1e9)}
        if host in paused_s:
            total_ns = int(paused_s[host] * 1e9)
            of_rank |= {"count": 10, "total_ns": total_ns, "longest_ns": total_ns // 5, "at_ms": [*range(0, 5000, 500)]}
        pauses[str(rank)] = of_rank
    footer = {"records": 1, "wall_ns": 11_000_000_000, "setup_ns": 1_000_000_000, "proof": {"pauses": pauses}}
    return RunJudgement(replace(states.run_with(before, before), footer=footer), Verdict.PASS, (), ())


@pytest.mark.parametrize("seed", range(effort(100)))
def test_a_node_that_pauses_or_is_throttled_is_named_alone(seed: int) -> None:
    draw = random.Random(seed)
    guilty = draw.choice(NODES)
    others = {host: draw.uniform(0.0, 0.09) for host in draw.sample(NODES, 3)}
    lost = {guilty: draw.uniform(0.11, 5.0)}
    paused, throttled = ({**others, **lost}, {}) if draw.random() < 0.5 else (others, lost)
    busy = [guilty] if draw.random() < 0.3 else []
    (found,) = find_pauses(pausing_run(paused, throttled, busy))
    assert (found.code, [each.node for each in found.components]) == ("pausing-node", [guilty])
    assert found.verdict is (Verdict.PASS if busy else Verdict.DEGRADED)


@pytest.mark.parametrize("seed", range(effort(50)))
def test_a_stall_names_the_node_that_the_others_waited_for(seed: int) -> None:
    draw = random.Random(seed)
    seconds, guilty = draw.choice([1, 10]) * draw.uniform(1.1, 6.0), draw.choice(NODES)
    others = {host: draw.uniform(0.0, 0.4) * seconds for host in draw.sample(NODES, 3)}
    own = {guilty: draw.uniform(0.9, 1.0) * seconds} if draw.random() < 0.7 else {guilty: 0.0}
    paused = {host: 5 * longest for host, longest in (others | own).items()}
    run = pausing_run(paused, {}).run
    times = np.full(100, 400_000, dtype=np.int64)
    times[draw.randrange(100)] = round(seconds * 1e9)
    samples = replace(run.samples[0], ranks=(0, 1, 2, 3), times_ns=times)
    (found,) = find_stalls(RunJudgement(replace(run, samples=(samples,)), Verdict.PASS, (), ()))
    assert [each.node for each in found.components] == ([guilty] if own[guilty] else [*NODES])
    assert found.measured == pytest.approx(seconds) and (found.expected, found.unit) == (0.0004, "s")


def test_nodes_that_all_pause_are_no_fault_of_one() -> None:
    found = find_pauses(pausing_run({"nid001": 1.0, "nid002": 2.0, "nid004": 0.5}, {}))
    assert {each.verdict for each in found} == {Verdict.PASS}
