"""The history of a system: all metrics over the sessions, with the versions of software below.

Values are in % of a metric's own level, and lower is worse: value ÷ level for a goodput, level ÷ value for a latency.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from textwrap import shorten

import numpy as np
import numpy.typing as npt

from fabricheck.history.series import Session
from fabricheck.history.watch import Watched
from fabricheck.report.figures.chart import Axis, Bar, ChartLine, Figure, LineChart, axis_of
from fabricheck.units import plural

# The latest; more points than pixels show nothing, and each is a row of the table.
_MOST_SESSIONS = 400
# Of the bars of software: names that changed, those that did last.
_MOST_SOFTWARE = 8
_MOST_DATES = 8
_LONGEST_EVENT = 160
_LINES = {"median of all metrics": 50, "worst decile": 10, "worst": 0}  # and which percentile each is
_HEAD = ("session", "metrics", "median, %", "worst decile, %", "worst, %", "the worst", "software that changed")


def overview(history: Watched) -> Figure:
    """All metrics over the sessions: the median of them, the worst decile and the worst, and what software changed."""
    series = history.series
    first = max(0, len(series.sessions) - _MOST_SESSIONS)
    ratio, sessions = _ratio(history)[:, first:], series.sessions[first:]
    measured = np.flatnonzero(np.isfinite(ratio).any(axis=0)).tolist()
    shares = np.nanpercentile(ratio[:, measured], list(_LINES.values()), axis=0) if measured else np.empty((3, 0))
    changes = ["; ".join(names) for names in series.software_changes()[first:]]
    changes = [shorten(text, _LONGEST_EVENT, placeholder="…") for text in changes]
    rows = []
    for place, session in enumerate(measured):
        worst = series.keys[int(np.nanargmin(ratio[:, session]))]
        rows.append(
            (
                str(sessions[session]),
                str(np.isfinite(ratio[:, session]).sum()),
                *(f"{share:.1f}" for share in shares[:, place]),
                f"{worst.test} {worst.metric}",
                changes[session],
            )
        )
    times = [_seconds(sessions[session]) for session in measured]
    lines = tuple(
        ChartLine(name, tuple(zip(times, row.tolist(), strict=True))) for name, row in zip(_LINES, shares, strict=True)
    )
    values = [y for line in lines for _, y in line.points]
    chart = LineChart(
        _time_axis(sessions),
        axis_of("% of own baseline", values or [100.0]),
        tuple(reversed(lines)),
        marks=tuple((_seconds(session), text) for session, text in zip(sessions, changes, strict=True) if text),
        bars=tuple(_software(sessions, series.versions_by_session()[first:])),
    )
    summary = f"{plural(len(series.keys), 'metric')} over {plural(len(sessions), 'session')}"
    summary += f"; {first} earlier sessions are not shown" if first else ""
    summary += f"; software changed in {plural(sum(map(bool, changes)), 'session')}"
    title = f"All metrics of {history.result.system} over the sessions, in % of their own baseline"
    return Figure(title, summary, chart, _HEAD, tuple(rows))


def _ratio(history: Watched) -> npt.NDArray[np.float64]:
    """Values in % of the level of each metric, lower being worse, shape (metrics, sessions); NaN where not measured."""
    values = history.series.values
    level = np.asarray([state.centre for state in history.result.states], dtype=np.float64)
    with np.errstate(all="ignore"):
        # A metric that is not known well enough yet for a baseline is shown against its own median.
        median = np.asarray([np.median(row[np.isfinite(row)]) for row in values])
        level = np.where(np.isfinite(level), level, median)[:, None]
        higher = np.asarray([better == "higher" for better in history.series.better])[:, None]
        return np.asarray(100 * np.where(higher, values / level, level / values))


def _seconds(session: Session) -> float:
    return session.started.timestamp()


def _time_axis(sessions: Sequence[Session]) -> Axis:
    """The days of some of the sessions, from the first to the last."""
    step = max(1, math.ceil(len(sessions) / _MOST_DATES))
    ticks = tuple((_seconds(session), f"{session.started:%Y-%m-%d}") for session in sessions[::step])
    return Axis("start of the session (UTC)", _seconds(sessions[0]), _seconds(sessions[-1]), ticks)


def _software(sessions: Sequence[Session], versions: Sequence[Mapping[str, str]]) -> Iterator[Bar]:
    """A bar for each version of each name whose version changed, while it was there; what changed last is above."""
    stretches: dict[str, list[tuple[str, int, int]]] = {}
    for name in sorted({name for known in versions for name in known}):
        having = [(known[name], session) for session, known in enumerate(versions) if name in known]
        for version, run in groupby(having, itemgetter(0)):
            places = [session for _, session in run]
            stretches.setdefault(name, []).append((version, places[0], places[-1]))
    stretches = {name: of_name for name, of_name in stretches.items() if len(of_name) > 1}
    for name in sorted(stretches, key=lambda name: -stretches[name][-1][1])[:_MOST_SOFTWARE]:
        ends = [begin for _, begin, _ in stretches[name][1:]] + [stretches[name][-1][2]]
        for (version, begin, last), end in zip(stretches[name], ends, strict=True):
            text = f"{name} {version}: {sessions[begin]} to {sessions[last]}"
            yield Bar(name, _seconds(sessions[begin]), _seconds(sessions[end]), f"{name} {version}", text)
