"""Judges stored runs again: by the files of the suite as they are now, or by another policy or reference."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError
from fabricheck.history.folders import SessionFolder
from fabricheck.history.reading import find_entries, stored_runs
from fabricheck.history.session import SessionRecord, Yardsticks, read_record
from fabricheck.history.store_tables import StoredRun, judgement_bytes
from fabricheck.history.writing import digest_of, yardsticks_of
from fabricheck.judge.policy import load_policy
from fabricheck.judge.references import load_references, require_references_of
from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement


@dataclass(frozen=True)
class JudgementChange:
    """One thing that is judged otherwise now: a metric by its name, or, with the name "", the run as a whole."""

    metric: str
    before: str
    after: str


@dataclass(frozen=True)
class Replayed:
    """A stored run and what is said of it now; without `changes`, the bytes of both judgements are the same."""

    stored: StoredRun
    judged: RunJudgement
    changes: tuple[JudgementChange, ...]


@dataclass(frozen=True)
class ReplayedSession:
    """The runs of a session; `pruned` ones have no samples any more and were not judged.

    `other` are the names of the yardsticks (topology, references, policy) that are not those it was judged by.
    """

    entry: SessionFolder
    runs: tuple[Replayed, ...]
    other: tuple[str, ...]
    pruned: bool

    @property
    def changed(self) -> bool:
        """Whether the judgement of any run differs from the stored one."""
        return any(each.changes for each in self.runs)


def replay(
    store: Path,
    root: Path,
    *,
    system: str | None = None,
    sessions: Sequence[str] = (),
    policy: Path | None = None,
    references: Path | None = None,
) -> Iterator[ReplayedSession]:
    """Judge the runs of `sessions` (all: empty) of a system (all: `None`) again, a session at a time, oldest first.

    They are judged as when they were stored: by the suite at `root`, but for `policy` and `references` where given.
    Nothing in the store changes. Raises UserError for a session that is not there, for references of another system,
    for damage in the store, and as SystemJudge does.
    """
    entries = find_entries(store, system, sessions)
    systems = sorted({each.path.parent.name for each in entries})
    if references is not None:
        if len(systems) > 1:
            raise UserError(f"the runs are of {', '.join(systems)}: give --system of {references}")
        for named in systems:
            require_references_of(references, named, root)
    judges = {name: _judge(name, root, policy, references) for name in systems}
    for entry in entries:
        name = entry.path.parent.name
        other = _other_yardsticks(read_record(entry), _yardsticks(name, root, policy, references))
        if entry.pruned:
            yield ReplayedSession(entry, (), other, True)
            continue
        runs = tuple(_replay_runs(tuple(stored_runs(entry)), judges[name]))
        yield ReplayedSession(entry, runs, other, False)


def _replay_runs(stored: Sequence[StoredRun], judge: SystemJudge) -> Iterator[Replayed]:
    judged_now = judge.judge_cases((each.case, each.run) for each in stored).runs
    for run, judged in zip(stored, judged_now, strict=True):
        now = judgement_bytes(judged)
        changes = tuple(_changes(json.loads(run.judgement), json.loads(now))) if now != run.judgement else ()
        yield Replayed(run, judged, changes)


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[JudgementChange]:
    """What differs between two judgements of one run; at least one change where anything differs."""
    count = 0
    if before["verdict"] != after["verdict"] or before["problems"] != after["problems"]:
        count += 1
        yield JudgementChange("", _whole(before), _whole(after))
    older = {each["name"]: each for each in before["metrics"]}
    newer = {each["name"]: each for each in after["metrics"]}
    for name in dict.fromkeys([*older, *newer]):
        if older.get(name) != newer.get(name):
            count += 1
            yield JudgementChange(name, *_one_and_other(older.get(name), newer.get(name)))
    if not count:
        yield JudgementChange("", "the same, in another form", "the same")


def _whole(judged: Mapping[str, Any]) -> str:
    problems = judged["problems"]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{judged['verdict']}: {problems[0]['message']}{more}" if problems else str(judged["verdict"])


def _one_and_other(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> tuple[str, str]:
    """The two as short texts: the verdict and its reason; where these are the same, the fields that differ."""
    if before is None or after is None or _said(before) != _said(after):
        return _said(before), _said(after)
    fields = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    return (
        f"{before['verdict']} with {', '.join(f'{name} {before.get(name)}' for name in fields)}",
        f"{after['verdict']} with {', '.join(f'{name} {after.get(name)}' for name in fields)}",
    )


def _said(judged: Mapping[str, Any] | None) -> str:
    return f"{judged['verdict']}: {judged['reason']}" if judged is not None else "not judged"


def _judge(system: str, root: Path, policy: Path | None, references: Path | None) -> SystemJudge:
    own = SystemJudge.of(system, root)
    return SystemJudge(
        own.topology,
        load_references(references) if references is not None else own.references,
        load_policy(policy) if policy is not None else own.policy,
        own.partitions,
        own.parts,
        own.published,
    )


def _yardsticks(system: str, root: Path, policy: Path | None, references: Path | None) -> Yardsticks:
    own = yardsticks_of(system, root)
    return Yardsticks(
        topology=own.topology,
        references=digest_of(references) if references is not None else own.references,
        policy=digest_of(policy) if policy is not None else own.policy,
    )


def _other_yardsticks(record: SessionRecord, now: Yardsticks) -> tuple[str, ...]:
    before, after = record.yardsticks.model_dump(), now.model_dump()
    return tuple(name for name in before if before[name] != after[name])
