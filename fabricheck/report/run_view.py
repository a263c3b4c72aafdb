"""What a page shows of one run: its facts, its metrics as tables, its figures and the drawing of its node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Judgement
from fabricheck.records.operations import PAIRS
from fabricheck.records.rehearsal import is_rehearsal, marked
from fabricheck.records.run import Rank
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import (
    Facts,
    Group,
    Slow,
    count,
    facts_of,
    groups_of,
    judgements_of,
    label_of,
    name_of,
    number,
    reason_without_source,
    short_message,
    short_name,
    slow_of,
    together,
    unit_shown,
    who,
)
from fabricheck.report.figures import Figure, figures_of
from fabricheck.report.lines import plain, steps, summary
from fabricheck.report.node import Node, node_of_run
from fabricheck.report.shares import share_of_yardstick
from fabricheck.units import size_label

# What keeps the page short where a run is large; what is left out is counted where it would stand.
_MOST_ROWS, _MOST_PASSES = 64, 8  # of a table: those that are not PASS, and those that are
_MOST_SOURCES = 6
_MOST_RANKS = 64


@dataclass(frozen=True)
class _Row:
    """One metric, as texts; `bounds` are those of the reference."""

    who: str
    verdict: Verdict
    value: str
    interval: str
    expected: str
    share: str
    yardstick: str
    reason: str


@dataclass(frozen=True)
class _Table:
    """The metrics of a group of pairs, or of the groups of all collectives together, worst first.

    `hidden` counts those that are not among the rows.
    """

    name: str
    metric_names: str
    unit: str
    is_pairs: bool
    verdict: Verdict
    counts: tuple[tuple[Verdict, int], ...]
    worst: _Row
    rows: tuple[_Row, ...]
    hidden: tuple[tuple[Verdict, int], ...]
    sources: tuple[str, ...]
    more_sources: int


@dataclass(frozen=True)
class Explained:
    """A finding with its line, and one level deeper its message, what decides it and what to do."""

    verdict: Verdict
    code: str
    line: str
    message: str
    decides: str
    steps: tuple[str, ...]

    @classmethod
    def of(cls, finding: Finding, system: str, message: str | None = None) -> Explained:
        """`message`: a shorter one than the finding's own."""
        message = finding.message if message is None else message
        line = summary(finding, system=system, message=message)
        entry = finding.entry
        return cls(finding.verdict, finding.code, line, message, plain(entry.decides), steps(finding, system=system))


@dataclass(frozen=True)
class RunView:
    """A run as its row shows it; `check`: its short name. `slow`: its metrics that are not PASS."""

    id: str
    verdict: Verdict
    facts: Facts
    check: str
    transport: str
    hosts: tuple[str, ...]
    counts: tuple[tuple[Verdict, int], ...]
    problems: tuple[Explained, ...]
    slow: tuple[Slow, ...]


@dataclass(frozen=True)
class RunDetail:
    """What is shown of a run when it is opened."""

    tables: tuple[_Table, ...]
    node: Node | None
    figures: tuple[Figure, ...]
    ranks: tuple[Rank, ...]
    more_ranks: int


def run_view(judged: RunJudgement, name: str, system: str, *, marks: bool) -> RunView:
    """`marks`: whether a rehearsal says so in its row."""
    rehearsal = marks and is_rehearsal(judged.run)
    facts = facts_of(judged)
    return RunView(
        id=name,
        verdict=judged.final_verdict,
        facts=replace(facts, name=marked(facts.name, rehearsal=rehearsal)),
        check=short_name(judged),
        transport=str(judged.run.header.get("transport", "")),
        hosts=tuple(dict.fromkeys(each.host for each in judged.run.ranks)),
        counts=count(each.verdict for each in judged.judgements),
        problems=tuple(Explained.of(each, system, short_message(each, judged)) for each in judged.all_problems),
        slow=slow_of(judged),
    )


def run_detail(judged: RunJudgement) -> RunDetail:
    return RunDetail(
        tables=tuple(_tables(groups_of(judged), len(judged.run.ranks))),
        node=node_of_run(judged),
        figures=figures_of(judged),
        ranks=judged.run.ranks[:_MOST_RANKS],
        more_ranks=max(0, len(judged.run.ranks) - _MOST_RANKS),
    )


def _tables(groups: Sequence[Group], world: int) -> Iterator[_Table]:
    """A table for each group of pairs, and one for the collectives of a schedule and quantity together."""
    for members in together(groups):
        first = members[0]
        names = f"{first.operation}_{first.schedule}_…_{size_label(first.bytes)}_{first.quantity}"
        if not first.is_pairs:
            names = f"…_{first.schedule}_…_{first.quantity}"
        yield _table(name_of(members), names, judgements_of(members), first, world)


def _table(name: str, metric_names: str, judgements: Sequence[Judgement], group: Group, world: int) -> _Table:
    bad = sum(each.verdict is not Verdict.PASS for each in judgements)
    shown = min(bad, _MOST_ROWS) + (_MOST_PASSES if bad < _MOST_ROWS else 0)
    rows = tuple(_row(each, world) for each in judgements[:shown])
    sources = _sources(judgements, world)
    return _Table(
        name=name,
        metric_names=metric_names,
        unit=unit_shown(group.unit),
        is_pairs=group.is_pairs,
        verdict=judgements[0].verdict,
        counts=count(each.verdict for each in judgements),
        worst=rows[0],
        rows=rows,
        hidden=count(each.verdict for each in judgements[shown:]),
        sources=sources[:_MOST_SOURCES],
        more_sources=max(0, len(sources) - _MOST_SOURCES),
    )


def _row(judged: Judgement, world: int) -> _Row:
    low, high = judged.interval
    expected = judged.expectation.expected
    return _Row(
        who=label_of(judged, world),
        verdict=judged.verdict,
        value=number(judged.value),
        interval=f"{number(low)} to {number(high)}",
        expected="-" if expected is None else number(expected),
        share=share_of_yardstick(judged),
        yardstick=_yardstick(judged),
        reason=reason_without_source(judged),
    )


def _yardstick(judged: Judgement) -> str:
    found = judged.yardstick
    if found is None:
        return judged.judged_by
    bound = f" (bound {number(found.bound)})" if found.bound != found.value else ""
    return f"{found.kind} {number(found.value)}{bound}"


def _sources(judgements: Sequence[Judgement], world: int) -> tuple[str, ...]:
    """Where the expected values and the references come from, each with whom it is about."""
    members: dict[str, list[str]] = {}
    for each in judgements:
        texts = [] if each.expectation.expected is None else [f"Expected: {each.expectation.source}"]
        yardstick = each.yardstick
        # The source of the others is that of the expected value.
        if yardstick is not None and yardstick.kind not in ("floor", "siblings"):
            texts.append(f"{yardstick.kind.capitalize()}: {yardstick.source}")
        for text in texts:
            label = who(each.samples, world)
            own = label if each.samples.operation in PAIRS else f"{each.samples.operation} {label}"
            members.setdefault(text, []).append(own)
    return tuple(
        text if len(names) == len(judgements) else f"{text} (for {', '.join(names[:4])}{'…' if len(names) > 4 else ''})"
        for text, names in members.items()
    )
