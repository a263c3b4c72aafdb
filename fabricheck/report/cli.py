"""`fabricheck report`: the report of result files, by hand."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("files", nargs=-1, required=True, type=_FILE, metavar="FILE...")
@click.option("--system", required=True, help="A system below site_configs/.")
@click.option("--output", type=_FILE, required=True, help="The HTML file to write.")
@click.option("--title", help="Its title.  [default: the system]")
@click.pass_context
def report(context: click.Context, *, files: tuple[Path, ...], system: str, output: Path, title: str | None) -> None:
    """Judge result files of fabricbench and write one HTML file about them.

    The exit status is that of the worst verdict, as for `fabricheck judge`.
    """
    from fabricheck.judge.cli import EXIT_CODES
    from fabricheck.judge.system import SystemJudge
    from fabricheck.report.content import overall
    from fabricheck.report.html import write_html
    from fabricheck.report.terminal import render
    from fabricheck.results.fabricbench import read_run

    judge = SystemJudge.of(system)
    judged = [judge.judge(read_run(file)) for file in files]
    write_html(judged, output, title=title or system, system=system)
    click.echo(render(judged, width=shutil.get_terminal_size((120, 40)).columns, color=sys.stdout.isatty()))
    click.echo(f"the report is in {output}")
    context.exit(EXIT_CODES[overall(judged)[0]])
