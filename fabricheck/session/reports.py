"""The files in which a session says what it came to, in its folder: for programs, and the page for people."""

from __future__ import annotations

from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.report.html import write_html
from fabricheck.report.machine import write_json, write_junit, write_prometheus
from fabricheck.report.past import Past
from fabricheck.session.outcome import Outcome
from fabricheck.session.reframe_report import FinishedSession
from fabricheck.session.run_folders import VERDICT
from fabricheck.suite import suite_root

#: The page for people, in the folder of a session.
PAGE = "report.html"


def write_for_programs(session: FinishedSession, outcome: Outcome, system: str) -> None:
    """Writes verdict.json, junit.xml and metrics.prom."""
    folder, judged, diagnosis = session.folder, outcome.judged, outcome.diagnosis
    write_json(
        judged,
        folder / VERDICT,
        system=system,
        diagnosis=diagnosis,
        fleet=outcome.fleet,
        session=_which(session),
    )
    write_junit(judged, folder / "junit.xml", system=system, diagnosis=diagnosis)
    write_prometheus(judged, folder / "metrics.prom", system=system, diagnosis=diagnosis)


def _which(session: FinishedSession) -> dict[str, str]:
    """Which session this is, when it was measured (UTC), and by which suite."""
    suite = {"suite": str(suite_root())}
    try:
        info = session.info
    except UserError:
        return suite  # ReFrame left no report, which is a problem of the session
    return {"id": info.uuid, "started": info.started.isoformat(), "ended": info.ended.isoformat(), **suite}


def write_page(session: FinishedSession, outcome: Outcome, system: str, past: Past | None) -> Path:
    """Writes report.html and returns where it is. Raises UserError where it cannot be written."""
    page = session.folder / PAGE
    write_html(
        outcome.judged,
        page,
        title=f"{system}, {session.folder.name}",
        system=system,
        diagnosis=outcome.diagnosis,
        folder=str(session.folder),
        past=past,
    )
    return page
