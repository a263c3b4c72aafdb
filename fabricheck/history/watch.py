"""Every night over the history: which metrics got worse, since when, and what they have in common."""

from __future__ import annotations

import fnmatch
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timezone
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import polars as pl
import pydantic
from scipy.stats import norm

from fabricheck.errors import UserError
from fabricheck.history.hazard import CHARTS, CLIP
from fabricheck.history.monitor import MetricAlarm, Monitored, Options, monitor
from fabricheck.history.robust import centre_and_spread
from fabricheck.history.series import MetricKey, Night, Series, check_history, differences, series_of
from fabricheck.history.shared import blamed, count_crossing, groups
from fabricheck.yamlfile import read_yaml

Floats = npt.NDArray[np.float64]

# Nights before and after an alarm among which the change is looked for.
_BEFORE, _AFTER = 60, 30
# Alarms this many nights apart can have one cause.
_SAME_CAUSE_NIGHTS = 14
# A metric is missed when it was not measured for this many times as long as it usually is not.
_MISSED = 3
_WEEK = 7
# Log likelihood that one metric adds to the evidence for a component.
_MOST_EVIDENCE = 4.0


@dataclass(frozen=True)
class Accepted:
    """A change that somebody looked at and took: from `since` on (UTC) the new level of `metrics` is the baseline.

    `metrics`: names of metrics as shell patterns; all where there are none. `reason`: one line for the reader.
    """

    since: date
    reason: Annotated[str, pydantic.Field(min_length=1)]
    metrics: tuple[str, ...] = ("*",)

    def matches(self, key: MetricKey) -> bool:
        return any(
            fnmatch.fnmatchcase(key.metric, each) or fnmatch.fnmatchcase(str(key), each) for each in self.metrics
        )


@dataclass(frozen=True)
class Alarm:
    """One metric that got worse and, with `ended` None, still is.

    `raised`: the night on which the chart crossed its threshold. `last_good` and `first_bad`: the nights between which
    the change lies. `ended`: when it was back, or `accepted`. `before` and `after`: medians in `unit`; `change` is
    after / before - 1. `spread`: of the baseline, relative, from night to night. `sum` and `threshold` are those of the
    chart, `software` what changed between the two nights.
    """

    key: MetricKey
    unit: str
    raised: Night
    last_good: Night
    first_bad: Night
    ended: Night | None
    accepted: bool
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
class Page:
    """Alarms of one cause, the one message about them. `component` is what their paths share, None where nothing is.

    `affected` of `watched` metrics whose paths cross the component alarmed; without one, the alarm alone counts.
    `new`: raised on the last night.
    """

    component: str | None
    others: tuple[str, ...]  # components that would explain the alarms as well
    raised: Night
    open: bool
    new: bool
    affected: int
    watched: int
    alarms: tuple[Alarm, ...]


@dataclass(frozen=True)
class MetricState:
    """How a metric stands after the last night. `nights` of baseline; `spread` is relative, from night to night.

    `status`: `watched`; `alarm`; `warming up`; `missing`, where it was not measured lately though it used to be;
    `retired`, where an accepted change explains that; `too irregular`, where no threshold keeps it from false alarms.
    `smallest_change`: the relative loss that, lasting for a week, would raise an alarm with 95% probability.
    """

    key: MetricKey
    unit: str
    status: str
    nights: int
    centre: float
    spread: float
    correlation: float
    bad_nights: float
    smallest_change: float
    last_measured: Night


@dataclass(frozen=True)
class WatchResult:
    """All pages in the order of their nights, the state of every metric, and what was watched."""

    system: str
    nights: tuple[Night, ...]
    pages: tuple[Page, ...]
    states: tuple[MetricState, ...]
    warm_up: int
    watched_nights: int  # metrics times nights on which an alarm was possible

    @property
    def open_pages(self) -> tuple[Page, ...]:
        return tuple(each for each in self.pages if each.open)

    def count(self, status: str) -> int:
        return sum(each.status == status for each in self.states)

    @property
    def exit_status(self) -> int:
        """1 while a page is open; else 4 where a metric is missing or none is watched yet; else 0."""
        if self.open_pages:
            return 1
        blind = self.count("missing") + self.count("too irregular")
        return 4 if blind or not self.count("watched") else 0


@dataclass(frozen=True)
class Watched:
    """What was found, and the series that it was found in; the states are in the order of the metrics of `series`."""

    result: WatchResult
    series: Series


