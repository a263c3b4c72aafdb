"""`fabricheck run`: runs the checks of a system through ReFrame, judges what they measured and writes the report."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.errors import UserError
from fabricheck.session.outcome import judge_session, require_files
from fabricheck.session.storing import store_session

if TYPE_CHECKING:
    pass


@click.command()
@click.option("--system", default="local", show_default=True, help="A system below site_configs/, or system:partition.")
@click.option("--tag", "tags", multiple=True, help="Only checks with this tag; may be repeated.")
@click.option("--name", "names", multiple=True, help="Only checks whose name matches; may be repeated.")
@click.option("--environment", "environments", multiple=True, help="Only this environment; may be repeated.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to leave results, reports and logs.  [default: output/ in the suite]",
)
@click.option(
    "--built",
    envvar="FABRICHECK_BUILT",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Do not build fabricbench: take ENVIRONMENT/fabricbench below this folder.",
)
@click.option(
    "--store",
    type=click.Path(file_okay=False, path_type=Path),
    help="The sample store to add the run to.  [default: store/ in the output]",
)
@click.option("--no-store", is_flag=True, help="Do not add the run to a store.")
@click.option("--list", "only_list", is_flag=True, help="Only say which checks would run.")
@click.argument("reframe_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- REFRAME_OPTION...]")
@click.pass_context
def run(
    context: click.Context,
    *,
    system: str,
    tags: tuple[str, ...],
    names: tuple[str, ...],
    environments: tuple[str, ...],
    output: Path | None,
    built: Path | None,
    store: Path | None,
    no_store: bool,
    only_list: bool,
    reframe_options: tuple[str, ...],
) -> None:
    """Run the checks of a system, judge them and write the report.

    With --list, only their names are printed.

    The exit status is that of the worst verdict: 0 PASS, 1 DEGRADED, 3 FAIL, 4 INCOMPLETE, 5 INVALID; 2 is a mistake
    in what was given, or a run that passed and could not be stored.
    """
    from fabricheck.errors import EXIT_USER_ERROR
    from fabricheck.records.verdict import EXIT_CODES
    from fabricheck.report.html import write_html
    from fabricheck.report.machine import write_json, write_junit, write_prometheus
    from fabricheck.report.terminal import render
    from fabricheck.session.reframe import Selection, list_suite, run_suite
    from fabricheck.suite import Suite, suite_root

    suite = Suite(suite_root())
    prebuilt = (f"--setvar=BuildFabricbench.prebuilt={built}",) if built else ()
    selection = Selection(system, tags, names, environments, (*prebuilt, *reframe_options))
    output = output or suite.root / "output"
    if store is not None and no_store:
        raise UserError("--store and --no-store exclude each other")
    store = store or output / "store"
    name = selection.whole_system
    if name in suite.systems():
        # What cannot be judged or stored is better known before it is measured.
        require_files(suite, name)
        if not no_store and not only_list:
            from fabricheck.store.folders import create

            create(store)
    if only_list:
        listing = list_suite(suite, selection, output)
        click.echo(listing.notes, err=True, nl=False)
        click.echo("\n".join(listing.cases))
        return
    session = run_suite(suite, selection, output)
    outcome = judge_session(session, suite, name)
    for write, file in ((write_json, "verdict.json"), (write_junit, "junit.xml"), (write_prometheus, "metrics.prom")):
        write(outcome.judged, session.folder / file, system=name, problems=outcome.problems)
    columns = shutil.get_terminal_size((120, 40)).columns
    click.echo(render(outcome.judged, problems=outcome.problems, width=columns, color=sys.stdout.isatty()))
    status = EXIT_CODES[outcome.verdict]
    past = None
    if not no_store:
        from fabricheck.commands.store import report as report_stored
        from fabricheck.report.past import Past, past_of

        try:
            stored = store_session(store, session, outcome, suite, name, just_now=True)
            report_stored(stored)
            past = past_of(store, name, suite.root, session=stored.entry.session)
        except UserError as error:
            click.echo(f"fabricheck: {error}", err=True)
            status = status or EXIT_USER_ERROR
            past = Past(notes=(f"The run could not be stored, so no history is shown: {error}",))
    page = session.folder / "report.html"
    write_html(
        outcome.judged,
        page,
        title=f"{name}, {session.folder.name}",
        system=name,
        problems=outcome.problems,
        past=past,
    )
    click.echo(f"{outcome.verdict.value}: the report is {page}")
    context.exit(status)
