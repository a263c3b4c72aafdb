"""Pages and terminal texts of runs with findings, diagnosed as a session is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fabricheck.diagnosis.causes import diagnose
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.report import cards, html, terminal


def render_html(
    runs: Sequence[RunJudgement],
    *,
    problems: Sequence[Finding] = (),
    findings: Sequence[Finding] = (),
    **more: Any,
) -> str:
    """The page; `more` as `fabricheck.report.html.render_html` takes it."""
    return html.render_html(runs, diagnosis=diagnose(runs, problems, findings), **more)


def write_html(
    runs: Sequence[RunJudgement],
    path: Path,
    *,
    problems: Sequence[Finding] = (),
    findings: Sequence[Finding] = (),
    **more: Any,
) -> None:
    """Writes the page; `more` as `fabricheck.report.html.write_html` takes it."""
    html.write_html(runs, path, diagnosis=diagnose(runs, problems, findings), **more)


def render(
    runs: Sequence[RunJudgement],
    *,
    problems: Sequence[Finding] = (),
    findings: Sequence[Finding] = (),
    **more: Any,
) -> str:
    """The text for a terminal; `more` as `fabricheck.report.terminal.render` takes it."""
    return terminal.render(runs, diagnosis=diagnose(runs, problems, findings), **more)


def cards_of(
    runs: Sequence[RunJudgement],
    problems: Sequence[Finding] = (),
    *,
    findings: Sequence[Finding] = (),
    **more: Any,
) -> tuple[cards.Card, ...]:
    """The cards; `more` as `fabricheck.report.cards.cards_of` takes it."""
    return cards.cards_of(runs, diagnose(runs, problems, findings), **more)
