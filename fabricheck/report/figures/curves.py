"""The figures of a run: pair matrices, and curves: median and quartiles over the size, and how iterations lie.

Distributions are cumulative ones, as quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.metrics import SMALLEST_GOODPUT_BYTES, UNITS, Quantity
from fabricheck.records.operations import LOADS, MEMORY_PATHS, PAIRS
from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import (
    MetricGroup,
    groups_of,
    judgements_of,
    label_of,
    merge_collectives,
    name_of,
    number,
    quantity_of,
    ranks_text,
    unit_shown,
)
from fabricheck.report.figures.load import load_figures
from fabricheck.report.figures.matrix import matrix_of
from fabricheck.report.figures.plot import (
    GREY,
    MOST_COLORED,
    Colors,
    PlotLine,
    legend_below,
    line_traces,
    plain,
    round_to_4,
    scatter,
    to_json,
)
from fabricheck.report.figures.tables import (
    MOST_CURVES,
    Cell,
    Curve,
    Curves,
    Figure,
    Rows,
    SizeQuartiles,
    omitted_rows_text,
)
from fabricheck.units import format_size, plural

_FEWEST_OF_CURVE = 4  # sizes


def figures_of(judged: RunJudgement) -> tuple[Figure, ...]:
    """The load of a run over time by node, its pair matrices, its curves of goodput and of latency over the size, then
    its distributions."""
    matrices = [matrix_of(group, judged) for group in groups_of(judged) if group.is_pairs]
    colors: dict[str, int] = {}
    return (*load_figures(judged), *matrices, *curves_of(judged, colors), *distributions_of(judged, colors))


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


# In per cent. Close enough to each other to show a second mode of a fortieth of the iterations.
SHARES = (0.0, 1.0, *(float(each) for each in np.arange(2.5, 98.0, 2.5)), 99.0, 100.0)
_IN_TABLE = (0.0, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 100.0)
_FEWEST = 2
# Of grey curves, more than these cannot be seen beside each other; rows of a table are counted beyond theirs.
_MOST_GREY, _MOST_ROWS, _GREY_STEP = 40, 32, 3
# Of the axis, in per cent of the median: what even the steadiest curves get on either side.
_LEAST_REACH = 1.0


@dataclass(frozen=True)
class Distribution:
    """The quantiles of the iterations of one metric at `SHARES`, in the metric's unit."""

    label: str
    verdict: Verdict
    count: int
    quantiles: npt.NDArray[np.float64]

    @property
    def median(self) -> float:
        """The 50th percentile."""
        return self.at(50.0)

    @property
    def relative(self) -> npt.NDArray[np.float64]:
        """The quantiles in per cent of the median."""
        return np.asarray(100 * self.quantiles / self.median)

    @property
    def width(self) -> float:
        """From the 5% to the 95% quantile, as a share of the median."""
        return (self.at(95.0) - self.at(5.0)) / self.median

    def at(self, share: float) -> float:
        """The value at a percentile that is in `SHARES`."""
        return float(self.quantiles[SHARES.index(share)])


def distributions_of(judged: RunJudgement, colors: Colors) -> Iterable[Figure]:
    """A figure for each group of pairs at a size, and one for the collectives of a schedule together.

    Tools that print no iterations leave a mean, which has no distribution.
    """
    for members in merge_collectives(groups_of(judged)):
        distributions = [_distribution(each, len(judged.run.ranks)) for each in judgements_of(members)]
        known = [each for each in distributions if each is not None and members[0].operation not in LOADS]
        # What is not PASS first, as the judge has it; of the rest the shape is what can be wrong.
        good = sorted(
            (each for each in known if each.verdict is Verdict.PASS), key=lambda distribution: -distribution.width
        )
        if known:
            ranked = [*(each for each in known if each.verdict is not Verdict.PASS), *good]
            yield _figure(members, ranked, colors)


