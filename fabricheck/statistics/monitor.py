"""The charts of all metrics over all sessions: numbers in, alerts out. The names are added in `watch`."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from fabricheck.statistics.charts import CHARTS
from fabricheck.statistics.constants import (
    CLIP,
    ENOUGH,
    FEWEST_FOR_MIDDLE,
    OF_MEDIAN,
    ONE_IN_100,
    SETTLED_SESSIONS,
    STAYS,
)
from fabricheck.statistics.usual import Usual
from fabricheck.waiting import steps

#: An improvement was better by so much each session, in spreads: ten in a row by chance 1 time in 10⁸.
BETTER_EACH = 1.0

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Spreads by which a level that is known from the median of SETTLED_SESSIONS sessions is wrong, one time in a hundred.
_UNSURE = ONE_IN_100 * math.sqrt(OF_MEDIAN / SETTLED_SESSIONS)


@dataclass(frozen=True)
class MetricAlert:
    """Metric and session by their index.

    `since`: the sessions before are of another level. `ended`: the session on which the metric was back, its new level
    `accepted`, or it got still worse, which is an alert of its own; None while it is none of these.
    """

    metric: int
    session: int
    centre: float  # of the baseline, as Series.worse
    spread: float
    began: int  # the session since which the sum was above 0
    since: int = 0
    ended: int | None = None
    accepted: bool = False
    worsened: bool = False


@dataclass(frozen=True)
class MetricImprovement:
    """A metric that got better on session `first`, by `gain` (a logarithm), and stayed so; `taken` on that session.

    `kept`: its old level stays the baseline, since it was accepted so.
    """

    metric: int
    first: int
    taken: int
    gain: float
    kept: bool


@dataclass
class _State:
    """What is carried from session to session beside what is usual; shapes (metrics,), or (charts, metrics)."""

    sums: Floats
    began: Ints  # the session since which some sum is above 0
    open: Flags
    alert: Ints  # which of the alerts is open
    settled: Floats  # of an open alert, the new level in spreads from the old one
    last: Floats  # the deviations of the last sessions that were measured, (FEWEST_FOR_MIDDLE, metrics)
    better: Ints  # sessions in a row that were better than usual
    recent: list[Floats] = field(default_factory=list)


@dataclass(frozen=True)
class Monitored:
    """Alerts in the order of sessions, and how each metric stood after the last session: what was `usual` for it, and
    which have an `open` alert. The last metric is what all have in common."""

    alerts: tuple[MetricAlert, ...]
    improvements: tuple[MetricImprovement, ...]
    watched_sessions: Ints
    usual: Usual
    open: Flags


def monitor(
    worse: Floats,
    warm_up: int = ENOUGH,
    accepted: Sequence[tuple[int, int]] = (),
    *,
    kept: Collection[int] = (),
) -> Monitored:
    """Watch `worse`, shape (metrics, sessions), from the first session to the last; more is worse, NaN is not measured.

    What all metrics of a session have in common is taken out of each of them and watched as one metric more, the last.
    `warm_up`: as of `Usual`. `accepted`: pairs of metric and session from which on the metric's new level is its
    baseline: what was before does not count, its alert is over, and it warms up again. `kept`: metrics whose baseline
    stays although they got better.
    The alerts of a session depend on it and on those before.
    """
    return _Watch(worse, warm_up).run(accepted, frozenset(kept))


class _Watch:
    """One pass over the sessions. The arrays have one row more than there are metrics: what all have in common."""

    def __init__(self, worse: Floats, warm_up: int) -> None:
        metrics = worse.shape[0] + 1
        self.usual = Usual(worse, warm_up)
        self.worse, self.base = self.usual.worse, self.usual.base
        self.alerts: list[MetricAlert] = []
        self.improvements: list[MetricImprovement] = []
        self.watched = np.zeros(metrics, dtype=np.int64)
        self.state = _State(
            sums=np.zeros((len(CHARTS), metrics)),
            began=np.zeros(metrics, dtype=np.int64),
            open=np.zeros(metrics, dtype=np.bool_),
            alert=np.zeros(metrics, dtype=np.int64),
            settled=np.full(metrics, np.nan),
            last=np.full((FEWEST_FOR_MIDDLE, metrics), -np.inf),
            better=np.zeros(metrics, dtype=np.int64),
        )

    def run(self, accepted: Sequence[tuple[int, int]], kept: frozenset[int]) -> Monitored:
        state, usual, accepted_at = self.state, self.usual, dict[int, list[int]]()
        for metric, session in accepted:
            accepted_at.setdefault(session, []).append(metric)
        sessions = self.worse.shape[1]
        for session in steps(range(sessions), sessions, "sessions watched"):
            for metric in accepted_at.get(session, ()):
                self.base[metric, :session] = np.nan
                state.sums[:, metric] = 0
                if state.open[metric]:
                    self._end(metric, session, accepted=True)
            usual.update(session, state.open, self._new_levels(session), renewed=session in accepted_at)
            deviation = usual.deviation(session, state.open)
            score = usual.score(deviation)
            self.watched += np.isfinite(score) & ~state.open
            self._chart(score, deviation, session)
            usual.follow(session, deviation, state.open)
            self._recover(deviation, session)
            self._improve(deviation, session, kept)
        return Monitored(tuple(self.alerts), tuple(self.improvements), self.watched, usual, state.open)

    def _new_levels(self, session: int) -> dict[int, int]:
        """Of metrics that have been better for so long that this may be their new level: its first session."""
        return {
            metric: self._first_better(metric, session)
            for metric in np.flatnonzero(self.state.better > SETTLED_SESSIONS).tolist()
        }

    def _first_better(self, metric: int, session: int) -> int:
        """The first of the sessions before this one in which a metric has been better than usual."""
        there = np.flatnonzero(np.isfinite(self.worse[metric, :session]))
        return int(there[-int(self.state.better[metric])])

    # Alerts

    def _chart(self, score: Floats, deviation: Floats, session: int) -> None:
        state, usual = self.state, self.usual
        # Of a metric with an open alert counts what it loses beyond that, once its new level is known.
        settled = np.isfinite(state.settled)
        beyond = np.where(state.open, deviation - state.settled - _UNSURE, deviation)
        score = np.where(state.open, np.minimum(beyond, CLIP), score)
        ready = np.isfinite(score)
        state.last = np.where(ready, np.vstack([state.last[1:], beyond[None]]), state.last)
        before = state.sums.max(axis=0)
        for chart, design in enumerate(CHARTS):
            step = np.where(ready, score, 0.0) - design.allowance
            state.sums[chart] = np.where(ready, np.maximum(state.sums[chart] + step, 0), state.sums[chart])
        state.began = np.where((before <= 0) & (state.sums.max(axis=0) > 0), session, state.began)
        crossed = (state.sums > usual.thresholds) & ready & (~state.open | settled)
        in_a_row = ready & (state.last.min(axis=0) > usual.streak) & (~state.open | settled)
        jumped = ready & (beyond > usual.jump)
        for metric in np.flatnonzero(crossed.any(axis=0) | in_a_row | jumped).tolist():
            if state.open[metric]:
                self._end(metric, session, worsened=True)
            self._raise(metric, session)
        self.base[state.open, session] = np.nan

    def _raise(self, metric: int, session: int) -> None:
        state, usual = self.state, self.usual
        worse = 0.0 if np.isnan(state.settled[metric]) else float(state.settled[metric])
        began = int(state.began[metric]) if state.sums[:, metric].max() > 0 else session
        self.alerts.append(
            MetricAlert(
                metric=metric,
                session=session,
                centre=float(usual.centre[metric] + usual.level[metric] + worse * usual.spread[metric]),
                spread=float(usual.spread[metric]),
                began=began,
                since=self._since(metric),
            )
        )
        self.base[metric, began:session] = np.nan
        usual.back(metric, began)
        state.open[metric] = True
        state.alert[metric] = len(self.alerts) - 1
        state.sums[:, metric] = 0
        state.last[:, metric] = -np.inf
        state.settled[metric] = np.nan

    def _since(self, metric: int) -> int:
        """The session of the latest alert of a metric that got still worse; nothing before is of the same level."""
        latest = [each for each in self.alerts[::-1] if each.metric == metric][:1]
        return latest[0].session if latest and latest[0].worsened else 0

    def _recover(self, deviation: Floats, session: int) -> None:
        state = self.state
        state.recent = [*state.recent[-(SETTLED_SESSIONS - 1) :], deviation]
        if len(state.recent) < SETTLED_SESSIONS or not state.open.any():
            return
        latest = np.stack(state.recent, axis=1)
        # A level that goes about need not come back to where it was, nor does a later one tell a further loss.
        stands = self.usual.keep < 1
        back = np.where(stands, 1.0, np.maximum(self.usual.whole / self.usual.spread, 1.0))
        for metric in np.flatnonzero(state.open).tolist():
            if session - self.alerts[state.alert[metric]].session < SETTLED_SESSIONS or np.isnan(latest[metric]).all():
                continue
            now = float(np.nanmedian(latest[metric]))
            if now < back[metric]:
                self._end(metric, session)
            elif stands[metric] and np.isnan(state.settled[metric]) and np.isfinite(latest[metric]).all():
                state.settled[metric] = now

    def _end(self, metric: int, session: int, *, accepted: bool = False, worsened: bool = False) -> None:
        state = self.state
        place = state.alert[metric]
        self.alerts[place] = replace(self.alerts[place], ended=session, accepted=accepted, worsened=worsened)
        if not worsened:
            state.open[metric] = False
            state.settled[metric] = np.nan
            state.sums[:, metric] = 0
            state.last[:, metric] = -np.inf

    # Improvements

    def _improve(self, deviation: Floats, session: int, kept: frozenset[int]) -> None:
        """A metric that got better and stays so has a new level: what was measured before is moved to it."""
        state, usual = self.state, self.usual
        there, better = np.isfinite(deviation), deviation < -BETTER_EACH
        state.better = np.where(there, np.where(better, state.better + 1, 0), state.better)
        stays = there & (state.better >= STAYS) & ~state.open
        for metric in np.flatnonzero(stays).tolist():
            row = self.worse[metric]
            first = self._first_better(metric, session + 1)
            state.better[metric] = 0
            gain = float(usual.centre[metric] + usual.level[metric] - np.nanmedian(row[first : session + 1]))
            self.improvements.append(MetricImprovement(metric, first, session, gain, metric in kept))
            if metric not in kept:
                self.base[metric, :first] -= gain
                usual.centre[metric] -= gain
                state.sums[:, metric] = 0
                usual.renew()
