"""`fabricheck run`: runs the checks of a system through ReFrame, judges what they measured and writes the report."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.commands.options import BUILT, FOLDER, SYSTEM, given_as
from fabricheck.errors import EXIT_USER_ERROR, UserError, has_no_room, reason_of, reason_of_system

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fabricheck.commands.fleet import Wanted
    from fabricheck.report.past import Past
    from fabricheck.session.outcome import Outcome
    from fabricheck.session.progress import Progress
    from fabricheck.session.reframe import Selection
    from fabricheck.session.reframe_report import FinishedSession
    from fabricheck.suite import Suite

#: Seconds, as fabricbench takes them for --burn-in.
_LONGEST_LOAD_S = 10_000_000


@dataclass(frozen=True)
class RunOptions:
    """The options of `run`."""

    system: str
    tags: tuple[str, ...]
    names: tuple[str, ...]
    environments: tuple[str, ...]
    output: Path | None
    built: Path | None
    store: Path | None
    no_store: bool
    nodes: str | None
    resume: str | None
    minutes: int | None
    launches: int
    one_by_one: bool
    rounds: int
    only_list: bool
    reframe_options: tuple[str, ...]


@click.command()
@SYSTEM
@click.option(
    "--tag",
    "tags",
    multiple=True,
    help="Run checks with this tag; repeatable: any of them matches. Without --tag and --name, all checks run.",
)
@click.option("--name", "names", multiple=True, help="Run checks whose name matches; repeatable.")
@click.option("--environment", "environments", multiple=True, help="Run in this environment; repeatable.")
@click.option(
    "--output",
    type=FOLDER,
    help="The folder for results, reports and logs.  [default: output/ in the suite]",
)
@BUILT
@click.option(
    "--store",
    type=FOLDER,
    help="The sample store to add the run to.  [default: store/ in the output]",
)
@click.option("--no-store", is_flag=True, help="Do not add the run to a store.")
@click.option(
    "--nodes",
    metavar="WHICH",
    help="Test `all`, `idle` (`idle:16`: those tested longest ago), nid[001-064] or N nodes in one job: single-node "
    "tests first, then the network (fleet.md in docs/).",
)
@click.option(
    "--resume",
    is_flag=False,
    flag_value="last",
    metavar="[RUN]",
    help="Resume the last run, or the run in the folder RUN. Its complete results are used again.",
)
@click.option(
    "--minutes",
    type=click.IntRange(min=1),
    help="With --tag burn-in: minutes of load.  [default: 10]  Else with --nodes: time limit of the job, in minutes.  "
    "[default: 60]",
)
@click.option(
    "--launches",
    type=click.IntRange(min=1),
    envvar="FABRICHECK_LAUNCHES",
    default=7,
    show_default=True,
    help="Launch a DEGRADED test up to N times in all, to rule out noise. 1: no relaunch.",
)
@click.option("--one-by-one", is_flag=True, help="Run each test in a job of its own.")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=1,
    help="Run each test N times in one job, interleaved.  [default: 1]",
)
@click.option("--list", "only_list", is_flag=True, help="List the checks that would run, and run none.")
@click.argument("reframe_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- REFRAME_OPTION...]")
@given_as(RunOptions)
def run(given: RunOptions) -> None:
    """Run the checks of a system, judge them and write the report.

    When: at acceptance, every night, after an upgrade. Tags choose how much (time on one node with two H100):

    \b
    smoke          13 s  every link of one node (with --nodes: of each), and all nodes together
    nightly        27 s  a short selection of acceptance
    acceptance     95 s  all that fabricbench measures
    papers               what `fabricheck reproduce` needs
    vendor               OSU, nccl-tests or rccl-tests, IMB
    vendor-mixed         OSU between host and device memory
    cross-check          fabricbench and a vendor tool, interleaved
    layers               pairs of nodes by libfabric, MPI and NCCL: which layer is slow?
    burn-in              compute, traffic and host copies at the same time, for --minutes

    Exit status of the worst verdict: INVALID 5, INCOMPLETE 4, FAIL 3, DEGRADED 1, PASS 0; 2: bad input, or not stored.

    \b
    fabricheck run --system alps --tag nightly
    fabricheck run --system alps --tag smoke --nodes all
    fabricheck run --system alps --tag smoke --resume
    """
    context = click.get_current_context()
    from fabricheck.commands.fleet import fleet_of
    from fabricheck.session.reframe import Selection, use_built
    from fabricheck.suite import Suite, output_folder, remember_output, suite_root

    if given.store is not None and given.no_store:
        raise UserError("--store and --no-store exclude each other")
    jobs, more = _jobs(given.rounds, one_by_one=given.one_by_one)
    suite, (load, wanted) = Suite(suite_root()), _load(given.minutes, given.tags, given.nodes, given.resume)
    wanted.check(only_list=given.only_list)
    selection = Selection(
        given.system,
        given.tags,
        given.names,
        given.environments,
        (*use_built(given.built), *more, *load, *given.reframe_options),
        jobs,
    )
    output = remember_output(given.output or output_folder(suite.root))
    kept_in, name = None if given.no_store else given.store or output / "store", selection.whole_system
    if given.only_list:
        return _list(suite, selection, wanted, output)
    from fabricheck.session.suite_run import Launcher

    ready = functools.partial(_get_ready, suite, name, kept_in)
    with lock_output(context, suite, selection, output):
        _judge_abandoned(suite, name, output, kept_in)
        earlier, selection = _earlier(output, selection, wanted)
        click.echo(f"{name}: {selection.text}; missing programs are built first")
        with fleet_of(suite, selection, wanted, earlier, given.store or output / "store") as fleet:
            from fabricheck.session.outcome import judge_session
            from fabricheck.session.relaunch import Again

            launcher = Launcher(suite, output, _progress, ready)
            again = Again(launcher, selection, given.launches, click.echo)
            session = launcher.run(selection, fleet=fleet, earlier=earlier, waits=again.is_possible)
            session, known = again.judge(session)
        outcome = known or judge_session(session, suite, name)  # which needs no nodes
        click.echo(f"fabricheck: the checks are those of {suite.root}", err=True)
        _say(outcome, name, str(session.folder))
        kept = _keep(session, outcome, suite, name, kept_in, just_now=True)
    _conclude(context, session, outcome, kept=kept)


def _jobs(rounds: int, *, one_by_one: bool) -> tuple[str, tuple[str, ...]]:
    """How tests share jobs, and the options of ReFrame for that. Raises UserError where two ways exclude each other."""
    if rounds == 1:
        return "one-by-one" if one_by_one else "together", ()
    if one_by_one:
        raise UserError("--one-by-one and --rounds exclude each other: rounds are interleaved in one job")
    return "interleaved", (f"--repeat={rounds}",)


def _load(
    minutes: int | None, tags: Sequence[str], nodes: str | None, resume: str | None
) -> tuple[tuple[str, ...], Wanted]:
    """ReFrame's option that a burn-in lasts so many minutes, and nodes whose job has time for that."""
    from fabricheck.commands.fleet import Wanted
    from fabricheck.fleet.allocation import MINUTES

    if minutes is None or "burn-in" not in tags:
        return (), Wanted(nodes, resume, minutes)
    if 60 * minutes > _LONGEST_LOAD_S:
        raise UserError(f"--minutes {minutes}: a burn-in lasts {_LONGEST_LOAD_S // 60:,} minutes at most")
    wanted = Wanted(nodes, resume, MINUTES + minutes if nodes is not None else None)
    return (f"--setvar=BurnIn.load_minutes={minutes}",), wanted


