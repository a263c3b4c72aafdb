"""The verdict of a run with all its parts, and of a session."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Judgement
from fabricheck.records.rehearsal import any_rehearsal
from fabricheck.records.verdict import Verdict, worst

#: How bad a verdict is, from 0 for PASS: for sorting.
SEVERITY: Mapping[Verdict, int] = {verdict: number for number, verdict in enumerate(Verdict)}

NO_RUNS = Finding("nothing-measured", Verdict.INCOMPLETE, "no test has a result")


def overall(runs: Sequence[RunJudgement], problems: Sequence[Finding] = ()) -> tuple[Verdict, tuple[Finding, ...]]:
    """The verdict on all runs together, and the problems that belong to no run, worst first.

    Without runs there is no PASS.
    """
    findings = tuple(problems) if runs else (*problems, NO_RUNS)
    verdicts = [*(each.final_verdict for each in runs), *(each.verdict for each in findings)]
    return worst(verdicts), tuple(sorted(findings, key=lambda each: -SEVERITY[each.verdict]))


def rehearsed(runs: Iterable[RunJudgement]) -> bool:
    """Whether any of the runs was on emulated GPUs, so that together they are not a measurement."""
    return any_rehearsal(each.run for each in runs)


def worst_first(runs: Sequence[RunJudgement]) -> tuple[RunJudgement, ...]:
    """The runs by their verdicts, in their own order where these are the same."""
    return tuple(sorted(runs, key=lambda each: -SEVERITY[each.final_verdict]))


def badness(judged: Judgement) -> tuple[int, float]:
    """A key that sorts the worst metric first: by verdict, then by how far the value is from what it should be."""
    target = judged.expectation.expected or (judged.reference.value if judged.reference else None) or 1.0
    ratio = judged.value / target
    if math.isnan(ratio):
        return -SEVERITY[judged.verdict], -math.inf
    return -SEVERITY[judged.verdict], ratio if judged.better == "higher" else -ratio
