"""Judged runs as one HTML file that needs nothing else: no network, no other file, and no script to be read.

The first screen says what is wrong, where, and what to do; then come a map and one row for each run, which opens. A
content security policy forbids every request, and every script but the one that it names by its hash: a name that
slipped through the escaping would still not run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import jinja2
from markupsafe import Markup

from fabricheck.diagnosis.causes import Diagnosis
from fabricheck.diagnosis.coverage import coverage_of
from fabricheck.errors import UserError, refused
from fabricheck.history.text import watch_summary
from fabricheck.judge.overall import rehearsed, worst_first
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.rehearsal import REHEARSAL, is_mixed
from fabricheck.report.cards import cards_of
from fabricheck.report.content import number, printable, reason_without_source, unit_shown
from fabricheck.report.figures.chart import MOST_COLORED, Figure
from fabricheck.report.figures.history import overview
from fabricheck.report.lines import untold
from fabricheck.report.paper_figures import Cited
from fabricheck.report.past import Past
from fabricheck.report.run_view import RunView, run_view, yardstick_text
from fabricheck.report.shares import DARKEST, grid_of, share_of_yardstick
from fabricheck.report.summary import machine, next_of_pass, numbers, qualify_pass, summarise_counts
from fabricheck.wholefile import whole_file

# What keeps the page short where a session is large; what is left out is counted where it would stand.
_MOST_SUSPECTS = 12
_MOST_FINDINGS = 40
_MOST_METRICS = 128  # of a run
# Characters of all runs: with the map a page has less than 1.5 MB, which mail and tickets take.
_MOST_CHARACTERS = 1_000_000


def coded(text: str) -> Markup:
    """A text for a page whose commands are between backticks."""
    shown = Markup("")
    for place, part in enumerate(printable(text).split("`")):
        shown += Markup("<code>{}</code>").format(part) if place % 2 else part
    return shown


# What templates call.
_CALLED = (coded, number, reason_without_source, share_of_yardstick, unit_shown, watch_summary, yardstick_text)


@dataclass(frozen=True)
class _Row:
    """A run with its `body`, which is empty where there was no room for it."""

    run: RunView
    body: Markup


def write_html(
    runs: Sequence[RunJudgement],
    path: Path,
    *,
    title: str,
    system: str,
    diagnosis: Diagnosis,
    folder: str = "",
    past: Past | None = None,
) -> None:
    """Writes the report of `runs` to `path`; `diagnosis`: what the session shows beside its runs, `folder`: its own.

    The file appears whole or not at all. Raises UserError where it cannot be written, or exists and is not a page.
    """
    require_page(path)
    text = render_html(runs, title=title, system=system, diagnosis=diagnosis, folder=folder, past=past)
    with refused(f"the report {path}", "written"), whole_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def require_page(path: Path) -> None:
    """Raise UserError where a page cannot be written to `path` without loss."""
    if not path.name:
        raise UserError(f"the report cannot be written to {str(path)!r}: name a file")
    if path.is_file() and not _is_page(path):
        raise UserError(f"{path} exists already and is not an HTML page: give the report another name")


def _is_page(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            start = file.read(64).lstrip().lower()
    except OSError:
        return True  # whoever writes it says what is wrong
    return not start or start.startswith(b"<!doctype html")


def render_html(
    runs: Sequence[RunJudgement],
    *,
    title: str,
    system: str,
    diagnosis: Diagnosis,
    folder: str = "",
    past: Past | None = None,
) -> str:
    """The report as text. Everything that comes from a result file or a store is escaped.

    `past`: what the sample store adds.
    """
    past = past or Past()
    rehearsal = REHEARSAL if rehearsed(runs) else ""
    ranked = worst_first(runs)
    verdict, findings = diagnosis.verdict, diagnosis.findings
    watched = past.watched
    drawn = overview(watched) if watched is not None and len(watched.series.sessions) > 1 else None
    marks = is_mixed(each.run for each in runs)
    result = past.watched.result if past.watched is not None else None
    suspects = cards_of(runs, diagnosis, system=system, folder=folder, watched=result)
    told = [finding for card in suspects[:_MOST_SUSPECTS] for finding in card.findings]
    views: list[RunView] = []
    for judged, problems_of_run in zip(ranked, untold(ranked, told, system, folder), strict=True):
        views.append(run_view(judged, f"run{len(views) + 1}", problems_of_run, marks=marks))
    style, script = own_file("report.css"), own_file("report.js")
    standing = qualify_pass(verdict, runs, result)
    return template("report.html.j2").render(
        title=title,
        system=system,
        verdict=verdict,
        standing=standing,
        rehearsal=rehearsal,
        counted=summarise_counts(runs, standing=standing),
        machine=machine(runs),
        next_=next_of_pass(verdict, runs, system),
        coverage=coverage_of(runs).message,
        findings=findings[:_MOST_FINDINGS],
        more_findings=max(0, len(findings) - _MOST_FINDINGS),
        suspects=suspects[:_MOST_SUSPECTS],
        more_suspects=max(0, len(suspects) - _MOST_SUSPECTS),
        numbers=numbers(runs),
        grid=grid_of(ranked, [each.check for each in views], diagnosis),
        notes=past.notes,
        history=past.watched,
        history_figure=drawn,
        shown=_rows(views),
        style=Markup(style),
        script=Markup(script),
        policy=Markup(
            f"default-src 'none'; script-src {script_hash(script.encode())}; "
            "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
        ),
    )


def render_paper(cited: Cited, figures: Sequence[Figure], note: str) -> str:
    """A page of a paper's figure as text; `note`: what is to be said first, may be empty."""
    style = Markup(own_file("report.css"))
    return template("paper.html.j2").render(cited=cited, figures=figures, note=note, style=style)


def _rows(views: Sequence[RunView]) -> list[_Row]:
    """The runs, the worst first, with what is shown of each when it is opened."""
    rows, used = [], 0
    for view in views:
        body = template("run.html.j2").render(run=view) if used < _MOST_CHARACTERS else ""
        used += len(body)
        rows.append(_Row(view, Markup(body)))
    return rows


def template(name: str) -> jinja2.Template:
    """A template of this package; what comes from elsewhere is escaped in it."""
    return _environment().get_template(name)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fabricheck.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.globals |= {each.__name__: each for each in _CALLED}
    environment.globals |= {"most_metrics": _MOST_METRICS, "most_colored": MOST_COLORED}
    environment.globals["darkest"] = f"{100 * DARKEST:.0f} %"
    return environment


def _shown(value: object) -> object:
    """All that a template prints passes here, so that no name can be forgotten."""
    if isinstance(value, (Markup, int)) or (isinstance(value, str) and value.isascii() and value.isprintable()):
        return value
    return printable(value)


def own_file(name: str) -> str:
    """A file of this package as text."""
    return (resources.files("fabricheck.report") / name).read_text(encoding="utf-8")


def script_hash(script: bytes) -> str:
    """The hash of a script, as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode('ascii')}'"
