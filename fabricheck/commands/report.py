"""`fabricheck report`: the report of result files."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.commands.options import FILE
from fabricheck.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabricheck.judge.verdicts import RunJudgement


@dataclass(frozen=True)
class _Shown:
    """The session or run that a report describes."""

    system: str
    judged: tuple[RunJudgement, ...]
    note: str


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "--system",
    help="A system below site_configs/, or system:partition: its topology and references.  [default: of the FILEs]",
)
@click.option("--output", type=FILE, required=True, help="The HTML file to write.")
@click.option(
    "--acceptance",
    is_flag=True,
    help="Write the acceptance document of the run in the folder FILE, to print and sign, and its rows as CSV.",
)
@click.option("--title", help="Its title.  [default: the system]")
@click.option(
    "--test",
    help="The test whose references are used: class or printed name.  [default: that of each file]",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="NAME=VALUE",
    help="Which references to use, such as '$partition=daint:gpu'.  [default: that of each file]",
)
@click.pass_context
def report(
    context: click.Context,
    *,
    files: tuple[Path, ...],
    system: str | None,
    output: Path,
    acceptance: bool,
    title: str | None,
    test: str | None,
    keys: tuple[str, ...],
) -> None:
    """Judge result files, and write one HTML file.

    When: to write a report again. The exit status is that of the verdicts.

    \b
    fabricheck report *.jsonl --output report.html
    fabricheck report output/runs/alps-20261122T020000Z --acceptance --output acceptance.html
    """
    from fabricheck.diagnosis.causes import diagnose
    from fabricheck.judge.overall import overall
    from fabricheck.records.verdict import EXIT_CODES
    from fabricheck.report.html import write_html
    from fabricheck.report.terminal import render
    from fabricheck.site.validation import require_partition
    from fabricheck.suite import suite_root

    if system is not None:
        require_partition(suite_root(), system)
    if acceptance:
        context.exit(_accept(files, output, title))
    shown = _of_files(files, output, system, test, keys)
    diagnosis = diagnose(shown.judged, (), ())
    write_html(
        shown.judged,
        output,
        title=title or shown.system or "result files",
        system=shown.system,
        diagnosis=diagnosis,
    )
    size = shutil.get_terminal_size((120, 40))
    color = sys.stdout.isatty()
    click.echo(
        render(
            shown.judged,
            width=size.columns,
            color=color,
            height=size.lines - 2,
            diagnosis=diagnosis,
            system=shown.system,
        )
    )
    if shown.note:
        click.echo(f"fabricheck: {shown.note}", err=True)
    click.echo(f"the report is in {output}")
    context.exit(EXIT_CODES[overall(shown.judged, diagnosis.problems)[0]])


def _accept(files: Sequence[Path], output: Path, title: str | None) -> int:
    """Write the acceptance document of one run, and return the exit status."""
    from fabricheck.jsonfile import read_json
    from fabricheck.records.verdict import EXIT_CODES
    from fabricheck.report.acceptance import write_acceptance
    from fabricheck.session.outcome import judge_session
    from fabricheck.session.reframe_report import read_session
    from fabricheck.session.run_folders import VERDICT
    from fabricheck.suite import Suite, suite_root

    folder = files[0]
    if len(files) != 1 or not (folder / VERDICT).is_file():
        raise UserError(f"{folder}: --acceptance needs the folder of one run, below output/runs/, that has {VERDICT}")
    system = str(read_json(folder / VERDICT).get("system"))
    outcome = judge_session(read_session(folder), Suite(suite_root()), system)
    unchecked = outcome.fleet.unchecked if outcome.fleet is not None else {}
    problems = [*outcome.problems, *(problem for run in outcome.judged for problem in run.all_problems)]
    lines = [f"{node} was not tested: {why}" for node, why in unchecked.items()]
    lines += dict.fromkeys(f"{problem.verdict.value}: {problem.message}" for problem in problems)
    table = write_acceptance(
        outcome.judged, output, title=title or system, system=system, verdict=outcome.verdict, exclusions=lines
    )
    click.echo(
        f"{outcome.verdict.value}: the document is {output}, its rows are {table}, all figures {folder / VERDICT}"
    )
    return EXIT_CODES[outcome.verdict]


def _of_files(files: Sequence[Path], output: Path, system: str | None, test: str | None, keys: Sequence[str]) -> _Shown:
    from fabricheck.diagnosis.of_session import with_session_findings
    from fabricheck.judge.system import ByHand, SystemJudge, without_references
    from fabricheck.records.case import parse_attribute

    for file in files:
        if file.is_dir():
            raise UserError(f"{file}: is a folder: give result files, or --acceptance with the folder of a run")
        if output.exists() and file.exists() and output.samefile(file):
            raise UserError(f"--output {output} is a result file, which the report would overwrite: name another file")
    judges = cache(lambda name: SystemJudge.of(system) if system else SystemJudge.of_any(name))
    by_hand = ByHand(judges, system or "", test or "", dict(map(parse_attribute, keys)))
    judged = [by_hand.read(file) for file in files]
    systems = {each.system: each.run.run.path for each in judged}
    if system is None and len(systems) > 1:
        named = "; ".join(f"{path} {name or 'none'}" for name, path in systems.items())
        raise UserError(f"the files name several systems: {named}: choose one with --system")
    note = without_references(judged)
    runs = tuple(with_session_findings(each.run, each.judge, each.partition) for each in judged)
    return _Shown(system or judged[0].system, runs, note or "")
