"""The figures of a run, each with the table that says the same: pair matrices and curves over the size.

Quartiles are computed here: of the samples themselves nothing goes into a report.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go

from fabricheck.judge.metrics import SMALLEST_GOODPUT_BYTES, UNITS, Quantity
from fabricheck.judge.verdicts import Judgement, RunJudgement
from fabricheck.report.content import (
    Group,
    describe_rank,
    groups_of,
    number,
    percent,
    printable,
    share_of_expected,
    who,
)
from fabricheck.results.fabricbench_format import MEMORY_PATHS, PAIR_OPERATIONS
from fabricheck.results.records import Samples, Verdict
from fabricheck.units import format_size

# Okabe and Ito's colours without the green one, which only PASS has. Dashes and symbols say the same without colour.
_COLORS = ("#0072B2", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross")
_GREY = "#888888"
_SCALE = "Cividis"

# Above it, numbers in the cells could not be read.
_RANKS_WITH_TEXT = 12
# A matrix with few of its cells measured is shorter as a list.
_SPARSE = 8


@dataclass(frozen=True)
class Cell:
    """One cell of a matrix; `verdict` is `None` where nothing was judged."""

    text: str
    verdict: Verdict | None


@dataclass(frozen=True)
class Matrix:
    """Values by source (rows) and destination (columns). `cells` has the shape (sources, destinations)."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]
    cells: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Listing:
    """A matrix that is mostly empty, as a list of pairs."""

    pairs: tuple[tuple[str, Cell], ...]


@dataclass(frozen=True)
class Point:
    """Quartiles of the iterations at one size."""

    bytes: int
    count: int
    low: float
    median: float
    high: float


@dataclass(frozen=True)
class Curve:
    """What one pair or collective gave over the size."""

    label: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Curves:
    """All curves of a figure, in `unit`."""

    unit: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Figure:
    """A figure: `plot` is plotly's JSON, `summary` one line that says what is to be seen, `table` the same numbers."""

    kind: Literal["matrix", "curves"]
    title: str
    summary: str
    plot: str
    table: Matrix | Listing | Curves


def figures_of(judged: RunJudgement) -> tuple[Figure, ...]:
    """The pair matrices of a run, then its curves of goodput and of latency."""
    matrices = [_matrix(group, judged) for group in groups_of(judged) if group.is_pairs]
    return (*matrices, *_all_curves(judged))


# Pair matrices


def _matrix(group: Group, judged: RunJudgement) -> Figure:
    measured = {(each.samples.ranks[0], each.samples.ranks[1]): each for each in group.judgements}
    planned = _planned_pairs(group, judged)
    pairs = {*measured, *planned}
    ranks = tuple(sorted({rank for pair in pairs for rank in pair}))
    sources, destinations = tuple(sorted({a for a, _ in pairs})), tuple(sorted({b for _, b in pairs}))
    if len(ranks) <= 2 * _RANKS_WITH_TEXT:
        sources = destinations = ranks
    relative = all(share_of_expected(each) is not None for each in measured.values())
    unit = "% of expected" if relative else group.unit

    def cell(pair: tuple[int, int]) -> Cell:
        found = measured.get(pair)
        if found is not None:
            return Cell(_value_text(found, relative), found.verdict)
        if pair in planned:
            return Cell("missing", Verdict.INCOMPLETE)
        return Cell("" if pair[0] == pair[1] else "-", None)

    title = f"{group.name}: pairs, in {unit}"
    cells = tuple(tuple(cell((a, b)) for b in destinations) for a in sources)
    table: Matrix | Listing = Matrix(sources, destinations, cells)
    if len(sources) * len(destinations) > _SPARSE * len(pairs) + 100:
        table = Listing(tuple((f"{a}→{b}", cell((a, b))) for a, b in sorted(pairs)))
    worst, best = group.judgements[0], group.judgements[-1]
    summary = f"{len(measured)} pairs"
    if len(planned - measured.keys()):
        summary += f", {len(planned - measured.keys())} missing"
    if len(measured) > 1:
        summary += f"; worst {_pair_text(worst)}, best {_pair_text(best)}"
    else:
        summary += f"; {_pair_text(worst)}"
    if not relative:
        summary += (
            f". The model expects no {group.quantity} here, so these are absolute values in {group.unit}"
            if all(each.expectation.expected is None for each in measured.values())
            else f". For some pairs the model expects nothing, so these are absolute values in {group.unit}"
        )
    plot = _heat_map(group, judged, Matrix(sources, destinations, cells), measured, relative)
    return Figure("matrix", title, summary, plot, table)


