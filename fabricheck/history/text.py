"""What history says, as text for a terminal and as JSON; the same input gives the same bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from typing import Any

from fabricheck.history.calibrate import Calibration
from fabricheck.history.compare import ChangeVerdict, Comparison, MetricChange, Side
from fabricheck.history.incidents import Alert, Incident
from fabricheck.history.percent import percent, size
from fabricheck.history.series import MetricKey, Session
from fabricheck.history.watch import Improvement, WatchResult
from fabricheck.records.component import Component
from fabricheck.records.finding import Finding
from fabricheck.statistics.constants import FEWEST_FOR_MIDDLE
from fabricheck.suite import program
from fabricheck.units import plural

#: More of what is in order, or of one kind of message, would hide what is not.
MOST_LINES = 20


def to_json(result: object) -> str:
    """The whole of a result; numbers that are not finite are null. `exit_status` stands beside it where it has one."""
    content = _plain(result)
    if hasattr(result, "exit_status"):
        content["exit_status"] = result.exit_status
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (Component, Finding)):
        return value.as_json()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, date):
        return value.isoformat()
    return value


def calibration_lines(made: Calibration) -> Iterator[str]:
    """Yields the lines of a calibration for a terminal: what it was made from, then what is unusual in its metrics."""
    yield (
        f"{made.system}: {len(made.references)} references from {plural(made.runs, 'run')} in "
        f"{plural(len(made.sessions), 'session')}, "
        f"{made.first:%Y-%m-%d} to {made.last:%Y-%m-%d}, "
        f"--false-alarms {made.false_alarms:g}"
    )
    yield from _first_lines("left out", made.left_out)
    few = [made.runs_needed - each.runs for each in made.references if each.runs < made.runs_needed]
    if few:
        yield f"  {len(few)} of them have few runs: they need {plural(max(few), 'more run')}"
    for row in made.references:
        beyond = f"; {row.beyond} of them are beyond the bounds, which is unusual" if row.beyond else ""
        if row.degraded:
            beyond += f"; {row.degraded} of them were DEGRADED: is the system healthy?"
        yield (
            f"  {row.key}: {row.value:g} {row.unit}, {percent(row.lower)} to {percent(row.upper)}; spread between "
            f"runs {size(row.between)}, within a run {size(row.within)}; {row.runs} runs{beyond}"
        )
        if row.nodes is not None:
            values = [value for _, value in row.nodes.values]
            around = f"{percent(row.nodes.lower)} to {percent(row.nodes.upper)} around each"
            what = "pair" if any("+" in name for name, _ in row.nodes.values) else "node"
            yield (
                f"    these bounds hold for {what}s without their own level; {len(values)} {what}s have their own, "
                f"{min(values):g} to {max(values):g} {row.unit}, {around}"
            )
    by_reason: dict[tuple[str, bool], list[MetricKey]] = {}
    for refused in made.refused:
        by_reason.setdefault((refused.reason, refused.is_healthy), []).append(refused.key)
    for (reason, is_healthy), keys in by_reason.items():
        yield f"  {'' if is_healthy else 'REFUSED: '}{_first_of(keys)}: {reason}"


def _first_lines(title: str, lines: Sequence[object]) -> Iterator[str]:
    for line in lines[:MOST_LINES]:
        yield f"  {title}: {line}"
    if len(lines) > MOST_LINES:
        yield f"  {title}: {len(lines) - MOST_LINES} more; --json has them all"


def _first_of(keys: Sequence[MetricKey]) -> str:
    return f"{keys[0]} and {len(keys) - 1} more (--json names them)" if len(keys) > 1 else str(keys[0])


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Yields the lines of a comparison for a terminal: both sides, what differs, suspects, then metrics."""
    yield f"{comparison.system}: {comparison.base.selection} -> {comparison.candidate.selection}"
    for name, side in (("base", comparison.base), ("candidate", comparison.candidate)):
        yield f"  {name}: {side_runs(side)}"
    for line in comparison.software_changes:
        yield f"  changed: {line}"
    yield from _first_lines("left out", comparison.left_out)
    for line in comparison.unequal:
        yield f"  UNEQUAL: {line}"
    for line in comparison.advice:
        yield f"  TOO FEW: {line}"
    yield comparison_counts(comparison)
    for suspect in comparison.findings:
        yield f"  suspect: {suspect.place}: {suspect.message}"
    for verdict in ChangeVerdict:
        members = [each for each in comparison.metrics if each.verdict is verdict]
        most = len(members) if verdict is ChangeVerdict.REGRESSED else MOST_LINES
        for finding in members[:most]:
            yield _metric_line(finding, comparison.options.confidence)
        if len(members) > most:
            yield f"  {verdict.value}: {len(members) - most} more; --json has them all"
    yield from _first_lines("vanished", comparison.vanished)
    yield from _first_lines("new", comparison.new)
    if comparison.software_changes and comparison.count(ChangeVerdict.CANNOT_SAY):
        yield f"next: if both can be loaded, one job with both shows smaller losses: {program()} upgrade --help"


