"""Curves of a run: median and quartiles over the size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.metrics import SMALLEST_GOODPUT_BYTES, UNITS, Quantity
from fabricheck.records.operations import LOADS, MEMORY_PATHS, PAIRS
from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import number, ranks_text, unit_shown
from fabricheck.report.figures.chart import ChartLine, axis_of, line_chart, size_axis
from fabricheck.report.figures.tables import Figure, Rows
from fabricheck.units import format_size, plural

_FEWEST_OF_CURVE = 4  # sizes
# Of the table; those that are left out are counted.
_MOST_CURVES = 64


@dataclass(frozen=True)
class _Point:
    """Quartiles of the iterations at one size. `cold`: as in `Samples`, of a latency."""

    bytes: int
    count: int
    low: float
    median: float
    high: float
    cold: float


@dataclass(frozen=True)
class _Curve:
    """What one pair or collective gave over the size."""

    label: str
    points: tuple[_Point, ...]


@dataclass(frozen=True)
class _Plot:
    quantity: Quantity
    title: str
    members: tuple[tuple[str, tuple[Samples, ...]], ...]  # label and samples by size, one a curve


def curves_of(judged: RunJudgement) -> Iterable[Figure]:
    """The curves of goodput, then those of latency: one figure for each pair operation and schedule, and one for the
    collectives of a schedule together."""
    for quantity in ("goodput", "latency"):
        for plot in _plots(judged, quantity):
            figure = _curves(plot, judged)
            if figure is not None:
                yield figure


def _plots(judged: RunJudgement, quantity: Quantity) -> Iterable[_Plot]:
    """One plot for each pair operation and schedule, one for the collectives of a schedule together."""
    world = len(judged.run.ranks)
    plots: dict[str, dict[str, dict[int, Samples]]] = {}
    for samples in judged.run.samples:
        if samples.operation in LOADS or (quantity == "latency" and samples.bytes >= SMALLEST_GOODPUT_BYTES):
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


def _curves(plot: _Plot, judged: RunJudgement) -> Figure | None:
    unit = unit_shown(UNITS[plot.quantity])
    curves = tuple(
        _Curve(label, tuple(point for each in samples if (point := _point(each, plot.quantity)) is not None))
        for label, samples in plot.members
    )
    curves = tuple(each for each in curves if each.points)
    if not curves:
        return None
    bad = {
        (ranks_text(each.samples, len(judged.run.ranks)), each.samples.operation, each.samples.schedule)
        for each in judged.judgements
        if each.verdict is not Verdict.PASS
    }
    operations = {label: samples[0] for label, samples in plot.members}

    def rank(curve: _Curve) -> tuple[bool, float]:
        """What is not PASS first, then the slowest: they are the ones to be told from the rest."""
        first = operations[curve.label]
        is_bad = (ranks_text(first, len(judged.run.ranks)), first.operation, first.schedule) in bad
        last = curve.points[-1].median if plot.quantity == "goodput" else -curve.points[0].median
        return not is_bad, last

    ranked = sorted(curves, key=rank)
    sizes = sorted({point.bytes for curve in curves for point in curve.points})
    expected = _expected(plot, judged)
    values = [value for curve in curves for point in curve.points for value in (point.low, point.high)]
    # Latencies of transports and of sizes are powers of ten apart.
    y = axis_of(
        f"{plot.quantity} in {unit}",
        [*values, *([expected] if expected is not None else [])],
        is_log=plot.quantity == "latency",
        from_zero=True,
    )
    title = f"{plot.title}: {plot.quantity} over size"
    chart = line_chart(title, [_line(curve, unit) for curve in ranked], size_axis(sizes), y, expected=expected)
    worst = ranked[0]
    reach = worst.points[-1] if plot.quantity == "goodput" else worst.points[0]
    summary = (
        f"{plural(len(curves), 'curve')} from {format_size(sizes[0])} to "
        f"{format_size(sizes[-1])}, median and quartiles; "
        f"{'worst' if len(curves) > 1 else 'here'} {worst.label} with {number(reach.median)} {unit} at "
        f"{format_size(reach.bytes)}"
    )
    # In the order of the run, as long as all have room.
    shown = curves if len(curves) <= _MOST_CURVES else tuple(ranked[:_MOST_CURVES])
    return Figure(title, summary, chart, _table(shown, len(curves) - len(shown), unit))


def _table(curves: Sequence[_Curve], hidden: int, unit: str) -> Rows:
    """The numbers of the curves; `hidden` more are in the figure alone, not worse ones."""
    head = ("ranks", "size", "iterations", f"first quartile, {unit}", "median", "third quartile")
    rows = []
    for curve in curves:
        for point in curve.points:
            cold = f" (cold: {number(point.cold)})" if point.cold else ""
            quartiles = (number(point.low), number(point.median) + cold, number(point.high))
            rows.append((curve.label, format_size(point.bytes), str(point.count), *quartiles))
    return Rows(head, tuple(rows), note=f"More curves, none worse: {hidden}." if hidden else "")


def _point(samples: Samples, quantity: Quantity) -> _Point | None:
    with np.errstate(all="ignore"):
        values = samples.goodput_gbps if quantity == "goodput" else samples.latency_us
        if values.size == 0 or not (np.isfinite(values) & (values > 0)).all():
            return None
        low, median, high = (float(each) for each in np.percentile(values, [25, 50, 75]))
    cold = samples.cold_us if quantity == "latency" else 0.0
    return _Point(samples.bytes, int(values.size), low, median, high, cold)


def _line(curve: _Curve, unit: str) -> ChartLine:
    points = curve.points
    return ChartLine(
        curve.label,
        x=tuple(point.bytes for point in points),
        y=tuple(point.median for point in points),
        texts=tuple(f"{curve.label}, {format_size(point.bytes)}: {number(point.median)} {unit}" for point in points),
        low=tuple(point.low for point in points),
        high=tuple(point.high for point in points),
    )


def _expected(plot: _Plot, judged: RunJudgement) -> float | None:
    """What the model expects of large sizes, where it is the same for all curves."""
    if plot.quantity != "goodput":
        return None
    operations = {(samples[0].operation, samples[0].schedule) for _, samples in plot.members}
    expected = {
        each.expectation.expected
        for each in judged.judgements
        if each.better == "higher" and (each.samples.operation, each.samples.schedule) in operations
    }
    return expected.pop() if len(expected) == 1 else None
