"""The history of a system: all metrics over the nights, and those of each page around its change.

Everything is in % of a metric's own level, turned so that less is worse: value ÷ level for a goodput, level ÷ value for
a latency.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from fabricheck.history.series import MetricKey, Night, Series
from fabricheck.history.text import page_name, percent, size
from fabricheck.history.watch import MetricState, Page, Watched
from fabricheck.report.content import number, plural
from fabricheck.report.figures.plot import (
    COLORS,
    GREY,
    MOST_COLORED,
    Line,
    clipped,
    filled,
    legend_below,
    line_traces,
    plain,
    short,
    shortened,
    to_json,
    told_apart,
)
from fabricheck.report.figures.tables import Cell, Figure, Rows, cells, left_out

Floats = npt.NDArray[np.float64]

# Of the overview, the latest; more points than pixels show nothing, and each is a row of the table.
_MOST_NIGHTS = 400
# Around the change of a page, as many as it was looked for among; an open page is shown to its end.
_BEFORE, _AFTER, _MOST_OF_PAGE = 60, 30, 180
_MOST_STATES = 64
_LONGEST_NAME, _LONGEST_LABEL = 48, 22
# Labels of vertical lines that are nearer than this share of the axis would lie on each other.
_LABEL_ROOM = 0.04
_CHARACTER_PX = 6
_STATUSES = ("alarm", "missing", "too irregular", "warming up", "watched", "retired")


@dataclass(frozen=True)
class Mark:
    """Software that changed in a night."""

    night: int
    changes: tuple[str, ...]


def overview(found: Watched) -> Figure:
    """All metrics over the nights: the median of them, the worst decile and the worst, and what software changed."""
    series, states = found.series, found.result.states
    first = max(0, len(series.nights) - _MOST_NIGHTS)
    ratio = _ratio(series, [each.centre for each in states])[:, first:]
    nights = series.nights[first:]
    marks = [Mark(each.night - first, each.changes) for each in marks_of(series) if each.night >= first]
    measured = np.asarray(np.isfinite(ratio).any(axis=0))
    lines, columns = [], []
    for name, share in (("worst", 0.0), ("worst decile", 10.0), ("median of all metrics", 50.0)):
        values = np.full(len(nights), np.nan)
        if measured.any():
            values[measured] = np.nanpercentile(ratio[:, measured], share, axis=0)
        columns.append(values)
        lines.append(_line(name, nights, values))
    worst = np.asarray([int(np.nanargmin(ratio[:, night])) if measured[night] else -1 for night in range(len(nights))])
    names = short_names(series.keys)
    changed = {each.night: shortened("; ".join(each.changes)) for each in marks}
    rows = [
        cells(
            nights[night],
            int(np.isfinite(ratio[:, night]).sum()),
            *(_percent(column[night]) for column in reversed(columns)),
            names[worst[night]] if measured[night] else "-",
            changed.get(night, ""),
        )
        for night in range(len(nights))
    ]
    left = f"; the {first} sessions before them are not shown" if first else ""
    last = next((night for night in reversed(range(len(nights))) if measured[night]), None)
    summary = f"{plural(len(series.keys), 'metric')} over {plural(len(nights), 'session')}{left}"
    if last is not None:
        summary += (
            f"; in the latest the median metric is at {_percent(columns[2][last])} % of its baseline, the worst decile "
            f"at {_percent(columns[1][last])} %, the worst ({names[worst[last]]}) at {_percent(columns[0][last])} %"
        )
    summary += f". Software changed in {plural(len(marks), 'night')}" if marks else ". No software changed"
    return Figure(
        "history",
        f"All metrics of {found.result.system} over the sessions, in % of their own baseline",
        summary,
        to_json(line_traces(lines, markers=False), _layout(nights, marks, "% of own baseline")),
        Rows(
            ("session", "metrics", "median, %", "worst decile, %", "worst, %", "the worst", "software that changed"),
            tuple(rows),
            texts=(5, 6),
        ),
    )


def page_figure(found: Watched, page: Page) -> Figure:
    """The worst metrics of a page around its change, in % of their level before it."""
    series = found.series
    place = {each.session: number for number, each in enumerate(series.nights)}
    alarms = page.alarms[:MOST_COLORED]
    first, end = _window(page, place, len(series.nights))
    nights = series.nights[first:end]
    row_of = {key: row for row, key in enumerate(series.keys)}
    rows = [row_of[each.key] for each in alarms]
    ratio = _ratio(series, [each.before for each in alarms], rows)[:, first:end]
    marks = [Mark(each.night - first, each.changes) for each in marks_of(series, rows) if first <= each.night < end]
    names, shared = told_apart(short_names([each.key for each in alarms]))
    spread = max(each.spread for each in alarms)
    known = ratio[np.isfinite(ratio)]
    low = min(float(known.min(initial=100.0)), 100 - 300 * spread)
    high = max(float(known.max(initial=100.0)), 100 + 300 * spread)
    traces = [_band(nights, spread)]
    traces += line_traces([_line(name, nights, ratio[n]) for n, name in enumerate(names)], markers=True)
    changes = sorted({place[each.first_bad.session] for each in alarms})
    for night in changes:
        traces.append(_upright(series.nights[night], "change", (low, high), COLORS[1], "solid"))
    traces.append(_upright(page.raised, "alarm raised", (low, high), GREY, "dash"))
    worst = alarms[0]
    named = f" {shared}" if shared else ""
    summary = (
        f"{plural(len(alarms), 'metric')}{named}{_of_all(page)}; {names[0]} went from {number(worst.before)} to "
        f"{number(worst.after)} {worst.unit} ({percent(worst.change)}). Last good {worst.last_good}, first bad "
        f"{worst.first_bad}, alarm raised {page.raised}. The band is the baseline ± {size(spread)}, the variation "
        "from night to night"
    )
    raised = place[page.raised.session]
    noted = {each.night + first: shortened("; ".join(each.changes)) for each in marks}
    table = Rows(
        head=("session", *(f"{name}, %" for name in names), "what happened"),
        rows=tuple(
            (
                Cell(str(series.nights[night])),
                *(Cell(_percent(ratio[n, night - first])) for n in range(len(alarms))),
                Cell(_events(night, changes, raised, noted.get(night, ""))),
            )
            for night in range(first, end)
        ),
        texts=(len(alarms) + 1,),
    )
    layout = _layout(nights, marks, "% of the level before the change")
    layout["yaxis"]["range"] = [short(low - 0.03 * (high - low)), short(high + 0.03 * (high - low))]
    state = "open" if page.open else "accepted" if worst.accepted else "over"
    title = f"{clipped(page_name(page), 2 * _LONGEST_NAME)} ({state}): % of the level before"
    return Figure("history", title, summary, to_json(traces, layout), table)


def states_table(states: Sequence[MetricState]) -> Rows:
    """How each metric stands after the last session, those that need a look first."""
    ranked = sorted(states, key=lambda each: (_STATUSES.index(each.status), -_loss(each), each.key))
    names = short_names([each.key for each in states])
    name_of = dict(zip((each.key for each in states), names, strict=True))
    rows = [
        cells(
            name_of[each.key],
            each.status,
            each.nights,
            f"{number(each.centre)} {each.unit}" if math.isfinite(each.centre) else "-",
            size(each.spread) if math.isfinite(each.spread) else "-",
            _smallest(each),
            each.last_measured,
        )
        for each in ranked[:_MOST_STATES]
    ]
    return Rows(
        head=(
            "metric",
            "status",
            "sessions of baseline",
            "centre",
            "spread",
            "smallest loss that a week would show",
            "last measured",
        ),
        rows=tuple(rows),
        texts=(1, 6),
        note=left_out(len(ranked[_MOST_STATES:]), "metrics"),
    )


def short_names(keys: Sequence[MetricKey]) -> tuple[str, ...]:
    """Names without the parts that all of them have; the metric stays."""
    parts = [field.name for field in fields(MetricKey)]
    told = [name for name in parts if name == "metric" or len({getattr(key, name) for key in keys}) > 1]
    return tuple(" ".join(getattr(key, name) for name in told) for key in keys)


def marks_of(series: Series, rows: Sequence[int] | None = None) -> list[Mark]:
    """The nights whose software was another than before; `rows`: only as those metrics know it."""
    return [Mark(night, changes) for night, changes in enumerate(series.software_changes(rows)) if changes]


def _ratio(series: Series, levels: Sequence[float], rows: Sequence[int] | None = None) -> Floats:
    """Values in % of a level for each metric, less being worse, shape (metrics, nights); NaN where not measured."""
    chosen = list(range(len(series.keys))) if rows is None else list(rows)
    values, level = series.values[chosen], np.asarray(levels, dtype=np.float64)[:, None]
    with np.errstate(all="ignore"):
        # A metric that is not known well enough yet for a baseline is shown against its own middle.
        middle = np.asarray([np.median(row[np.isfinite(row)]) for row in values])[:, None]
        level = np.where(np.isfinite(level), level, middle)
        higher = np.asarray([series.better[row] == "higher" for row in chosen])[:, None]
        return np.asarray(100 * np.where(higher, values / level, level / values))


def _window(page: Page, place: dict[str, int], count: int) -> tuple[int, int]:
    changed = min(place[each.first_bad.session] for each in page.alarms)
    first = max(0, changed - _BEFORE)
    if page.open:
        end = count
    else:
        ended = max(place[each.ended.session] for each in page.alarms if each.ended is not None)
        end = min(count, ended + _AFTER)
    return first, min(end, max(first + _MOST_OF_PAGE, place[page.raised.session] + _AFTER))


def _line(name: str, nights: Sequence[Night], values: Floats) -> Line:
    kept = [night for night in range(len(nights)) if np.isfinite(values[night])]
    name = clipped(name, _LONGEST_NAME)
    return Line(
        label=name,
        x=tuple(_moment(nights[night]) for night in kept),
        y=tuple(float(values[night]) for night in kept),
        hover=tuple(f"{plain(name)}<br>{plain(str(nights[night]))}<br>{values[night]:.1f} %" for night in kept),
    )


def _moment(night: Night) -> str:
    """As plotly reads it; times are UTC."""
    return f"{night.started:%Y-%m-%d %H:%M}"


def _band(nights: Sequence[Night], spread: float) -> Any:
    low, high = short(100 * (1 - spread)), short(100 * (1 + spread))
    ends = [_moment(nights[0]), _moment(nights[-1])]
    return filled(
        x=[*ends, *reversed(ends)],
        y=[low, low, high, high],
        color=GREY,
        opacity=0.25,
        name=f"baseline ± {size(spread)}",
    )


def _upright(night: Night, what: str, ends: tuple[float, float], color: str, dash: str) -> Any:
    """A vertical line that the legend names."""
    low, high = ends
    moment = _moment(night)
    return go.Scatter(
        x=[moment] * 3,
        y=[short(low), short((low + high) / 2), short(high)],
        mode="lines",
        line={"color": color, "width": 2, "dash": dash},
        name=f"{what} {moment}",
        text=[f"{what} {plain(str(night))}"] * 3,
        hoverinfo="text",
    )


def _layout(nights: Sequence[Night], marks: Sequence[Mark], unit: str) -> dict[str, Any]:
    shapes: list[dict[str, Any]] = []
    labels: list[dict[str, Any]] = []
    for group in _near(nights, marks):
        for each in group:
            moment = _moment(nights[each.night])
            line = {"color": GREY, "width": 1, "dash": "dot"}
            shapes.append({"type": "line", "x0": moment, "x1": moment, "y0": 0, "y1": 1, "yref": "paper", "line": line})
        labels.append(
            {
                "x": _moment(nights[group[0].night]),
                "y": 1,
                "yref": "paper",
                "yanchor": "bottom",
                "xanchor": "center",
                "textangle": -90,
                "showarrow": False,
                "font": {"size": 11},
                "text": plain(_label(group)),
                "hovertext": "<br>".join(plain(shortened(text)) for each in group for text in each.changes[:8]),
            }
        )
    top = 10 + max((_CHARACTER_PX * len(each["text"]) for each in labels), default=0)
    return {
        "height": 400 + top,
        "margin": {"l": 60, "r": 15, "t": top, "b": 45},
        "hovermode": "closest",
        "legend": {**legend_below(), "y": -0.16},
        "shapes": shapes,
        "annotations": labels,
        "xaxis": {"type": "date"},
        "yaxis": {"title": {"text": unit}},
    }


def _near(nights: Sequence[Night], marks: Iterable[Mark]) -> list[list[Mark]]:
    """Marks whose labels would lie on each other, together."""
    room = _LABEL_ROOM * (nights[-1].started - nights[0].started).total_seconds()
    groups: list[list[Mark]] = []
    for each in marks:
        begun = nights[groups[-1][0].night].started if groups else None
        if begun is not None and (nights[each.night].started - begun).total_seconds() < room:
            groups[-1].append(each)
        else:
            groups.append([each])
    return groups


def _label(group: Sequence[Mark]) -> str:
    changes = [text for each in group for text in each.changes]
    more = f" (+{len(changes) - 1})" if len(changes) > 1 else ""
    name, _, versions = changes[0].partition(": ")
    after = versions.rpartition(" -> ")[2]
    return f"{clipped(f'{name} {after}', _LONGEST_LABEL - len(more))}{more}"


def _events(night: int, changes: Sequence[int], raised: int, software: str) -> str:
    said = ["first bad"] if night in changes else []
    said += ["alarm raised"] if night == raised else []
    said += [f"changed: {software}"] if software else []
    return "; ".join(said)


def _of_all(page: Page) -> str:
    shown = min(len(page.alarms), MOST_COLORED)
    return f" of {len(page.alarms)}, the worst" if len(page.alarms) > shown else ""


def _loss(state: MetricState) -> float:
    return -1.0 if math.isnan(state.smallest_change) else state.smallest_change


def _smallest(state: MetricState) -> str:
    if math.isnan(state.smallest_change):
        return "-"
    return size(state.smallest_change) if math.isfinite(state.smallest_change) else "none"


def _percent(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "-"