def _planned_pairs(group: Group, judged: RunJudgement) -> set[tuple[int, int]]:
    plan = judged.run.header.get("plan", {})
    return {
        (each["ranks"][0], each["ranks"][1])
        for each in plan.get("series", [])
        if (each["operation"], each["implementation"], each["schedule"])
        == (group.operation, group.implementation, group.schedule)
        and group.bytes in each["bytes"]
    }


def _pair_text(judged: Judgement) -> str:
    share = share_of_expected(judged)
    of_expected = f" ({percent(share)} of expected)" if share is not None else ""
    return f"{who(judged.samples, 0)} {number(judged.value)} {judged.unit}{of_expected}, {judged.verdict.value}"


def _value_text(judged: Judgement, relative: bool) -> str:
    return percent(share_of_expected(judged)) if relative else number(judged.value)


def _heat_map(
    group: Group,
    judged: RunJudgement,
    matrix: Matrix,
    measured: dict[tuple[int, int], Judgement],
    relative: bool,
) -> str:
    names = {each.rank: describe_rank(each) for each in judged.run.ranks}

    def hover(a: int, b: int) -> str:
        found = measured.get((a, b))
        route = f"{_plain(names.get(a, f'rank {a}'))}<br>→ {_plain(names.get(b, f'rank {b}'))}"
        if found is None:
            return f"{route}<br>not measured" if a != b else ""
        low, high = found.interval
        expected = found.expectation.expected
        of = f"<br>{percent(share_of_expected(found))} of expected {number(expected)} {found.unit}" if expected else ""
        return (
            f"{route}<br>{number(found.value)} {found.unit} (95%: {number(low)} to {number(high)}){of}"
            f"<br>{found.verdict.value}"
        )

    def value(a: int, b: int) -> float | None:
        found = measured.get((a, b))
        if found is None:
            return None
        share = share_of_expected(found)
        return _finite(100 * share if relative and share is not None else found.value)

    z = [[value(a, b) for b in matrix.destinations] for a in matrix.sources]
    known = [each for row in z for each in row if each is not None]
    small = max(len(matrix.sources), len(matrix.destinations)) <= _RANKS_WITH_TEXT
    text = [[_cell_text(cell) for cell in row] for row in matrix.cells] if small else None
    higher = group.quantity == "goodput"
    # In % of expected all matrices share one scale, so that they can be compared at a glance.
    low, high = (0.0, 100.0) if relative else (0.0, max(known, default=1.0))
    if not higher:
        # From the best to twice that, or to the worst.
        low = 100.0 if relative else min(known, default=1.0)
        high = max(2 * low, *known, 0.0)
    destinations, sources = [str(each) for each in matrix.destinations], [str(each) for each in matrix.sources]
    traces: list[Any] = [
        go.Heatmap(
            x=destinations,
            y=sources,
            z=z,
            zmin=low,
            zmax=high,
            colorscale=_SCALE,
            reversescale=not higher,
            text=text,
            texttemplate="%{text}" if small else None,
            hovertext=[[hover(a, b) for b in matrix.destinations] for a in matrix.sources],
            hoverinfo="text",
            hoverongaps=True,
            xgap=2,
            ygap=2,
            colorbar={"title": {"text": "%" if relative else group.unit}, "thickness": 12, "outlinewidth": 0},
        )
    ]
    bad = [(a, b) for (a, b), each in measured.items() if each.verdict is not Verdict.PASS]
    if bad and not small:
        traces.append(
            go.Scatter(
                x=[str(b) for _, b in bad],
                y=[str(a) for a, _ in bad],
                mode="markers",
                marker={"symbol": "x-thin", "size": 9, "line": {"width": 2, "color": "#D55E00"}},
                hoverinfo="skip",
                showlegend=False,
            )
        )
    size = min(max(len(matrix.sources), 4), 16)
    layout = {
        "height": 130 + 34 * size,
        "margin": {"l": 60, "r": 10, "t": 10, "b": 50},
        "xaxis": {"title": {"text": "destination rank"}, "type": "category", "showgrid": False, "zeroline": False},
        "yaxis": {
            "title": {"text": "source rank"},
            "type": "category",
            "autorange": "reversed",
            "showgrid": False,
            "zeroline": False,
        },
    }
    return _json(traces, layout)


def _cell_text(cell: Cell) -> str:
    if cell.verdict in (None, Verdict.PASS):
        return cell.text if cell.verdict else ""
    return f"<b>{cell.text}<br>{cell.verdict.value}</b>" if cell.text != "missing" else "<b>missing</b>"


# Curves over the size


