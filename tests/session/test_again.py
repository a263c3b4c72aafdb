"""What a launch of each test came to, before it is launched again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fabricheck.diagnosis.causes import Diagnosis
from fabricheck.records.verdict import Verdict
from fabricheck.session.again import launches_of
from fabricheck.session.outcome import Outcome
from fabricheck.session.reading import Session
from tests.support.equal_runs import judge_of, pairs, run_of
from tests.support.sessions import case


def test_a_launch_says_what_is_slow_and_how_many_metrics_that_has(tmp_path: Path) -> None:
    """Of 12 pairs of four GPUs those 6 of one: its name, and how rare chance is for as much of a session."""
    file = tmp_path / "result.jsonl"
    file.write_text("{}\n")
    crossing = {way: 0.05 for way in pairs(4) if 3 in way}
    judge, measured = judge_of(), case(folder=tmp_path)
    run = replace(run_of(["vm"] * 4, pairs(4), slower=crossing), path=str(file))
    found = judge.compare([replace(judge.judge_alone(run), test=str(measured))])
    outcome = Outcome(Verdict.DEGRADED, Diagnosis((), found.problems), found.runs, (measured,))
    (launch,) = launches_of(Session.of(tmp_path, [measured], 0), outcome).values()
    assert (launch.verdict, launch.metrics) == (Verdict.DEGRADED, 6)
    assert "vm:gpu3" in launch.slow
    assert len(launch.slow) == 7
