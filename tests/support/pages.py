"""Pages, terminal texts and files of runs with findings, diagnosed as a session is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fabricheck.diagnosis.causes import diagnose
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.report import cards, html, machine, terminal

T = TypeVar("T")


def diagnosed(shown: Callable[..., T]) -> Callable[..., T]:
    """The function of a report with problems and findings in place of a diagnosis."""

    def show(
        runs: Sequence[RunJudgement],
        *given: Any,
        problems: Sequence[Finding] = (),
        findings: Sequence[Finding] = (),
        **more: Any,
    ) -> T:
        return shown(runs, *given, diagnosis=diagnose(runs, problems, findings), **more)

    return show


cards_of = diagnosed(cards.cards_of)
render = diagnosed(terminal.render)
render_html = diagnosed(html.render_html)
write_html = diagnosed(html.write_html)
write_json = diagnosed(machine.write_json)
write_junit = diagnosed(machine.write_junit)
write_prometheus = diagnosed(machine.write_prometheus)
