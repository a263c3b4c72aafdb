"""Every session over the history: which metrics got worse, since when, and what they have in common."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import norm

from fabricheck.errors import UserError
from fabricheck.history.accepted import Accepted, accepted_sessions
from fabricheck.history.hazard import CHARTS, CLIP
from fabricheck.history.monitor import MetricAlert, MetricImprovement, Monitored, monitor
from fabricheck.history.robust import centre_and_spread
from fabricheck.history.series import WHOLE_SYSTEM, MetricKey, Series, Session, check_history, differences, series_of
from fabricheck.history.shared import blamed, count_crossing, groups
from fabricheck.history.usual import Options

Floats = npt.NDArray[np.float64]

# Sessions before and after an alert among which the change is looked for.
_BEFORE, _AFTER = 60, 30
# An alert that was over after fewer sessions was about a few sessions.
_BRIEF = 10
# Alerts this many sessions apart can have one cause.
_SAME_CAUSE_SESSIONS = 14
# A metric is missed when it was not measured for this many times as long as it usually is not.
_MISSED = 3
_WEEK = 7
_POWER = float(norm.isf(0.05))  # of 95%
_OF_STREAK = 1.1
# Log likelihood that one metric adds to the evidence for a component.
_MOST_EVIDENCE = 4.0


@dataclass(frozen=True)
class Alert:
    """One metric that got worse and, with `ended` None, still is.

    `raised`: the session on which the chart crossed its threshold. `last_good` and `first_bad`: the sessions between
    which the change lies. `ended`: when it was back, or `accepted`, or `worsened`: then a later alert has what it lost
    on top. `before` and `after`: medians in `unit`; `change`
    is after / before - 1. `spread`: of the baseline, relative, from session to session. `sum` and `threshold` are those
    of the chart, `software` what changed between the two sessions.
    """

    key: MetricKey
    unit: str
    raised: Session
    last_good: Session
    first_bad: Session
    ended: Session | None
    accepted: bool
    worsened: bool
    before: float
    after: float
    change: float
    spread: float
    chart: str
    sum: float
    threshold: float
    software: tuple[str, ...]
    components: tuple[str, ...]


@dataclass(frozen=True)
class Incident:
    """Alerts of one cause, the one message about them. `component` is what their paths share, None where nothing is.

    `affected`: how many of the `watched` metrics whose paths cross the component raised an alert; without a component
    the alert alone counts.
    `new`: raised on the last session.
    """

    component: str | None
    others: tuple[str, ...]  # components that would explain the alerts as well
    raised: Session
    open: bool
    new: bool
    affected: int
    watched: int
    alerts: tuple[Alert, ...]


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
    correlation: float
    bad_sessions: float
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
    warm_up: int
    watched_sessions: int  # metrics times sessions on which an alert was possible

    @property
    def open_incidents(self) -> tuple[Incident, ...]:
        return tuple(each for each in self.incidents if each.open)

    def count(self, status: str) -> int:
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
    options: Options | None = None,
    *,
    now: datetime | None = None,
) -> WatchResult:
    """Watch all metrics of a history from its first session to its last. UserError as `check_history` raises it."""
    return watch_series(history, system, accepted, options, now=now).result


def watch_series(
    history: pl.DataFrame,
    system: str,
    accepted: Iterable[Accepted] = (),
    options: Options | None = None,
    *,
    now: datetime | None = None,
) -> Watched:
    """As `watch`, with the series beside the result."""
    checked = check_history(history, system, now=now)
    if checked.is_empty():
        raise UserError(f"the history of {system} holds no measurement: all rows are INVALID or INCOMPLETE")
    return watch_of(series_of(checked), system, accepted, options)


def watch_of(series: Series, system: str, accepted: Iterable[Accepted] = (), options: Options | None = None) -> Watched:
    """Watch the series of a history that was checked; what is common to all is added to it as one metric more."""
    options = options or Options()
    starts, kept = accepted_sessions(series, tuple(accepted))
    days = np.asarray([each.started.weekday() for each in series.sessions], dtype=np.int64)
    monitored = monitor(series.worse, options, starts, days=days, kept=kept)
    series = _with_whole_system(series, monitored.common)
    located = [_alert(series, each) for each in monitored.alerts]
    incidents = _incidents(series, monitored, located)
    result = WatchResult(
        system=system,
        sessions=series.sessions,
        incidents=incidents,
        improvements=tuple(_improvement(series, each) for each in monitored.improvements),
        states=tuple(_state(series, monitored, row, options, starts) for row in range(len(series.keys))),
        warm_up=options.warm_up,
        watched_sessions=int(monitored.watched_sessions.sum()),
    )
    return Watched(result, series)


def _with_whole_system(series: Series, common: Floats) -> Series:
    """The series and what all of them have in common, in % of what is usual; the same where nothing was common."""
    if not np.isfinite(common).any():
        return series
    # Its software is that of the metric that was measured most often.
    like = int(np.isfinite(series.values).sum(axis=1).argmax())
    return replace(
        series,
        keys=(*series.keys, WHOLE_SYSTEM),
        units=(*series.units, "%"),
        better=(*series.better, "higher"),
        components=(*series.components, ()),
        values=np.vstack([series.values, 100 * np.exp(-common)]),
        versions=np.vstack([series.versions, series.versions[like]]),
    )


def _improvement(series: Series, found: MetricImprovement) -> Improvement:
    row, first = found.metric, found.first
    values = series.values[row]
    after = float(np.nanmedian(values[first : found.taken + 1]))
    sign = 1.0 if series.better[row] == "higher" else -1.0
    change = math.expm1(sign * found.gain)
    return Improvement(
        key=series.keys[row],
        unit=series.units[row],
        first=series.sessions[first],
        taken=series.sessions[found.taken],
        before=after / (1 + change),
        after=after,
        change=change,
        kept=found.kept,
    )


def _alert(series: Series, found: MetricAlert) -> Alert:
    row = found.metric
    until = found.ended if found.ended is not None else len(series.sessions)
    window = range(
        max(found.since, found.session - _BEFORE), min(until, found.session + _AFTER, len(series.sessions) - 1) + 1
    )
    sessions = [session for session in window if np.isfinite(series.values[row, session])]
    alert = sessions.index(found.session)
    if found.ended is not None and found.ended - found.session < _BRIEF and not (found.accepted or found.worsened):
        # What lasted for a few sessions is not half of what is looked at: the rise of the chart shows it.
        sessions = sessions[: alert + 1]
        place = max(next(n for n, each in enumerate(sessions) if each >= found.began), 1)
    else:
        # The change is not later than the alert about it.
        place = min(change_point((series.worse[row, sessions] - found.centre) / found.spread), alert)
    good, bad = sessions[place - 1], sessions[place]
    software = [series.software[series.versions[row, session]] for session in (good, bad)]
    before = float(np.median(series.values[row, sessions[:place]]))
    after = float(np.median(series.values[row, sessions[place:]]))
    return Alert(
        key=series.keys[row],
        unit=series.units[row],
        raised=series.sessions[found.session],
        last_good=series.sessions[good],
        first_bad=series.sessions[bad],
        ended=series.sessions[found.ended] if found.ended is not None else None,
        accepted=found.accepted,
        worsened=found.worsened,
        before=before,
        after=after,
        change=after / before - 1,
        spread=found.spread,
        chart=found.chart,
        sum=found.sum,
        threshold=found.threshold,
        software=differences(software[0], software[1]),
        components=series.components[row],
    )


def change_point(scores: Floats) -> int:
    """Index of the first value of the second of two segments of `scores`, shape (n,), n ≥ 2.

    The two means that fit best in least squares, of equal ones the earliest; values beyond what a single session may
    count for are cut off.
    """
    kept = np.clip(scores, -4.0, 8.0)
    if kept.size < 3:
        return kept.size - 1
    first = np.arange(1, kept.size)  # sizes of the first segment
    sums = np.cumsum(kept)[:-1]
    # The sum of squares within the segments is that of all values less this.
    between = sums**2 / first + (kept.sum() - sums) ** 2 / (kept.size - first)
    return int(first[np.argmax(between)])


@dataclass
class _Cause:
    """Alerts, by index, that are taken to have one cause; `shared` are the components of all of them."""

    session: int
    alerts: list[int]
    shared: set[str]


def _incidents(series: Series, monitored: Monitored, alerts: Sequence[Alert]) -> tuple[Incident, ...]:
    watched = monitored.watched_sessions > 0
    crossing = count_crossing(series.components[row] for row in np.flatnonzero(watched))
    over = _rows_over(series)
    causes: list[_Cause] = []
    by_session: dict[int, list[int]] = {}
    for index, each in enumerate(monitored.alerts):
        by_session.setdefault(each.session, []).append(index)
    for session, raised in by_session.items():
        rest = [index for index in raised if not _joins(causes, index, alerts[index], session)]
        for group in groups({index: alerts[index].components for index in rest}, crossing):
            causes.append(_Cause(session, list(group.members), set(group.components)))
    return tuple(_incident(series, each, alerts, crossing, over) for each in causes)


def _rows_over(series: Series) -> dict[str, list[int]]:
    """The metrics whose paths cross each component."""
    found: dict[str, list[int]] = {}
    for row, components in enumerate(series.components):
        for each in components:
            found.setdefault(each, []).append(row)
    return found


def _joins(causes: Sequence[_Cause], index: int, alert: Alert, session: int) -> bool:
    """Whether an alert belongs to a recent cause, which then blames only what that alert's path crosses too."""
    for each in reversed(causes):
        if session - each.session <= _SAME_CAUSE_SESSIONS and each.shared & set(alert.components):
            each.shared &= set(alert.components)
            each.alerts.append(index)
            return True
    return False


