"""`fabricheck reproduce`: a paper's figure, with what was measured here beside the paper's points."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.commands.options import FOLDER
from fabricheck.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabricheck.records.run import Run


@click.command()
@click.argument("figure", required=False)
@click.option("--system", help="The system to measure, whose model says what to expect.  [default: that of --from]")
@click.option(
    "--from",
    "sources",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Measure nothing: take this run's folder, or a folder or file of results of fabricbench; repeatable.",
)
@click.option("--output", type=FOLDER, help="The folder for the drawings.  [default: papers/ in that of runs]")
@click.pass_context
def reproduce(
    context: click.Context, *, figure: str | None, system: str | None, sources: tuple[Path, ...], output: Path | None
) -> None:
    """Reproduce a figure of a paper: measure what it shows, draw it with the paper's points in grey, and say whether
    what the paper concluded holds here. Without FIGURE: list the figures.

    When: to compare a system with those of the papers. It writes FIGURE.html with the drawings, and FIGURE.csv beside;
    it is information, and no verdict.

    \b
    fabricheck reproduce
    fabricheck reproduce sc24-3 --system alps
    fabricheck reproduce sc24-3 --from output/runs/RUN
    """
    from fabricheck.commands import rehearsal_note
    from fabricheck.errors import suggest
    from fabricheck.judge.system import SystemJudge
    from fabricheck.records.rehearsal import REHEARSAL, any_rehearsal
    from fabricheck.report.figures.paper import as_csv, draw
    from fabricheck.report.html import render_paper
    from fabricheck.report.paper_figures import load_figures, measured
    from fabricheck.site.validation import require_partition
    from fabricheck.suite import output_folder, suite_root
    from fabricheck.wholefile import whole_file

    figures = load_figures(suite_root() / "reference_values" / "published")
    if figure is None:
        for name, cited in figures.items():
            click.echo(f"{name:18} {cited.figure.title} ({', '.join(cited.figure.tests) or 'not here'})")
        return
    if figure not in figures:
        raise UserError(
            f"{figure!r} is not a figure of the papers{suggest(figure, figures)}; without a name all are listed"
        )
    cited = figures[figure]
    runs, judge = [], SystemJudge.of_any("")
    if cited.figure.tests:
        if not sources:
            sources = (_measure(context, system, cited.figure.tests),)
        runs = _read(sources)
        if system is not None:
            require_partition(suite_root(), system)
        judge = SystemJudge.of(system) if system else SystemJudge.of_any(str(runs[0].header.get("system", "")))
    rehearsal_note.say(any_rehearsal(runs))
    rows = {shown: measured(cited.figure, shown, runs, judge) for shown in cited.figure.quantities}
    if cited.figure.tests and not any(rows.values()):
        tests = ", ".join(cited.figure.tests)
        raise UserError(f"nothing here is of this figure: run {tests}, and give that run")
    drawn = [draw(cited, shown, rows[shown]) for shown in rows]
    note = ". ".join(filter(None, (REHEARSAL if any_rehearsal(runs) else "", cited.figure.not_here)))
    output = output or output_folder(suite_root()) / "papers"
    output.mkdir(parents=True, exist_ok=True)
    for name, text in ((f"{figure}.html", render_paper(cited, drawn, note)), (f"{figure}.csv", as_csv(drawn))):
        with whole_file(output / name) as path:
            path.write_text(text, encoding="utf-8")
    for line in filter(None, (drawn[0].summary, note, f"{output / figure}.html")):
        click.echo(line)


def _measure(context: click.Context, system: str | None, tests: Sequence[str]) -> Path:
    """The folder of a run of these tests. Raises UserError where there is none."""
    from fabricheck.commands.run import run
    from fabricheck.session.run_folders import judged_runs
    from fabricheck.suite import output_folder, suite_root

    if system is None:
        raise UserError("give --system to measure it, or --from with a run that did")
    with contextlib.suppress(click.exceptions.Exit):  # its verdict is on the terminal
        context.invoke(run, system=system, names=tuple(rf"^{test}\b" for test in tests))
    runs = judged_runs(output_folder(suite_root()) / "runs", system.partition(":")[0])
    if not runs:
        raise UserError(f"the run of {', '.join(tests)} left no results")
    return runs[-1]


def _read(sources: Sequence[Path]) -> list[Run]:
    """The runs of fabricbench in files and folders; what cannot be read is named. Raises UserError where none is."""
    from fabricheck.results.fabricbench import read_run

    files = [file for path in sources for file in (sorted(path.rglob("*.jsonl")) if path.is_dir() else [path])]
    runs = []
    for file in files:
        try:
            run = read_run(file)
        except UserError as error:
            click.echo(f"fabricheck: left out: {error}", err=True)
            continue
        runs.append(run)
        for problem in run.problems:
            click.echo(f"fabricheck: left out: {problem.message}", err=True)
    if not runs:
        raise UserError(f"{', '.join(map(str, sources))}: no results of fabricbench in there")
    return runs
