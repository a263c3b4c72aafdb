"""What a page shows of the past: the history of a system, and what changed since another selection."""

from __future__ import annotations

from dataclasses import dataclass

from fabricheck.history.compare import Comparison
from fabricheck.history.text import (
    alert_line,
    closed_line,
    comparison_counts,
    incident_evidence,
    incident_name,
    nothing_watched,
    side_runs,
    versions,
    watch_summary,
)
from fabricheck.history.watch import Watched
from fabricheck.report.figures import Figure, Rows
from fabricheck.report.figures.changes import changes_figure
from fabricheck.report.figures.history import incident_figure, overview, states_table

_MOST_ROWS = 64
_MOST_ALERTS = 12
_MOST_INCIDENTS_DRAWN = 6


@dataclass(frozen=True)
class IncidentView:
    """An incident of the history: `name` is the most probable place, `alerts` are texts."""

    name: str
    new: bool
    evidence: str
    alerts: tuple[str, ...]
    more_alerts: int


@dataclass(frozen=True)
class HistoryView:
    """The history as the template shows it; `figures` has the overview, then the incidents."""

    summary: str
    warning: str
    incidents: tuple[IncidentView, ...]
    closed: tuple[str, ...]
    more_closed: int
    figures: tuple[Figure, ...]
    states: Rows


@dataclass(frozen=True)
class SideView:
    name: str
    selection: str
    runs: str
    software: tuple[str, ...]


@dataclass(frozen=True)
class ComparisonView:
    """A comparison as the template shows it."""

    counts: str
    sides: tuple[SideView, ...]
    software: tuple[str, ...]
    unequal: tuple[str, ...]
    suspects: tuple[str, ...]
    vanished: tuple[str, ...]
    new: tuple[str, ...]
    more_keys: int
    figures: tuple[Figure, ...]


def history_view(history: Watched) -> HistoryView:
    result = history.result
    incidents = result.open_incidents
    closed = [each for each in result.incidents if not each.open]
    drawn = [*incidents, *reversed(closed)][:_MOST_INCIDENTS_DRAWN]
    watched = any(result.count(status) for status in ("watched", "alert"))
    return HistoryView(
        summary=watch_summary(result),
        warning="" if watched else nothing_watched(result),
        incidents=tuple(
            IncidentView(
                incident_name(each),
                each.new,
                incident_evidence(each),
                tuple(map(alert_line, each.alerts[:_MOST_ALERTS])),
                max(0, len(each.alerts) - _MOST_ALERTS),
            )
            for each in incidents
        ),
        closed=tuple(map(closed_line, reversed(closed[-_MOST_ALERTS:]))),
        more_closed=max(0, len(closed) - _MOST_ALERTS),
        figures=(
            *([overview(history)] if len(history.series.sessions) > 1 else []),
            *(incident_figure(history, each) for each in drawn),
        ),
        states=states_table(result.states),
    )


def comparison_view(comparison: Comparison) -> ComparisonView:
    figure = changes_figure(comparison)
    vanished, new = comparison.vanished[:_MOST_ROWS], comparison.new[:_MOST_ROWS]
    return ComparisonView(
        counts=comparison_counts(comparison),
        sides=tuple(
            SideView(name, side.selection, side_runs(side), tuple(map(versions, side.software[:_MOST_ALERTS])))
            for name, side in (("before", comparison.base), ("after", comparison.candidate))
        ),
        software=comparison.software_changes,
        unequal=comparison.unequal,
        suspects=tuple(f"{each.place}: {each.message}" for each in comparison.findings),
        vanished=tuple(map(str, vanished)),
        new=tuple(map(str, new)),
        more_keys=len(comparison.vanished) + len(comparison.new) - len(vanished) - len(new),
        figures=(figure,) if figure is not None else (),
    )
