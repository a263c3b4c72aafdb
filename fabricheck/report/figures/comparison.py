"""Two sets of runs beside each other: what changed, and how surely."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fabricheck.history.compare import ChangeVerdict, Comparison, MetricChange
from fabricheck.history.percent import percent, size
from fabricheck.report.content import number, unit_shown
from fabricheck.report.figures.history import short_names
from fabricheck.report.figures.plot import (
    COLORS,
    GREY,
    clipped,
    legend_below,
    plain,
    round_to_4,
    scatter,
    short_labels,
    shortened,
    to_json,
)
from fabricheck.report.figures.tables import Cell, Figure, Rows, cells, omitted_rows_text
from fabricheck.units import plural

_MOST_DRAWN, _MOST_ROWS = 40, 64
_LONGEST_NAME = 28
# Colour and symbol of each verdict; what is worse points down.
_LOOKS = {
    ChangeVerdict.REGRESSED: (COLORS[1], "triangle-down"),
    ChangeVerdict.CANNOT_SAY: (COLORS[3], "x"),
    ChangeVerdict.SAME: (GREY, "circle"),
    ChangeVerdict.IMPROVED: (COLORS[0], "triangle-up"),
}
# In per cent: how far the axis goes at most and at least, and what is out of the figure.
_WIDEST, _BEYOND, _LEAST_REACH = 100.0, 300.0, 2.0


def changes_figure(comparison: Comparison) -> Figure | None:
    """The changes of the worst metrics with their intervals; none where the two sides share no metric."""
    if not comparison.metrics:
        return None
    shown = comparison.metrics[:_MOST_DRAWN]
    names = short_names([each.key for each in comparison.metrics])
    low, high = _reach(shown)
    labels, shared = short_labels(names[: len(shown)])
    traces = [_trace(verdict, shown, names, comparison) for verdict in ChangeVerdict]
    counts = ", ".join(f"{comparison.count(each)} {each.value}" for each in ChangeVerdict if comparison.count(each))
    worst = shown[0]
    summary = (
        f"{plural(len(comparison.metrics), 'metric')}: {counts}. "
        f"{'The worst' if len(comparison.metrics) > 1 else 'It'} is {names[0]} with {_change(worst)}, "
        f"{worst.verdict.value}. Of a latency, more is worse"
    )
    if len(comparison.metrics) > len(shown):
        summary += f". The worst {len(shown)} are drawn"
    if shared:
        summary += f". Names in the figure are the part … of {shared}"
    layout = {
        "height": 130 + 20 * max(len(shown), 5),
        "margin": {"l": 10, "r": 15, "t": 10, "b": 45},
        "hovermode": "closest",
        "legend": {**legend_below(), "traceorder": "normal", "y": 0, "yref": "container", "yanchor": "bottom"},
        "xaxis": {
            "title": {"text": "change in %, with its interval"},
            "range": [round_to_4(low), round_to_4(high)],
            "zeroline": True,
            "tickangle": 0,
            "nticks": 7,
        },
        "yaxis": {
            "range": [len(shown) - 0.3, -0.7],
            "tickvals": list(range(len(shown))),
            "ticktext": [plain(clipped(name, _LONGEST_NAME)) for name in labels],
            "tickfont": {"size": 10},
            "automargin": True,
            "showgrid": False,
            "zeroline": False,
        },
    }
    return Figure(
        "changes", "Change of each metric, worst first", summary, to_json(traces, layout), _table(comparison, names)
    )


def _trace(verdict: ChangeVerdict, shown: Sequence[MetricChange], names: Sequence[str], comparison: Comparison) -> Any:
    color, symbol = _LOOKS[verdict]
    own = [(place, each) for place, each in enumerate(shown) if each.verdict is verdict]
    changes = [_held(each.change) for _, each in own]
    ends = [(_end(each.interval[0], -1), _end(each.interval[1], 1)) for _, each in own]
    return scatter(
        x=list(map(round_to_4, changes)),
        y=[place for place, _ in own],
        mode="markers",
        name=f"{verdict.value} ({comparison.count(verdict)})",
        marker={"color": color, "symbol": symbol, "size": 9},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [round_to_4(max(high - at, 0.0)) for at, (_, high) in zip(changes, ends, strict=True)],
            "arrayminus": [round_to_4(max(at - low, 0.0)) for at, (low, _) in zip(changes, ends, strict=True)],
            "color": color,
            "thickness": 1.5,
            "width": 3,
        },
        text=[f"{plain(names[place])}<br>{plain(_described(each))}" for place, each in own],
        hoverinfo="text",
    )


def _reach(shown: Sequence[MetricChange]) -> tuple[float, float]:
    """The ends of the axis: the furthest changes, and the ends of intervals that have one; no change is among them."""
    known = [100 * value for each in shown for value in (each.change, *each.interval) if math.isfinite(value)]
    low, high = min([-_LEAST_REACH, *known]), max([_LEAST_REACH, *known])
    margin = 0.05 * (high - low)
    return max(low - margin, -_WIDEST), min(high + margin, _WIDEST)


def _held(change: float) -> float:
    """A change in per cent, not far beyond what the axis can reach."""
    return max(-_BEYOND, min(100 * change, _BEYOND)) if not math.isnan(change) else 0.0


def _end(end: float, side: int) -> float:
    """One end of an interval, lower (-1) or upper (1); one that is not known is drawn to beyond the figure."""
    return _held(end) if math.isfinite(end) else side * _BEYOND


def _described(change: MetricChange) -> str:
    return (
        f"{number(change.base)} → {number(change.candidate)} {unit_shown(change.unit)}, {_change(change)}, "
        f"{change.verdict.value}; {change.base_sessions} and {change.candidate_sessions} sessions"
    )


def _change(change: MetricChange) -> str:
    low, high = change.interval
    return f"{percent(change.change)} ({percent(low)} to {percent(high)})"


def _table(comparison: Comparison, names: Sequence[str]) -> Rows:
    rows = [
        (
            *cells(
                name,
                each.verdict.value,
                f"{number(each.base)} {unit_shown(each.unit)}",
                f"{number(each.candidate)} {unit_shown(each.unit)}",
                percent(each.change),
                " to ".join(map(percent, each.interval)),
                size(each.smallest_change) if math.isfinite(each.smallest_change) else "unknown",
                f"{each.base_sessions} and {each.candidate_sessions}",
            ),
            Cell(shortened("; ".join(each.unequal))),
        )
        for name, each in zip(names, comparison.metrics[:_MOST_ROWS], strict=False)
    ]
    return Rows(
        head=(
            "metric",
            "verdict",
            "before",
            "after",
            "change",
            f"{comparison.options.confidence:.0%} interval",
            "smallest loss that would have shown",
            "sessions",
            "unequal conditions",
        ),
        rows=tuple(rows),
        texts=(1, 8),
        note=omitted_rows_text(len(comparison.metrics[_MOST_ROWS:]), "metrics"),
    )
