"""Sessions and result files added to the sample store."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.fleet.resume import is_taken_over
from fabricheck.history.changes import facts_of_this_host, versions_of_suite
from fabricheck.history.metric_rows import run_id_of, started_of
from fabricheck.history.session_nodes import node_records
from fabricheck.history.writing import Appended, NewSession, append, made_up_session, stored_runs_of
from fabricheck.judge.system import SystemJudge
from fabricheck.records.case import Case, Key, parse_attribute
from fabricheck.records.run import Run
from fabricheck.records.verdict import worst
from fabricheck.session.outcome import Outcome, judge_session, read_result
from fabricheck.session.reframe_report import FinishedSession, read_session
from fabricheck.suite import Suite, site_root
from fabricheck.topology.model import find_topology


def store_session(
    store: Path, session: FinishedSession, outcome: Outcome, suite: Suite, system: str, *, just_now: bool = False
) -> Appended:
    """Add what a session came to to the sample store.

    `just_now`: the suite and this host are still what they were when it ran, so their versions are its versions.
    Raises UserError as `fabricheck.history.writing.append` does, and where ReFrame left no report.
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
    systems = sorted({case.partition.partition(":")[0] for case in session.cases})
    if not systems:
        raise UserError(f"{folder}: the session has no test: nothing to store")
    if systems != [system or systems[0]]:
        raise UserError(f"{folder}: is a run of {', '.join(systems)} instead of {system or 'one system'}")
    outcome = judge_session(session, suite, systems[0])
    return store_session(store, session, outcome, suite, systems[0])


def import_files(store: Path, files: Sequence[Path], suite: Suite, system: str, case: Case) -> Appended:
    """Judge and store result files that no report of ReFrame belongs to, as one session.

    Raises UserError for a file without a valid header.
    """
    judge = SystemJudge.of(system, suite.root)
    runs = [read_result(file, suite, system) for file in files]
    for file, run in zip(files, runs, strict=True):
        _require_gpus_of(file, run, suite, system)
    judged = judge.judge_cases((case, run) for run in runs).runs
    now = datetime.now(timezone.utc)
    for file, judgement in zip(files, judged, strict=True):
        if not judgement.run.header:
            raise UserError(f"{file}: has no valid header, so its time and host are unknown")
    starts = [started_of(one.run, now) for one in judged]
    new = NewSession(
        system=system,
        session=made_up_session(judged),
        started=min(starts),
        ended=max(starts),
        host=socket.gethostname(),
        software={},
        verdict=worst(one.verdict for one in judged),
        problems=(),
        findings=(),
        cases=[case] * len(judged),
        judged=judged,
        root=suite.root,
        host_facts={},
        nodes=node_records([case] * len(judged), judged),
    )
    return append(store, new)


def _require_gpus_of(file: Path, run: Run, suite: Suite, system: str) -> None:
    """Raises UserError for a file that was measured on GPUs which another system of the suite has, and not `system`."""

    def models(name: str) -> set[str]:
        gpus = find_topology(name, site_root(name, suite.root) / "site_configs").gpus
        return {gpu.model.partition(" ")[0] for gpu in gpus}

    for name in {rank.device.name for rank in run.ranks if rank.device is not None}:
        words = {*name.split()}
        if not models(system) & words and any(models(other) & words for other in suite.systems()):
            has = ", ".join(sorted(models(system))) or "no GPUs"
            raise UserError(f"{file}: was measured on {name}, and {system} has {has}: give its system with --system")


def attributes_of(keys: Iterable[str], system: str, partition: str, environment: str) -> dict[str, Key]:
    """What references may be indexed by: what ReFrame would know, and `NAME=VALUE` of `keys`, which may replace it.

    Raises UserError for a key that is not of this form.
    """
    own = {"$system": system, "$partition": f"{system}:{partition}", "$environ": environment}
    attributes = {**own, **dict(map(parse_attribute, keys))}
    for text in (*attributes, *map(str, attributes.values())):
        _require_plain(text)
    return attributes


def _require_plain(text: str) -> None:
    """Raises UserError for control characters, and for bytes that are not UTF-8: no table can hold them."""
    if not text.isprintable():
        raise UserError(f"{text!r} is not plain text: give names without control characters, in UTF-8")


def case_of_files(test: str, attributes: Mapping[str, Key], tags: Sequence[str]) -> Case:
    """The test case of files that no report of ReFrame belongs to: it passed, since nothing states otherwise.

    `test`: its name; `attributes`: as of `attributes_of`. Raises UserError where the name is empty.
    """
    if not test.strip():
        raise UserError("--test is empty: give the test's name, such as 'PingPong %transport=mpi'")
    for text in (test, *tags):
        _require_plain(text)
    return Case(
        name=test,
        environment=str(attributes["$environ"]),
        partition=str(attributes["$partition"]),
        attributes=attributes,
        result="pass",
        phase=None,
        reason=None,
        folder=None,
        is_build=False,
        tags=tuple(sorted(set(tags))),
    )
