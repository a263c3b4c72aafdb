"""The charts of all metrics over all sessions: numbers in, alerts out. The names are added in `watch`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from fabricheck.history.baseline import Baseline, fit, levels, shift_of_all
from fabricheck.history.hazard import CHARTS, CLIP, KINDS, thresholds
from fabricheck.history.noise import WANDERING, independent_share, kinds_of_noise, long_run_variance
from fabricheck.history.peaks import upper_tail
from fabricheck.history.robust import FEWEST, normal_score
from fabricheck.history.streak import LENGTH, least_of_streak

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Sessions between two fits of the baseline, which changes slowly.
_FIT_EVERY = 5
# An alert is over when the median of this many sessions is back within one spread of what it was before; by their
# median the new level of a metric is known too, from which a further loss counts.
_SETTLED = 5
# Spreads by which a level that is known from that few sessions may be wrong: 2.7 standard errors of their median.
_UNSURE = 1.5
# One session alone is an alert where it is as far out as healthy sessions of all metrics together are once in so many,
# and half as far again, for what that is told from may be few; and never below so many spreads.
_JUMP_SESSIONS, _JUMP_MARGIN, _LEAST_JUMP = 300_000, 1.5, 10.0
_FEWEST_FOR_JUMP = 1000
# Neighbours that are more alike than this are those of a level that wanders.
_WANDERS = 0.7
_CORRELATION = np.asarray([each.correlation for each in KINDS])
# An improvement stays when this many sessions in a row were better than usual, by so much each and on average.
_BETTER_SESSIONS, _BETTER_EACH, _BETTER_MEAN = 10, 1.0, 2.5


@dataclass(frozen=True)
class Options:
    """How a metric is watched.

    `warm_up`: sessions of baseline before a metric can raise an alert. `window`: sessions that the baseline is taken
    from, the latest. `lag`: as many sessions before the one that is judged do not belong to it yet, so that a drift
    does not hide itself.
    `least_spread`: relative; metrics that vary less (a clock's resolution) are taken to vary by this.
    """

    warm_up: int = 20
    window: int = 365
    lag: int = 5
    least_spread: float = 0.0002

    def __post_init__(self) -> None:
        if self.warm_up < FEWEST or self.window < self.warm_up or self.lag < 0 or not self.least_spread > 0:
            raise ValueError(f"options out of range: {self}")


@dataclass(frozen=True)
class MetricAlert:
    """Metric and session by their index; `sum` of the chart that crossed its `threshold`.

    `since`: the sessions before are of another level. `ended`: the session on which the metric was back, its new level
    `accepted`, or it got still worse, which is an alert of its own; None while it is none of these.
    """

    metric: int
    session: int
    chart: str
    sum: float
    threshold: float
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

    `kept`: its old level is the baseline all the same, since somebody said so.
    """

    metric: int
    first: int
    taken: int
    gain: float
    kept: bool


@dataclass
class _State:
    """What is carried from session to session; shapes (metrics,), or (charts, metrics)."""

    sums: Floats
    began: Ints  # the session since which some sum is above 0
    open: Flags
    alert: Ints  # which of the alerts is open
    settled: Floats  # of an open alert, the new level in spreads from the old one
    centre: Floats
    season: Floats
    loading: Floats
    whole: Floats
    level: Floats
    spread: Floats
    count: Ints
    weights: Floats
    thresholds: Floats
    streak: Floats  # what each session of a streak has to be worse than, in spreads
    last: Floats  # the deviations of the last sessions that were measured, (LENGTH, metrics)
    better: Ints  # sessions in a row that were better than usual
    gain: Floats  # and by how much together, in spreads
    factor_reach: float = 0.0
    jump: float = np.inf
    recent: list[Floats] = field(default_factory=list)


@dataclass(frozen=True)
class Monitored:
    """Alerts in the order of sessions, and how each metric stood after the last session; shapes as in `_State`.

    The last metric is what all have in common: `common`, shape (sessions,), as `worse`; NaN where too few tell.
    """

    alerts: tuple[MetricAlert, ...]
    improvements: tuple[MetricImprovement, ...]
    common: Floats
    watched_sessions: Ints
    count: Ints
    centre: Floats
    spread: Floats
    thresholds: Floats
    streak: Floats
    correlation: Floats
    bad_sessions: Floats
    open: Flags


def monitor(
    worse: Floats,
    options: Options | None = None,
    accepted: Sequence[tuple[int, int]] = (),
    *,
    days: Ints | None = None,
    kept: Collection[int] = (),
) -> Monitored:
    """Watch `worse`, shape (metrics, sessions), from the first session to the last; more is worse, NaN is not measured.

    What all metrics of a session have in common is taken out of each of them and watched as one metric more, the last.
    `accepted`: pairs of metric and session from which on the metric's new level is its baseline: what was before does
    not count, its alert is over, and it warms up again. `days`: of the week, by session; one session a day without
    it. `kept`: metrics whose baseline stays although they got better. The alerts of a session depend on it and on
    those before.
    """
    return _Watch(worse, options or Options(), days).run(accepted, frozenset(kept))


class _Watch:
    """One pass over the sessions. The arrays have one row more than there are metrics: what all have in common."""

    def __init__(self, worse: Floats, options: Options, days: Ints | None) -> None:
        metrics, sessions = worse.shape[0] + 1, worse.shape[1]
        self.options, self.sessions = options, sessions
        self.days = np.arange(sessions) % 7 if days is None else days
        self.worse = np.vstack([worse, np.full((1, sessions), np.nan)])
        self.base = self.worse.copy()  # what a baseline may be taken from
        self.shift = np.zeros(sessions)  # what all metrics of a session lost at once
        self.shared = np.arange(metrics) < metrics - 1
        self.alerts: list[MetricAlert] = []
        self.improvements: list[MetricImprovement] = []
        self.watched = np.zeros(metrics, dtype=np.int64)
        zeros, charts = np.zeros(metrics), (len(CHARTS), metrics)
        self.state = _State(
            sums=np.zeros(charts),
            began=np.zeros(metrics, dtype=np.int64),
            open=np.zeros(metrics, dtype=np.bool_),
            alert=np.zeros(metrics, dtype=np.int64),
            settled=np.full(metrics, np.nan),
            centre=np.full(metrics, np.nan),
            season=np.zeros((metrics, 7)),
            loading=zeros.copy(),
            whole=np.full(metrics, np.nan),
            level=zeros.copy(),
            spread=np.full(metrics, np.nan),
            count=np.zeros(metrics, dtype=np.int64),
            weights=np.full((metrics, len(KINDS)), 1 / len(KINDS)),
            thresholds=np.full(charts, np.inf),
            streak=np.full(metrics, np.inf),
            last=np.full((LENGTH, metrics), -np.inf),
            better=np.zeros(metrics, dtype=np.int64),
            gain=zeros.copy(),
        )
        self.baseline: Baseline | None = None
        self.start = 0  # of the window of the baseline

    def run(self, accepted: Sequence[tuple[int, int]], kept: frozenset[int]) -> Monitored:
        state, accepted_at = self.state, dict[int, list[int]]()
        for metric, session in accepted:
            accepted_at.setdefault(session, []).append(metric)
        for session in range(self.sessions):
            for metric in accepted_at.get(session, ()):
                self.base[metric, :session] = np.nan
                state.sums[:, metric] = 0
                if state.open[metric]:
                    self._end(metric, session, accepted=True)
            self._update(session, renewed=session in accepted_at)
            deviation = self._deviation(session)
            score = self._score(deviation)
            self.watched += np.isfinite(score) & ~state.open
            self._chart(score, deviation, session)
            self._recover(deviation, session)
            self._improve(deviation, session, kept)
        return Monitored(
            alerts=tuple(self.alerts),
            improvements=tuple(self.improvements),
            common=self.worse[-1],
            watched_sessions=self.watched,
            count=state.count,
            centre=state.centre + state.level,
            spread=state.spread,
            thresholds=state.thresholds,
            streak=state.streak,
            correlation=state.weights @ _CORRELATION,
            bad_sessions=state.weights @ np.asarray([each.bad.rate for each in KINDS]),
            open=state.open,
        )

    # What is usual

    def _update(self, session: int, *, renewed: bool) -> None:
        """Baselines, noise and thresholds; metrics with an open alert keep theirs."""
        options, state = self.options, self.state
        until = max(0, session - options.lag)
        start = max(0, until - options.window)
        if until - start < FEWEST:
            return
        count = np.isfinite(self.base[:, start:until]).sum(axis=1)
        fresh = ~state.open & (count >= options.warm_up) & ~(state.count >= options.warm_up)
        if session % _FIT_EVERY == 0 or renewed or fresh.any() or self.baseline is None:
            self._fit(session, start, until)
        else:
            state.count = np.where(state.open, state.count, count)
        self._follow(session)

    def _fit(self, session: int, start: int, until: int) -> None:
        options, state = self.options, self.state
        window = self.base[:, start:until].copy()
        window[:-1] -= self.shift[start:until]
        # What may turn out to be a new level is no noise of the old one.
        for metric in np.flatnonzero(state.better > options.lag).tolist():
            window[metric, max(self._first_better(metric, session) - start, 0) :] = np.nan
        found = fit(window, self.days[start:until], options.lag, self.shared)
        self.baseline, self.start = found, start
        going = ~state.open
        state.count = np.where(going, found.count, state.count)
        state.centre = np.where(going, found.centre, state.centre)
        state.season = np.where(going[:, None], found.season, state.season)
        state.loading = np.where(going, found.loading, state.loading)
        state.whole = np.where(going, found.whole_spread, state.whole)
        state.factor_reach = found.factor_reach
        judged = np.flatnonzero(going & (state.count >= options.warm_up))
        # The spread around an estimated centre is too small by the error of the centre.
        correlated = np.minimum(long_run_variance(state.weights) / np.maximum(state.count, 1), 0.5)
        own = found.own_spread / np.sqrt((1 - correlated) / (1 - 1 / np.maximum(state.count, 2)))
        state.spread = np.where(going, np.maximum(own, options.least_spread), state.spread)
        if not judged.size:
            return
        # Its kind of noise is told by a metric's own spread, however small.
        away = found.error[judged] / found.own_spread[judged, None]
        state.weights[judged] = kinds_of_noise(away)
        # A level that wanders makes neighbours alike, more than few sessions show.
        wanders = (found.memory[judged] > 0) | (state.weights[judged] @ _CORRELATION > _WANDERS)
        state.weights[judged[wanders]] = WANDERING
        for chart, each in enumerate(CHARTS):
            needed = thresholds(chart, state.weights[judged])
            # All sessions of a rise of S share the error of the baseline, whose variance is that of its mean.
            state.thresholds[chart, judged] = needed * (1 + needed / each.allowance / state.count[judged])
        own = found.own_spread[judged] / state.spread[judged]
        state.streak[judged] = least_of_streak(away, state.weights[judged]) * own
        tail = upper_tail(away[:-1] if judged[-1] == len(state.open) - 1 else away)
        known = tail is not None and tail.ordered.size >= _FEWEST_FOR_JUMP
        state.jump = max(_LEAST_JUMP, _JUMP_MARGIN * tail.quantile(1 / _JUMP_SESSIONS)) if tail and known else np.inf

    def _first_better(self, metric: int, session: int) -> int:
        """The first of the sessions before this one in which a metric has been better than usual."""
        there = np.flatnonzero(np.isfinite(self.worse[metric, :session]))
        return int(there[-int(self.state.better[metric])])

    def _follow(self, session: int) -> None:
        """The level of metrics that wander, up to the lag before this session."""
        if self.baseline is not None:
            until = min(max(session - self.options.lag, 0) - self.start, self.baseline.rest.shape[1])
            state = self.state
            state.level = np.where(state.open, state.level, levels(self.baseline, until))

    # How far a session is from it

    def _deviation(self, session: int) -> Floats:
        """Distance of a session from what is usual, in spreads; NaN where it was not measured or the metric warms up.

        What all metrics have in common is told first: the usual factor, by its loadings, and then what they lost alike.
        """
        state = self.state
        ready = state.count >= self.options.warm_up
        usual = state.centre + state.season[:, self.days[session]] + state.level
        left = np.where(ready, self.worse[:, session] - usual, np.nan)
        telling = np.where(self.shared & ~state.open, left, np.nan)
        middle, _ = shift_of_all(telling, state.spread)
        self.worse[-1, session] = self.base[-1, session] = middle
        left[-1] = middle - usual[-1] if ready[-1] else np.nan
        if np.isfinite(middle):
            reach = state.factor_reach
            factor = float(np.clip(np.nanmedian(telling / state.whole), -reach, reach))
            left -= state.loading * state.whole * factor
            _, alike = shift_of_all(np.where(np.isfinite(telling), left, np.nan), state.spread)
            self.shift[session] = alike
            left[:-1] -= alike
        long_run = long_run_variance(state.weights)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(left / (state.spread * np.sqrt(1 + long_run / state.count)))

    def _score(self, deviation: Floats) -> Floats:
        """The standard normal value that is as improbable as a deviation, cut off at what one session may count for."""
        state = self.state
        effective = np.maximum(state.count * independent_share(state.weights), FEWEST)
        return np.minimum(normal_score(deviation, effective), CLIP)

    # Alerts

    def _chart(self, score: Floats, deviation: Floats, session: int) -> None:
        state = self.state
        # Of a metric with an open alert counts what it loses beyond that, once its new level is known.
        settled = np.isfinite(state.settled)
        beyond = np.where(state.open, deviation - state.settled - _UNSURE, deviation)
        score = np.where(state.open, np.minimum(beyond, CLIP), score)
        ready = np.isfinite(score)
        state.last = np.where(ready, np.vstack([state.last[1:], beyond[None]]), state.last)
        before = state.sums.max(axis=0)
        for chart, each in enumerate(CHARTS):
            step = np.where(ready, score, 0.0) - each.allowance
            state.sums[chart] = np.where(ready, np.maximum(state.sums[chart] + step, 0), state.sums[chart])
        state.began = np.where((before <= 0) & (state.sums.max(axis=0) > 0), session, state.began)
        crossed = (state.sums > state.thresholds) & ready & (~state.open | settled)
        least = state.last.min(axis=0)
        in_a_row = ready & (least > state.streak) & (~state.open | settled)
        jumped = ready & (beyond > state.jump)
        for metric in np.flatnonzero(crossed.any(axis=0) | in_a_row | jumped).tolist():
            chart = int(np.argmax(crossed[:, metric]))
            if crossed[chart, metric]:
                by = CHARTS[chart].name, state.sums[chart, metric], state.thresholds[chart, metric]
            elif in_a_row[metric]:
                by = "streak", least[metric], state.streak[metric]
            else:
                by = "jump", beyond[metric], state.jump
            if state.open[metric]:
                self._end(metric, session, worsened=True)
            self._raise(metric, session, by[0], float(by[1]), float(by[2]))
        self.base[state.open, session] = np.nan

    def _raise(self, metric: int, session: int, chart: str, sum_: float, threshold: float) -> None:
        state = self.state
        usual = state.centre[metric] + state.level[metric]
        worse = 0.0 if np.isnan(state.settled[metric]) else float(state.settled[metric])
        began = int(state.began[metric]) if state.sums[:, metric].max() > 0 else session
        self.alerts.append(
            MetricAlert(
                metric=metric,
                session=session,
                chart=chart,
                sum=sum_,
                threshold=threshold,
                centre=float(usual + worse * state.spread[metric]),
                spread=float(state.spread[metric]),
                began=began,
                since=self._since(metric),
            )
        )
        self.base[metric, began:session] = np.nan
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
        state.recent = [*state.recent[-(_SETTLED - 1) :], deviation]
        if len(state.recent) < _SETTLED or not state.open.any():
            return
        latest = np.stack(state.recent, axis=1)
        for metric in np.flatnonzero(state.open).tolist():
            if session - self.alerts[state.alert[metric]].session < _SETTLED or np.isnan(latest[metric]).all():
                continue
            now = float(np.nanmedian(latest[metric]))
            if now < 1.0:
                self._end(metric, session)
            elif np.isnan(state.settled[metric]) and np.isfinite(latest[metric]).all():
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
        state = self.state
        there, better = np.isfinite(deviation), deviation < -_BETTER_EACH
        state.better = np.where(there, np.where(better, state.better + 1, 0), state.better)
        state.gain = np.where(there, np.where(better, state.gain - deviation, 0.0), state.gain)
        # Of sessions that are alike more are needed to say as much.
        long = state.better >= _BETTER_SESSIONS * long_run_variance(state.weights)
        stays = there & long & (state.gain > _BETTER_MEAN * state.better) & ~state.open
        for metric in np.flatnonzero(stays).tolist():
            row = self.worse[metric]
            first = self._first_better(metric, session + 1)
            state.better[metric], state.gain[metric] = 0, 0.0
            gain = float(state.centre[metric] + state.level[metric] - np.nanmedian(row[first : session + 1]))
            self.improvements.append(MetricImprovement(metric, first, session, gain, metric in kept))
            if metric not in kept:
                self.base[metric, :first] -= gain
                state.centre[metric] -= gain
                state.sums[:, metric] = 0
                self.baseline = None  # made anew for the next session
