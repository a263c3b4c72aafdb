"""What a page shows of one run: its facts, and its metrics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fabricheck.judge.overall import badness
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.rehearsal import is_rehearsal, marked
from fabricheck.records.run import Rank
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import (
    RunFacts,
    counts,
    facts_of,
    number,
    short_name,
    shown_kind,
    with_job_script,
)
from fabricheck.report.figures.chart import Figure
from fabricheck.report.figures.curves import curves_of
from fabricheck.report.lines import Explained


@dataclass(frozen=True)
class RunView:
    """A run as its row shows it, and what is in it; `check`: its short name. `metrics`: the worst first. `sources`:
    where expected values and baselines come from."""

    id: str
    verdict: Verdict
    facts: RunFacts
    check: str
    hosts: tuple[str, ...]
    ranks: tuple[Rank, ...]
    counts: str
    problems: tuple[Explained, ...]
    metrics: tuple[Judgement, ...]
    sources: tuple[str, ...]
    figures: tuple[Figure, ...]


def run_view(judged: RunJudgement, name: str, problems: tuple[Explained, ...], *, marks: bool) -> RunView:
    """`problems`: those that no card and no run before shows. `marks`: whether a rehearsal is marked in its row."""
    rehearsal = marks and is_rehearsal(judged.run)
    facts = with_job_script(facts_of(judged), Path(judged.run.path))
    metrics = sorted(judged.judgements, key=badness)
    return RunView(
        id=name,
        verdict=judged.final_verdict,
        facts=replace(facts, name=marked(facts.name, rehearsal=rehearsal)),
        check=short_name(judged),
        hosts=tuple(dict.fromkeys(rank.host for rank in judged.run.ranks)),
        ranks=judged.run.ranks,
        counts=counts(metric.verdict for metric in metrics),
        problems=problems,
        metrics=tuple(metrics),
        sources=tuple(dict.fromkeys(text for metric in metrics for text in _sources(metric))),
        figures=tuple(curves_of(judged)),
    )


def yardstick_text(judged: Judgement) -> str:
    """The yardstick of a metric with its bound."""
    yardstick = judged.yardstick
    if yardstick is None:
        return judged.judged_by
    bound = f" (bound {number(yardstick.bound)})" if yardstick.bound != yardstick.value else ""
    return f"{shown_kind(yardstick.kind)} {number(yardstick.value)}{bound}"


def _sources(judged: Judgement) -> list[str]:
    texts = [] if judged.expectation.expected is None else [f"Expected: {judged.expectation.source}"]
    # The source of the others is that of the expected value.
    if judged.yardstick is not None and judged.yardstick.kind not in ("floor", "siblings"):
        texts.append(f"{shown_kind(judged.yardstick.kind).capitalize()}: {judged.yardstick.source}")
    return texts
