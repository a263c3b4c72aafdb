"""Sessions and result files added to the sample store."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.fleet.resume import is_taken_over
from fabricheck.judge.system import SystemJudge
from fabricheck.records.case import Case, name_of_header, parse_case
from fabricheck.records.run import Run
from fabricheck.records.verdict import worst
from fabricheck.results.fabricbench import read_run
from fabricheck.session.outcome import Outcome, judge_session, read_result
from fabricheck.session.reframe_report import FinishedSession, read_session
from fabricheck.store.changes import facts_of_this_host, versions_of_suite
from fabricheck.store.metric_rows import run_id_of, started_of
from fabricheck.store.session_nodes import node_records
from fabricheck.store.writing import Appended, NewSession, append, made_up_session, stored_runs_of
from fabricheck.suite import Suite


def store_session(
    store: Path, session: FinishedSession, outcome: Outcome, suite: Suite, system: str, *, just_now: bool = False
) -> Appended:
    """Add what a session came to to the sample store.

    `just_now`: the suite and this host are still what they were when it ran, so their versions are its versions.
    Raises UserError as `fabricheck.store.writing.append` does, and where ReFrame left no report.
    """
    info = session.info
    known = stored_runs_of(store) if any(map(is_taken_over, session.files)) else frozenset()
    # What was taken over from an earlier run may be stored with that.
    fresh = [
        (case, judged)
        for case, judged in zip(outcome.cases, outcome.judged, strict=True)
        if not (is_taken_over(Path(judged.run.path)) and run_id_of(judged.run) in known)
    ]
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
        findings=outcome.findings,
        cases=[case for case, _ in fresh],
        judged=[judged for _, judged in fresh],
        root=suite.root,
        host_facts=facts_of_this_host() if just_now else {},
        level=info.level,
        nodes=node_records(
            outcome.cases,
            outcome.judged,
            outcome.fleet.verdicts if outcome.fleet else None,
            outcome.problems,
        ),
    )
    return append(store, new)


def import_folder(store: Path, folder: Path, suite: Suite, system: str | None) -> Appended:
    """Judge and store the session in a run's folder. Raises UserError where it is of another system than `system`."""
    session = read_session(folder)
    name = _only_system(folder, session.cases, system)
    return store_session(store, session, judge_session(session, suite, name), suite, name)


def import_files(store: Path, files: Sequence[Path], suite: Suite, system: str | None) -> Appended:
    """Judge and store result files that no report of ReFrame belongs to, as one session of the tests that they name.

    Raises UserError for a file without a valid header or the name of its test, and of another system than `system`.
    """
    cases = [_case_of(read_run(file)) for file in files]
    name = _only_system(files[0], cases, system)
    runs = [read_result(file, suite, name) for file in files]
    judged = SystemJudge.of(name, suite.root).judge_cases(zip(cases, runs, strict=True)).runs
    now = datetime.now(timezone.utc)
    starts = [started_of(run, now) for run in runs]
    new = NewSession(
        system=name,
        session=made_up_session(judged),
        started=min(starts),
        ended=max(starts),
        host=socket.gethostname(),
        software={},
        verdict=worst(one.verdict for one in judged),
        problems=(),
        findings=(),
        cases=cases,
        judged=judged,
        root=suite.root,
        host_facts={},
        nodes=node_records(cases, judged),
    )
    return append(store, new)


def _only_system(source: Path, cases: Sequence[Case], asked: str | None) -> str:
    """The system of all test cases. Raises UserError where that is another than the one `asked` for, or several are."""
    systems = sorted({case.partition.partition(":")[0] for case in cases})
    if not systems:
        raise UserError(f"{source}: the session has no test: nothing to store")
    if systems != [asked or systems[0]]:
        raise UserError(f"{source}: is a run of {', '.join(systems)} instead of {asked or 'one system'}")
    return systems[0]


def _case_of(run: Run) -> Case:
    """The test case that a result file says it is of: it passed, since nothing states otherwise."""
    if not run.header:
        raise UserError(f"{run.path}: has no valid header, so its test, time and host are unknown")
    name, _, where = name_of_header(run.header).rpartition(" @")
    partition, _, environment = where.partition("+")
    if not (name and partition and environment and where.isprintable() and name.isprintable()):
        raise UserError(f"{run.path}: does not name its test: give fabricbench --case, as `fabricheck run` does")
    attributes = {**parse_case(name)[1], "$system": partition.partition(":")[0]}
    return Case(
        name=name,
        environment=environment,
        partition=partition,
        attributes={**attributes, "$partition": partition, "$environ": environment},
        result="pass",
        phase=None,
        reason=None,
        folder=None,
        is_build=False,
    )
