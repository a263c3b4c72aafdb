"""Judged runs as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

import jinja2

from fabricheck.errors import UserError
from fabricheck.judge.verdicts import Judgement, RunJudgement
from fabricheck.report.content import (
    Facts,
    count,
    facts_of,
    number,
    overall,
    percent,
    printable,
    problems_of,
    share_of_expected,
    short_message,
    verdict_of,
    worst_first,
)
from fabricheck.report.figures import Figure, figures_of
from fabricheck.results.records import Problem, Verdict
from fabricheck.units import format_size


@dataclass(frozen=True)
class _Run:
    """A run as the template shows it; `problems` are verdicts with messages, `metrics` worst first."""

    verdict: Verdict
    facts: Facts
    counts: tuple[tuple[Verdict, int], ...]
    problems: tuple[tuple[Verdict, str], ...]
    metrics: tuple[Judgement, ...]
    figures: tuple[Figure, ...]


def write_html(
    runs: Sequence[RunJudgement], path: Path, *, title: str, system: str, problems: Sequence[Problem] = ()
) -> None:
    """Writes the report of `runs` to `path`; `problems` are those of the whole that belong to no run.

    The file appears whole or not at all. Raises UserError where it cannot be written.
    """
    text = render_html(runs, title=title, system=system, problems=problems)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise UserError(f"the report {path} cannot be written: {error.strerror}") from None


def render_html(runs: Sequence[RunJudgement], *, title: str, system: str, problems: Sequence[Problem] = ()) -> str:
    """The report as text. Everything that comes from a result file is escaped."""
    verdict, all_problems = overall(runs, problems)
    metrics = [each for run in runs for each in run.judgements]
    shown = [_run(each) for each in worst_first(runs)]
    plots = ",".join(figure.plot for run in shown for figure in run.figures)
    return _template().render(
        title=title,
        system=system,
        verdict=verdict,
        verdicts=list(Verdict),
        problems=all_problems,
        runs=shown,
        run_counts=count(verdict_of(each) for each in runs),
        metric_counts=count(each.verdict for each in metrics),
        metric_total=len(metrics),
        uncalibrated=sum(not each.calibrated for each in metrics),
        plotly=_packed_plotly(),
        plots=_packed(f"[{plots}]".encode()),
    )


def _run(judged: RunJudgement) -> _Run:
    order = list(Verdict)
    return _Run(
        verdict=verdict_of(judged),
        facts=facts_of(judged),
        counts=count(each.verdict for each in judged.judgements),
        problems=tuple((each.verdict, short_message(each, judged)) for each in problems_of(judged)),
        metrics=tuple(sorted(judged.judgements, key=lambda each: -order.index(each.verdict))),
        figures=figures_of(judged),
    )


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fabricheck.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {
        "printable": printable,
        "number": number,
        "size": format_size,
        "share": lambda judged: percent(share_of_expected(judged)),
    }
    return environment.get_template("report.html.j2")


def _packed(content: bytes) -> str:
    """gzip and base64, which nothing can break out of; the same text for the same content each time."""
    return base64.b64encode(gzip.compress(content, mtime=0)).decode("ascii")


@lru_cache(maxsize=1)
def _packed_plotly() -> str:
    script = resources.files("plotly") / "package_data" / "plotly.min.js"
    return _packed(script.read_bytes())
