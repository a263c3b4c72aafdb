"""Curves over the size: median and quartiles of what each pair or collective gave."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.metrics import SMALLEST_GOODPUT_BYTES, UNITS, Quantity
from fabricheck.records.operations import MEMORY_PATHS, PAIRS
from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import number, ranks_text, unit_shown
from fabricheck.report.figures.plot import (
    GREY,
    Colors,
    PlotLine,
    legend_below,
    line_traces,
    plain,
    round_to_4,
    scatter,
    to_json,
)
from fabricheck.report.figures.tables import MOST_CURVES, Curve, Curves, Figure, SizeQuartiles
from fabricheck.units import format_size, plural

_FEWEST_OF_CURVE = 4  # sizes


@dataclass(frozen=True)
class _Plot:
    quantity: Quantity
    title: str
    members: tuple[tuple[str, tuple[Samples, ...]], ...]  # label and samples by size, one a curve


def curves_of(judged: RunJudgement, colors: Colors) -> Iterable[Figure]:
    """The curves of goodput, then those of latency: one figure for each pair operation and schedule, and one for the
    collectives of a schedule together."""
    for quantity in ("goodput", "latency"):
        for plot in _plots(judged, quantity):
            yield _curves(plot, judged, colors)


def _plots(judged: RunJudgement, quantity: Quantity) -> Iterable[_Plot]:
    """One plot for each pair operation and schedule, one for the collectives of a schedule together."""
    world = len(judged.run.ranks)
    plots: dict[str, dict[str, dict[int, Samples]]] = {}
    for samples in judged.run.samples:
        if quantity == "latency" and samples.bytes >= SMALLEST_GOODPUT_BYTES:
            continue
        pairs = samples.operation in PAIRS
        several = "paths between memories" if samples.operation in MEMORY_PATHS else "collectives"
        plot = f"{samples.operation if pairs else several} {samples.schedule}"
        label = ranks_text(samples, world) if pairs else f"{samples.operation} {ranks_text(samples, world)}"
        if samples.implementation == "transfers" and not pairs and samples.operation not in MEMORY_PATHS:
            label += " by transfers"
        plots.setdefault(plot, {}).setdefault(label, {}).setdefault(samples.bytes, samples)
    for title, curves in plots.items():
        # Few sizes make no curve, and are in the table of metrics.
        if len({size for sizes in curves.values() for size in sizes}) >= _FEWEST_OF_CURVE:
            members = tuple((label, tuple(by[size] for size in sorted(by))) for label, by in curves.items())
            yield _Plot(quantity, title, members)


def _curves(plot: _Plot, judged: RunJudgement, colors: Colors) -> Figure:
    unit = unit_shown(UNITS[plot.quantity])
    curves = tuple(
        Curve(label, tuple(point for each in samples if (point := _point(each, plot.quantity)) is not None))
        for label, samples in plot.members
    )
    curves = tuple(each for each in curves if each.points)
    bad = {
        (ranks_text(each.samples, len(judged.run.ranks)), each.samples.operation, each.samples.schedule)
        for each in judged.judgements
        if each.verdict is not Verdict.PASS
    }
    operations = {label: samples[0] for label, samples in plot.members}

    def rank(curve: Curve) -> tuple[bool, float]:
        """What is not PASS first, then the slowest: they are the ones to be told from the rest."""
        first = operations[curve.label]
        is_bad = (ranks_text(first, len(judged.run.ranks)), first.operation, first.schedule) in bad
        last = curve.points[-1].median if plot.quantity == "goodput" else -curve.points[0].median
        return not is_bad, last

    ranked = sorted(curves, key=rank)
    sizes = sorted({point.bytes for curve in curves for point in curve.points})
    hover = f"%{{text}}: %{{y:.4~g}} {unit}"
    traces = line_traces(list(map(_line, ranked)), mode="lines+markers", hover=hover, colors=colors)
    if (line := _expected_trace(plot, judged, curves)) is not None:
        traces.append(line)
    # Latencies of transports and of sizes are powers of ten apart.
    scale = {"rangemode": "tozero"} if plot.quantity == "goodput" else {"type": "log", "nticks": 6}
    layout = {
        "height": 430,
        "margin": {"l": 60, "r": 15, "t": 10, "b": 45},
        "hovermode": "closest",
        "legend": legend_below(),
        "xaxis": {"type": "log", "tickangle": 0, "title": {"text": "size of a message"}, **_size_ticks(sizes)},
        "yaxis": {"title": {"text": f"{plot.quantity} in {unit}"}, **scale},
    }
    worst = ranked[0]
    reach = worst.points[-1] if plot.quantity == "goodput" else worst.points[0]
    summary = (
        f"{plural(len(curves), 'curve')} from {format_size(sizes[0])} to "
        f"{format_size(sizes[-1])}, median and quartiles; "
        f"{'worst' if len(curves) > 1 else 'here'} {worst.label} with {number(reach.median)} {unit} at "
        f"{format_size(reach.bytes)}"
    )
    title = f"{plot.title}: {plot.quantity} over size"
    # In the order of the run, as long as all have room.
    shown = curves if len(curves) <= MOST_CURVES else tuple(ranked[:MOST_CURVES])
    table = Curves(unit, shown, len(curves) - len(shown))
    return Figure("curves", title, summary, to_json(traces, layout), table)


def _point(samples: Samples, quantity: Quantity) -> SizeQuartiles | None:
    with np.errstate(all="ignore"):
        values = samples.goodput_gbps if quantity == "goodput" else samples.latency_us
        if values.size == 0 or not np.isfinite(values).all():
            return None
        low, median, high = (float(each) for each in np.percentile(values, [25, 50, 75]))
    return SizeQuartiles(samples.bytes, int(values.size), low, median, high)


def _line(curve: Curve) -> PlotLine:
    return PlotLine(
        label=curve.label,
        x=tuple(point.bytes for point in curve.points),
        y=tuple(point.median for point in curve.points),
        hover=tuple(f"{plain(curve.label)}<br>{format_size(point.bytes)}" for point in curve.points),
        low=tuple(point.low for point in curve.points),
        high=tuple(point.high for point in curve.points),
    )


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
    return scatter(
        x=[min(sizes), max(sizes)],
        y=[round_to_4(value), round_to_4(value)],
        name=f"expected {number(value)} {UNITS[plot.quantity]}",
        mode="lines",
        line={"color": GREY, "width": 1, "dash": "5px,3px"},
        hoverinfo="name",
    )


def _size_ticks(sizes: Sequence[int]) -> dict[str, Any]:
    """A tick for each power of two, or every few, at most six."""
    first, last = math.floor(math.log2(sizes[0])), math.ceil(math.log2(sizes[-1]))
    step = max(1, math.ceil((last - first + 1) / 6))
    ticks = [1 << exponent for exponent in range(first, last + 1, step)]
    return {"tickvals": ticks, "ticktext": [format_size(tick) for tick in ticks]}
