"""Curves of a run: median and quartiles over the size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.metrics import SMALLEST_GOODPUT_BYTES, UNITS, Quantity
from fabricheck.records.operations import LOADS, MEMORY_PATHS, PAIRS
from fabricheck.records.run import Samples
from fabricheck.report.content import number, ranks_text, unit_shown
from fabricheck.report.figures.chart import ChartLine, Figure, LineChart, axis_of, size_axis
from fabricheck.units import format_size, plural

_FEWEST_OF_CURVE = 4  # sizes
# Of the table: the others are in the chart alone.
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


#: What each pair or collective gave over the size, by its label.
_Curves = Mapping[str, Sequence[_Point]]


def curves_of(judged: RunJudgement) -> Iterator[Figure]:
    """Yield the curves of goodput, then those of latency: one figure for each pair operation and schedule, and one for
    the collectives of a schedule together."""
    quantities: tuple[Quantity, ...] = ("goodput", "latency")
    for quantity in quantities:
        plots: dict[str, dict[str, dict[int, _Point]]] = {}
        for samples in judged.run.samples:
            if samples.operation in LOADS or (quantity == "latency" and samples.bytes >= SMALLEST_GOODPUT_BYTES):
                continue
            if (point := _point(samples, quantity)) is not None:
                title, label = _names(samples, len(judged.run.ranks))
                plots.setdefault(title, {}).setdefault(label, {}).setdefault(samples.bytes, point)
        for title, curves in plots.items():
            # Few sizes make no curve, and are in the table of metrics.
            if len({size for points in curves.values() for size in points}) >= _FEWEST_OF_CURVE:
                in_order = {label: [points[size] for size in sorted(points)] for label, points in curves.items()}
                expected = _expected(judged, title) if quantity == "goodput" else None
                yield _figure(title, quantity, in_order, expected)


def _names(samples: Samples, world: int) -> tuple[str, str]:
    """The title of the plot that samples are in, and the label of their curve."""
    ranks, operation = ranks_text(samples, world), samples.operation
    if operation in PAIRS:
        return f"{operation} {samples.schedule}", ranks
    if operation in MEMORY_PATHS:
        return f"paths between memories {samples.schedule}", f"{operation} {ranks}"
    by = " by transfers" if samples.implementation == "transfers" else ""
    return f"collectives {samples.schedule}", f"{operation} {ranks}{by}"


def _point(samples: Samples, quantity: Quantity) -> _Point | None:
    with np.errstate(all="ignore"):
        values = samples.goodput_gbps if quantity == "goodput" else samples.latency_us
        if values.size == 0 or not (np.isfinite(values) & (values > 0)).all():
            return None
        low, median, high = (float(quartile) for quartile in np.percentile(values, [25, 50, 75]))
    cold = samples.cold_us if quantity == "latency" else 0.0
    return _Point(samples.bytes, int(values.size), low, median, high, cold)


def _expected(judged: RunJudgement, title: str) -> float | None:
    """Return what the model expects of large sizes, where it is the same for all curves of a plot."""
    world = len(judged.run.ranks)
    expected = {
        metric.expectation.expected
        for metric in judged.judgements
        if metric.better == "higher" and _names(metric.samples, world)[0] == title
    }
    return expected.pop() if len(expected) == 1 else None


def _figure(what: str, quantity: Quantity, curves: _Curves, expected: float | None) -> Figure:
    unit = unit_shown(UNITS[quantity])
    if quantity == "goodput":
        ranked = sorted(curves, key=lambda label: curves[label][-1].median)
    else:
        ranked = sorted(curves, key=lambda label: -curves[label][0].median)
    points = [point for label in ranked for point in curves[label]]
    sizes = sorted({point.bytes for point in points})
    values = [value for point in points for value in (point.low, point.high)]
    # Latencies of transports and of sizes are powers of ten apart.
    y = axis_of(
        f"{quantity} in {unit}",
        [*values, *([expected] if expected is not None else [])],
        is_log=quantity == "latency",
        from_zero=True,
    )
    chart = LineChart(size_axis(sizes), y, tuple(_line(label, curves[label]) for label in ranked), expected)
    summary = f"{plural(len(curves), 'curve')}, median and quartiles, the worst first"
    head = ("ranks", "size", "iterations", f"first quartile, {unit}", "median", "third quartile")
    # In the order of the run, as long as all have room.
    shown = list(curves) if len(curves) <= _MOST_CURVES else ranked[:_MOST_CURVES]
    rows = tuple(_row(label, point) for label in shown for point in curves[label])
    return Figure(f"{what}: {quantity} over size", summary, chart, head, rows)


def _row(label: str, point: _Point) -> tuple[str, ...]:
    cold = f" (cold: {number(point.cold)})" if point.cold else ""
    quartiles = (number(point.low), number(point.median) + cold, number(point.high))
    return (label, format_size(point.bytes), str(point.count), *quartiles)


def _line(label: str, points: Sequence[_Point]) -> ChartLine:
    upper = [(point.bytes, point.high) for point in points]
    lower = [(point.bytes, point.low) for point in reversed(points)]
    return ChartLine(label, tuple((point.bytes, point.median) for point in points), (*upper, *lower))