def find_accepted(system: str, root: Path) -> tuple[Accepted, ...]:
    """The accepted changes of a system in the suite at `root`; none where it has no such file. UserError as
    `load_accepted` raises it."""
    path = root / "reference_values" / "accepted" / f"{system}.yaml"
    return load_accepted(path) if path.exists() else ()


def load_accepted(path: Path) -> tuple[Accepted, ...]:
    """The accepted changes in a YAML file, a list; UserError names the line of a mistake."""
    file = read_yaml(path)
    if not isinstance(file.content, list):
        file.fail((), "has to be a list of accepted changes, each with since, reason and maybe metrics")
    try:
        text = json.dumps(file.content, default=str)
        adapter = pydantic.TypeAdapter(tuple[Accepted, ...], config=pydantic.ConfigDict(extra="forbid"))
        return adapter.validate_json(text)
    except pydantic.ValidationError as error:
        raise file.rejection(error) from None


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
    """Watch the series of a history that was checked."""
    options = options or Options()
    starts = _accepted_nights(series, tuple(accepted))
    monitored = monitor(series.worse, options, starts)
    located = [_alarm(series, each) for each in monitored.alarms]
    pages = _pages(series, monitored, located)
    result = WatchResult(
        system=system,
        nights=series.nights,
        pages=pages,
        states=tuple(_state(series, monitored, row, options, starts) for row in range(len(series.keys))),
        warm_up=options.warm_up,
        watched_nights=int(monitored.watched_nights.sum()),
    )
    return Watched(result, series)


def _accepted_nights(series: Series, accepted: Sequence[Accepted]) -> list[tuple[int, int]]:
    found = []
    for each in accepted:
        since = datetime.combine(each.since, time(), timezone.utc)
        night = next((n for n, night in enumerate(series.nights) if _utc(night.started) >= since), None)
        if night is not None:
            found += [(row, night) for row, key in enumerate(series.keys) if each.matches(key)]
    return found


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)


