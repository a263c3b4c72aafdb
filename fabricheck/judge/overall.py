"""How bad verdicts, runs and metrics are: for sorting."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.rehearsal import any_rehearsal
from fabricheck.records.verdict import Verdict

#: How bad a verdict is, from 0 for PASS: for sorting.
SEVERITY: Mapping[Verdict, int] = {verdict: number for number, verdict in enumerate(Verdict)}


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