def _incident(
    series: Series, cause: _Cause, alerts: Sequence[Alert], crossing: dict[str, int], over: dict[str, list[int]]
) -> Incident:
    members = sorted((alerts[index] for index in cause.alerts), key=lambda each: (-abs(each.change), each.key))
    component, others = blamed(cause.shared, crossing, _evidence(series, cause, members, over))
    is_open = any(each.ended is None for each in members)
    last = series.sessions[-1]
    return Incident(
        component=component,
        others=others,
        raised=series.sessions[cause.session],
        open=is_open,
        new=is_open and any(each.raised == last for each in members),
        affected=len({each.key for each in members}),
        watched=crossing[component] if component is not None else 1,
        alerts=tuple(members),
    )


def _evidence(series: Series, cause: _Cause, alerts: Sequence[Alert], over: dict[str, list[int]]) -> dict[str, float]:
    """By component that the alerts share, what the metrics without an alert say of it.

    The log likelihood that those which cross it lost what the alerted ones did, over that they lost nothing. Only
    metrics of the same tests and unit count: a link that lost goodput may keep its latency.
    """
    if len(cause.shared) < 2:  # there is nothing to choose from
        return {}
    alerted = {each.key for each in alerts}
    kinds = {(each.key.partition, each.key.environment, each.key.test, each.unit) for each in alerts}
    rows = [
        row
        for row in sorted({row for each in cause.shared for row in over[each]})
        if (key := series.keys[row]) not in alerted
        and (key.partition, key.environment, key.test, series.units[row]) in kinds
    ]
    since = min(series.sessions.index(each.first_bad) for each in alerts)
    worse = series.worse[rows]
    usual = centre_and_spread(worse[:, max(0, since - _BEFORE) : since])
    now = centre_and_spread(worse[:, since : since + _AFTER])
    with np.errstate(divide="ignore", invalid="ignore"):
        error = usual.spread * np.sqrt(1 / usual.count + 1 / now.count)
        loss = np.median([abs(math.log1p(each.change)) for each in alerts])
        shift = (now.centre - usual.centre) / error
        gain = shift * loss / error - (loss / error) ** 2 / 2
    # A single metric, however wild, is not to decide.
    gain = np.clip(np.nan_to_num(gain, nan=0.0), -_MOST_EVIDENCE, _MOST_EVIDENCE)
    found = dict.fromkeys(cause.shared, 0.0)
    for row, each in zip(rows, gain.tolist(), strict=True):
        for component in cause.shared.intersection(series.components[row]):
            found[component] += each
    return found


