"""`fabricheck store`: the store, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.commands.options import STORE
from fabricheck.errors import UserError
from fabricheck.session.storing import import_files, import_folder
from fabricheck.units import plural

if TYPE_CHECKING:
    from fabricheck.store.writing import Appended

# 2 is the user's own mistake.
EXIT_DAMAGED = 1


@click.group()
def store() -> None:
    """List, verify or import stored runs.

    When: to look up earlier verdicts, or after a disk failed.

    \b
    fabricheck store ls --system alps
    """


@store.command()
@STORE
@click.option("--system", help="Only this system.")
@click.pass_context
def ls(context: click.Context, *, store: Path, system: str | None) -> None:
    """List the sessions in a store, oldest first.

    When: in the morning, to see the last verdicts. The exit status is 1 if a session is damaged.

    \b
    fabricheck store ls --system alps
    """
    from fabricheck.store.reading import find_entries
    from fabricheck.store.session import read_record

    click.echo(
        f"{'started (UTC)':20}  {'session':36}  {'verdict':10}  {'runs':>5}  {'metrics':>7}  {'size':>9}  system"
    )
    damaged = 0
    for entry in find_entries(store, system):
        try:
            record = read_record(entry)
        except UserError as error:
            click.echo(f"damaged: {error}", err=True)
            damaged = EXIT_DAMAGED
            continue
        size = f"{entry.size() / 1e6:.2f} MB"
        rehearsal = "  (rehearsal)" if record.rehearsal else ""
        click.echo(
            f"{record.started:20}  {record.session:36}  {record.verdict:10}  {len(record.runs):5}  "
            f"{record.metrics:7}  {size:>9}  {record.system}{rehearsal}"
        )
    context.exit(damaged)


@store.command()
@STORE
@click.pass_context
def verify(context: click.Context, *, store: Path) -> None:
    """Read every file of a store and report what is damaged.

    When: after a disk or file system failed, or after the store was copied. It prints one line for each file that is
    damaged or does not belong there; the exit status is 1 if there is one.

    \b
    fabricheck store verify
    """
    from fabricheck.store.reading import verify as verify_store

    problems = verify_store(store)
    for line in problems.remarks:
        click.echo(f"note: {line}")
    for line in problems.damage:
        click.echo(f"damaged: {line}")
    state = f"{len(problems.damage)} damaged or foreign" if problems.damage else "all undamaged"
    click.echo(f"{store}: {plural(problems.entries, 'session')} with {plural(problems.metrics, 'metric')}, {state}")
    context.exit(EXIT_DAMAGED if problems.damage else 0)


@store.command("import")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="SOURCE...")
@STORE
@click.option("--system", help="Only what is of this system.")
@click.pass_context
def import_(context: click.Context, *, sources: tuple[Path, ...], store: Path, system: str | None) -> None:
    """Add runs that are not in the store yet, judged by the current files of the suite.

    When: after a run was killed, or for runs of another machine. A SOURCE is the folder of a run
    (output/runs/<system>-<time>, with its reframe.json), or a result file of fabricbench that names its test; all
    result files together become one session.

    The exit status is 1 if something in the store is damaged; new runs are stored nevertheless.

    \b
    fabricheck store import output/runs/alps-20261122T020000Z
    """
    from fabricheck.suite import Suite, suite_root

    suite = Suite(suite_root())
    folders = [source for source in sources if source.is_dir()]
    results = [source for source in sources if source not in folders]
    damaged = False
    for folder in folders:
        damaged |= report(import_folder(store, folder, suite, system))
    if results:
        damaged |= report(import_files(store, results, suite, system))
    context.exit(EXIT_DAMAGED if damaged else 0)


def report(appended: Appended) -> bool:
    """Say what was stored, and on stderr what is wrong with older entries; whether anything is."""
    for line in appended.remarks:
        click.echo(f"fabricheck: the store is damaged: {line}", err=True)
    click.echo(f"stored in {appended.entry.path}")
    return bool(appended.remarks)
