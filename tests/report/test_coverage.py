"""What the head of a report says of how much of a system was checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Expectation, Judgement
from fabricheck.records.verdict import Verdict
from fabricheck.report.summary import Coverage, coverage, next_of_pass, numbers
from tests.support.findings import bad_finding
from tests.support.made_runs import MIB, made_run, made_samples
from tests.support.synthetic import pair_run

PAIR = made_samples("pingpong", (0, 1), MIB, 10)
NOTHING = Expectation(None, None, None, 0.0, "made")
FAST = Judgement("made", "Gb/s", "higher", 1.0, (1.0, 1.0), Verdict.PASS, "", False, NOTHING, None, PAIR)


def judged(hosts: Sequence[str], nodes: int, *, verdict: Verdict = Verdict.PASS) -> RunJudgement:
    problems = () if verdict is Verdict.PASS else (bad_finding(verdict, "made"),)
    return RunJudgement(made_run(hosts, [PAIR]), verdict, problems, (FAST,), nodes=nodes)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([], Coverage(0, 0, False)),
        ([judged(["a", "a"], 0)], Coverage(1, 0, False)),
        ([judged(["a", "a"], 1)], Coverage(1, 1, False)),
        ([judged(["a", "a"], 3456)], Coverage(1, 3456, False)),
        (
            [judged(["a", "b"], 8, verdict=Verdict.FAIL), judged(["c"], 8)],
            Coverage(3, 8, True),
        ),
        ([replace(judged(["a", "b"], 8), trusted=False)], Coverage(0, 8, False)),
        # What says nothing of a node has not checked it.
        (
            [judged(["a", "b"], 8, verdict=Verdict.INVALID), judged(["c"], 8)],
            Coverage(1, 8, False),
        ),
    ],
)
def test_how_many_nodes_and_whether_the_network(runs: list[RunJudgement], expected: Coverage) -> None:
    assert coverage(runs) == expected


def test_every_pass_has_a_next_step_and_nothing_else_has_one() -> None:
    without = pair_run()
    calibrated = replace(without, judgements=tuple(replace(each, calibrated=True) for each in without.judgements))
    assert "calibrate --system alps" in next_of_pass(Verdict.PASS, [without], "alps")
    assert "watch --system alps" in next_of_pass(Verdict.PASS, [calibrated], "alps")
    assert next_of_pass(Verdict.FAIL, [calibrated], "alps") == ""


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.FAIL])
def test_the_numbers_have_both_units_and_microseconds_their_sign_also_when_it_is_red(verdict: Verdict) -> None:
    bad = {(a, b): verdict for a in range(4) for b in range(4) if a != b}
    by_kind = {each.of: each for each in numbers([pair_run(bad=bad)])}
    link, latency = by_kind["between GPUs of a node"], by_kind["latency between GPUs"]
    value = float(link.value.split()[0].replace(",", ""))
    assert link.value.endswith(" Gb/s")
    assert float(link.remark.split()[0]) == pytest.approx(value / 8, rel=1e-3) and link.remark.split()[1] == "GB/s,"
    assert latency.value.endswith(" µs")
