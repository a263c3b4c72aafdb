"""`fabricheck report`: the report of result files, by hand."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from fabricheck.errors import UserError

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("files", nargs=-1, required=True, type=_FILE, metavar="FILE...")
@click.option("--system", required=True, help="A system below site_configs/: its topology and its references.")
@click.option("--output", type=_FILE, required=True, help="The HTML file to write.")
@click.option("--title", help="Its title.  [default: the system]")
@click.option("--test", help="The ReFrame test class whose references count; not needed where there is only one.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="NAME=VALUE",
    help="An attribute that the references are indexed by, such as '$partition=daint:gpu'.",
)
@click.pass_context
def report(
    context: click.Context,
    *,
    files: tuple[Path, ...],
    system: str,
    output: Path,
    title: str | None,
    test: str | None,
    keys: tuple[str, ...],
) -> None:
    """Judge result files of fabricbench and write one HTML file about them.

    The verdicts and the exit status are those of `fabricheck judge`.
    """
    from fabricheck.judge.system import judge_files, parse_attribute
    from fabricheck.judge.verdicts import EXIT_CODES
    from fabricheck.report.content import overall
    from fabricheck.report.html import write_html
    from fabricheck.report.terminal import render

    for file in files:
        if output.exists() and file.exists() and output.samefile(file):
            raise UserError(f"--output {output} is a result file, which the report would overwrite: name another file")
    judged = judge_files(files, system, test=test, attributes=dict(map(parse_attribute, keys)))
    write_html(judged, output, title=title or system, system=system)
    size = shutil.get_terminal_size((120, 40))
    click.echo(render(judged, width=size.columns, height=size.lines - 2, color=sys.stdout.isatty()))
    click.echo(f"the report is in {output}")
    context.exit(EXIT_CODES[overall(judged)[0]])
