"""Every session over the history: which metrics got worse, since when, and what they have in common."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import ndtri

from fabricheck.errors import UserError
from fabricheck.history.accepted import Accepted, accepted_sessions
from fabricheck.history.incidents import Alert, Incident, incidents_of
from fabricheck.history.series import (
    OF_SERIES,
    WHOLE_SYSTEM,
    MetricKey,
    Series,
    Session,
    check_history,
    differences,
    series_of,
)
from fabricheck.history.slow_nodes import slow_nodes
from fabricheck.records.component import Component
from fabricheck.statistics.charts import CHARTS
from fabricheck.statistics.constants import (
    AFTER,
    BEFORE,
    CLIP,
    CONFIDENCE,
    ENOUGH,
    FEWEST_FOR_MIDDLE,
    SETTLED_SESSIONS,
    STAYS,
    WEEK,
)
from fabricheck.statistics.monitor import MetricAlert, MetricImprovement, Monitored, monitor
from fabricheck.statistics.usual import Usual

Floats = npt.NDArray[np.float64]

_POWER = float(ndtri(CONFIDENCE))
_LOSSES = np.geomspace(0.5, 100.0, 150)  # in spreads


@dataclass(frozen=True)
class Improvement:
    """A metric that got better on session `first` and stayed so; on `taken` that became its baseline, unless `kept`.

    `before` and `after` are in `unit`; `change` is after / before - 1.
    """

    key: MetricKey
    unit: str
    first: Session
    taken: Session
    before: float
    after: float
    change: float
    kept: bool


@dataclass(frozen=True)
class MetricState:
    """How a metric stands after the last session. `sessions` of baseline; `spread` is relative, between sessions.

    `status`: `watched`; `alert`; `warming up`; `missing`, where it was not measured lately though it used to be;
    `retired`, where an accepted change explains that; `too irregular`, where no threshold keeps it from false alarms.
    `smallest_change`: the relative loss that, lasting for a week, would raise an alert with 95% probability.
    """

    key: MetricKey
    unit: str
    status: str
    sessions: int
    centre: float
    spread: float
    smallest_change: float
    last_measured: Session


@dataclass(frozen=True)
class WatchResult:
    """All incidents in the order of their sessions, the state of every metric, and what was watched.

    The last state, of WHOLE_SYSTEM, is that of what all metrics have in common, where they are enough to tell.
    """

    system: str
    sessions: tuple[Session, ...]
    incidents: tuple[Incident, ...]
    improvements: tuple[Improvement, ...]
    states: tuple[MetricState, ...]
    warm_up: int  # sessions of a metric before one can be an alert
    watched_sessions: int  # metrics times sessions on which an alert was possible

    @property
    def open_incidents(self) -> tuple[Incident, ...]:
        """The incidents that still last and were not accepted."""
        return tuple(each for each in self.incidents if each.open)

    def count(self, status: str) -> int:
        """How many metrics have this status."""
        return sum(each.status == status for each in self.states)

    @property
    def exit_status(self) -> int:
        """1 while an incident is open; else 4 where a metric is missing or none is watched yet; else 0."""
        if self.open_incidents:
            return 1
        blind = self.count("missing") + self.count("too irregular")
        return 4 if blind or not self.count("watched") else 0


@dataclass(frozen=True)
class Watched:
    """What was found, and the series that it was found in; the states are in the order of the metrics of `series`."""

    result: WatchResult
    series: Series


def watch(
    history: pl.DataFrame,
    system: str,
    accepted: Iterable[Accepted] = (),
    warm_up: int = ENOUGH,
    *,
    now: datetime | None = None,
) -> WatchResult:
    """As `watch_series`, without the series."""
    history = history.select(OF_SERIES)  # else the other columns would stay in memory
    return watch_series(history, system, accepted, warm_up, now=now).result


def watch_series(
    history: pl.DataFrame,
    system: str,
    accepted: Iterable[Accepted] = (),
    warm_up: int = ENOUGH,
    *,
    now: datetime | None = None,
) -> Watched:
    """Watch all metrics of a history from its first session to its last. UserError as `check_history` raises it."""
    history = check_history(history, now=now)
    if history.is_empty():
        raise UserError(f"the history of {system} has no measurement: all rows are INVALID or INCOMPLETE")
    series = series_of(history)
    del history  # it does not fit into memory beside what follows
    return watch_of(series, system, accepted, warm_up)


def watch_of(series: Series, system: str, accepted: Iterable[Accepted] = (), warm_up: int = ENOUGH) -> Watched:
    """Watch the series of a history that was checked; what is common to all is added to it as one metric more."""
    starts, kept = accepted_sessions(series, tuple(accepted))
    monitored = monitor(series.worse, warm_up, starts, kept=kept)
    series = _with_whole_system(series, monitored.usual.worse[-1])
    located = [_alert(series, each) for each in monitored.alerts]
    rows = np.flatnonzero(monitored.watched_sessions > 0).tolist()
    incidents = [*incidents_of(series, rows, located), *slow_nodes(series, starts)]
    result = WatchResult(
        system=system,
        sessions=series.sessions,
        incidents=tuple(sorted(incidents, key=lambda each: each.raised.started)),
        improvements=tuple(_improvement(series, each) for each in monitored.improvements),
        states=tuple(_state(series, monitored, row, starts) for row in range(len(series.keys))),
        warm_up=warm_up + SETTLED_SESSIONS,
        watched_sessions=int(monitored.watched_sessions.sum()),
    )
    return Watched(result, series)


def _with_whole_system(series: Series, common: Floats) -> Series:
    """The series and what all of them have in common, as a share of what is usual, so that its `worse` is what was
    monitored; the same where nothing was common."""
    if not np.isfinite(common).any():
        return series
    # Its software is that of the metric that was measured most often.
    like = int(np.isfinite(series.values).sum(axis=1).argmax())
    return replace(
        series,
        keys=(*series.keys, WHOLE_SYSTEM),
        units=(*series.units, "of usual"),
        better=(*series.better, "higher"),
        components=(*series.components, _crossed_by_all(series.components)),
        values=np.vstack([series.values, np.exp(-common)]),
        versions=np.vstack([series.versions, series.versions[like]]),
    )


def _crossed_by_all(paths: Sequence[tuple[Component, ...]]) -> tuple[Component, ...]:
    first, *rest = {id(each): frozenset(each) for each in paths}.values()
    return tuple(sorted(first.intersection(*rest)))


def _improvement(series: Series, improvement: MetricImprovement) -> Improvement:
    row, first = improvement.metric, improvement.first
    values = series.values[row]
    after = float(np.nanmedian(values[first : improvement.taken + 1]))
    sign = 1.0 if series.better[row] == "higher" else -1.0
    change = math.expm1(sign * improvement.gain)
    return Improvement(
        key=series.keys[row],
        unit=series.units[row],
        first=series.sessions[first],
        taken=series.sessions[improvement.taken],
        before=after / (1 + change),
        after=after,
        change=change,
        kept=improvement.kept,
    )


def _alert(series: Series, raised: MetricAlert) -> Alert:
    row = raised.metric
    until = raised.ended if raised.ended is not None else len(series.sessions)
    window = range(
        max(raised.since, raised.session - BEFORE), min(until, raised.session + AFTER, len(series.sessions) - 1) + 1
    )
    sessions = [session for session in window if np.isfinite(series.values[row, session])]
    alert = sessions.index(raised.session)
    if raised.ended is not None and raised.ended - raised.session < STAYS and not (raised.accepted or raised.worsened):
        # What lasted for a few sessions is not half of what is looked at: the rise of the chart shows it.
        sessions = sessions[: alert + 1]
        place = max(next(n for n, each in enumerate(sessions) if each >= raised.began), 1)
    else:
        # The change is not later than the alert about it.
        place = min(change_point((series.worse[row, sessions] - raised.centre) / raised.spread), alert)
    good, bad = sessions[place - 1], sessions[place]
    software = [series.software[series.versions[row, session]] for session in (good, bad)]
    before = float(np.median(series.values[row, sessions[:place]]))
    after = float(np.median(series.values[row, sessions[place:]]))
    return Alert(
        key=series.keys[row],
        unit=series.units[row],
        raised=series.sessions[raised.session],
        last_good=series.sessions[good],
        first_bad=series.sessions[bad],
        ended=series.sessions[raised.ended] if raised.ended is not None else None,
        accepted=raised.accepted,
        worsened=raised.worsened,
        before=before,
        after=after,
        change=after / before - 1,
        spread=raised.spread,
        software=differences(*map(json.loads, software)),
        components=series.components[row],
    )


def change_point(scores: Floats) -> int:
    """Index of the first value of the second of two segments of `scores`, shape (n,), n ≥ 2.

    The two means that fit best in least squares, of which the second is not better, of equal ones the earliest; values
    beyond what a single session may count for are cut off.
    """
    kept = np.clip(scores, -4.0, 8.0)
    if kept.size < 3:
        return kept.size - 1
    first = np.arange(1, kept.size)  # sizes of the first segment
    before, after = np.cumsum(kept)[:-1], kept.sum() - np.cumsum(kept)[:-1]
    # The sum of squares within the segments is that of all values less this.
    between = before**2 / first + after**2 / (kept.size - first)
    worse = after / (kept.size - first) >= before / first
    return int(first[np.argmax(np.where(worse, between, -1.0))])


def _state(series: Series, monitored: Monitored, row: int, accepted: Sequence[tuple[int, int]]) -> MetricState:
    watched, measured = monitored.usual, np.flatnonzero(np.isfinite(series.values[row]))
    last = int(measured[-1])
    usual = float(np.median(np.diff(measured))) if measured.size > 1 else np.inf
    if monitored.open[row]:
        status = "alert"
    elif any(metric == row and session > last for metric, session in accepted):
        status = "retired"
    elif len(series.sessions) - 1 - last > FEWEST_FOR_MIDDLE * usual:
        status = "missing"
    elif watched.count[row] < watched.warm_up:
        status = "warming up"
    else:
        can = np.isfinite(watched.thresholds[:, row]).any() or np.isfinite(watched.streak[row])
        status = "watched" if can else "too irregular"
    sign = -1.0 if series.better[row] == "higher" else 1.0
    known = watched.count[row] >= watched.warm_up
    return MetricState(
        key=series.keys[row],
        unit=series.units[row],
        status=status,
        sessions=int(watched.count[row]),
        centre=float(np.exp(sign * (watched.centre[row] + watched.level[row]))),
        spread=float(watched.spread[row]),
        smallest_change=_smallest_change(watched, row, sign) if known else float("nan"),
        last_measured=series.sessions[last],
    )


def _smallest_change(usual: Usual, row: int, sign: float) -> float:
    """The least loss that a chart, a streak or a jump shows within a week with 95% probability, of whose sessions each
    moves the level of the next."""
    left, level = [], 0.0
    for _ in range(WEEK):
        left.append(1 - level)
        level = float(usual.keep[row] * (level + usual.gain[row] * left[-1]))
    losses = _LOSSES[:, None] * np.asarray(left)
    unsure = _POWER * np.sqrt(np.arange(1, WEEK + 1))
    shown = (losses[:, 0] >= usual.jump + _POWER) | (losses[:, FEWEST_FOR_MIDDLE - 1] >= usual.streak[row] + _POWER)
    for chart, threshold in zip(CHARTS, usual.thresholds[:, row], strict=True):
        # A session counts for no more than CLIP in a chart.
        sums = np.cumsum(np.minimum(losses, CLIP) - chart.allowance, axis=1)
        shown |= (sums >= threshold + unsure).any(axis=1)
    needed = _LOSSES[shown.argmax()] if shown.any() else np.inf
    return float(abs(np.expm1(sign * needed * usual.spread[row])))