def _earlier(output: Path, selection: Selection, wanted: Wanted) -> tuple[Path | None, Selection]:
    """The run that is to be resumed, and what is to run: as then, where nothing is said."""
    if wanted.resume is None:
        return None, selection
    from fabricheck.session.abandoned import chosen_by, find_earlier

    earlier = find_earlier(
        output.resolve() / "runs", selection.whole_system, wanted.resume, over_nodes=wanted.nodes is not None
    )
    click.echo(f"fabricheck: resumes {earlier}: its complete results are taken over", err=True)
    if any(selection.chosen.values()):
        return earlier, selection
    then = chosen_by(earlier)
    return earlier, replace(selection, tags=then["tags"], names=then["names"], environments=then["environments"])


def _conclude(context: click.Context, session: FinishedSession, outcome: Outcome, *, kept: bool) -> None:
    """The last line, and the exit status."""
    from fabricheck.judge.overall import rehearsed
    from fabricheck.records.rehearsal import marked
    from fabricheck.records.verdict import EXIT_CODES, Verdict
    from fabricheck.session.reports import PAGE
    from fabricheck.suite import program

    report = (
        f"the report is {session.folder / PAGE}"
        if kept
        else f"some of its files could not be written in {session.folder}"
    )
    if kept and outcome.verdict is not Verdict.PASS:
        click.echo(f"next: {program()} explain {shlex.quote(str(session.folder))}")
    click.echo(f"{outcome.verdict.value}: {marked(report, rehearsal=rehearsed(outcome.judged))}")
    context.exit(EXIT_CODES[outcome.verdict] or (0 if kept else EXIT_USER_ERROR))