def comparison_counts(comparison: Comparison) -> str:
    """How many metrics there are of each verdict, and by what rules."""
    options = comparison.options
    counts = ", ".join(f"{comparison.count(each)} {each.value}" for each in ChangeVerdict)
    return (
        f"{len(comparison.metrics)} metrics: {counts}; {len(comparison.vanished)} vanished, {len(comparison.new)} new "
        f"(false discoveries {options.false_discovery:.0%}, margin {options.margin:.0%}, power {options.power:.0%})"
    )


def side_runs(side: Side) -> str:
    """How many runs a side of a comparison has."""
    left_out = f"; {side.not_measured} rows were INVALID or INCOMPLETE" if side.not_measured else ""
    return f"{plural(side.runs, 'run')} in {plural(len(side.sessions), 'session')}{left_out}"


def _metric_line(change: MetricChange, confidence: float) -> str:
    low, high = change.interval
    is_real = change.verdict in (ChangeVerdict.REGRESSED, ChangeVerdict.IMPROVED)
    could = "" if is_real else _could_show(change)
    unequal = f"; UNEQUAL {'; '.join(change.unequal)}" if change.unequal else ""
    known = math.isfinite(low) or math.isfinite(high)
    interval = (
        f"{confidence:.0%} interval {percent(low)} to {percent(high)}" if known else "too few sessions for an interval"
    )
    if is_real and low < 0 < high:  # all metrics together decided, and not this interval
        interval = f"p = {min(change.p_worse, change.p_better):.2g}"
    return (
        f"  {change.verdict.value}: {change.key}: {change.base:.4g} -> {change.candidate:.4g} {change.unit}, "
        f"{percent(change.change)} ({interval}), "
        f"{change.base_sessions} and {change.candidate_sessions} sessions{could}{unequal}"
    )


def _could_show(change: MetricChange) -> str:
    if not math.isfinite(change.smallest_change):
        return f"; fewer than {FEWEST_FOR_MIDDLE} sessions of a side cannot show a loss"
    return f"; a loss of {size(change.smallest_change)} or more would have shown"


def watch_lines(watched: WatchResult) -> Iterator[str]:
    """Yields the lines of `watch` for a terminal: the summary, open incidents, closed ones, improvements."""
    yield watch_summary(watched)
    if not any(watched.count(status) for status in ("watched", "alert")):
        yield nothing_watched(watched)
    for incident in watched.incidents:
        if incident.open:
            yield from _incident_lines(incident)
    closed = [incident for incident in watched.incidents if not incident.open]
    for incident in closed[-MOST_LINES:]:
        yield closed_line(incident)
    for better in watched.improvements[-MOST_LINES:]:
        yield improvement_line(better)
    silent: dict[tuple[str, Session], list[MetricKey]] = {}
    for state in watched.states:
        if state.status in ("missing", "too irregular"):
            silent.setdefault((state.status, state.last_measured), []).append(state.key)
    for (status, last), keys in silent.items():
        yield f"{status.upper()}: {_first_of(keys)}: last measured {last}"
    if watched.count("missing"):
        yield (
            "if a check, environment or partition was removed, or a size changed, accept it: "
            f"reference_values/accepted/{watched.system}.yaml"
        )


