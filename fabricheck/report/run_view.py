"""What a page shows of one run: its facts, its metrics as tables, its figures and the drawing of its node.

Each link of the node has the colour of what the median pair over it got: one slow pair is slow on all links of its way,
and on most of them only there. It is the share that the maps of pairs have.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

from markupsafe import Markup

from fabricheck.errors import UserError
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Judgement
from fabricheck.records.operations import PAIRS
from fabricheck.records.rehearsal import is_rehearsal, marked
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import (
    NotPassed,
    RunFacts,
    count,
    facts_of,
    groups_of,
    judgements_of,
    merge_collectives,
    name_of,
    number,
    percent,
    ranks_text,
    short_message,
    short_name,
    shown_kind,
    slow_of,
    unit_shown,
    with_job_script,
)
from fabricheck.report.figures.tables import Cell, Rows
from fabricheck.report.lines import ShownProblem, steps, strip_marks, summary
from fabricheck.report.shares import shade_of, shares_of
from fabricheck.topology.components import components_of
from fabricheck.topology.drawing import Layout, add, add_device, describe, layout, width_of
from fabricheck.topology.model import Link, Topology
from fabricheck.units import few, plural, size_label

_OUTLINE_PX = 2.5
_EDGE_PX, _LEAST_HALF_PX = 45.0, 190.0  # beyond the middle of an outer box; of half a drawing
_ABOVE_PX = 20.0  # half a box, and its line
# A pair's share, its ranks, itself, and of what the share is.
_Pair = tuple[float, str, Judgement, str]
_KINDS = ("gpus", "cpus", "switches", "nics")


@dataclass(frozen=True)
class LinkState:
    """A link and the shares of the pairs whose data pass it, worst first."""

    link: Link
    pairs: tuple[_Pair, ...]

    @property
    def name(self) -> str:
        """Its two ends."""
        return " - ".join(self.link.ends)

    @property
    def worst(self) -> float:
        """The lowest share of all pairs that cross it."""
        return self.pairs[0][0]

    @property
    def median(self) -> float:
        """The median share of all pairs that cross it."""
        return statistics.median(pair[0] for pair in self.pairs)


@dataclass(frozen=True)
class NodeDrawing:
    """The drawing (`svg` is markup, all names in it escaped) and the table that says the same."""

    title: str
    summary: str
    of: str
    svg: Markup
    table: Rows


def node_of_run(judged: RunJudgement) -> NodeDrawing | None:
    """The drawing of a run on one node; none where no pair's data went over a link that the topology knows.

    Data of a pair are taken to go the widest way, which is what the expectation rests on too.
    """
    hosts, topology = {each.host for each in judged.run.ranks}, judged.topology
    if topology is None or len(hosts) != 1:
        return None
    (host,) = hosts
    links = _links(judged, topology, host)
    measured = [each for each in links if each.pairs]
    if not measured:
        return None
    worst = min(measured, key=lambda link: (link.median, link.worst))
    of = " or ".join(sorted({of for each in measured for _, _, _, of in each.pairs}))
    summary = (
        f"{len(measured)} of {plural(len(links), 'link')} carried pairs; {'the worst is ' if len(measured) > 1 else ''}"
        f"{worst.name}, over which {plural(len(worst.pairs), 'pair')} got {percent(worst.median)} of {of} in the "
        f"median and {percent(worst.worst)} at worst ({worst.pairs[0][1]})"
    )
    return NodeDrawing(
        title=f"{topology.system}, {host}: links by the median goodput of the pairs over them, in % of {of}",
        summary=summary,
        of=of,
        svg=_draw(topology, links),
        table=_table(links),
    )


def _links(judged: RunJudgement, topology: Topology, host: str) -> list[LinkState]:
    over: dict[Component, list[_Pair]] = {}
    for share, pair, of in _of_pairs(judged):
        try:
            crossed = components_of(judged.run, pair.samples, topology)
        except UserError:  # a device that the topology does not know; the judge says so
            continue
        for component in crossed:
            over.setdefault(component, []).append((share, ranks_text(pair.samples, len(judged.run.ranks)), pair, of))
    states: dict[tuple[str, str], LinkState] = {}
    for link in topology.links:
        a, b = sorted(link.ends)
        pairs = sorted(over.get(Component(Kind.LINK, a, host, b, host), ()), key=lambda pair: pair[:2])
        states.setdefault((a, b), LinkState(link, tuple(pairs)))
    return list(states.values())


def _of_pairs(judged: RunJudgement) -> Iterator[tuple[float, Judgement, str]]:
    for group in groups_of(judged):
        if group.is_pairs and group.quantity == "goodput":
            shares, of = shares_of(group.judgements)
            pairs = zip(shares, group.judgements, strict=True)
            yield from ((share, pair, of) for share, pair in pairs if share is not None)


def _table(links: list[LinkState]) -> Rows:
    ranked = sorted((each for each in links if each.pairs), key=lambda link: (link.median, link.worst, link.name))
    rows = [
        (
            Cell(each.name),
            Cell(each.link.technology),
            Cell(str(len(each.pairs))),
            Cell(percent(each.median)),
            Cell(percent(each.worst), each.pairs[0][2].verdict),
            Cell(each.pairs[0][1]),
        )
        for each in ranked
    ]
    rest = [each.name for each in links if not each.pairs]
    return Rows(
        head=("link", "technology", "pairs", "median", "worst", "its ranks"),
        rows=tuple(rows),
        texts=(1,),
        note=f"No pair was measured over {', '.join(rest)}." if rest else "",
    )


def _draw(topology: Topology, links: list[LinkState]) -> Markup:
    made = layout(topology)
    middle = made.size / 2
    # No wider than the outermost ring, and never than the words below it.
    half = max(_LEAST_HALF_PX, *(math.hypot(x - middle, y - middle) + _EDGE_PX for x, y in made.places.values()))
    # No higher than what is drawn: a ring with one CPU on it is empty but for that.
    ys = [y for each in links for y in made.curve(each.link.ends).ys] + [y for _, y in made.places.values()]
    left, highest, bottom = middle - half, min(ys) - _ABOVE_PX, max(ys) + _ABOVE_PX
    box = f"{left:.0f} {highest:.0f} {2 * half:.0f} {bottom - highest + 26:.0f}"
    top = add(None, "svg", viewBox=box, role="img", aria_label=f"Node of {topology.system}")
    # What was measured lies over what was not, and the worst over all.
    for link in sorted(links, key=lambda link: -link.median if link.pairs else float("-inf")):
        _line(top, link, made, width_of(link.link, topology))
    for link in links:
        if link.pairs:
            x, y = made.curve(link.link.ends).label
            add(top, "text", f"{100 * link.median:.0f}", class_="share", x=f"{x:.1f}", y=f"{y + 4:.1f}")
    for kind in _KINDS:
        for device in getattr(topology, kind):
            add_device(top, device.name, made.places[device.name], class_=f"device {kind}")
    _legend(top, left, bottom, 2 * half)
    return Markup(ElementTree.tostring(top, encoding="unicode"))


def _line(top: ElementTree.Element, link: LinkState, made: Layout, width: float) -> None:
    group = add(top, "g")
    way = {"d": made.curve(link.link.ends).path, "fill": "none"}
    if not link.pairs:
        add(group, "title", f"{describe(link.link)}; no pair measured")
        add(group, "path", class_="unmeasured", stroke_width=f"{width:.2f}", **way)
        return
    share, label, _, of = link.pairs[0]
    text = f"median {percent(link.median)}, worst {label} {percent(share)} of {of}"
    add(group, "title", f"{describe(link.link)}; {plural(len(link.pairs), 'pair')}, {text}")
    # Both ends of the scale are close to black or white, and so to the paper of one of the two schemes.
    add(group, "path", class_="outline", stroke_width=f"{width + _OUTLINE_PX:.2f}", **way)
    add(group, "path", class_=f"c{shade_of(link.median)}", stroke_width=f"{width:.2f}", **way)


def _legend(top: ElementTree.Element, x0: float, y0: float, size: float) -> None:
    """Below a drawing whose lower left corner is at `x0`, `y0`; what the colours are stands above it."""
    y = f"{y0 + 11:.1f}"
    start, end = f"{x0 + 0.3 * size:.1f}", f"{x0 + 0.4 * size:.1f}"
    add(top, "line", class_="unmeasured", x1=start, x2=end, y1=y, y2=y, stroke_width="5")
    add(top, "text", "no pair measured", x=f"{x0 + 0.56 * size:.1f}", y=f"{y0 + 15:.1f}")


# What keeps the page short where a run is large; what is left out is counted where it would stand.
_MOST_ROWS, _MOST_PASSES = 64, 8  # of a table: those that are not PASS, and those that are


@dataclass(frozen=True)
class GroupTable:
    """The metrics of a group of pairs, or of the groups of all collectives together, worst first; the first so many are
    `shown`. `sources`: where the expected values and the yardsticks come from."""

    name: str
    metric_names: str
    unit: str
    is_pairs: bool
    judgements: tuple[Judgement, ...]
    shown: int
    sources: tuple[str, ...]


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
    def once(cls, told: ShownProblem, system: str, test: str) -> Explained:
        """Of several runs together, of which `test` is the first."""
        explained = cls.of(told.finding, system, told.message, test)
        return replace(explained, line=explained.line + told.of_runs)

    @classmethod
    def of(cls, finding: Finding, system: str, message: str | None = None, test: str = "") -> Explained:
        """`message`: a shorter one than the finding's own. `test`: which had it; empty of a session's."""
        message = finding.message if message is None else message
        line = summary(finding, system=system, message=message)
        entry = finding.entry
        its_steps = steps(finding, system=system, tests=[test])
        return cls(finding.verdict, finding.code, line, message, strip_marks(entry.decides), its_steps)


@dataclass(frozen=True)
class RunView:
    """A run as its row shows it; `check`: its short name. `slow`: its metrics that are not PASS."""

    id: str
    verdict: Verdict
    facts: RunFacts
    check: str
    transport: str
    hosts: tuple[str, ...]
    counts: tuple[tuple[Verdict, int], ...]
    problems: tuple[Explained, ...]
    slow: tuple[NotPassed, ...]


def run_view(judged: RunJudgement, name: str, system: str, *, marks: bool) -> RunView:
    """`marks`: whether a rehearsal says so in its row."""
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
        problems=tuple(
            Explained.of(each, system, short_message(each, judged), judged.test) for each in judged.all_problems
        ),
        slow=slow_of(judged),
    )


def tables_of(judged: RunJudgement) -> Iterator[GroupTable]:
    """A table for each group of pairs, and one for the collectives of a schedule and quantity together."""
    for members in merge_collectives(groups_of(judged)):
        first, judgements = members[0], judgements_of(members)
        names = f"{first.operation}_{first.schedule}_…_{size_label(first.bytes)}_{first.quantity}"
        if not first.is_pairs:
            names = f"…_{first.schedule}_…_{first.quantity}"
        bad = sum(each.verdict is not Verdict.PASS for each in judgements)
        shown = min(bad, _MOST_ROWS) + (_MOST_PASSES if bad < _MOST_ROWS else 0)
        sources = _sources(judgements, len(judged.run.ranks))
        yield GroupTable(name_of(members), names, unit_shown(first.unit), first.is_pairs, judgements, shown, sources)


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
