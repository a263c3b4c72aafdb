"""Appends sessions to a store."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.judge.overall import rehearsed
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.case import Case
from fabricheck.records.finding import Finding
from fabricheck.records.rehearsal import REHEARSAL, drove_real_gpus
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench_format import parse_utc
from fabricheck.store import folders
from fabricheck.store.changes import software_of, tuning_of, versions_of_suite
from fabricheck.store.folders import SessionFolder
from fabricheck.store.metric_rows import JudgedCase, metrics_table, run_id_of, started_of, to_parquet
from fabricheck.store.session import FindingRecord, NodeRecord, SessionRecord, read_record

# Clocks of the machines of one site differ by less than this.
_SLACK = timedelta(minutes=1)

# The namespace of the sessions that have no report of ReFrame: made up once.
_NO_SESSION = uuid.UUID("6f0d1b5e-7f43-4a0a-9f0e-0c9d9b5b8a51")


@dataclass(frozen=True)
class NewSession:
    """A session to be stored: what ReFrame says of it, what was judged, and by what.

    `cases` are those of `judged`, in the same order. `problems` and `findings` are those of the session, not of one
    run. `root` is the suite. `software` are versions that all its runs share, `host_facts` what this host says of
    itself where the session ran just now. `level` and `nodes`: as of `SessionRecord`.
    """

    system: str
    session: str
    started: datetime
    ended: datetime
    host: str
    software: Mapping[str, str]
    verdict: Verdict
    problems: Sequence[Finding]
    findings: Sequence[Finding]
    cases: Sequence[Case]
    judged: Sequence[RunJudgement]
    root: Path
    host_facts: Mapping[str, str]
    level: str | None = None
    nodes: Mapping[str, NodeRecord] | None = None


@dataclass(frozen=True)
class Appended:
    """The new entry, and what was noticed of older ones on the way, a line each."""

    entry: SessionFolder
    remarks: tuple[str, ...]


def made_up_session(judged: Sequence[RunJudgement]) -> str:
    """The id of a session of result files that no report of ReFrame belongs to: the same for the same runs."""
    return str(uuid.uuid5(_NO_SESSION, " ".join(sorted(run_id_of(each.run) for each in judged))))


def append(store: Path, new: NewSession, now: datetime | None = None) -> Appended:
    """Store a session: all of it, or nothing. It is on the disk when this returns.

    `now` is the time of storing (default: the clock's). Raises UserError for a session or a run that is stored
    already, for another system's data, for a rehearsal beside measurements or the other way round, for times that
    cannot be, and where the store cannot be written.
    """
    now = now if now is not None else datetime.now(timezone.utc)
    _check_names(new)
    folders.create(store)
    older, remarks = _older(store)
    _check_clock(new, older, now)
    measured = tuple(
        JudgedCase(
            case,
            judged,
            software_of(judged.run, case, new.software, new.host_facts),
            tuning_of(judged.run, case),
        )
        for case, judged in zip(new.cases, new.judged, strict=True)
    )
    run_ids = [run_id_of(each.judged.run) for each in measured]
    _check_runs(new, run_ids, older)
    _check_platform(new, older)
    metrics = metrics_table(measured, new.session, new.started)
    record = SessionRecord(
        session=new.session,
        system=new.system,
        started=_text(new.started),
        ended=_text(new.ended),
        stored=_text(now),
        host=new.host,
        software=dict(new.software),
        judged_by=versions_of_suite(new.root),
        verdict=new.verdict.value,
        problems=[FindingRecord.model_validate(finding.as_json()) for finding in new.problems],
        findings=[FindingRecord.model_validate(finding.as_json()) for finding in new.findings],
        rehearsal=rehearsed(new.judged),
        level=new.level,
        nodes=dict(new.nodes) if new.nodes is not None else None,
        runs=run_ids,
        metrics=metrics.height,
    )
    files = {
        folders.SESSION: record.model_dump_json(indent=1).encode() + b"\n",
        folders.METRICS: to_parquet(metrics),
    }
    entry = folders.commit(store / new.system, new.started.strftime("%Y%m%dT%H%M%SZ"), new.session, files)
    return Appended(entry, remarks)


def _check_names(new: NewSession) -> None:
    for what, name in (("system", new.system), ("session", new.session)):
        folders.check_name(what, name)
    for case in new.cases:
        if case.partition.partition(":")[0] != new.system:
            raise UserError(f"{case} is a run of another system than {new.system}: nothing was stored")


def stored_runs_of(store: Path) -> frozenset[str]:
    """The ids of all runs in a store that can be read; none where there is no store yet."""
    return frozenset(each for _, record in _older(store)[0] for each in record.runs) if store.exists() else frozenset()


def _older(store: Path) -> tuple[tuple[tuple[SessionFolder, SessionRecord], ...], tuple[str, ...]]:
    """The sessions in the store, and what is wrong with those that cannot be read: no reason to lose a new one."""
    records, remarks = [], []
    for system in folders.systems(store)[0]:
        for entry in folders.scan(store / system).entries:
            try:
                records.append((entry, read_record(entry)))
            except UserError as error:
                remarks.append(str(error))
    return tuple(records), tuple(remarks)


def _check_clock(new: NewSession, older: Sequence[tuple[SessionFolder, SessionRecord]], now: datetime) -> None:
    """Entries are written one after another, so one that was written later than now shows a clock that went back."""
    if new.ended < new.started - _SLACK:
        raise UserError(
            f"session {new.session} ended at {_text(new.ended)}, before it began at {_text(new.started)}: "
            "the clock went backwards; nothing was stored"
        )
    latest = max([new.started, *(started_of(each.run, new.started) for each in new.judged)])
    if latest > now + _SLACK:
        raise UserError(
            f"a run of session {new.session} began at {_text(latest)} and it is {_text(now)}: wrong clock; nothing "
            "was stored; correct it, then: fabricheck store import FOLDER"
        )
    for entry, record in older:
        if parse_utc(record.stored) > now + _SLACK:
            raise UserError(
                f"the clock went backwards: it is {_text(now)} and {entry.path} was stored at {record.stored}; nothing "
                "was stored: correct the clock, or move that entry, then: fabricheck store import FOLDER"
            )


def _check_runs(new: NewSession, run_ids: Sequence[str], older: Sequence[tuple[SessionFolder, SessionRecord]]) -> None:
    known = {run_id: entry for entry, record in older for run_id in record.runs}
    seen: set[str] = set()
    for run_id in run_ids:
        if run_id in known:
            where = known[run_id]
            if where.session == new.session:
                raise UserError(f"session {new.session} is stored already, in {where.path}: nothing was changed")
            raise UserError(f"run {run_id} is stored already, in {where.path}: nothing was changed")
        if run_id in seen:
            raise UserError(f"session {new.session} has run {run_id} twice: nothing was stored")
        seen.add(run_id)


def _check_platform(new: NewSession, older: Sequence[tuple[SessionFolder, SessionRecord]]) -> None:
    """Rehearsals and measurements of a system are in stores of their own, since nothing compares them."""
    rehearsal = rehearsed(new.judged)
    real = next((each for each in new.judged if drove_real_gpus(each.run)), None)
    if rehearsal and real is not None:
        raise UserError(
            f"session {new.session} has a {REHEARSAL} and a measurement, {real.run.path}: nothing was stored; import "
            "each into a store of its own"
        )
    for entry, record in older:
        if record.system == new.system and record.runs and new.judged and record.rehearsal != rehearsal:
            what = (f"a {REHEARSAL}", "a measurement")
            kind, other = what if rehearsal else what[::-1]
            raise UserError(
                f"session {new.session} is {kind} and {entry.path} is {other}: nothing was stored; name another store "
                "with --store"
            )


def _text(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