@contextlib.contextmanager
def lock_output(context: click.Context, suite: Suite, selection: Selection, output: Path) -> Iterator[None]:
    """While this lasts no other run of the system has this output."""
    from fabricheck.locks import Taken
    from fabricheck.records.verdict import EXIT_CODES, Verdict
    from fabricheck.session.abandoned import only_run
    from fabricheck.session.reframe import require_tags

    system = selection.whole_system
    suite.require(system)
    require_tags(suite.root / "checks", selection.tags)
    try:
        with only_run(output, system):
            yield
    except Taken as owner:
        step = f"wait for it, or if its host is down, remove {output / f'.{system}.lock.owner'}"
        text = f"another run of {system} has not ended yet ({owner}), so nothing was measured: {step}"
        click.echo(f"{Verdict.INCOMPLETE.value}: {text}", err=True)
        context.exit(EXIT_CODES[Verdict.INCOMPLETE])


def _list(suite: Suite, selection: Selection, wanted: Wanted, output: Path) -> None:
    from fabricheck.commands.fleet import nodes_wanted
    from fabricheck.rfm.duration import seconds_together
    from fabricheck.session.reframe import list_suite, planned_seconds, require_tags
    from fabricheck.session.reframe_report import past_seconds
    from fabricheck.session.start import require_ready
    from fabricheck.units import plural

    require_tags(suite.root / "checks", selection.tags)
    if selection.whole_system in suite.systems():
        require_ready(suite, selection.whole_system, None)
    listing = list_suite(suite, selection, output)
    click.echo(listing.notes, err=True, nl=False)
    past = past_seconds(output / "runs", selection.whole_system)
    plans = {} if past.keys() >= set(listing.cases) else planned_seconds(suite, selection, output)
    known, planned = [], []
    for case in listing.cases:
        if (seconds := past.get(case)) is not None:
            known.append(seconds)
            click.echo(f"{case}  {seconds:.0f} s")
        elif (seconds := plans.get(case.rpartition(" @")[0])) is not None:
            planned.append(seconds)
            click.echo(f"{case}  at most {seconds:.0f} s")
        else:
            click.echo(case)
    texts = [f"{len(known)} took {sum(known):.0f} s the last time"] if known else []
    if planned:
        texts.append(f"{len(planned)} take at most {seconds_together(planned):.0f} s by their plans, in one job")
    if others := len(listing.cases) - len(known) - len(planned):
        texts.append(f"{others} have neither an earlier run nor a plan")
    click.echo(f"fabricheck: {plural(len(listing.cases), 'test')}: {'; '.join(texts)}", err=True)
    if nodes := nodes_wanted(suite, selection, wanted):
        click.echo(f"fabricheck: {nodes}", err=True)


def _say(outcome: Outcome, system: str, folder: str) -> None:
    """What a run came to, on the terminal."""
    from fabricheck.report.fleet import table
    from fabricheck.report.part_names import NodeParts
    from fabricheck.report.terminal import render

    width, color = shutil.get_terminal_size((80, 40)).columns, sys.stdout.isatty()
    click.echo(
        render(outcome.judged, width=width, color=color, diagnosis=outcome.diagnosis, system=system, folder=folder)
    )
    if outcome.fleet is not None:
        parts = NodeParts.of(outcome.judged)
        click.echo("\n".join(table(outcome.fleet, parts, width, system=system, folder=folder)))


def _get_ready(suite: Suite, system: str, store: Path | None) -> None:
    """What would spoil a run late; and what takes a second or two: modules for its end."""
    import fabricheck.report.past
    import fabricheck.session.relaunch
    import fabricheck.session.reports
    import fabricheck.session.storing  # noqa: F401
    from fabricheck.session.start import require_ready

    require_ready(suite, system, store)


