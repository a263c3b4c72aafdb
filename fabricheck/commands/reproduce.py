"""`fabricheck reproduce`: a paper's figure beside what was measured here."""

from __future__ import annotations

from pathlib import Path

import click

from fabricheck.commands.options import FILE
from fabricheck.errors import UserError


@click.command()
@click.argument("figure", required=False)
@click.argument("files", nargs=-1, type=FILE, metavar="[FILE...]")
@click.option("--system", help="The system whose model says what is expected.  [default: that of the first file]")
def reproduce(*, figure: str | None, files: tuple[Path, ...], system: str | None) -> None:
    """Put a paper's figure beside what was measured here. Without FIGURE: list the figures.

    When: after a run with --tag papers, to compare this system with those of the papers. FILE are result files of
    fabricbench. The output is information, and no verdict.

    \b
    fabricheck run --system alps --tag papers
    fabricheck reproduce sc24-3 output/runs/RUN/output/*/*/*/PingPong*/result.jsonl
    """
    from fabricheck.commands import rehearsal_note
    from fabricheck.judge.system import SystemJudge
    from fabricheck.records.rehearsal import any_rehearsal
    from fabricheck.report.paper_figures import FIGURES, lines_of, papers_values, rows_of
    from fabricheck.results.fabricbench import read_run
    from fabricheck.site.validation import require_partition
    from fabricheck.suite import suite_root

    if figure is None:
        for name, known in FIGURES.items():
            click.echo(f"{name:18} {known.title} ({known.tests})")
        return
    if figure not in FIGURES:
        raise UserError(f"{figure!r} is not a figure that can be reproduced: choose one of {', '.join(FIGURES)}")
    if not files:
        raise UserError(f"give result files of {FIGURES[figure].tests}, such as output/runs/RUN/output/…/result.jsonl")
    runs = [read_run(file) for file in files]
    for run in runs:
        for problem in run.problems:
            click.echo(f"fabricheck: left out: {problem.message}", err=True)
    rehearsal_note.say(any_rehearsal(runs))
    if system is not None:
        require_partition(suite_root(), system)
    judge = SystemJudge.of(system) if system is not None else SystemJudge.of_any(str(runs[0].header.get("system", "")))
    rows = rows_of(FIGURES[figure], runs, judge)
    published = papers_values(FIGURES[figure], suite_root() / "reference_values" / "published")
    for line in lines_of(FIGURES[figure], rows, published):
        click.echo(line)
