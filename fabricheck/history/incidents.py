"""Alerts of one cause as one incident, with a finding of what explains them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fabricheck.diagnosis.causes import named_of
from fabricheck.diagnosis.explain import Row, explain, known_noise
from fabricheck.history.percent import percent
from fabricheck.history.series import WHOLE_SYSTEM, MetricKey, Series, Session, number_names
from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import code_of_slow
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.constants import AFTER, AT_ONCE, BEFORE, CUT, DOUBT, SEEN, WEEK
from fabricheck.statistics.robust import centre_and_spread
from fabricheck.store.software_of_metrics import (
    ANY_MOVER,
    Changed,
    named_with_versions,
    software_crossed,
    what_to_try,
)

#: A change can be found in a session so much before or after its own: of a loss of three spreads or more, a session is
#: taken for one of the other side in 1 of 15, and two in a row in 1 of 200.
NEAR = 2

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Alert:
    """One metric that got worse and, with `ended` None, still is.

    `raised`: the session on which the chart crossed its threshold. `last_good` and `first_bad`: the sessions between
    which the change lies; None where it was never better. `ended`: when it was back, or `accepted`, or `worsened`: then
    a later alert has what it lost on top. `before` and `after`: medians in `unit`; `change` is after / before - 1.
    `spread`: of the baseline, relative, from session to session. `software`: what changed between the two sessions.
    """

    key: MetricKey
    unit: str
    raised: Session
    last_good: Session | None
    first_bad: Session
    ended: Session | None
    accepted: bool
    worsened: bool
    before: float
    after: float
    change: float
    spread: float
    software: tuple[str, ...]
    components: tuple[Component, ...]

    @property
    def when(self) -> str:
        """Between which sessions it changed, in words."""
        return f"since {self.first_bad}, " + (f"last good {self.last_good}" if self.last_good else "its first session")


@dataclass(frozen=True)
class Incident:
    """Alerts of one cause, the one message about them.

    `finding`: what explains them, its components the likeliest first; none where the paths of the alerts share nothing.
    `affected`: how many of the `watched` metrics whose paths cross the first component raised an alert; without a
    component the alert alone counts. `new`: raised on the last session. `next_step`: what tells more of software that
    is named; empty where none is.
    """

    finding: Finding
    raised: Session
    open: bool
    new: bool
    affected: int
    watched: int
    next_step: str
    alerts: tuple[Alert, ...]


def incidents_of(series: Series, watched: Sequence[int], alerts: Sequence[Alert]) -> tuple[Incident, ...]:
    """The incidents of all alerts, which are in the order of their sessions; `watched` are the numbers of the metrics
    on which an alert was possible."""
    return _Incidents(series, watched, alerts).found()


@dataclass
class _Cause:
    """Alerts, by index, that are taken to have one cause; all of them cross what is `shared`, and `named` explains
    those of its first session."""

    session: int
    alerts: list[int]
    shared: frozenset[Component]
    named: tuple[Component, ...]


class _Incidents:
    def __init__(self, series: Series, watched: Sequence[int], alerts: Sequence[Alert]) -> None:
        self._series, self._alerts = series, alerts
        self._place = {each.session: number for number, each in enumerate(series.sessions)}
        self._row = {key: row for row, key in enumerate(series.keys)}
        self._crossing = Counter(one for row in watched for one in dict.fromkeys(series.components[row]))
        self._unit = number_names(series.units)
        self._kind = number_names(key.kind for key in series.keys)

    @cached_property
    def _rows_over(self) -> dict[Component, Ints]:
        """The metrics whose paths cross each component."""
        rows_over: dict[Component, list[int]] = {}
        for row, (key, components) in enumerate(zip(self._series.keys, self._series.components, strict=True)):
            for component in components if key != WHOLE_SYSTEM else ():
                rows_over.setdefault(component, []).append(row)
        return {each: np.asarray(rows, dtype=np.int64) for each, rows in rows_over.items()}

    def found(self) -> tuple[Incident, ...]:
        causes: list[_Cause] = []
        by_session: dict[int, list[int]] = {}
        for index, alert in enumerate(self._alerts):
            by_session.setdefault(self._place[alert.raised.session], []).append(index)
        for session, raised in by_session.items():
            whole = [index for index in raised if self._alerts[index].key == WHOLE_SYSTEM]
            causes += [self._of_whole(session, each) for each in whole]
            rest = [index for index in raised if index not in whole]
            causes += [each for each in self._new(session, rest) if not self._joins(causes, each)]
        return tuple(map(self._incident, causes))

    def _of_whole(self, session: int, index: int) -> _Cause:
        """What all metrics lost together, by the software that changed: it is not the fault of a part."""
        alert = self._alerts[index]
        changed = self._changed([alert])
        named = tuple(sorted(each for each in alert.components if each in changed))
        return _Cause(session, [index], frozenset(alert.components), named)

    def _new(self, session: int, rest: Sequence[int]) -> Iterator[_Cause]:
        if not rest:
            return
        alerts = [self._alerts[index] for index in rest]
        rows = [*map(self._slow, alerts), *self._others(alerts)]
        for explanation in explain(rows, dict.fromkeys(self._changed(alerts), SEEN)):
            members = [rest[number] for number in explanation.rows if number < len(rest)]
            if not members:
                continue
            shared = frozenset.intersection(*(frozenset(self._alerts[index].components) for index in members))
            yield _Cause(session, members, shared, named_of(explanation.components))

    def _slow(self, alert: Alert) -> Row:
        """An alert as a row for `explain`; alone it is of what the fewest metrics cross, else of its metric."""
        row = self._row[alert.key]
        fewest = min((self._crossing[each] for each in alert.components), default=0)
        own = tuple(each for each in alert.components if self._crossing[each] == fewest)
        own = own or (Component(Kind.CHECK, str(alert.key)),)
        crosses = dict.fromkeys(alert.components, 1.0)
        loss = abs(math.log1p(alert.change))
        return Row(int(self._kind[row]), alert.unit, loss, known_noise(alert.spread), True, crosses, own)

    def _joins(self, causes: Sequence[_Cause], new: _Cause) -> bool:
        """Whether alerts of one session belong to a recent cause, which then has them: what explains them explains that
        too, and they began with it. A single alert is explained by anything that it crosses."""
        own = frozenset(new.named) if len(new.alerts) > 1 else new.shared
        alerts = [self._alerts[each] for each in new.alerts]
        began = min(self._place[each.first_bad.session] - _dated_within(each) for each in alerts)
        for cause in reversed(causes):
            explained = tuple(each for each in cause.named if each in own)
            if explained and new.session - cause.session <= 2 * WEEK and began <= cause.session:
                cause.shared, cause.named = cause.shared & new.shared, explained
                cause.alerts += new.alerts
                return True
        return False

    def _incident(self, cause: _Cause) -> Incident:
        members = sorted((self._alerts[each] for each in cause.alerts), key=lambda each: (-abs(each.change), each.key))
        changed = self._changed(members)
        named = named_with_versions(cause.named, changed, self._versions(members))
        return incident_of(
            members,
            named,
            raised=self._series.sessions[cause.session],
            last=self._series.sessions[-1],
            watched=self._crossing.get(cause.named[0], 1) if named else 1,
            next_step=what_to_try(named, changed),
        )

    def _others(self, alerts: Sequence[Alert]) -> Iterator[Row]:
        """Metrics without an alert that cross a component of these, up to so many each: slow are those which rather
        lost as much, too. Only those of the same unit count: a link that lost goodput may keep its latency."""
        series, alerted = self._series, [self._row[each.key] for each in alerts]
        chosen: set[int] = set()
        for component in {each for alert in alerts for each in alert.components}:
            over = self._rows_over[component]
            over = over[np.isin(self._unit[over], self._unit[alerted]) & ~np.isin(over, alerted)]
            chosen.update(over[np.linspace(0, over.size - 1, min(over.size, AT_ONCE)).astype(np.int64)].tolist())
        rows = sorted(chosen)
        since = min(self._place[each.first_bad.session] for each in alerts)
        worse = series.worse[rows]
        usual = centre_and_spread(worse[:, max(0, since - BEFORE) : since])
        now = centre_and_spread(worse[:, since : since + AFTER])
        with np.errstate(divide="ignore", invalid="ignore"):
            error = usual.spread * np.sqrt(1 / usual.count + 1 / now.count)
        shift = now.centre - usual.centre
        loss = float(np.median([abs(math.log1p(each.change)) for each in alerts]))
        for row, own_shift, own_error in zip(rows, shift.tolist(), error.tolist(), strict=True):
            if math.isfinite(own_shift):
                crosses = dict.fromkeys(series.components[row], 1.0)
                noise = known_noise(own_error)
                slow = loss * (2 * own_shift - loss) / noise**2 / 2 > DOUBT
                yield Row(int(self._kind[row]), series.units[row], own_shift, noise, slow, crosses, ())

    def _changed(self, alerts: Sequence[Alert]) -> dict[Component, Changed]:
        """The software that had another version when these were raised than before they got worse."""
        changed: dict[Component, Changed] = {}
        for alert in alerts:
            before = self._last_measured(alert, self._place[(alert.last_good or alert.first_bad).session] - NEAR)
            old, new = (self._software(alert, each) for each in (before, self._place[alert.raised.session]))
            changed |= {
                each: Changed(old[each], version) for each, version in new.items() if old.get(each, version) != version
            }
        return changed

    def _last_measured(self, alert: Alert, session: int) -> int:
        measured = np.flatnonzero(np.isfinite(self._series.values[self._row[alert.key]]))
        return int(measured[max(0, int(np.searchsorted(measured, session, side="right")) - 1)])

    def _software(self, alert: Alert, session: int) -> Mapping[Component, str]:
        test = ANY_MOVER if alert.key == WHOLE_SYSTEM else alert.key.test
        return software_crossed(test, self._series.software[self._series.versions[self._row[alert.key], session]])

    def _versions(self, alerts: Sequence[Alert]) -> dict[Component, str]:
        """The software of alerts when they were raised."""
        versions: dict[Component, str] = {}
        for alert in alerts:
            versions |= self._software(alert, self._place[alert.raised.session])
        return versions


def _dated_within(alert: Alert) -> float:
    """How many sessions too late the first bad one of an alert may be said to be: the more noise, the more, by the
    square of that (Hinkley, Biometrika 57, 1970)."""
    return NEAR * max(1.0, (CUT * alert.spread / math.log1p(abs(alert.change))) ** 2)


def incident_of(
    alerts: Sequence[Alert],
    named: tuple[Component, ...],
    *,
    raised: Session,
    last: Session,
    watched: int,
    next_step: str = "",
) -> Incident:
    """Alerts, the worst first, as an incident that `named` explain. `last`: the session until which it was looked."""
    worst, keys = alerts[0], {each.key for each in alerts}
    # All metrics together are one only where they are alone.
    affected = len(keys - {WHOLE_SYSTEM}) or 1
    several = f"{affected} of {watched} metrics that use it got worse; worst: {worst.key} " if named else ""
    software = f"; changed then: {', '.join(worst.software)}" if worst.software else ""
    is_open = any(each.ended is None for each in alerts)
    finding = Finding(
        code_of_slow(named) if named else "all-slow" if WHOLE_SYSTEM in keys else "slower-than-before",
        Verdict.DEGRADED,
        f"{several}{percent(worst.change)} {worst.when}{software}",
        named,
        worst.after,
        worst.before,
        worst.unit,
        tuple(dict.fromkeys(str(each.key) for each in alerts)),
    )
    return Incident(
        finding=finding,
        raised=raised,
        open=is_open,
        new=is_open and any(each.raised == last for each in alerts),
        affected=affected,
        watched=watched,
        next_step=next_step,
        alerts=tuple(alerts),
    )
