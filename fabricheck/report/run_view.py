"""What a page shows of one run: its facts, and its metrics as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.operations import PAIRS
from fabricheck.records.rehearsal import is_rehearsal, marked
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import (
    RunFacts,
    count,
    facts_of,
    groups_of,
    judgements_of,
    merge_collectives,
    name_of,
    number,
    ranks_text,
    short_name,
    shown_kind,
    unit_shown,
    with_job_script,
)
from fabricheck.report.lines import Explained
from fabricheck.units import few, size_label


@dataclass(frozen=True)
class GroupTable:
    """The metrics of a group of pairs, or of the groups of all collectives together, worst first. `sources`: where the
    expected values and the yardsticks come from."""

    name: str
    metric_names: str
    unit: str
    judgements: tuple[Judgement, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True)
class RunView:
    """A run as its row shows it; `check`: its short name."""

    id: str
    verdict: Verdict
    facts: RunFacts
    check: str
    transport: str
    hosts: tuple[str, ...]
    counts: tuple[tuple[Verdict, int], ...]
    problems: tuple[Explained, ...]


def run_view(judged: RunJudgement, name: str, problems: tuple[Explained, ...], *, marks: bool) -> RunView:
    """`problems`: those that no card and no run before tells. `marks`: whether a rehearsal says so in its row."""
    rehearsal = marks and is_rehearsal(judged.run)
    facts = with_job_script(facts_of(judged), Path(judged.run.path))
    return RunView(
        id=name,
        verdict=judged.final_verdict,
        facts=replace(facts, name=marked(facts.name, rehearsal=rehearsal)),
        check=short_name(judged),
        transport=str(judged.run.header.get("transport", "")),
        hosts=tuple(dict.fromkeys(each.host for each in judged.run.ranks)),
        counts=count(each.verdict for each in judged.judgements),
        problems=problems,
    )


def tables_of(judged: RunJudgement) -> Iterator[GroupTable]:
    """A table for each group of pairs, and one for the collectives of a schedule and quantity together."""
    for members in merge_collectives(groups_of(judged)):
        first, judgements = members[0], judgements_of(members)
        names = f"{first.operation}_{first.schedule}_…_{size_label(first.bytes)}_{first.quantity}"
        if not first.is_pairs:
            names = f"…_{first.schedule}_…_{first.quantity}"
        sources = _sources(judgements, len(judged.run.ranks))
        yield GroupTable(name_of(members), names, unit_shown(first.unit), judgements, sources)


def yardstick_text(judged: Judgement) -> str:
    """The yardstick of a metric with its bound."""
    yardstick = judged.yardstick
    if yardstick is None:
        return judged.judged_by
    bound = f" (bound {number(yardstick.bound)})" if yardstick.bound != yardstick.value else ""
    return f"{shown_kind(yardstick.kind)} {number(yardstick.value)}{bound}"


def _sources(judgements: Sequence[Judgement], world: int) -> tuple[str, ...]:
    """Where the expected values and the references come from, each with whom it is about."""
    members: dict[str, list[str]] = {}
    for judged in judgements:
        texts = [] if judged.expectation.expected is None else [f"Expected: {judged.expectation.source}"]
        yardstick = judged.yardstick
        # The source of the others is that of the expected value.
        if yardstick is not None and yardstick.kind not in ("floor", "siblings"):
            texts.append(f"{shown_kind(yardstick.kind).capitalize()}: {yardstick.source}")
        for text in texts:
            label = ranks_text(judged.samples, world)
            own = label if judged.samples.operation in PAIRS else f"{judged.samples.operation} {label}"
            members.setdefault(text, []).append(own)
    return tuple(
        text if len(names) == len(judgements) else f"{text} (for {few(names)})" for text, names in members.items()
    )
