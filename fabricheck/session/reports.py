"""The files in which a session says what it came to, in its folder: for programs, and the page for people."""

from __future__ import annotations

from pathlib import Path

from fabricheck.report.html import write_html
from fabricheck.report.machine import write_json, write_junit, write_prometheus
from fabricheck.report.past import Past
from fabricheck.session.outcome import Outcome
from fabricheck.session.reading import VERDICT, Session

#: The page for people, in the folder of a session.
PAGE = "report.html"


def write_for_programs(session: Session, outcome: Outcome, system: str) -> None:
    """Writes verdict.json, junit.xml and metrics.prom."""
    folder, judged, problems = session.folder, outcome.judged, outcome.problems
    write_json(
        judged, folder / VERDICT, system=system, problems=problems, findings=outcome.findings, fleet=outcome.fleet
    )
    write_junit(judged, folder / "junit.xml", system=system, problems=problems)
    write_prometheus(judged, folder / "metrics.prom", system=system, problems=problems)


def write_page(session: Session, outcome: Outcome, system: str, past: Past | None) -> Path:
    """Writes report.html and returns where it is. Raises UserError where it cannot be written."""
    page = session.folder / PAGE
    write_html(
        outcome.judged,
        page,
        title=f"{system}, {session.folder.name}",
        system=system,
        problems=outcome.problems,
        findings=outcome.findings,
        past=past,
    )
    return page