def _state(
    series: Series, monitored: Monitored, row: int, options: Options, accepted: Sequence[tuple[int, int]]
) -> MetricState:
    measured = np.flatnonzero(np.isfinite(series.values[row]))
    last = int(measured[-1])
    usual = float(np.median(np.diff(measured))) if measured.size > 1 else np.inf
    if monitored.open[row]:
        status = "alert"
    elif any(metric == row and session > last for metric, session in accepted):
        status = "retired"
    elif len(series.sessions) - 1 - last > _MISSED * usual:
        status = "missing"
    elif monitored.count[row] < options.warm_up:
        status = "warming up"
    else:
        can = np.isfinite(monitored.thresholds[:, row]).any() or np.isfinite(monitored.streak[row])
        status = "watched" if can else "too irregular"
    sign = -1.0 if series.better[row] == "higher" else 1.0
    known = monitored.count[row] >= options.warm_up
    return MetricState(
        key=series.keys[row],
        unit=series.units[row],
        status=status,
        sessions=int(monitored.count[row]),
        centre=float(np.exp(sign * monitored.centre[row])),
        spread=float(monitored.spread[row]),
        correlation=float(monitored.correlation[row]) if known else float("nan"),
        bad_sessions=float(monitored.bad_sessions[row]) if known else float("nan"),
        smallest_change=_smallest_change(monitored, row, sign) if known else float("nan"),
        last_measured=series.sessions[last],
    )


def _smallest_change(monitored: Monitored, row: int, sign: float) -> float:
    """Of a week's scores of mean d, variance 1 and this correlation, the sum is over 7 k + h with 95% probability."""
    correlation = monitored.correlation[row]
    deviation = np.sqrt(_WEEK * (1 + correlation) / (1 - correlation))
    by_chart = [
        chart.allowance + (threshold + _POWER * deviation) / _WEEK
        for chart, threshold in zip(CHARTS, monitored.thresholds[:, row], strict=True)
    ]
    # A session counts for no more than CLIP in a chart.
    needed = min((each for each in by_chart if each <= CLIP), default=np.inf)
    # Of a week's sessions that are as much worse as this, three in a row are, with 95% probability.
    needed = min(needed, monitored.streak[row] + _OF_STREAK)
    return float(abs(np.expm1(sign * needed * monitored.spread[row])))