@dataclass(frozen=True)
class _Plot:
    quantity: Quantity
    title: str
    members: tuple[tuple[str, tuple[Samples, ...]], ...]  # label and samples by size, one a curve


def _all_curves(judged: RunJudgement) -> Iterable[Figure]:
    for quantity in ("goodput", "latency"):
        for plot in _plots(judged, quantity):
            yield _curves(plot, judged)


def _plots(judged: RunJudgement, quantity: Quantity) -> Iterable[_Plot]:
    """One plot for each pair operation and schedule, one for the collectives of a schedule together."""
    world = len(judged.run.ranks)
    found: dict[str, dict[str, dict[int, Samples]]] = {}
    for each in judged.run.samples:
        if quantity == "latency" and each.bytes >= SMALLEST_GOODPUT_BYTES:
            continue
        pairs = each.operation in PAIR_OPERATIONS
        several = "paths between memories" if each.operation in MEMORY_PATHS else "collectives"
        plot = f"{each.operation if pairs else several} {each.schedule}"
        label = who(each, world) if pairs else f"{each.operation} {who(each, world)}"
        if each.implementation == "transfers" and not pairs and each.operation not in MEMORY_PATHS:
            label += " by transfers"
        found.setdefault(plot, {}).setdefault(label, {}).setdefault(each.bytes, each)
    for title, curves in found.items():
        # One size makes no curve, and is in the table of metrics.
        if any(len(sizes) > 1 for sizes in curves.values()):
            members = tuple((label, tuple(by[size] for size in sorted(by))) for label, by in curves.items())
            yield _Plot(quantity, title, members)


def _curves(plot: _Plot, judged: RunJudgement) -> Figure:
    unit = UNITS[plot.quantity]
    curves = tuple(
        Curve(label, tuple(point for each in samples if (point := _point(each, plot.quantity)) is not None))
        for label, samples in plot.members
    )
    curves = tuple(each for each in curves if each.points)
    bad = {
        (who(each.samples, len(judged.run.ranks)), each.samples.operation, each.samples.schedule)
        for each in judged.judgements
        if each.verdict is not Verdict.PASS
    }
    operations = {label: samples[0] for label, samples in plot.members}

    def rank(curve: Curve) -> tuple[bool, float]:
        """What is not PASS first, then the slowest: they are the ones to be told from the rest."""
        first = operations[curve.label]
        is_bad = (who(first, len(judged.run.ranks)), first.operation, first.schedule) in bad
        last = curve.points[-1].median if plot.quantity == "goodput" else -curve.points[0].median
        return not is_bad, last

    ranked = sorted(curves, key=rank)
    highlighted = ranked if len(ranked) <= len(_COLORS) else ranked[: len(_COLORS) - 1]
    others = ranked[len(highlighted) :]
    traces: list[Any] = []
    if others:
        traces += _other_traces(others, unit)
    # The worst is drawn last, over the others, and stands first in the legend.
    for position in reversed(range(len(highlighted))):
        traces += _curve_traces(highlighted[position], position, unit)
    if (line := _expected_trace(plot, judged, curves)) is not None:
        traces.append(line)
    sizes = sorted({point.bytes for curve in curves for point in curve.points})
    layout = {
        "height": 430,
        "margin": {"l": 60, "r": 15, "t": 10, "b": 45},
        "hovermode": "closest",
        "legend": {"orientation": "h", "y": -0.1, "yanchor": "top", "x": 0, "traceorder": "reversed"},
        "xaxis": {"type": "log", "tickangle": 0, **_size_ticks(sizes)},
        "yaxis": {"title": {"text": f"{plot.quantity} in {unit}"}, "rangemode": "tozero"},
    }
    worst = ranked[0]
    reach = worst.points[-1] if plot.quantity == "goodput" else worst.points[0]
    summary = (
        f"{len(curves)} {'curves' if len(curves) > 1 else 'curve'} from {format_size(sizes[0])} to "
        f"{format_size(sizes[-1])}, median and quartiles; "
        f"{'worst' if len(curves) > 1 else 'here'} {worst.label} with {number(reach.median)} {unit} at "
        f"{format_size(reach.bytes)}"
    )
    title = f"{plot.title}: {plot.quantity} over size"
    return Figure("curves", title, summary, _json(traces, layout), Curves(unit, curves))


def _point(samples: Samples, quantity: Quantity) -> Point | None:
    with np.errstate(all="ignore"):
        values = samples.goodput_gbps if quantity == "goodput" else samples.latency_us
        if values.size == 0 or not np.isfinite(values).all():
            return None
        low, median, high = (float(each) for each in np.percentile(values, [25, 50, 75]))
    return Point(samples.bytes, int(values.size), low, median, high)


