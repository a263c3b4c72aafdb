"""The node that a run was on, drawn with each link in the colour of what the pairs over it got.

The colour is that of the median pair: one slow pair is slow on all links of its way, and on most of them only there. It
is a share of what links carry of data (`achievable`) where that is known of all pairs, else of what is expected.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from xml.etree import ElementTree

from markupsafe import Markup
from plotly.colors import sample_colorscale

from fabricheck.errors import UserError
from fabricheck.expectation.components import components_of
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.judgement import Judgement
from fabricheck.records.operations import PAIRS
from fabricheck.report.content import percent, plural, printable, quantity_of, who
from fabricheck.report.figures.matrix import span_of
from fabricheck.report.figures.plot import SCALE
from fabricheck.report.figures.tables import Cell, Rows
from fabricheck.topology.drawing import Layout, box_width, describe, layout, width_of
from fabricheck.topology.model import Link, Topology

_OUTLINE_PX = 2.5
_EDGE_PX, _LEAST_HALF_PX = 45.0, 190.0  # beyond the middle of an outer box; of half a drawing
_ABOVE_PX = 20.0  # half a box, and its line
_LEGEND_STEPS = 20
_KINDS = ("gpus", "cpus", "switches", "nics")


@dataclass(frozen=True)
class LinkState:
    """A link and what the pairs whose data pass it got; shares are of what is expected of each pair, worst first."""

    link: Link
    pairs: tuple[tuple[float, str, Judgement], ...]

    @property
    def name(self) -> str:
        return " - ".join(self.link.ends)

    @property
    def worst(self) -> float:
        return self.pairs[0][0]

    @property
    def median(self) -> float:
        return statistics.median(share for share, _, _ in self.pairs)


@dataclass(frozen=True)
class Node:
    """The drawing (`svg` is markup, all names in it escaped) and the table that says the same."""

    title: str
    summary: str
    svg: Markup
    table: Rows


def node_of_run(judged: RunJudgement) -> Node | None:
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
    of = "achievable" if _is_achievable(judged) else "expected"
    summary = (
        f"{len(measured)} of {plural(len(links), 'link')} carried pairs; {'the worst is ' if len(measured) > 1 else ''}"
        f"{worst.name}, over which {plural(len(worst.pairs), 'pair')} got {percent(worst.median)} of {of} in the "
        f"median and {percent(worst.worst)} at worst ({worst.pairs[0][1]})"
    )
    return Node(
        title=f"{topology.system}, {host}: links by the median goodput of the pairs over them, in % of {of}",
        summary=summary,
        svg=_draw(topology, links, of),
        table=_table(links, of),
    )


def _links(judged: RunJudgement, topology: Topology, host: str) -> list[LinkState]:
    over: dict[Component, list[tuple[float, str, Judgement]]] = {}
    achievable = _is_achievable(judged)
    for pair in _of_pairs(judged):
        share = _share_of_achievable(pair) if achievable else pair.share_of_expected
        if share is None:
            continue
        if not 0 <= share < float("inf"):
            continue
        try:
            crossed = components_of(judged.run, pair.samples, topology)
        except UserError:  # a device that the topology does not know; the judge says so
            continue
        for component in crossed:
            over.setdefault(component, []).append((share, who(pair.samples, len(judged.run.ranks)), pair))
    states: dict[tuple[str, str], LinkState] = {}
    for link in topology.links:
        a, b = sorted(link.ends)
        pairs = sorted(over.get(Component(Kind.LINK, a, host, b, host), ()), key=lambda pair: pair[:2])
        states.setdefault((a, b), LinkState(link, tuple(pairs)))
    return list(states.values())


def _of_pairs(judged: RunJudgement) -> list[Judgement]:
    return [each for each in judged.judgements if each.samples.operation in PAIRS and quantity_of(each) == "goodput"]


def _is_achievable(judged: RunJudgement) -> bool:
    return all(_share_of_achievable(each) is not None for each in _of_pairs(judged))


def _share_of_achievable(judged: Judgement) -> float | None:
    achievable = judged.expectation.achievable
    return judged.value / achievable if achievable else None


def _table(links: list[LinkState], of: str) -> Rows:
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
        head=("link", "technology", "pairs", f"median, % of {of}", f"worst, % of {of}", "its ranks"),
        rows=tuple(rows),
        texts=(1,),
        note=f"No pair was measured over {', '.join(rest)}." if rest else "",
    )


def color_of(share: float, span: tuple[float, float] = (0.0, 1.0)) -> str:
    """The colour that the pair matrices have for a share, on a scale from one end of `span` to the other."""
    low, high = span
    (color,) = sample_colorscale(SCALE, [min(max((share - low) / (high - low), 0.0), 1.0)])
    return str(color)


def _draw(topology: Topology, links: list[LinkState], of: str) -> Markup:
    made = layout(topology)
    span = span_of([each.median for each in links if each.pairs])
    middle = made.size / 2
    # No wider than the outermost ring, and never than the words below it.
    half = max(_LEAST_HALF_PX, *(math.hypot(x - middle, y - middle) + _EDGE_PX for x, y in made.places.values()))
    # No higher than what is drawn: a ring with one CPU on it is empty but for that.
    ys = [y for each in links for y in made.curve(each.link.ends).ys] + [y for _, y in made.places.values()]
    left, highest, bottom = middle - half, min(ys) - _ABOVE_PX, max(ys) + _ABOVE_PX
    box = f"{left:.0f} {highest:.0f} {2 * half:.0f} {bottom - highest + 46:.0f}"
    top = _add(None, "svg", viewBox=box, role="img", aria_label=f"Node of {topology.system}")
    # What was measured lies over what was not, and the worst over all.
    for link in sorted(links, key=lambda link: -link.median if link.pairs else float("-inf")):
        _line(top, link, made, width_of(link.link, topology), span=span, of=of)
    for link in links:
        if link.pairs:
            x, y = made.curve(link.link.ends).label
            _add(top, "text", f"{100 * link.median:.0f}", class_="share", x=f"{x:.1f}", y=f"{y + 4:.1f}")
    for kind in _KINDS:
        for device in getattr(topology, kind):
            _device(top, device.name, made.places[device.name], kind)
    _legend(top, left, bottom, 2 * half, span=span)
    return Markup(ElementTree.tostring(top, encoding="unicode"))


def _line(
    top: ElementTree.Element, link: LinkState, made: Layout, width: float, *, span: tuple[float, float], of: str
) -> None:
    group = _add(top, "g")
    way = {"d": made.curve(link.link.ends).path, "fill": "none"}
    if not link.pairs:
        _add(group, "title", f"{describe(link.link)}; no pair measured")
        _add(group, "path", class_="unmeasured", stroke_width=f"{width:.2f}", **way)
        return
    share, label, _ = link.pairs[0]
    text = f"median {percent(link.median)} of {of}, worst {label} {percent(share)}"
    _add(group, "title", f"{describe(link.link)}; {plural(len(link.pairs), 'pair')}, {text}")
    # Both ends of the scale are close to black or white, and so to the paper of one of the two schemes.
    _add(group, "path", class_="outline", stroke_width=f"{width + _OUTLINE_PX:.2f}", **way)
    _add(group, "path", stroke=color_of(link.median, span), stroke_width=f"{width:.2f}", **way)


def _device(top: ElementTree.Element, name: str, place: tuple[float, float], kind: str) -> None:
    width = box_width(name)
    at = {"x": f"{place[0] - width / 2:.1f}", "y": f"{place[1] - 13:.1f}"}
    _add(top, "rect", class_=f"device {kind}", width=f"{width:.1f}", height="26", rx="5", **at)
    _add(top, "text", name, x=f"{place[0]:.1f}", y=f"{place[1] + 4:.1f}")


def _legend(top: ElementTree.Element, x0: float, y0: float, size: float, *, span: tuple[float, float]) -> None:
    """Below a drawing whose lower left corner is at `x0`, `y0`."""
    left, width, y = x0 + 0.1 * size, 0.46 * size, y0 + 4
    step = width / _LEGEND_STEPS
    for number in range(_LEGEND_STEPS):
        color = color_of((number + 0.5) / _LEGEND_STEPS)
        # They overlap a little, or the paper would shine through between them.
        x, wide = f"{left + number * step:.1f}", f"{step + 0.5:.1f}"
        _add(top, "rect", x=x, y=f"{y:.1f}", width=wide, height="14", fill=color)
    for at, share in ((0.0, span[0]), (1.0, span[1])):
        _add(top, "text", percent(share), x=f"{left + width * at:.1f}", y=f"{y + 32:.1f}")
    middle = f"{y + 7:.1f}"
    start, end = f"{x0 + 0.66 * size:.1f}", f"{x0 + 0.72 * size:.1f}"
    _add(top, "line", class_="unmeasured", x1=start, x2=end, y1=middle, y2=middle, stroke_width="5")
    _add(top, "text", "no pair measured", x=f"{x0 + 0.86 * size:.1f}", y=f"{y + 11:.1f}")


def _add(
    parent: ElementTree.Element | None, tag: str, text: str | None = None, **attributes: str
) -> ElementTree.Element:
    """An element below `parent`; ElementTree escapes what it writes, and names are made printable here."""
    named = {_attribute(name): printable(value) for name, value in attributes.items()}
    made = ElementTree.Element(tag, named) if parent is None else ElementTree.SubElement(parent, tag, named)
    made.text = None if text is None else printable(text)
    return made


def _attribute(name: str) -> str:
    return name if name == "viewBox" else name.rstrip("_").replace("_", "-")
