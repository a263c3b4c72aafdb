"""`fabricheck run`: runs the checks of a system through ReFrame, judges what they measured and writes the report."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.errors import UserError
from fabricheck.results.records import Problem, Verdict

if TYPE_CHECKING:
    from fabricheck.judge.case_runs import CaseRun
    from fabricheck.judge.system import SystemJudge
    from fabricheck.judge.verdicts import RunJudgement
    from fabricheck.session import Case, Session, Suite
    from fabricheck.store.writing import Appended


@dataclass(frozen=True)
class Outcome:
    """What a run of the suite came to: `problems` are those of the run as a whole, not of one result file.

    `cases` are those that left the files of `judged`, in the same order.
    """

    verdict: Verdict
    problems: tuple[Problem, ...]
    judged: tuple[RunJudgement, ...]
    cases: tuple[Case, ...]


def require_files(suite: Suite, system: str) -> None:
    """Raises UserError for the first mistake in a file that a run on `system` needs, but ReFrame's own settings.

    ReFrame would find it only in the middle of the run, with the traceback of a check, or not at all.
    """
    from fabricheck.judge.system import SystemJudge
    from fabricheck.tuning import load_profiles
    from fabricheck.vendor.sources import load_tools

    SystemJudge.of(system, suite.root)
    load_profiles(suite.root / "config" / "tuning.yaml")
    load_tools(suite.root / "config" / "vendor.yaml")


def judge_session(session: Session, suite: Suite, system: str) -> Outcome:
    """Judges every result file of a session against the topology, the references and the policy of the suite.

    The verdict is the worst of all files and of the session's own problems.
    """
    from fabricheck.judge.findings import find_all
    from fabricheck.judge.system import SystemJudge
    from fabricheck.report.content import overall
    from fabricheck.results.fabricbench import read_run

    judge = SystemJudge.of(system, suite.root)
    found = [(case, file) for case in session.cases for file in case.result_files()]
    judged = tuple(
        replace(judge.judge(read_run(file), case.test, case.attributes), test=str(case)) for case, file in found
    )
    runs = tuple(_case_run(each, case) for each, (case, _) in zip(judged, found, strict=True))
    problems = (
        *not_said_by_runs(session, judged),
        *_missing_checks(suite, judge),
        *find_all(runs, judge),
        *_found_by_turns(session.cases, judge),
    )
    verdict, _ = overall(judged, problems)
    return Outcome(verdict, problems, judged, tuple(case for case, _ in found))


def store_session(
    store: Path, session: Session, outcome: Outcome, suite: Suite, system: str, *, just_now: bool = False
) -> Appended:
    """Add what a session came to to the sample store.

    `just_now`: the suite and this host are still what they were when it ran, so their versions are its versions.
    Raises UserError as `fabricheck.store.writing.append` does, and where ReFrame left no report.
    """
    from fabricheck.session import REPORT, read_info
    from fabricheck.store.changes import facts_of_this_host, versions_of_suite
    from fabricheck.store.writing import NewSession, append

    info = read_info(session.folder / REPORT)
    new = NewSession(
        system=system,
        session=info.uuid,
        started=info.started,
        ended=info.ended,
        host=info.host,
        software={
            **info.extras,
            "ReFrame": info.version,
            **(versions_of_suite(suite.root) if just_now else {}),
        },
        verdict=outcome.verdict,
        problems=outcome.problems,
        cases=outcome.cases,
        judged=outcome.judged,
        root=suite.root,
        host_facts=facts_of_this_host() if just_now else {},
    )
    return append(store, new)


def not_said_by_runs(session: Session, judged: Sequence[RunJudgement]) -> Iterable[Problem]:
    """The session's problems, without those of test cases whose runs say the same themselves, and no word less.

    A check that failed says its worst, and may add what only it knows, such as the launcher's last words.
    """
    from fabricheck.session import failure_of

    said: dict[str, set[str]] = {}
    for each in judged:
        lines = said.setdefault(each.test, set())
        lines |= {f"{one.verdict.value}: {one.message}" for one in each.problems}
        lines |= {f"{one.verdict.value}: {one.name}: {one.reason}" for one in each.judgements}
    failed = (case for case in session.cases if case.result == "fail")
    repeated = {failure_of(case) for case in failed if _worst_of(case) in said.get(str(case), ())}
    return (each for each in session.problems if each not in repeated)


def _worst_of(case: Case) -> str:
    """What a check said that failed, without ReFrame's words before it and the number of others after it."""
    (first, *_) = (case.reason or "").splitlines() or [""]
    return re.sub(r" \(and \d+ more\)$", "", first.partition(" error: ")[2])


def _missing_checks(suite: Suite, judge: SystemJudge) -> Iterable[Problem]:
    """A check file that is gone leaves no trace in ReFrame, but the system's references still name its tests."""
    from fabricheck.judge.references import ALL_OTHERS
    from fabricheck.topology.validation import test_classes

    if judge.references is None:
        return
    known = test_classes(suite.root / "checks")
    for name in (*judge.references.tests, *judge.references.uncalibrated):
        if name not in (*known, ALL_OTHERS):
            message = (
                f"{judge.references.path} names {name}, which is not in {suite.root / 'checks'}: is a file missing?"
            )
            yield Problem(Verdict.INCOMPLETE, message)


def _case_run(judged: RunJudgement, case: Case) -> CaseRun:
    """A check that was given another verdict than one on speed or data measured something else, or not all."""
    from fabricheck.judge.case_runs import CaseRun

    trusted = case.verdict not in (Verdict.INVALID, Verdict.INCOMPLETE)
    return CaseRun(judged.run, case.test, case.environment, case.partition, case.tags, trusted)


def _found_by_turns(cases: Iterable[Case], judge: SystemJudge) -> Iterable[Problem]:
    """What settings change, of the cases whose launches are comparable: their own sanity says the others' problems."""
    from fabricheck.judge.tuning_effect import find_tuning_effects

    comparable = (case for case in cases if case.result == "pass" or case.phase == "performance")
    return find_tuning_effects((case.folder for case in comparable if case.folder), judge.policy)


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
    from fabricheck.cli import EXIT_USER_ERROR
    from fabricheck.judge.verdicts import EXIT_CODES
    from fabricheck.report.html import write_html
    from fabricheck.report.machine import write_json, write_junit, write_prometheus
    from fabricheck.report.terminal import render
    from fabricheck.session import Selection, Suite, list_suite, run_suite
    from fabricheck.suite import suite_root

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
        from fabricheck.report.past import Past, past_of
        from fabricheck.store.cli import report as report_stored

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