def _curve_traces(curve: Curve, position: int, unit: str) -> list[Any]:
    color = _COLORS[position]
    xs = [point.bytes for point in curve.points]
    band = go.Scatter(
        x=xs + xs[::-1],
        y=[_short(point.high) for point in curve.points] + [_short(point.low) for point in reversed(curve.points)],
        fill="toself",
        fillcolor=color,
        opacity=0.25,
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        legendgroup=curve.label,
        showlegend=False,
    )
    line = go.Scatter(
        x=xs,
        y=[_short(point.median) for point in curve.points],
        name=_plain(curve.label),
        legendgroup=curve.label,
        mode="lines+markers",
        line={"color": color, "width": 2, "dash": _DASHES[position]},
        marker={"symbol": _SYMBOLS[position], "size": 6},
        text=[_hover(curve, point, unit) for point in curve.points],
        hoverinfo="text",
    )
    return [band, line]


def _other_traces(curves: Sequence[Curve], unit: str) -> list[Any]:
    """Curves that nobody has to tell apart: one line each, all grey, with one entry in the legend."""
    name = f"{len(curves)} others"

    def gapped(part: Callable[[Curve], list[Any]]) -> list[Any]:
        return [value for curve in curves for value in (*part(curve), None)]

    bands = go.Scatter(
        x=gapped(lambda curve: [p.bytes for p in curve.points] + [p.bytes for p in reversed(curve.points)]),
        y=gapped(
            lambda curve: [_short(p.high) for p in curve.points] + [_short(p.low) for p in reversed(curve.points)]
        ),
        fill="toself",
        fillcolor=_GREY,
        opacity=0.15,
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        legendgroup=name,
        showlegend=False,
    )
    lines = go.Scatter(
        x=gapped(lambda curve: [p.bytes for p in curve.points]),
        y=gapped(lambda curve: [_short(p.median) for p in curve.points]),
        name=name,
        legendgroup=name,
        mode="lines",
        connectgaps=False,
        opacity=0.6,
        line={"color": _GREY, "width": 1},
        text=gapped(lambda curve: [_hover(curve, p, unit) for p in curve.points]),
        hoverinfo="text",
    )
    return [bands, lines]


def _expected_trace(plot: _Plot, judged: RunJudgement, curves: Sequence[Curve]) -> Any | None:
    """What the model expects of large sizes, where it is the same for all curves."""
    if plot.quantity != "goodput":
        return None
    operations = {(samples[0].operation, samples[0].schedule) for _, samples in plot.members}
    expected = {
        each.expectation.expected
        for each in judged.judgements
        if each.better == "higher" and (each.samples.operation, each.samples.schedule) in operations
    }
    value = next(iter(expected), None)
    if len(expected) != 1 or value is None:
        return None
    sizes = [point.bytes for curve in curves for point in curve.points]
    return go.Scatter(
        x=[min(sizes), max(sizes)],
        y=[_short(value), _short(value)],
        name=f"expected {number(value)} {UNITS[plot.quantity]}",
        mode="lines",
        line={"color": _GREY, "width": 1, "dash": "5px,3px"},
        hoverinfo="name",
    )


def _hover(curve: Curve, point: Point, unit: str) -> str:
    return (
        f"{_plain(curve.label)}<br>{format_size(point.bytes)}: {number(point.median)} {unit}"
        f"<br>quartiles {number(point.low)} to {number(point.high)}, {point.count} iterations"
    )


def _size_ticks(sizes: Sequence[int]) -> dict[str, Any]:
    """A tick for each power of two, or every few, at most six."""
    first, last = math.floor(math.log2(sizes[0])), math.ceil(math.log2(sizes[-1]))
    step = max(1, math.ceil((last - first + 1) / 6))
    ticks = [1 << exponent for exponent in range(first, last + 1, step)]
    return {"tickvals": ticks, "ticktext": [format_size(tick) for tick in ticks]}


# Plotly


def _json(traces: Sequence[Any], layout: dict[str, Any]) -> str:
    figure = go.Figure(data=list(traces), layout={**layout, "template": None})
    text = figure.to_json(validate=False)
    assert isinstance(text, str)
    return json.dumps(json.loads(text), separators=(",", ":"), allow_nan=False)


def _plain(text: str) -> str:
    """Plotly shows a few HTML tags in its texts as such."""
    return html.escape(printable(text), quote=False)


def _finite(value: float) -> float | None:
    return _short(value) if math.isfinite(value) else None


def _short(value: float) -> float:
    """Five significant digits are more than a screen shows, and half of the bytes."""
    return float(f"{value:.5g}")