def _progress() -> Progress:
    """A line for each check; on a terminal also what is under way, which the next line is written over."""
    from fabricheck.session.progress import Progress

    if not sys.stdout.isatty():
        return Progress(click.echo)
    width = shutil.get_terminal_size((80, 40)).columns
    over = "\r\x1b[K"
    return Progress(
        lambda line: click.echo(f"{over}{line}"),
        lambda line: click.echo(f"{over}{line}", nl=False),
        width=min(width - 1, 120),
    )


def _judge_abandoned(suite: Suite, system: str, output: Path, store: Path | None) -> None:
    """Judges and stores what runs left that ended before they could: killed, or their machine went down.

    Whatever one of them left, it is set aside with one line, and the others and this run go on.
    """
    from fabricheck.session.abandoned import abandoned, set_aside

    for folder in abandoned(output.resolve() / "runs", system):
        try:
            _judge_left(folder, suite, system, store)
        except Exception as error:
            set_aside(folder)
            line = f"the earlier run in {folder} cannot be judged and was set aside: {reason_of(error)}"
            click.echo(f"fabricheck: {line}", err=True)


def _judge_left(folder: Path, suite: Suite, system: str, store: Path | None) -> None:
    from fabricheck.session.abandoned import end_jobs, read_abandoned
    from fabricheck.session.hiding import scrub
    from fabricheck.session.outcome import judge_session
    from fabricheck.session.reports import PAGE

    scrub(folder, os.environ)
    end_jobs(folder)
    session = read_abandoned(folder)
    outcome = judge_session(session, suite, system)
    kept = _keep(session, outcome, suite, system, store, just_now=False)
    where = f"the report is {folder / PAGE}" if kept else "some of its files could not be written"
    verdict = outcome.verdict.value
    click.echo(f"fabricheck: the earlier run in {folder} had no verdict; it is {verdict}: {where}", err=True)


def _keep(
    session: FinishedSession, outcome: Outcome, suite: Suite, system: str, store: Path | None, *, just_now: bool
) -> bool:
    """Writes and stores what a session came to; whether all of it could be. What cannot be costs nothing else."""
    from fabricheck.session.reports import write_for_programs, write_page
    from fabricheck.session.slow_once import write_slow_once

    past, failed = None, []
    if store is not None:
        past, error = _store(store, session, outcome, suite, system, just_now=just_now)
        failed += [("the run could not be stored", error)] if error is not None else []
    for write in (
        lambda: write_page(session, outcome, system, past),
        lambda: write_for_programs(session, outcome, system),
        lambda: write_slow_once(session.folder, outcome.slow_once),
    ):
        try:
            write()
        except (OSError, UserError) as refused:
            failed.append(("cannot write the report", refused))
    _say_failed(session.folder, failed)
    return not failed


def _say_failed(folder: Path, failed: Sequence[tuple[str, OSError | UserError]]) -> None:
    """A line for each file that could not be written; one for all, with what to do, where there is no room."""
    from fabricheck.session.run_folders import VERDICT

    reasons = [reason_of_system(error) if isinstance(error, OSError) else str(error) for _, error in failed]
    full = [has_no_room(error) for _, error in failed]
    if any(full):
        step = (
            f"`fabricheck store import {folder}`"
            if (folder / VERDICT).exists()
            else "the next run judges and stores it"
        )
        reason = reasons[full.index(True)]
        click.echo(f"fabricheck: {reason}; nothing measured in {folder} is lost: free space; then {step}", err=True)
    for (what, _), reason, is_full in zip(failed, reasons, full, strict=True):
        if not is_full:
            click.echo(f"fabricheck: {what}: {reason}", err=True)


def _store(
    store: Path, session: FinishedSession, outcome: Outcome, suite: Suite, system: str, *, just_now: bool
) -> tuple[Past, OSError | UserError | None]:
    """The history with this session in it, and why it could not be stored, if so: that costs no report."""
    from fabricheck.commands.store import report as report_stored
    from fabricheck.report.past import Past, past_of
    from fabricheck.session.storing import store_session

    try:
        stored = store_session(store, session, outcome, suite, system, just_now=just_now)
        report_stored(stored)
        return past_of(store, system, suite.root, session=stored.entry.session), None
    except (OSError, UserError) as error:
        reason = reason_of_system(error) if isinstance(error, OSError) else str(error)
        return Past(notes=(f"The run could not be stored, so no history is shown: {reason}",)), error
