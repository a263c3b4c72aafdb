"""`fabricheck store`: the store, by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.commands.options import STORE, given_as
from fabricheck.errors import UserError
from fabricheck.session.storing import attributes_of, case_of_files, import_files, import_folder
from fabricheck.units import plural

if TYPE_CHECKING:
    from fabricheck.history.writing import Appended

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
    from fabricheck.history.reading import find_entries
    from fabricheck.history.session import read_record

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
    from fabricheck.history.reading import verify as verify_store

    problems = verify_store(store)
    for line in problems.remarks:
        click.echo(f"note: {line}")
    for line in problems.damage:
        click.echo(f"damaged: {line}")
    state = f"{len(problems.damage)} damaged or foreign" if problems.damage else "all undamaged"
    click.echo(f"{store}: {plural(problems.entries, 'session')} with {plural(problems.metrics, 'metric')}, {state}")
    context.exit(EXIT_DAMAGED if problems.damage else 0)


@dataclass(frozen=True)
class ImportOptions:
    """The options of `store import`."""

    sources: tuple[Path, ...]
    store: Path
    system: str | None
    test: str | None
    partition: str
    environment: str
    tags: tuple[str, ...]
    keys: tuple[str, ...]


@store.command("import")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="SOURCE...")
@STORE
@click.option("--system", help="The system; not needed for the folder of a run.")
@click.option(
    "--test", help="For result files: the test's name with its parameters, such as 'PingPong %transport=mpi'."
)
@click.option("--partition", default="unknown", show_default=True, help="For result files: the partition's name.")
@click.option("--environment", default="unknown", show_default=True, help="For result files: the environment's name.")
@click.option("--tag", "tags", multiple=True, help="For result files: a tag; may be repeated.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="NAME=VALUE",
    help="For result files: an index of the references.",
)
@given_as(ImportOptions)
def import_(given: ImportOptions) -> None:
    """Add runs that are not in the store yet, judged by the current files of the suite.

    When: after a run was killed, or for runs of another machine. A SOURCE is the folder of a run
    (output/runs/<system>-<time>, with its reframe.json), or a result file of fabricbench; all result files together
    become one session.

    The exit status is 1 if something in the store is damaged; new runs are stored nevertheless.

    \b
    fabricheck store import output/runs/alps-20261122T020000Z
    """
    context = click.get_current_context()
    from fabricheck.suite import Suite, suite_root

    suite = Suite(suite_root())
    results = [source for source in given.sources if not source.is_dir()]
    damaged = False
    for source in given.sources:
        if source.is_dir():
            damaged |= report(import_folder(given.store, source, suite, given.system))
    if results:
        if given.system is None or given.test is None:
            raise UserError(f"{results[0]}: give its system and test: --system, --test")
        attributes = attributes_of(given.keys, given.system, given.partition, given.environment)
        damaged |= report(
            import_files(given.store, results, suite, given.system, case_of_files(given.test, attributes, given.tags))
        )
    context.exit(EXIT_DAMAGED if damaged else 0)


def report(appended: Appended) -> bool:
    """Say what was stored, and on stderr what is wrong with older entries; whether anything is."""
    for line in appended.remarks:
        click.echo(f"fabricheck: the store is damaged: {line}", err=True)
    click.echo(f"stored in {appended.entry.path}")
    return bool(appended.remarks)
