"""The charts of all metrics over all sessions: numbers in, alerts out. The names are added in `watch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from fabricheck.history.hazard import CHARTS, CLIP, KINDS, thresholds
from fabricheck.history.noise import independent_share, kinds_of_noise, long_run_variance
from fabricheck.history.robust import FEWEST, centre_and_spread, normal_score

Floats = npt.NDArray[np.float64]

# Sessions between two looks at the kind of noise, which changes slowly.
_NOISE_EVERY = 5
# An alert is over when the median of this many sessions is back within one spread of what it was before.
_RECOVERY_SESSIONS = 5


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
    least_spread: float = 0.001

    def __post_init__(self) -> None:
        if self.warm_up < FEWEST or self.window < self.warm_up or self.lag < 0 or not self.least_spread > 0:
            raise ValueError(f"options out of range: {self}")


@dataclass(frozen=True)
class MetricAlert:
    """Metric and session by their index; `sum` of the chart that crossed its `threshold`.

    `ended`: the session on which the metric was back, or its new level `accepted`; None while it is neither.
    """

    metric: int
    session: int
    chart: str
    sum: float
    threshold: float
    centre: float  # of the baseline, as Series.worse
    spread: float
    ended: int | None = None
    accepted: bool = False


@dataclass
class _State:
    """What is carried from session to session; shapes (metrics,), or (charts, metrics)."""

    sums: Floats
    began: npt.NDArray[np.int64]  # the session since which some sum is above 0
    open: npt.NDArray[np.bool_]
    alert: npt.NDArray[np.int64]  # which of the alerts is open
    centre: Floats
    spread: Floats
    count: npt.NDArray[np.int64]
    weights: Floats
    thresholds: Floats
    recent: list[Floats] = field(default_factory=list)


@dataclass(frozen=True)
class Monitored:
    """Alerts in the order of sessions, and how each metric stood after the last session; shapes as in `_State`."""

    alerts: tuple[MetricAlert, ...]
    watched_sessions: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]
    centre: Floats
    spread: Floats
    thresholds: Floats
    sums: Floats
    correlation: Floats
    bad_sessions: Floats
    open: npt.NDArray[np.bool_]


def monitor(worse: Floats, options: Options | None = None, accepted: Sequence[tuple[int, int]] = ()) -> Monitored:
    """Watch `worse`, shape (metrics, sessions), from the first session to the last; more is worse, NaN is not measured.

    `accepted`: pairs of metric and session from which on the metric's new level is its baseline: what was before does
    not count, its alert is over, and it warms up again. The alerts of a session depend on it and on those before.
    """
    options = options or Options()
    metrics, sessions = worse.shape
    base = worse.copy()
    state = _State(
        sums=np.zeros((len(CHARTS), metrics)),
        began=np.zeros(metrics, dtype=np.int64),
        open=np.zeros(metrics, dtype=np.bool_),
        alert=np.zeros(metrics, dtype=np.int64),
        centre=np.full(metrics, np.nan),
        spread=np.full(metrics, np.nan),
        count=np.zeros(metrics, dtype=np.int64),
        weights=np.full((metrics, len(KINDS)), 1 / len(KINDS)),
        thresholds=np.full((len(CHARTS), metrics), np.inf),
    )
    alerts: list[MetricAlert] = []
    watched = np.zeros(metrics, dtype=np.int64)
    accepted_at: dict[int, list[int]] = {}
    for metric, session in accepted:
        accepted_at.setdefault(session, []).append(metric)
    for session in range(sessions):
        for metric in accepted_at.get(session, ()):
            base[metric, :session] = np.nan
            state.sums[:, metric] = 0
            if state.open[metric]:
                _end(state, metric, session, alerts, accepted=True)
        _update_baseline(state, base[:, max(0, session - options.lag - options.window) : max(0, session - options.lag)],
                         session, options)  # fmt: skip
        score = _score(state, worse[:, session], options)
        ready = np.isfinite(score)
        watched += ready & ~state.open
        _add(state, score, session)
        crossed = (state.sums > state.thresholds) & ready & ~state.open
        for metric in np.flatnonzero(crossed.any(axis=0)):
            chart = int(np.argmax(crossed[:, metric]))
            state.open[metric] = True
            state.alert[metric] = len(alerts)
            alerts.append(
                MetricAlert(
                    metric=int(metric),
                    session=session,
                    chart=CHARTS[chart].name,
                    sum=float(state.sums[chart, metric]),
                    threshold=float(state.thresholds[chart, metric]),
                    centre=float(state.centre[metric]),
                    spread=float(state.spread[metric]),
                )
            )
            base[metric, state.began[metric] : session] = np.nan
        base[state.open, session] = np.nan
        _recover(state, score, session, alerts)
    return Monitored(
        alerts=tuple(alerts),
        watched_sessions=watched,
        count=state.count,
        centre=state.centre,
        spread=state.spread,
        thresholds=state.thresholds,
        sums=state.sums,
        correlation=state.weights @ np.asarray([each.correlation for each in KINDS]),
        bad_sessions=state.weights @ np.asarray([each.bad.rate for each in KINDS]),
        open=state.open,
    )


def _update_baseline(state: _State, window: Floats, session: int, options: Options) -> None:
    """Centre, spread and thresholds of the metrics whose baseline goes on; those with an open alert keep theirs."""
    if window.shape[1] < FEWEST:
        return
    found = centre_and_spread(window)
    going = ~state.open
    state.count = np.where(going, found.count, state.count)
    state.centre = np.where(going, found.centre, state.centre)
    correlated = np.minimum(long_run_variance(state.weights) / np.maximum(state.count, 1), 0.5)
    # The spread around an estimated centre is too small by the error of the centre.
    spread = np.maximum(found.spread / np.sqrt((1 - correlated) / (1 - 1 / np.maximum(state.count, 2))), 1e-12)
    spread = np.maximum(spread, options.least_spread)
    state.spread = np.where(going, spread, state.spread)
    fresh = going & np.isinf(state.thresholds[0]) & (state.count >= options.warm_up)
    if session % _NOISE_EVERY == 0 or fresh.any():
        judged = np.flatnonzero(state.count >= options.warm_up)
        if judged.size:
            deviations = (window[judged] - state.centre[judged, None]) / state.spread[judged, None]
            weights = kinds_of_noise(deviations)
            take = going[judged]
            state.weights[judged[take]] = weights[take]
            for chart, each in enumerate(CHARTS):
                found_thresholds = thresholds(chart, weights[take])
                # All sessions of a rise of S share the error of the baseline, whose variance is that of its mean.
                rise = found_thresholds / each.allowance
                state.thresholds[chart, judged[take]] = found_thresholds * (1 + rise / state.count[judged[take]])


def _score(state: _State, worse: Floats, options: Options) -> Floats:
    """How bad a session is, as a standard normal value; NaN where it was not measured or the metric warms up."""
    long_run = long_run_variance(state.weights)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = state.spread * np.sqrt(1 + long_run / state.count)
        effective = np.maximum(state.count * independent_share(state.weights), FEWEST)
        score = normal_score((worse - state.centre) / error, effective)
    return np.where(state.count >= options.warm_up, score, np.nan)


def _add(state: _State, score: Floats, session: int) -> None:
    ready = np.isfinite(score)
    before = state.sums.max(axis=0)
    for chart, each in enumerate(CHARTS):
        step = np.minimum(score, CLIP) - each.allowance
        state.sums[chart] = np.where(ready, np.maximum(state.sums[chart] + step, 0), state.sums[chart])
    started = (before <= 0) & (state.sums.max(axis=0) > 0)
    state.began = np.where(started, session, state.began)


def _recover(state: _State, score: Floats, session: int, alerts: list[MetricAlert]) -> None:
    state.recent = [*state.recent[-(_RECOVERY_SESSIONS - 1) :], score]
    if len(state.recent) < _RECOVERY_SESSIONS or not state.open.any():
        return
    latest = np.stack(state.recent, axis=1)
    for metric in np.flatnonzero(state.open):
        if session - alerts[state.alert[metric]].session >= _RECOVERY_SESSIONS and np.median(latest[metric]) < 1.0:
            _end(state, int(metric), session, alerts, accepted=False)


def _end(state: _State, metric: int, session: int, alerts: list[MetricAlert], *, accepted: bool) -> None:
    place = state.alert[metric]
    alerts[place] = replace(alerts[place], ended=session, accepted=accepted)
    state.open[metric] = False
    state.sums[:, metric] = 0
