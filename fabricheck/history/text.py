"""What history says, as text for a terminal and as JSON; the same input gives the same bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from typing import Any

from fabricheck.history.calibrate import Calibration
from fabricheck.history.compare import Change, Comparison, MetricChange, Side
from fabricheck.history.incidents import Alert, Incident
from fabricheck.history.ledger import Checked, Ledger, LedgerNode
from fabricheck.history.series import MetricKey
from fabricheck.history.shares import percent, size
from fabricheck.history.shift_test import FEWEST_SESSIONS
from fabricheck.history.watch import Improvement, WatchResult
from fabricheck.records.component import Component
from fabricheck.records.finding import Finding

_NEVER = "never"
# More of what is in order, or of one kind of message, would hide what is not.
_MOST_LINES = 20


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


def calibration_lines(found: Calibration) -> Iterator[str]:
    yield (
        f"{found.system}: {len(found.references)} references from {found.runs} runs in {len(found.sessions)} sessions, "
        f"{found.first:%Y-%m-%d} to {found.last:%Y-%m-%d}, "
        f"false alarms {found.false_alarms:g} a first launch of a session"
    )
    few = [found.runs_needed - each.runs for each in found.references if each.runs < found.runs_needed]
    if few:
        yield f"  {len(few)} of them have wide bounds and need {max(few)} more runs, with this noise"
    for each in found.references:
        beyond = f"; {each.beyond} of them beyond the bounds: unusual" if each.beyond else ""
        if each.degraded:
            beyond += f"; {each.degraded} of them were DEGRADED: is the system healthy?"
        yield (
            f"  {each.key}: {each.value:g} {each.unit}, {percent(each.lower)} to {percent(each.upper)}; between runs "
            f"{size(each.between)}, within {size(each.within)}; {each.runs} runs{beyond}"
        )
        if each.nodes is not None:
            values = [value for _, value in each.nodes.values]
            around = f"{percent(each.nodes.lower)} to {percent(each.nodes.upper)} around each"
            what = "pair" if any("+" in name for name, _ in each.nodes.values) else "node"
            yield (
                f"    these bounds are for any other {what}; {len(values)} {what}s have levels of their own, "
                f"{min(values):g} to {max(values):g} {each.unit}, {around}"
            )
    by_reason: dict[tuple[str, bool], list[MetricKey]] = {}
    for refused in found.refused:
        by_reason.setdefault((refused.reason, refused.is_healthy), []).append(refused.key)
    for (reason, is_healthy), keys in by_reason.items():
        more = f" and {len(keys) - 1} more (--json names them)" if len(keys) > 1 else ""
        yield f"  {'' if is_healthy else 'REFUSED: '}{keys[0]}{more}: {reason}"


def comparison_lines(found: Comparison) -> Iterator[str]:
    yield f"{found.system}: {found.base.selection} -> {found.candidate.selection}"
    for name, side in (("base", found.base), ("candidate", found.candidate)):
        yield f"  {name}: {side_runs(side)}"
    for each in found.software_changes:
        yield f"  changed: {each}"
    for each in found.unequal:
        yield f"  UNEQUAL: {each}"
    for each in found.advice:
        yield f"  TOO FEW: {each}"
    yield comparison_counts(found)
    for suspect in found.findings:
        yield f"  suspect: {suspect.place}: {suspect.message}"
    for verdict in Change:
        members = [each for each in found.metrics if each.verdict is verdict]
        most = len(members) if verdict is Change.REGRESSED else _MOST_LINES
        for finding in members[:most]:
            yield _metric_line(finding, found.options.confidence)
        if len(members) > most:
            yield f"  {verdict.value}: {len(members) - most} more; --json has them all"
    for title, keys in (("vanished", found.vanished), ("new", found.new)):
        for key in keys:
            yield f"  {title}: {key}"
    if found.software_changes and found.count(Change.CANNOT_SAY):
        yield (
            "next: if both can be loaded side by side, one job tells more than sessions: fabricheck upgrade OLD NEW "
            f"--system {found.system}"
        )


def comparison_counts(found: Comparison) -> str:
    """How many metrics there are of each verdict, and by what rules."""
    options = found.options
    counts = ", ".join(f"{found.count(each)} {each.value}" for each in Change)
    return (
        f"{len(found.metrics)} metrics: {counts}; {len(found.vanished)} vanished, {len(found.new)} new "
        f"(false discoveries {options.false_discovery:.0%}, margin {options.margin:.0%}, power {options.power:.0%})"
    )


def side_runs(side: Side) -> str:
    """How many runs a side of a comparison has."""
    left_out = f"; {side.not_measured} rows were INVALID or INCOMPLETE" if side.not_measured else ""
    return f"{side.runs} runs in {len(side.sessions)} sessions{left_out}"


def versions(software: str) -> str:
    """A text of versions (JSON) for a reader."""
    return ", ".join(f"{name} {version}" for name, version in json.loads(software).items())


def _metric_line(each: MetricChange, confidence: float) -> str:
    low, high = each.interval
    could = "" if each.verdict in (Change.REGRESSED, Change.IMPROVED) else _could_show(each)
    unequal = f"; UNEQUAL {'; '.join(each.unequal)}" if each.unequal else ""
    known = math.isfinite(low) or math.isfinite(high)
    interval = (
        f"{confidence:.0%} interval {percent(low)} to {percent(high)}" if known else "too few sessions for an interval"
    )
    return (
        f"  {each.verdict.value}: {each.key}: {each.base:.4g} -> {each.candidate:.4g} {each.unit}, "
        f"{percent(each.change)} ({interval}), "
        f"{each.base_sessions} and {each.candidate_sessions} sessions{could}{unequal}"
    )


def _could_show(each: MetricChange) -> str:
    if min(each.base_sessions, each.candidate_sessions) < FEWEST_SESSIONS:
        sides = (("base", each.base_sessions), ("candidate", each.candidate_sessions))
        missing = [
            f"{FEWEST_SESSIONS - number} more of the {name}" for name, number in sides if number < FEWEST_SESSIONS
        ]
        return f"; needs {' and '.join(missing)}"
    if not math.isfinite(each.smallest_change):
        return "; its variation is unknown"
    return f"; a loss of {size(each.smallest_change)} or more would have shown"


def watch_lines(found: WatchResult) -> Iterator[str]:
    yield watch_summary(found)
    if not any(found.count(status) for status in ("watched", "alert")):
        yield nothing_watched(found)
    for incident in found.incidents:
        if incident.open:
            yield from _incident_lines(incident)
    closed = [incident for incident in found.incidents if not incident.open]
    for incident in closed[-_MOST_LINES:]:
        yield closed_line(incident)
    for better in found.improvements[-_MOST_LINES:]:
        yield improvement_line(better)
    for state in found.states:
        if state.status in ("missing", "too irregular"):
            yield f"{state.status.upper()}: {state.key}: last measured {state.last_measured}"


def watch_summary(found: WatchResult) -> str:
    """How many sessions and metrics there are, and how the metrics stand."""
    counts = ", ".join(
        f"{found.count(status)} {status}"
        for status in ("watched", "alert", "warming up", "missing", "too irregular", "retired")
        if found.count(status)
    )
    sessions = "1 session" if len(found.sessions) == 1 else f"{len(found.sessions)} sessions"
    return f"{found.system}: {sessions} up to {found.sessions[-1]}; {len(found.states)} metrics: {counts}"


def nothing_watched(found: WatchResult) -> str:
    left = found.warm_up - len(found.sessions)
    return f"alerts start after {found.warm_up} sessions of a metric" + (f": needs {left} more" if left > 0 else "")


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


def improvement_line(found: Improvement) -> str:
    """A metric that got better, and what became of its baseline."""
    taken = "the baseline stays, as accepted" if found.kept else f"the baseline since {found.taken}"
    return (
        f"IMPROVED: {found.key}: {found.before:.4g} -> {found.after:.4g} {found.unit}, {percent(found.change)}, since "
        f"{found.first}; {taken}"
    )


def _what(incident: Incident) -> str:
    if not incident.finding.components:
        return incident_name(incident)
    return f"{incident_name(incident)}: {incident.affected} of {incident.watched} metrics"


def _incident_lines(incident: Incident) -> Iterator[str]:
    yield f"{'NEW' if incident.new else 'OPEN'}: {_what(incident)} got worse; raised {incident.raised}"
    for alert in incident.alerts[:_MOST_LINES]:
        yield f"  {alert_line(alert)}"
    if len(incident.alerts) > _MOST_LINES:
        yield f"  {len(incident.alerts) - _MOST_LINES} more; --json has them all"
    if incident.next_step:
        yield f"  next: {incident.next_step}"


def alert_line(alert: Alert) -> str:
    """One metric that got worse: by how much, since when, and what changed then."""
    changed = f"; changed then: {', '.join(alert.software)}" if alert.software else ""
    how = "got worse again" if alert.worsened else "over since"
    over = f"; {how} {alert.ended}" if alert.ended is not None else ""
    return (
        f"{alert.key}: {alert.before:.4g} -> {alert.after:.4g} {alert.unit}, {percent(alert.change)}, "
        f"{alert.when}{changed}{over}"
    )


def ledger_lines(found: Ledger) -> Iterator[str]:
    """A table with a line for each node, in the order of the ledger."""
    head = ("node", "verified (UTC)", "checks", "verdict", "links to other nodes", "")
    rows = [head, *map(_ledger_row, found.nodes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _ledger_row(one: LedgerNode) -> tuple[str, ...]:
    times: dict[str, list[str]] = {}
    for link in one.links:
        times.setdefault(_when(link.verified), []).append(link.name)
    # The oldest first; where all are as old, their names say nothing.
    ages = sorted(times, key=lambda when: (when != _NEVER, when))
    links = ", ".join(f"{'+'.join(times[when])} {when}" if len(ages) > 1 else when for when in ages) or "-"
    level, verdict = (one.verified.level or "unknown", one.verified.verdict) if one.verified else ("-", "-")
    later = f"then {one.later.verdict} {_when(one.later)}" if one.later else ""
    return one.node, _when(one.verified), level, verdict, links, later


def _when(checked: Checked | None) -> str:
    return checked.started[:16].replace("T", " ") if checked else _NEVER
