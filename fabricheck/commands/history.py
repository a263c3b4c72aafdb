"""`fabricheck calibrate`, `compare` and `watch`: what the history of a system says."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.commands import rehearsal_note
from fabricheck.commands.options import FILE, JSON, MARGIN, STORE, SYSTEM_OF_RUNS, given_as
from fabricheck.errors import UserError
from fabricheck.statistics.constants import FEWEST, YEAR

if TYPE_CHECKING:
    import polars as pl

    from fabricheck.history.accepted import Accepted
    from fabricheck.records.run import Run
    from fabricheck.topology.model import Topology


@dataclass(frozen=True)
class CalibrateOptions:
    """The options of `calibrate`."""

    system: str
    store: Path
    selection: str | None
    false_alarms: float
    references: Path | None
    part: Path | None
    results: tuple[Path, ...]
    write_file: bool
    as_json: bool


@click.command()
@SYSTEM_OF_RUNS
@STORE
@click.option("--runs", "selection", help="Which runs: FROM..TO, software:NAME=VERSION, tag:NAME or a session.")
@click.option(
    "--false-alarms",
    default=0.3,
    show_default=True,
    help="Share of healthy sessions that may have over 2% of the metrics, or a part, beyond bounds at first; "
    "relaunches judge those. For --launches 1 give 0.01.",
)
@click.option("--references", type=FILE, help="The file to change.  [default: the system's]")
@click.option(
    "--part",
    type=FILE,
    help="Instead of references, write values of the GPU model into this file of reference_values/parts/.",
)
@click.option(
    "--results",
    multiple=True,
    type=FILE,
    help="For --part: the folder of a run, or a result file; repeatable.  [default: the system's runs in the output]",
)
@click.option("--write", "write_file", is_flag=True, help="Write the file. Without it, only the changes are printed.")
@JSON
@given_as(CalibrateOptions)
def calibrate(given: CalibrateOptions) -> None:
    """Make references of a system from runs while it was healthy, and show them as a diff.

    When: after eight healthy sessions or more, and after each permanent change. Without --write no file changes. With
    --part it makes values of the GPU model for other machines, and no references. The exit status is 0, even if metrics
    need more runs. It is 4 if the system was not healthy in the runs of a metric.

    \b
    fabricheck calibrate --system alps --runs 2026-11-01..
    fabricheck calibrate --system alps --runs 2026-11-01.. --write
    """
    from fabricheck.history.calibrate import calibrate as make
    from fabricheck.history.references_file import diff, updated_text, write
    from fabricheck.history.text import calibration_lines, to_json
    from fabricheck.suite import site_root
    from fabricheck.yardsticks.references import load_references

    if given.part is not None:
        if given.selection is not None:
            raise UserError("--part reads result files: name them with --results instead of --runs")
        _calibrate_part(given.part, given.system, given.results, write_file=given.write_file)
        return
    path = (
        given.references
        if given.references is not None
        else site_root(given.system) / "reference_values" / f"{given.system}.yaml"
    )
    if path.exists():
        load_references(path)  # a mistake in it is said before minutes of a long history
    with _progress():
        calibration = make(
            _history(given.store, given.system),
            given.system,
            false_alarms=given.false_alarms,
            selection=given.selection,
        )
    runs = [f"--runs={given.selection}"] if given.selection is not None else []
    command = shlex.join(
        ["fabricheck", "calibrate", "--system", given.system, *runs, f"--false-alarms={given.false_alarms:g}"]
    )
    text = updated_text(path, calibration, command) if calibration.references else ""
    _print(to_json(calibration) if given.as_json else calibration_lines(calibration))
    if not text:
        click.echo(f"no references yet: {path} stays as it is", err=True)
    elif not given.as_json:
        click.echo(diff(path, text), nl=False)
    if text and given.write_file:
        write(path, text)
        click.echo(f"written: {path}", err=True)
    click.get_current_context().exit(4 if any(not refused.is_healthy for refused in calibration.refused) else 0)


def _calibrate_part(path: Path, system: str, results: Sequence[Path], *, write_file: bool) -> None:
    from fabricheck.history.part_file import part_text, source_of
    from fabricheck.history.references_file import diff, write
    from fabricheck.suite import output_folder, suite_root

    if path.parent == Path():  # a name alone
        path = suite_root() / "reference_values" / "parts" / path
    folders = results or sorted((output_folder() / "runs").glob(f"{system}-*"))
    if not folders:
        raise UserError(f"no run of {system} in {output_folder()}: name one with --results")
    runs = list(_runs_on_part(system, folders))
    text = part_text(path, runs, system, source_of(system, [run for run, _ in runs]))
    click.echo(diff(path, text), nl=False)
    if write_file:
        write(path, text)
        click.echo(f"written: {path}", err=True)


def _runs_on_part(system: str, results: Iterable[Path]) -> Iterator[tuple[Run, Topology]]:
    """Read the runs of folders and result files whose checks let them count, each with its topology."""
    from fabricheck.judge.system import SystemJudge
    from fabricheck.results.fabricbench import read_run
    from fabricheck.session.reframe_report import read_session

    judge = SystemJudge.of(system)
    for place in results:
        try:
            cases = read_session(place).cases if place.is_dir() else ()
        except UserError as error:
            click.echo(f"fabricheck: left out: {error}", err=True)
            continue
        files = [(file, case.partition) for case in cases if case.trusts_its_run for file in case.result_files()]
        for file, partition in files if place.is_dir() else [(place, "")]:
            topology = judge.topology_of(partition)
            if topology is not None:
                yield read_run(file), topology


@click.command()
@click.argument("base")
@click.argument("candidate")
@SYSTEM_OF_RUNS
@STORE
@click.option(
    "--false-discovery",
    default=0.01,
    show_default=True,
    help="False discovery rate: the share of reported regressions that may be false.",
)
@MARGIN
@click.option(
    "--power", default=0.95, show_default=True, help="Probability that a loss of --margin would have been found."
)
@JSON
def compare(
    *,
    base: str,
    candidate: str,
    system: str,
    store: Path,
    false_discovery: float,
    margin: float,
    power: float,
    as_json: bool,
) -> None:
    """Compare the runs of CANDIDATE with those of BASE, metric by metric.

    When: after an upgrade, with three sessions or more on each side. Either side is a session, FROM..TO (dates),
    software:NAME=VERSION or tag:NAME. The exit status is 0 if every metric is the same or improved, 1 if one
    regressed, 4 if one vanished or the data are inconclusive, 2 for a mistake in the input.

    \b
    fabricheck compare software:NCCL=2.28.3 software:NCCL=2.29.1 --system alps
    """
    from fabricheck.history.compare import compare as test
    from fabricheck.history.text import comparison_lines, to_json
    from fabricheck.statistics.shift_test import CompareOptions

    options = CompareOptions(false_discovery=false_discovery, margin=margin, power=power)
    with _read(store, system) as history:
        comparison = test(history.pop(), system, base, candidate, options)
    _print(to_json(comparison) if as_json else comparison_lines(comparison))
    click.get_current_context().exit(comparison.exit_status)


@click.command()
@SYSTEM_OF_RUNS
@STORE
@click.option(
    "--accepted", type=FILE, help="Changes that were accepted.  [default: reference_values/accepted/SYSTEM.yaml]"
)
@click.option("--warm-up", default=20, show_default=True, help="Sessions of a metric that make its normal level.")
@JSON
def watch(*, system: str, store: Path, accepted: Path | None, warm_up: int, as_json: bool) -> None:
    """Report what got worse in the history of a system, and since when.

    When: after each session. Alerts start after 25 sessions of a metric: those of --warm-up and 5 more. The exit status
    is 1 while an incident is open (until it is accepted), 4 if a metric is missing or no metric has enough sessions,
    else 0; 2 is a mistake in the input.

    \b
    fabricheck watch --system alps
    """
    from fabricheck.errors import UserError
    from fabricheck.history.text import to_json, watch_lines
    from fabricheck.history.watch import watch as look

    if not FEWEST <= warm_up <= YEAR:
        raise UserError(f"--warm-up {warm_up}: give a number from {FEWEST} to {YEAR}")
    changes = _accepted(system, accepted)
    with _read(store, system) as history:
        watched = look(history.pop(), system, changes, warm_up)
    for change in changes:
        if not any(change.matches(state.key) for state in watched.states):
            names = ", ".join(change.metrics) or "none"
            click.echo(f"fabricheck: accepted since {change.since}: no metric has the name {names}", err=True)
    _print(to_json(watched) if as_json else watch_lines(watched))
    click.get_current_context().exit(watched.exit_status)


def _print(text: str | Iterator[str]) -> None:
    if isinstance(text, str):
        click.echo(text, nl=False)
        return
    for line in text:
        click.echo(line)


@contextmanager
def _progress() -> Iterator[None]:
    """Lines on stderr while a long history is worked on; on a terminal each is written over the one before."""
    from fabricheck.waiting import listening

    over = "\r\x1b[K" if sys.stderr.isatty() else ""
    try:
        with listening(lambda line: click.echo(f"{over}{line}", err=True, nl=not over)):
            yield
    finally:
        click.echo(over, err=True, nl=False)


@contextmanager
def _read(store: Path, system: str) -> Iterator[list[pl.DataFrame]]:
    """A history in a list, from which what is done inside takes it and lets go of it: a long one does not fit into
    memory beside what is made of it. Tells the progress of that, and afterwards whether it was a rehearsal."""
    with _progress():
        history = [_history(store, system)]
        is_rehearsal = bool(history[0]["rehearsal"].any())
        yield history
    rehearsal_note.say(is_rehearsal)


def _history(store: Path, system: str) -> pl.DataFrame:
    from fabricheck.history.memory_needed import check_memory
    from fabricheck.store import reading as stores
    from fabricheck.store.reading import count_values

    check_memory(count_values(store, system), system)
    return stores.history(store, system=system, say=lambda line: click.echo(f"fabricheck: left out: {line}", err=True))


def _accepted(system: str, path: Path | None) -> tuple[Accepted, ...]:
    from fabricheck.history.accepted import find_accepted, load_accepted
    from fabricheck.suite import suite_root

    return load_accepted(path) if path is not None else find_accepted(system, suite_root())
