"""A run that stood still for seconds is told, and DEGRADED where it did so again or a link went down."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fabricheck.judge.run_rules import find_stalls
from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from tests.support.result_files import HOST


def run_with(*seconds: float, setup_s: float = 0.1, problems: tuple[Finding, ...] = ()) -> RunJudgement:
    """A run of 3,000 iterations, of which the last took so long."""
    run = read_run(HOST)
    times = np.full(3000, 400_000, dtype=np.int64)
    if seconds:
        times[-len(seconds) :] = [round(each * 1e9) for each in seconds]
    first, *others = run.samples
    footer = {**(run.footer or {}), "setup_ns": round(setup_s * 1e9)}
    stalled = replace(run, samples=(replace(first, times_ns=times), *others), footer=footer)
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
        (run_with(setup_s=5.0), []),
        (run_with(setup_s=70.0), [Verdict.PASS]),
        (run_with(setup_s=70.0, problems=(FLAP,)), [Verdict.DEGRADED]),
    ],
)
def test_what_stood_still(run: RunJudgement, verdicts: list[Verdict]) -> None:
    found = [*find_stalls(run)]
    assert [each.verdict for each in found] == verdicts
    assert {each.code for each in found} <= {"stalled"}


def test_it_names_the_nodes_and_how_long() -> None:
    (found,) = find_stalls(run_with(20.0, 3.0))
    assert [each.node for each in found.components] == ["nid001"]
    assert (found.measured, found.expected, found.unit) == (20.0, 0.0004, "s")


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
