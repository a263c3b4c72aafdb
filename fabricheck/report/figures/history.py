"""The history of a system: all metrics over the sessions, with the versions of software below.

Everything is in % of a metric's own level, turned so that less is worse: value ÷ level for a goodput, level ÷ value for
a latency.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from fabricheck.history.series import MetricKey, Series, Session
from fabricheck.history.watch import Watched
from fabricheck.report.figures.chart import Axis, Bar, ChartLine, axis_of, clipped, line_chart
from fabricheck.report.figures.tables import Figure, Rows
from fabricheck.units import plural

Floats = npt.NDArray[np.float64]

# The latest; more points than pixels show nothing, and each is a row of the table.
_MOST_SESSIONS = 400
# Of the bars of software: names that changed, those that did last.
_MOST_SOFTWARE, _LONGEST_LABEL = 8, 22
_LONGEST_EVENT = 160
_MOST_DATES = 8


@dataclass(frozen=True)
class Mark:
    """Software that changed in a session."""

    session: int
    changes: tuple[str, ...]


def overview(history: Watched) -> Figure:
    """All metrics over the sessions: the median of them, the worst decile and the worst, and what software changed."""
    series, states = history.series, history.result.states
    first = max(0, len(series.sessions) - _MOST_SESSIONS)
    ratio = _ratio(series, [each.centre for each in states])[:, first:]
    sessions = series.sessions[first:]
    marks = [Mark(each.session - first, each.changes) for each in marks_of(series) if each.session >= first]
    measured = np.asarray(np.isfinite(ratio).any(axis=0))
    columns = {}
    for name, share in (("worst", 0.0), ("worst decile", 10.0), ("median of all metrics", 50.0)):
        columns[name] = np.full(len(sessions), np.nan)
        if measured.any():
            columns[name][measured] = np.nanpercentile(ratio[:, measured], share, axis=0)
    worst = [int(np.nanargmin(ratio[:, session])) if measured[session] else -1 for session in range(len(sessions))]
    names = short_names(series.keys)
    changed = {each.session: _shortened("; ".join(each.changes)) for each in marks}
    rows = [
        (
            str(sessions[session]),
            str(np.isfinite(ratio[:, session]).sum()),
            *(_percent(column[session]) for column in reversed(columns.values())),
            names[worst[session]] if measured[session] else "-",
            changed.get(session, ""),
        )
        for session in range(len(sessions))
    ]
    left = f"; the {first} sessions before them are not shown" if first else ""
    last = next((session for session in reversed(range(len(sessions))) if measured[session]), None)
    summary = f"{plural(len(series.keys), 'metric')} over {plural(len(sessions), 'session')}{left}"
    if last is not None:
        median, decile, lowest = (_percent(column[last]) for column in reversed(columns.values()))
        summary += (
            f"; in the latest the median metric is at {median} % of its baseline, the worst decile "
            f"at {decile} %, the worst ({names[worst[last]]}) at {lowest} %"
        )
    summary += f". Software changed in {plural(len(marks), 'session')}" if marks else ". No software changed"
    title = f"All metrics of {history.result.system} over the sessions, in % of their own baseline"
    lines = [_line(name, sessions, values) for name, values in columns.items()]
    chart = line_chart(
        title,
        [line for line in lines if line.x],
        _time_axis(sessions),
        axis_of("% of own baseline", [value for line in lines for value in line.y] or [100.0]),
        marks=[(_seconds(sessions[session]), text) for session, text in changed.items()],
        bars=list(_software(sessions, series.versions_by_session()[first:])),
    )
    head = ("session", "metrics", "median, %", "worst decile, %", "worst, %", "the worst", "software that changed")
    return Figure(title, summary, chart, Rows(head, tuple(rows), texts=(5, 6)))


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


def _line(name: str, sessions: Sequence[Session], values: Floats) -> ChartLine:
    kept = [session for session in range(len(sessions)) if np.isfinite(values[session])]
    return ChartLine(
        name,
        x=tuple(_seconds(sessions[session]) for session in kept),
        y=tuple(float(values[session]) for session in kept),
        texts=tuple(f"{name}, {sessions[session]}: {values[session]:.1f} %" for session in kept),
    )


def _seconds(session: Session) -> float:
    return session.started.timestamp()


def _time_axis(sessions: Sequence[Session]) -> Axis:
    """The days of some of the sessions, from the first to the last."""
    step = max(1, math.ceil(len(sessions) / _MOST_DATES))
    ticks = tuple((_seconds(session), f"{session.started:%Y-%m-%d}") for session in sessions[::step])
    return Axis("start of the session (UTC)", _seconds(sessions[0]), _seconds(sessions[-1]), ticks)


def _software(sessions: Sequence[Session], versions: Sequence[dict[str, str]]) -> Iterator[Bar]:
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
    changed = sorted((name for name in runs if len(runs[name]) > 1), key=lambda name: (-last[name], name))
    for name in changed[:_MOST_SOFTWARE]:
        for place, (version, begin, end) in enumerate(runs[name]):
            # Up to the session that has another version.
            following = runs[name][place + 1][1] if place + 1 < len(runs[name]) else end
            text = f"{name} {version}: {sessions[begin]} to {sessions[end]}"
            label = clipped(f"{name} {version}", _LONGEST_LABEL)
            yield Bar(name, _seconds(sessions[begin]), _seconds(sessions[following]), label, text)


def _shortened(text: str) -> str:
    """Lists of nodes and of versions can be of any length."""
    return text if len(text) <= _LONGEST_EVENT else f"{text[:_LONGEST_EVENT]}…"


def _percent(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "-"
