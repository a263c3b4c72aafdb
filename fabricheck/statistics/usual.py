"""What is usual for each metric as session follows session: levels, noise and thresholds, and how far a session is off.

The arrays have one row more than there are metrics: what all have in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from fabricheck.statistics.charts import CHARTS, least_of_streak, shares_of_deviations
from fabricheck.statistics.constants import CLIP, CUT, ENOUGH, FEWEST, MOST_STEPS, SETTLED_SESSIONS, YEAR
from fabricheck.statistics.levels import errors_of, level_of, levels_of
from fabricheck.statistics.peaks import upper_tail
from fabricheck.statistics.robust import centre_and_spread, normal_score
from fabricheck.statistics.rows import Arrays, by_rows, sample_of

#: One session alone is an alert where it is as far out as healthy sessions of all metrics together are once in so many,
#: and half as far again, for what that is told from may be few; and never below so many spreads. Chosen.
JUMP_SESSIONS, JUMP_MARGIN, LEAST_JUMP, FEWEST_FOR_JUMP = 300_000, 1.5, 10.0, 1000
#: Metrics that `watch` follows and that vary less (a clock's resolution) are taken to vary by this. Relative. Chosen.
LEAST_OF_WATCHED = 0.0002
#: A baseline, which changes slowly, is fitted again after so many sessions, or once it has grown by this share. Chosen.
FIT_EVERY, FIT_GROWN = 5, 0.1
#: What at least so many of the metrics do is what all do. Chosen.
OUTER = 0.35

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Where a level goes about, small losses that add up are what it does by itself.
_DRIFT = 1  # of CHARTS


class Usual:
    """Shapes (metrics,), or (charts, metrics) of `thresholds`; metrics with an open alert keep what they have.

    `worse` is what was measured, `base` what a baseline may be taken from. `level` is that of a metric that is
    followed, beside its `centre`. `streak`: what each session of one has to be worse than, `jump`: what one alone has
    to be.

    `warm_up`: sessions of baseline before a metric can raise an alert. The baseline is of a YEAR of sessions; the
    SETTLED_SESSIONS before the one that is judged do not belong to it yet, so that a drift does not hide itself.
    """

    def __init__(self, worse: Floats, warm_up: int) -> None:
        metrics, sessions = worse.shape[0] + 1, worse.shape[1]
        self.warm_up = warm_up
        self.worse = np.vstack([worse, np.full((1, sessions), np.nan)])
        self.base = self.worse.copy()
        self.shared = np.arange(metrics) < metrics - 1
        self.shift, self.jump = np.zeros(sessions), np.inf  # `shift`: of all metrics of a session
        self.centre, self.spread, self.whole = (np.full(metrics, np.nan) for _ in range(3))
        self.level, self.gain, self.keep = np.zeros(metrics), np.ones(metrics), np.zeros(metrics)
        self.levels = np.ones(metrics)  # that are told by the sessions of a metric
        self.count = np.zeros(metrics, dtype=np.int64)
        self.thresholds, self.streak = np.full((len(CHARTS), metrics), np.inf), np.full(metrics, np.inf)
        self.fitted = -1  # the session before which it was; none yet
        self.start = 0  # of its window

    def update(self, session: int, open_: Flags, new_levels: Mapping[int, int], *, renewed: bool) -> None:
        """Baselines, noise and thresholds for a session. `new_levels`: of metrics that seem to have one, its first
        session, which is not noise of the old one."""
        until = max(0, session - SETTLED_SESSIONS)
        start = max(0, until - YEAR)
        if until - start < FEWEST:
            return
        due = self.fitted < 0 or session - self.fitted >= max(FIT_EVERY, FIT_GROWN * (until - start))
        count = np.isfinite(self.base[:, start:until]).sum(axis=1)
        fresh = ~open_ & (count >= self.warm_up) & ~(self.count >= self.warm_up)
        if due or renewed or fresh.any():
            self._fit(start, until, session, open_, new_levels)
            self.fitted = session
        else:
            self.count = np.where(open_, self.count, count)
        self.start = start

    def renew(self) -> None:
        """The baseline is made again for the next session."""
        self.fitted = -1

    def _fit(self, start: int, until: int, session: int, open_: Flags, new_levels: Mapping[int, int]) -> None:
        window = self.base[:, start:session].copy()
        window[:-1] -= self.shift[start:session]
        for metric, first in new_levels.items():
            window[metric, max(first - start, 0) :] = np.nan
        fitted = fit(window, until - start, self.shared, LEAST_OF_WATCHED)
        del window
        going = ~open_
        self.count = np.where(going, fitted.count, self.count)
        self.centre = np.where(going, fitted.centre, self.centre)
        self.whole = np.where(going, fitted.whole_spread, self.whole)
        self.gain = np.where(going, fitted.gain, self.gain)
        self.keep = np.where(going, fitted.keep, self.keep)
        self.level = np.where(going, fitted.level, self.level)
        # What a level keeps is known from the same sessions.
        self.levels = 1 + self.keep
        # The spread around an estimated centre is too small by the error of the centre.
        known = np.maximum(self.count, 2)
        own = fitted.own_spread / np.sqrt((1 - np.minimum(self.levels / known, 0.5)) / (1 - 1 / known))
        self.spread = np.where(going, np.maximum(own, LEAST_OF_WATCHED), self.spread)
        judged = np.flatnonzero(going & (self.count >= self.warm_up))
        if judged.size:
            self._judge_noise(judged, fitted.error, fitted.own_spread)

    def _judge_noise(self, judged: Ints, error: Floats, own: Floats) -> None:
        """The kinds of noise of metrics, by what is left of their values and its spread, and thresholds for them."""
        # A kind of noise is told by a metric's own spread, however small.
        away = error[judged] / own[judged, None]
        shares = shares_of_deviations(away)
        for chart, design in enumerate(CHARTS):
            needed = design.thresholds(shares)
            # All sessions of a rise of S share the error of the baseline, whose variance is that of its mean.
            error_of_it = self.levels[judged] / self.count[judged]
            self.thresholds[chart, judged] = needed * (1 + needed / design.allowance * error_of_it)
        self.thresholds[_DRIFT, judged[self.keep[judged] == 1]] = np.inf
        self.streak[judged] = least_of_streak(away) * own[judged] / self.spread[judged]
        rows = np.arange(judged.size)
        tail = upper_tail(away[sample_of(rows[:-1] if judged[-1] == len(self.count) - 1 else rows)])
        known = tail is not None and tail.ordered.size >= FEWEST_FOR_JUMP
        self.jump = max(LEAST_JUMP, JUMP_MARGIN * tail.quantile(1 / JUMP_SESSIONS)) if tail and known else np.inf

    def follow(self, session: int, deviation: Floats, open_: Flags) -> None:
        """Levels by one session more; what happens in an alert is not a level."""
        error = np.where(np.isfinite(self.base[:, session]) & ~open_, deviation * self.spread, 0.0)
        moved = np.nan_to_num(self.gain * np.clip(error, -CUT * self.spread, CUT * self.spread))
        self.level = self.keep * (self.level + moved)

    def back(self, metric: int, session: int) -> None:
        """The level of a metric is again what it was before a session."""
        before = slice(self.start, session)
        rest = self.base[metric, before] - self.centre[metric] - self.shared[metric] * self.shift[before]
        reach, gain, keep = CUT * self.spread[[metric]], self.gain[[metric]], self.keep[[metric]]
        self.level[metric] = level_of(rest[None], reach, gain, keep)[0]

    def deviation(self, session: int, open_: Flags) -> Floats:
        """Distance of a session from what is usual, in spreads; NaN where it was not measured or the metric warms up.

        What all metrics lost equally is reported first.
        """
        ready = self.count >= self.warm_up
        usual = self.centre + self.level
        left = np.where(ready, self.worse[:, session] - usual, np.nan)
        telling = np.where(self.shared & ~open_, left, np.nan)
        middle, alike = shift_of_all(telling, self.spread)
        self.worse[-1, session] = self.base[-1, session] = middle
        left[-1] = middle - usual[-1] if ready[-1] else np.nan
        if np.isfinite(middle) and ready[-1]:  # else nothing would tell of it
            self.shift[session] = alike
            left[:-1] -= alike
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(left / (self.spread * np.sqrt(1 + self.levels / self.count)))

    def score(self, deviation: Floats) -> Floats:
        """The standard normal value that is as improbable as a deviation, cut off at what one session may count for."""
        return np.minimum(normal_score(deviation, np.maximum(self.count, FEWEST)), CLIP)


@dataclass(frozen=True, eq=False)
class Baseline:
    """What is usual, shapes (metrics,); `error` has (metrics, sessions of the window).

    `whole_spread` is that of the values, `own_spread` that of `error`: the values less all that is known before. `gain`
    and `keep`: those of the level (`levels`), which is at `level` after the window.
    """

    count: Ints
    centre: Floats
    whole_spread: Floats
    own_spread: Floats
    gain: Floats
    keep: Floats
    level: Floats
    error: Floats


def fit(values: Floats, until: int, shared: npt.NDArray[np.bool_], least: float) -> Baseline:
    """The baseline of a window of sessions, shape (metrics, sessions); more is worse, NaN is not measured. Those from
    `until` on tell only where a level is that is followed.

    `shared`: which metrics tell what all have in common. `least`: the least spread.
    """

    def known(rows: slice) -> Arrays:
        levels = centre_and_spread(values[rows, :until])
        return levels.count, levels.centre, np.maximum(levels.spread, 1e-12), values[rows] - levels.centre[:, None]

    parts = by_rows(known, len(values))
    count, centre, whole, error = cast("tuple[Ints, Floats, Floats, Floats]", parts)
    gain, keep, level, own = np.ones(len(values)), np.zeros(len(values)), np.zeros(len(values)), whole.copy()
    for rows in (shared, ~shared):  # what all have in common is one series, of which they tell nothing
        gain[rows], keep[rows] = levels_of(error[rows, :until], whole[rows], least)
    follows = np.flatnonzero(keep)
    if follows.size:
        filtered = CUT * whole[follows], gain[follows], keep[follows]
        level[follows] = level_of(error[follows], *filtered)
        error[follows, :until] = errors_of(error[follows, :until], *filtered)
        error[follows, :SETTLED_SESSIONS] = np.nan  # they are of a level that nobody knows yet
        own[follows] = np.maximum(centre_and_spread(error[follows, :until]).spread, 1e-12)
    return Baseline(count, centre, whole, own, gain, keep, level, error[:, :until])


def shift_of_all(values: Floats, spread: Floats) -> tuple[float, float]:
    """What all metrics of one session, shape (metrics,), have lost in common: their median by weight, and what at least
    65% of the weight is beyond, 0 where it is not on one side. A weight is one over the spread; NaN where too few tell.

    The median is of those metrics that lie within CUT spreads of it (a skipped median: Hampel, JASA 69, 1974): what a
    part of the metrics lost by itself would move the median of all by up to a spread.
    """
    there = np.flatnonzero(np.isfinite(values) & np.isfinite(spread))
    if there.size < ENOUGH:
        return float("nan"), 0.0
    low, middle, high = _quantiles(values[there], spread[there])
    for _ in range(MOST_STEPS):
        kept = there[np.abs(values[there] - middle) <= CUT * spread[there]]
        before, middle = middle, _quantiles(values[kept], spread[kept])[1] if kept.size else middle
        if middle == before:
            break
    return middle, low if low > 0 else high if high < 0 else 0.0


def _quantiles(values: Floats, spread: Floats) -> tuple[float, float, float]:
    """By weight, without an OUTER share on either side, and between them the median."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(1 / spread[order])
    places = np.searchsorted(share, np.asarray([OUTER, 0.5, 1 - OUTER]) * share[-1])
    low, middle, high = (float(values[order[min(each, order.size - 1)]]) for each in places)
    return low, middle, high
