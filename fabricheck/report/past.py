"""What the sample store adds to a report: a session as it was stored, its history, and what changed since another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fabricheck.diagnosis.case_runs import CaseRun
from fabricheck.diagnosis.of_session import find_all
from fabricheck.errors import UserError
from fabricheck.history.accepted import find_accepted
from fabricheck.history.compare import Comparison, compare
from fabricheck.history.reading import entries_of, find_entries, history
from fabricheck.history.replay import replay
from fabricheck.history.select import select_runs
from fabricheck.history.series import check_history
from fabricheck.history.session import read_record
from fabricheck.history.watch import Watched, watch_series
from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding, split


@dataclass(frozen=True)
class Past:
    """What is known of a system besides the runs that are shown; `notes` say what is not, and why."""

    watched: Watched | None = None
    comparison: Comparison | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StoredSession:
    """A session out of the store, judged by the suite as it is now; `problems` and `findings` are those of no run.

    `session`: its whole id; `started`: UTC, as in the store; `notes`: what a reader has to know of how it was judged.
    """

    session: str
    started: str
    judged: tuple[RunJudgement, ...]
    problems: tuple[Finding, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


def stored_session(store: Path, system: str, session: str | None, root: Path) -> StoredSession:
    """A session by its id or its beginning, the latest without one, judged again.

    Raises UserError for one that is not there, one whose samples were pruned, and as `replay` does.
    """
    entry = find_entries(store, system, (session,))[0] if session is not None else entries_of(store, system)[-1]
    (replayed,) = replay(store, root, system=system, sessions=(entry.session,))
    if replayed.pruned:
        raise UserError(
            f"{store}: the samples of session {entry.session} were pruned, so it cannot be judged again: "
            "choose another with --session; `fabricheck watch` and `compare` still use its medians"
        )
    record = read_record(entry)
    judged = tuple(each.judged for each in replayed.runs)
    runs = [CaseRun.of_case(each.stored.run, each.stored.case) for each in replayed.runs]
    now = tuple(find_all(runs, SystemJudge.of(system, root)))
    said = {each.message for each in now}
    # What the runs do not tell: that a check did not run, what does not apply.
    before: list[Finding] = [
        *(each.finding for each in (*record.problems, *record.findings)),
    ]
    problems, findings = split([*(each for each in before if each.message not in said), *now])
    other = ", ".join(replayed.other)
    notes = (f"Changed since the session was stored: {other}",) if other else ()
    return StoredSession(entry.session, record.started, judged, problems, findings, notes)


def past_of(
    store: Path,
    system: str,
    root: Path,
    *,
    session: str,
    base: str | None = None,
    candidate: str | None = None,
) -> Past:
    """The history of a system up to `session`, and with `base` what changed between it and `candidate` (default: the
    session), as `select_runs` takes them.

    A history that cannot be watched or compared is a note and no error: it never costs the report. Raises UserError for
    a selection that is none, or means nothing.
    """
    notes: list[str] = []
    try:
        whole = history(store, system=system, say=lambda line: notes.append(f"Left out: {line}"))
        check_history(whole, system)
    except UserError as error:
        return Past(notes=(*notes, f"No history is shown: {error}"))
    watched, comparison = None, None
    for text in (base, candidate):
        if text is not None:
            select_runs(whole, text)
    try:
        watched = watch_series(_until(whole, session, store, system), system, find_accepted(system, root))
    except UserError as error:
        notes.append(f"No history is shown: {error}")
    if base is not None:
        try:
            comparison = compare(whole, system, base, candidate or f"session:{session}")
        except UserError as error:
            notes.append(f"No comparison is shown: {error}")
    return Past(watched, comparison, tuple(notes))


def _until(whole: pl.DataFrame, session: str, store: Path, system: str) -> pl.DataFrame:
    """The rows of the sessions up to this one, in the order of the store."""
    names = [each.session for each in entries_of(store, system, lambda _: None)]
    return whole.filter(pl.col("session").is_in(names[: names.index(session) + 1]))