def _alarm(series: Series, found: MetricAlarm) -> Alarm:
    row = found.metric
    until = found.ended if found.ended is not None else len(series.nights)
    window = range(max(0, found.night - _BEFORE), min(until, found.night + _AFTER, len(series.nights) - 1) + 1)
    nights = [night for night in window if np.isfinite(series.values[row, night])]
    place = change_point((series.worse[row, nights] - found.centre) / found.spread)
    # The change is not later than the alarm about it.
    place = min(place, nights.index(found.night))
    good, bad = nights[place - 1], nights[place]
    software = [series.software[series.versions[row, night]] for night in (good, bad)]
    before = float(np.median(series.values[row, nights[:place]]))
    after = float(np.median(series.values[row, nights[place:]]))
    return Alarm(
        key=series.keys[row],
        unit=series.units[row],
        raised=series.nights[found.night],
        last_good=series.nights[good],
        first_bad=series.nights[bad],
        ended=series.nights[found.ended] if found.ended is not None else None,
        accepted=found.accepted,
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

    The two means that fit best in least squares, of equal ones the earliest; values beyond what a single night may
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
class _Incident:
    """Alarms, by index, that are taken to have one cause; `shared` are the components of all of them."""

    night: int
    alarms: list[int]
    shared: set[str]


def _pages(series: Series, monitored: Monitored, alarms: Sequence[Alarm]) -> tuple[Page, ...]:
    watched = monitored.watched_nights > 0
    crossing = count_crossing(series.components[row] for row in np.flatnonzero(watched))
    incidents: list[_Incident] = []
    by_night: dict[int, list[int]] = {}
    for index, each in enumerate(monitored.alarms):
        by_night.setdefault(each.night, []).append(index)
    for night, raised in by_night.items():
        rest = [index for index in raised if not _joins(incidents, index, alarms[index], night)]
        for group in groups({index: alarms[index].components for index in rest}, crossing):
            incidents.append(_Incident(night, list(group.members), set(group.components)))
    return tuple(_page(series, each, alarms, crossing) for each in incidents)


def _joins(incidents: Sequence[_Incident], index: int, alarm: Alarm, night: int) -> bool:
    """Whether an alarm belongs to a recent incident, which then blames only what that alarm's path crosses too."""
    for each in reversed(incidents):
        if night - each.night <= _SAME_CAUSE_NIGHTS and each.shared & set(alarm.components):
            each.shared &= set(alarm.components)
            each.alarms.append(index)
            return True
    return False


def _page(series: Series, incident: _Incident, alarms: Sequence[Alarm], crossing: dict[str, int]) -> Page:
    members = sorted((alarms[index] for index in incident.alarms), key=lambda each: (-abs(each.change), each.key))
    component, others = blamed(incident.shared, crossing, _evidence(series, incident, members))
    is_open = any(each.ended is None for each in members)
    last = series.nights[-1]
    return Page(
        component=component,
        others=others,
        raised=series.nights[incident.night],
        open=is_open,
        new=is_open and any(each.raised == last for each in members),
        affected=len({each.key for each in members}),
        watched=crossing[component] if component is not None else 1,
        alarms=tuple(members),
    )


def _evidence(series: Series, incident: _Incident, alarms: Sequence[Alarm]) -> dict[str, float]:
    """By component that the alarms share, what the metrics without an alarm say of it.

    The log likelihood that those which cross it lost what the alarmed ones did, over that they lost nothing. Only
    metrics of the same tests and unit count: a link that lost goodput may keep its latency.
    """
    if len(incident.shared) < 2:  # there is nothing to choose from
        return {}
    alarmed = {each.key for each in alarms}
    kinds = {(each.key.partition, each.key.environment, each.key.test, each.unit) for each in alarms}
    rows = [
        row
        for row, (key, unit) in enumerate(zip(series.keys, series.units, strict=True))
        if key not in alarmed and (key.partition, key.environment, key.test, unit) in kinds
    ]
    since = min(series.nights.index(each.first_bad) for each in alarms)
    worse = series.worse[rows]
    usual = centre_and_spread(worse[:, max(0, since - _BEFORE) : since])
    now = centre_and_spread(worse[:, since : since + _AFTER])
    with np.errstate(divide="ignore", invalid="ignore"):
        error = usual.spread * np.sqrt(1 / usual.count + 1 / now.count)
        loss = np.median([abs(math.log1p(each.change)) for each in alarms])
        shift = (now.centre - usual.centre) / error
        gain = shift * loss / error - (loss / error) ** 2 / 2
    # A single metric, however wild, is not to decide.
    gain = np.clip(np.nan_to_num(gain, nan=0.0), -_MOST_EVIDENCE, _MOST_EVIDENCE)
    found = dict.fromkeys(incident.shared, 0.0)
    for row, each in zip(rows, gain.tolist(), strict=True):
        for component in incident.shared.intersection(series.components[row]):
            found[component] += each
    return found


def _state(
    series: Series, monitored: Monitored, row: int, options: Options, accepted: Sequence[tuple[int, int]]
) -> MetricState:
    measured = np.flatnonzero(np.isfinite(series.values[row]))
    last = int(measured[-1])
    usual = float(np.median(np.diff(measured))) if measured.size > 1 else np.inf
    if monitored.open[row]:
        status = "alarm"
    elif any(metric == row and night > last for metric, night in accepted):
        status = "retired"
    elif len(series.nights) - 1 - last > _MISSED * usual:
        status = "missing"
    elif monitored.count[row] < options.warm_up:
        status = "warming up"
    else:
        status = "watched" if np.isfinite(monitored.thresholds[:, row]).any() else "too irregular"
    sign = -1.0 if series.better[row] == "higher" else 1.0
    known = monitored.count[row] >= options.warm_up
    return MetricState(
        key=series.keys[row],
        unit=series.units[row],
        status=status,
        nights=int(monitored.count[row]),
        centre=float(np.exp(sign * monitored.centre[row])),
        spread=float(monitored.spread[row]),
        correlation=float(monitored.correlation[row]) if known else float("nan"),
        bad_nights=float(monitored.bad_nights[row]) if known else float("nan"),
        smallest_change=_smallest_change(monitored, row, sign) if known else float("nan"),
        last_measured=series.nights[last],
    )


def _smallest_change(monitored: Monitored, row: int, sign: float) -> float:
    """Of a week's scores of mean d, variance 1 and this correlation, the sum is over 7 k + h with 95% probability."""
    correlation = monitored.correlation[row]
    deviation = np.sqrt(_WEEK * (1 + correlation) / (1 - correlation))
    needed = min(
        chart.allowance + (threshold + norm.isf(0.05) * deviation) / _WEEK
        for chart, threshold in zip(CHARTS, monitored.thresholds[:, row], strict=True)
    )
    # A night counts for no more than CLIP.
    return float(abs(np.expm1(sign * needed * monitored.spread[row]))) if needed <= CLIP else float("inf")
