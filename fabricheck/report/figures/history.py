"""The history of a system: all metrics over the sessions, and those of each incident around its change.

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

from fabricheck.history.incidents import Incident
from fabricheck.history.percent import percent, size
from fabricheck.history.series import MetricKey, Series, Session
from fabricheck.history.text import incident_name
from fabricheck.history.watch import MetricState, Watched
from fabricheck.report.content import number, unit_shown
from fabricheck.report.figures.plot import (
    COLORS,
    GREY,
    MOST_COLORED,
    PlotLine,
    clipped,
    filled,
    legend_below,
    line_traces,
    plain,
    round_to_4,
    scatter,
    short_labels,
    shortened,
    to_json,
)
from fabricheck.report.figures.tables import Cell, Figure, Rows, cells, omitted_rows_text
from fabricheck.units import plural

Floats = npt.NDArray[np.float64]

# Of the overview, the latest; more points than pixels show nothing, and each is a row of the table.
_MOST_SESSIONS = 400
# Around the change of an incident, as many as it was looked for among; an open incident is shown to its end.
_BEFORE, _AFTER, _MOST_OF_INCIDENT = 60, 30, 180
_MOST_STATES, _MOST_INCIDENTS = 64, 6
_LONGEST_NAME, _LONGEST_LABEL = 48, 22
# Of the timeline of software: names that changed, those that did last; and the height of a row.
_MOST_SOFTWARE, _ROW_PX = 8, 26
# Labels of vertical lines that are nearer than this share of the axis would lie on each other.
_LABEL_ROOM = 0.04
_CHARACTER_PX = 6
_STATUSES = ("alert", "missing", "too irregular", "warming up", "watched", "retired")


@dataclass(frozen=True)
class Mark:
    """Software that changed in a session."""

    session: int
    changes: tuple[str, ...]


def figures_of_history(history: Watched) -> list[Figure]:
    """The overview, where there is more than one session, and the open incidents, then the last of the closed ones."""
    result = history.result
    closed = [each for each in result.incidents if not each.open]
    drawn = [*result.open_incidents, *reversed(closed)][:_MOST_INCIDENTS]
    first = [overview(history)] if len(history.series.sessions) > 1 else []
    return [*first, *(incident_figure(history, each) for each in drawn)]


def overview(history: Watched) -> Figure:
    """All metrics over the sessions: the median of them, the worst decile and the worst, and what software changed."""
    series, states = history.series, history.result.states
    first = max(0, len(series.sessions) - _MOST_SESSIONS)
    ratio = _ratio(series, [each.centre for each in states])[:, first:]
    sessions = series.sessions[first:]
    marks = [Mark(each.session - first, each.changes) for each in marks_of(series) if each.session >= first]
    measured = np.asarray(np.isfinite(ratio).any(axis=0))
    lines, columns = [], []
    for name, share in (("worst", 0.0), ("worst decile", 10.0), ("median of all metrics", 50.0)):
        values = np.full(len(sessions), np.nan)
        if measured.any():
            values[measured] = np.nanpercentile(ratio[:, measured], share, axis=0)
        columns.append(values)
        lines.append(_line(name, sessions, values))
    worst = np.asarray(
        [int(np.nanargmin(ratio[:, session])) if measured[session] else -1 for session in range(len(sessions))]
    )
    names = short_names(series.keys)
    changed = {each.session: shortened("; ".join(each.changes)) for each in marks}
    rows = [
        cells(
            sessions[session],
            int(np.isfinite(ratio[:, session]).sum()),
            *(_percent(column[session]) for column in reversed(columns)),
            names[worst[session]] if measured[session] else "-",
            changed.get(session, ""),
        )
        for session in range(len(sessions))
    ]
    timeline = _timeline(sessions, series.versions_by_session()[first:])
    left = f"; the {first} sessions before them are not shown" if first else ""
    last = next((session for session in reversed(range(len(sessions))) if measured[session]), None)
    summary = f"{plural(len(series.keys), 'metric')} over {plural(len(sessions), 'session')}{left}"
    if last is not None:
        summary += (
            f"; in the latest the median metric is at {_percent(columns[2][last])} % of its baseline, the worst decile "
            f"at {_percent(columns[1][last])} %, the worst ({names[worst[last]]}) at {_percent(columns[0][last])} %"
        )
    summary += f". Software changed in {plural(len(marks), 'session')}" if marks else ". No software changed"
    return Figure(
        "history",
        f"All metrics of {history.result.system} over the sessions, in % of their own baseline",
        summary,
        to_json(
            [*line_traces(lines, mode="lines"), *timeline],
            _above_timeline(_layout(sessions, marks, "% of own baseline"), timeline),
        ),
        Rows(
            ("session", "metrics", "median, %", "worst decile, %", "worst, %", "the worst", "software that changed"),
            tuple(rows),
            texts=(5, 6),
        ),
    )


def incident_figure(history: Watched, incident: Incident) -> Figure:
    """The worst metrics of an incident around its change, in % of their level before it."""
    series = history.series
    place = {each.session: number for number, each in enumerate(series.sessions)}
    alerts = incident.alerts[:MOST_COLORED]
    first, end = _window(incident, place, len(series.sessions))
    sessions = series.sessions[first:end]
    row_of = {key: row for row, key in enumerate(series.keys)}
    rows = [row_of[each.key] for each in alerts]
    ratio = _ratio(series, [each.before for each in alerts], rows)[:, first:end]
    marks = [Mark(each.session - first, each.changes) for each in marks_of(series, rows) if first <= each.session < end]
    names, shared = short_labels(short_names([each.key for each in alerts]))
    spread = max(each.spread for each in alerts)
    known = ratio[np.isfinite(ratio)]
    low = min(float(known.min(initial=100.0)), 100 - 300 * spread)
    high = max(float(known.max(initial=100.0)), 100 + 300 * spread)
    traces = [_band(sessions, spread)]
    traces += line_traces([_line(name, sessions, ratio[n]) for n, name in enumerate(names)], mode="lines+markers")
    changes = sorted({place[each.first_bad.session] for each in alerts})
    for session in changes:
        traces.append(_upright(series.sessions[session], "change", (low, high), COLORS[1], "solid"))
    traces.append(_upright(incident.raised, "alert raised", (low, high), GREY, "dash"))
    worst = alerts[0]
    named = f" {shared}" if shared else ""
    summary = (
        f"{plural(len(alerts), 'metric')}{named}{_of_all(incident)}; {names[0]} went from {number(worst.before)} to "
        f"{number(worst.after)} {unit_shown(worst.unit)} ({percent(worst.change)}), {worst.when}, alert raised "
        f"{incident.raised}; software that changed then: {shortened('; '.join(worst.software)) or 'none'}. "
        f"The band is the baseline ± {size(spread)}, the variation from session to session"
    )
    raised = place[incident.raised.session]
    noted = {each.session + first: shortened("; ".join(each.changes)) for each in marks}
    table = Rows(
        head=("session", *(f"{name}, %" for name in names), "what happened"),
        rows=tuple(
            (
                Cell(str(series.sessions[session])),
                *(Cell(_percent(ratio[n, session - first])) for n in range(len(alerts))),
                Cell(_events(session, changes, raised, noted.get(session, ""))),
            )
            for session in range(first, end)
        ),
        texts=(len(alerts) + 1,),
    )
    layout = _layout(sessions, marks, "% of the level before the change")
    layout["yaxis"]["range"] = [round_to_4(low - 0.03 * (high - low)), round_to_4(high + 0.03 * (high - low))]
    state = "open" if incident.open else "accepted" if worst.accepted else "over"
    title = f"{clipped(incident_name(incident), 2 * _LONGEST_NAME)} ({state}): % of the level before"
    return Figure("history", title, summary, to_json(traces, layout), table)


def states_table(states: Sequence[MetricState]) -> Rows:
    """How each metric stands after the last session, those that need a look first."""
    ranked = sorted(states, key=lambda state: (_STATUSES.index(state.status), -_loss(state), state.key))
    names = short_names([each.key for each in states])
    name_of = dict(zip((each.key for each in states), names, strict=True))
    rows = [
        cells(
            name_of[each.key],
            each.status,
            each.sessions,
            f"{number(each.centre)} {unit_shown(each.unit)}" if math.isfinite(each.centre) else "-",
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
        note=omitted_rows_text(len(ranked[_MOST_STATES:]), "metrics"),
    )


def short_names(keys: Sequence[MetricKey]) -> tuple[str, ...]:
    """Names without the parts that all of them have; the metric stays."""
    parts = [field.name for field in fields(MetricKey)]
    told = [name for name in parts if name == "metric" or len({getattr(key, name) for key in keys}) > 1]
    return tuple(" ".join(getattr(key, name) for name in told) for key in keys)


def marks_of(series: Series, rows: Sequence[int] | None = None) -> list[Mark]:
    """The sessions whose software was another than before; `rows`: only as those metrics know it."""
    return [Mark(session, changes) for session, changes in enumerate(series.software_changes(rows)) if changes]


def _ratio(series: Series, levels: Sequence[float], rows: Sequence[int] | None = None) -> Floats:
    """Values in % of a level for each metric, less being worse, shape (metrics, sessions); NaN where not measured."""
    chosen = list(range(len(series.keys))) if rows is None else list(rows)
    values, level = series.values[chosen], np.asarray(levels, dtype=np.float64)[:, None]
    with np.errstate(all="ignore"):
        # A metric that is not known well enough yet for a baseline is shown against its own middle.
        middle = np.asarray([np.median(row[np.isfinite(row)]) for row in values])[:, None]
        level = np.where(np.isfinite(level), level, middle)
        higher = np.asarray([series.better[row] == "higher" for row in chosen])[:, None]
        return np.asarray(100 * np.where(higher, values / level, level / values))


def _window(incident: Incident, place: dict[str, int], count: int) -> tuple[int, int]:
    changed = min(place[each.first_bad.session] for each in incident.alerts)
    first = max(0, changed - _BEFORE)
    if incident.open:
        end = count
    else:
        ended = max(place[each.ended.session] for each in incident.alerts if each.ended is not None)
        end = min(count, ended + _AFTER)
    return first, min(end, max(first + _MOST_OF_INCIDENT, place[incident.raised.session] + _AFTER))


def _line(name: str, sessions: Sequence[Session], values: Floats) -> PlotLine:
    kept = [session for session in range(len(sessions)) if np.isfinite(values[session])]
    name = clipped(name, _LONGEST_NAME)
    return PlotLine(
        label=name,
        x=tuple(_moment(sessions[session]) for session in kept),
        y=tuple(float(values[session]) for session in kept),
        hover=tuple(f"{plain(name)}<br>{plain(str(sessions[session]))}<br>{values[session]:.1f} %" for session in kept),
    )


def _moment(session: Session) -> str:
    """As plotly reads it; times are UTC."""
    return f"{session.started:%Y-%m-%d %H:%M}"


def _band(sessions: Sequence[Session], spread: float) -> Any:
    low, high = round_to_4(100 * (1 - spread)), round_to_4(100 * (1 + spread))
    ends = [_moment(sessions[0]), _moment(sessions[-1])]
    return filled(
        x=[*ends, *reversed(ends)],
        y=[low, low, high, high],
        color=GREY,
        opacity=0.25,
        name=f"baseline ± {size(spread)}",
    )


def _upright(session: Session, what: str, ends: tuple[float, float], color: str, dash: str) -> Any:
    """A vertical line that the legend names."""
    low, high = ends
    moment = _moment(session)
    return scatter(
        x=[moment] * 3,
        y=[round_to_4(low), round_to_4((low + high) / 2), round_to_4(high)],
        mode="lines",
        line={"color": color, "width": 2, "dash": dash},
        name=f"{what} {moment}",
        text=[f"{what} {plain(str(session))}"] * 3,
        hoverinfo="text",
    )


def _layout(sessions: Sequence[Session], marks: Sequence[Mark], unit: str) -> dict[str, Any]:
    shapes: list[dict[str, Any]] = []
    labels: list[dict[str, Any]] = []
    for group in _near(sessions, marks):
        for mark in group:
            moment = _moment(sessions[mark.session])
            line = {"color": GREY, "width": 1, "dash": "dot"}
            shapes.append({"type": "line", "x0": moment, "x1": moment, "y0": 0, "y1": 1, "yref": "paper", "line": line})
        labels.append(
            {
                "x": _moment(sessions[group[0].session]),
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
        "legend": legend_below(),
        "shapes": shapes,
        "annotations": labels,
        "xaxis": {
            "type": "date",
            "title": {"text": "start of the session (UTC)"},
            "tickformat": "%Y-%m-%d\n%H:%M",
            "nticks": 8,
        },
        "yaxis": {"title": {"text": unit}},
    }


def _timeline(sessions: Sequence[Session], versions: Sequence[dict[str, str]]) -> list[Any]:
    """A bar for each version of each name whose version changed, while it was there; what changed last is above."""
    last: dict[str, int] = {}
    runs: dict[str, list[tuple[str, int, int]]] = {}
    for session, known in enumerate(versions):
        for name, version in known.items():
            of_name = runs.setdefault(name, [])
            if of_name and of_name[-1][0] == version:
                of_name[-1] = (version, of_name[-1][1], session)
            else:
                last[name] = session
                of_name.append((version, session, session))
    changed = sorted((name for name in runs if len(runs[name]) > 1), key=lambda name: (last[name], name))
    bars = []
    for name in changed[-_MOST_SOFTWARE:]:
        for place, (version, begin, end) in enumerate(runs[name]):
            # Up to the session that has another version.
            following = runs[name][place + 1][1] if place + 1 < len(runs[name]) else end
            shown = plain(clipped(version, _LONGEST_LABEL))
            when = f"{plain(str(sessions[begin]))} to {plain(str(sessions[end]))}"
            bars.append(
                scatter(
                    x=[_moment(sessions[begin]), _moment(sessions[following])],
                    y=[plain(clipped(name, _LONGEST_LABEL))] * 2,
                    yaxis="y2",
                    mode="lines+text",
                    line={"color": COLORS[place % 2], "width": 6},
                    text=[shown, ""],
                    textposition="top right",
                    textfont={"size": 10},
                    hovertext=f"{plain(name)} {shown}<br>{when}",
                    hoverinfo="text",
                    cliponaxis=False,
                    showlegend=False,
                )
            )
    return bars


def _above_timeline(layout: dict[str, Any], timeline: Sequence[Any]) -> dict[str, Any]:
    """The layout with room for the timeline under the curves."""
    if not timeline:
        return layout
    rows = _ROW_PX * (1 + len({bar["y"][0] for bar in timeline}))
    plot = layout["height"] - layout["margin"]["t"] - layout["margin"]["b"]
    share = round_to_4(rows / (plot + rows))
    return {
        **layout,
        "height": layout["height"] + rows,
        "xaxis": {**layout["xaxis"], "anchor": "y2"},
        "yaxis": {**layout["yaxis"], "domain": [share, 1]},
        "yaxis2": {"type": "category", "automargin": True, "domain": [0, round_to_4(share * (rows - _ROW_PX) / rows)]},
    }


def _near(sessions: Sequence[Session], marks: Iterable[Mark]) -> list[list[Mark]]:
    """Marks whose labels would lie on each other, together."""
    room = _LABEL_ROOM * (sessions[-1].started - sessions[0].started).total_seconds()
    groups: list[list[Mark]] = []
    for mark in marks:
        begun = sessions[groups[-1][0].session].started if groups else None
        if begun is not None and (sessions[mark.session].started - begun).total_seconds() < room:
            groups[-1].append(mark)
        else:
            groups.append([mark])
    return groups


def _label(group: Sequence[Mark]) -> str:
    changes = [text for each in group for text in each.changes]
    more = f" (+{len(changes) - 1})" if len(changes) > 1 else ""
    name, _, versions = changes[0].partition(": ")
    after = versions.rpartition(" -> ")[2]
    return f"{clipped(f'{name} {after}', _LONGEST_LABEL - len(more))}{more}"


def _events(session: int, changes: Sequence[int], raised: int, software: str) -> str:
    said = ["first bad"] if session in changes else []
    said += ["alert raised"] if session == raised else []
    said += [f"changed: {software}"] if software else []
    return "; ".join(said)


def _of_all(incident: Incident) -> str:
    shown = min(len(incident.alerts), MOST_COLORED)
    return f" of {len(incident.alerts)}, the worst" if len(incident.alerts) > shown else ""


def _loss(state: MetricState) -> float:
    return -1.0 if math.isnan(state.smallest_change) else state.smallest_change


def _smallest(state: MetricState) -> str:
    if math.isnan(state.smallest_change):
        return "-"
    return size(state.smallest_change) if math.isfinite(state.smallest_change) else "none"


def _percent(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "-"