def watch_summary(watched: WatchResult) -> str:
    """How many sessions and metrics there are, and how the metrics stand."""
    counts = ", ".join(
        f"{watched.count(status)} {status}"
        for status in ("watched", "alert", "warming up", "missing", "too irregular", "retired")
        if watched.count(status)
    )
    sessions = plural(len(watched.sessions), "session")
    return f"{watched.system}: {sessions} up to {watched.sessions[-1]}; {len(watched.states)} metrics: {counts}"


def nothing_watched(watched: WatchResult) -> str:
    """The line for a system whose metrics have too few sessions for an alert."""
    left = watched.warm_up - len(watched.sessions)
    return f"alerts start after {watched.warm_up} sessions of a metric" + (f": needs {left} more" if left > 0 else "")


def incident_name(incident: Incident) -> str:
    """The most probable place of an incident; without one, the metric."""
    return incident.finding.place or str(incident.alerts[0].key)


def incident_evidence(incident: Incident) -> str:
    """What an incident rests on: how many metrics, by how much, and since when; then what to try."""
    step = f"; {incident.next_step}" if incident.next_step else ""
    return f"{incident.finding.message}; raised {incident.raised}{step}"


def closed_line(incident: Incident) -> str:
    """A incident that is no longer open, in one line."""
    first = incident.alerts[0]
    how = "accepted" if first.accepted else "got worse again" if first.worsened else "over"
    return f"{how}: {_what(incident)} since {first.first_bad}, until {first.ended}"


def improvement_line(gain: Improvement) -> str:
    """A metric that got better, and what became of its baseline."""
    taken = "the baseline stays, as accepted" if gain.kept else f"the baseline since {gain.taken}"
    return (
        f"IMPROVED: {gain.key}: {gain.before:.4g} -> {gain.after:.4g} {gain.unit}, {percent(gain.change)}, since "
        f"{gain.first}; {taken}"
    )


def _what(incident: Incident) -> str:
    if not incident.finding.components:
        return incident_name(incident)
    return f"{incident_name(incident)}: {incident.affected} of {incident.watched} metrics"


def _incident_lines(incident: Incident) -> Iterator[str]:
    times = {_time_of(alert) for alert in incident.alerts}
    common = times.pop() if len(times) == 1 else ""
    yield f"{'NEW' if incident.new else 'OPEN'}: {_what(incident)} got worse{common}; raised {incident.raised}"
    for alert in incident.alerts[:MOST_LINES]:
        yield f"  {_alert_line(alert, '' if common else _time_of(alert))}"
    if len(incident.alerts) > MOST_LINES:
        yield f"  {len(incident.alerts) - MOST_LINES} more; --json has them all"
    if incident.next_step:
        yield f"  try: {incident.next_step}"


def _time_of(alert: Alert) -> str:
    """Since when a metric is worse, and what changed then."""
    changed = f"; changed then: {', '.join(alert.software)}" if alert.software else ""
    return f" {alert.when}{changed}"


def _alert_line(alert: Alert, time: str) -> str:
    """One metric that got worse, and by how much; `time`: since when, unless the incident has it."""
    how = "got worse again" if alert.worsened else "over since"
    over = f"; {how} {alert.ended}" if alert.ended is not None else ""
    return f"{alert.key}: {alert.before:.4g} -> {alert.after:.4g} {alert.unit}, {percent(alert.change)}{time}{over}"