def _distribution(judged: Judgement, world: int) -> Distribution | None:
    samples = judged.samples
    if samples.statistic == "mean" or samples.count < _FEWEST:
        return None
    with np.errstate(all="ignore"):
        values = samples.goodput_gbps if quantity_of(judged) == "goodput" else samples.latency_us
        if not (np.isfinite(values) & (values > 0)).all():
            return None
        quantiles = np.asarray(np.percentile(values, SHARES), dtype=np.float64)
    return Distribution(label_of(judged, world), judged.verdict, values.size, quantiles)


def _figure(members: Sequence[MetricGroup], distributions: Sequence[Distribution], colors: Colors) -> Figure:
    """`found`: the worst first. Curves are in % of their own median: their levels are in the other figures already,
    and what tells of trouble is their shape."""
    first = members[0]
    told = distributions if len(distributions) <= MOST_COLORED else distributions[: MOST_COLORED - 1]
    grey = distributions[len(told) :][:_MOST_GREY]
    lines = [*map(_line_of, told), *(_line_of(each, every=_GREY_STEP) for each in grey)]
    traces = line_traces(lines, mode="lines", colors=colors)
    low, high = _range(told, grey)
    layout = {
        "height": 400,
        "margin": {"l": 60, "r": 15, "t": 10, "b": 45},
        "hovermode": "closest",
        "legend": legend_below(),
        "xaxis": {"title": {"text": f"{first.quantity} in % of its own median"}, "range": [low, high]},
        "yaxis": {
            "title": {"text": "% of iterations at or below"},
            "range": [-2, 102],
            "tickvals": [0, 25, 50, 75, 100],
        },
    }
    name = name_of(members)
    widest = max(distributions, key=lambda distribution: distribution.width)
    summary = (
        f"{len(distributions)} {'distributions' if len(distributions) > 1 else 'distribution'}; from the 5% to the 95% "
        f"quantile {'the widest is ' if len(distributions) > 1 else ''}{widest.label} with {_share(widest, 5.0)} to "
        f"{_share(widest, 95.0)} of its median"
    )
    if len(distributions) > len(told) + len(grey):
        summary += f"; {len(told) + len(grey)} of them are drawn"
    table = Rows(
        head=(
            "ranks" if first.is_pairs else "operation",
            "verdict",
            f"minimum, {unit_shown(first.unit)}",
            *(f"{share:g}%" if share != 50 else "median" for share in _IN_TABLE[1:-1]),
            "maximum",
            "iterations",
        ),
        rows=tuple(_row(each) for each in distributions[:_MOST_ROWS]),
        texts=(1,),
        note=omitted_rows_text(len(distributions[_MOST_ROWS:]), "metrics"),
    )
    return Figure("distributions", f"{name}: distribution of the iterations", summary, to_json(traces, layout), table)


def _line_of(distribution: Distribution, every: int = 1) -> PlotLine:
    """The curve, or of what is drawn grey every few of its points."""
    return PlotLine(
        label=distribution.label,
        x=tuple(round(float(value), 2) for value in distribution.relative[::every]),
        y=SHARES[::every],
        hover=f"{plain(distribution.label)}<br>median {number(distribution.median)}, {distribution.count} iterations",
    )


def _range(told: Sequence[Distribution], grey: Sequence[Distribution]) -> tuple[float, float]:
    """As much as shows what is told apart from the 1% to the 99% quantile, and the others from the 5% to the 95% one: a
    single wild iteration would leave no room for the rest."""
    quantiles = [(each, low, high) for some, low, high in ((told, 1.0, 99.0), (grey, 5.0, 95.0)) for each in some]
    first = min(100 * each.at(low) / each.median for each, low, _ in quantiles)
    last = max(100 * each.at(high) / each.median for each, _, high in quantiles)
    first, last = min(first, 100 - _LEAST_REACH), max(last, 100 + _LEAST_REACH)
    margin = 0.08 * (last - first)
    return round(first - margin, 2), round(last + margin, 2)


def _row(distribution: Distribution) -> tuple[Cell, ...]:
    return (
        Cell(distribution.label),
        Cell(distribution.verdict.value),
        *(Cell(number(distribution.at(share))) for share in _IN_TABLE),
        Cell(str(distribution.count)),
    )


def _share(distribution: Distribution, share: float) -> str:
    return f"{100 * distribution.at(share) / distribution.median:.1f}%"
