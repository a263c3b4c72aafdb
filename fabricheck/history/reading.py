"""Reads a store. Nothing damaged or foreign is passed over in silence: a line names the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import polars as pl

from fabricheck.errors import UserError
from fabricheck.history import folders, store_tables
from fabricheck.history.folders import METRICS, RUNS, SAMPLES, SessionFolder
from fabricheck.history.session import read_record
from fabricheck.judge.constants import READERS

_SCHEMAS = {RUNS: store_tables.RUNS, METRICS: store_tables.METRICS, SAMPLES: store_tables.SAMPLES}


#: Takes a line about something damaged or foreign, which is left out then.
Say = Callable[[str], None]


def refuse(line: str) -> NoReturn:
    """Raise UserError: nothing damaged is left out."""
    raise UserError(line)


def history(store: Path, *, system: str, say: Say = refuse) -> pl.DataFrame:
    """One row for each metric of each run of a system, sorted by the run's start.

    Columns: `session` (ReFrame's session uuid), `run_id`, `started` (UTC), `system`, `partition` (its name alone),
    `environment`, `test` (the unique name with parameters), `metric`, `unit`, `better` ("higher" or "lower"), `value`
    (the median), `low` and `high` (the nonparametric 95% interval of the median), `count` (iterations), `deviation`
    (1.4826 times the median absolute deviation of the iterations), `verdict` (the worst of the metric's own and of
    what concerns its run as a whole), `nodes` (sorted host names), `software` and `tuning` (canonical JSON of names
    and values), `components` (what the data pass: `node`, `node:part`, `node:part-part`), `tags`,
    `rehearsal` (whether the session was on emulated GPUs).

    `say` is told what is damaged, foreign or there twice, a line each, and the rest is read. Raises UserError where
    there is no store or no run, and without a `say` of the caller for the first such line.
    """
    with ThreadPoolExecutor(READERS) as pool:
        parts = list(pool.map(_metrics_or_damage, entries_of(store, system, say)))
    for damage in parts:
        if isinstance(damage, str):
            say(damage)
    tables = [table for table in parts if not isinstance(table, str)]
    if not any(table.height for table in tables):
        raise UserError(f"{store}: has no metric of {system} yet: run `fabricheck run --system {system}`")
    rows = _unique(store, pl.concat(tables), say)
    return rows.sort("started", "run_id", "partition", "environment", "test", "metric", maintain_order=True)


def entries_of(store: Path, system: str, say: Say = refuse) -> tuple[SessionFolder, ...]:
    """The entries of a system, oldest first; `say` as of `history`. Raises UserError where there is none."""
    known, foreign = folders.systems(store)
    for path in foreign:
        say(_foreign(path))
    if system not in known:
        others = f"only of {', '.join(known)}" if known else "nor of another system: it is empty"
        raise UserError(f"{store}: has no runs of the system {system!r}, {others}")
    content = folders.scan(store / system)
    for path in content.foreign:
        say(_foreign(path))
    if not content.entries:
        raise UserError(f"{store}: has no runs of the system {system!r} yet")
    return content.entries


def find_entries(store: Path, system: str | None, sessions: Sequence[str]) -> tuple[SessionFolder, ...]:
    """The entries of a system (of all: `None`), or those of `sessions`, each an id or how exactly one id begins.

    Raises UserError for a session that is not there or not told apart, and as `entries_of` does.
    """
    names = [system] if system is not None else folders.systems(store)[0]
    entries = [entry for name in names for entry in entries_of(store, name)]
    if not entries:
        raise UserError(f"{store}: the store is empty")
    if not sessions:
        return tuple(entries)
    chosen = []
    for text in sessions:
        matching = [each for each in entries if each.session == text] or [
            each for each in entries if each.session.startswith(text)
        ]
        if not matching:
            raise UserError(_no_session(store, text, entries))
        if len(matching) > 1:
            raise UserError(f"{store}: {len(matching)} sessions begin with {text!r}: give more of its id")
        chosen += matching
    return tuple(dict.fromkeys(chosen))


def stored_runs(entry: SessionFolder) -> Iterator[store_tables.StoredRun]:
    """The runs of an entry, exactly as they were. Raises UserError where samples were pruned and for damage."""
    sums = entry.sums()
    samples = read_table(entry, SAMPLES, sums=sums)
    runs = read_table(entry, RUNS, sums=sums)
    try:
        yield from store_tables.stored_runs(runs, samples)
    except ValueError as error:
        raise entry.damage(f"{RUNS}: {error}") from None


def count_values(store: Path, system: str) -> tuple[int, int]:
    """How many sessions and rows `history` has of a system, without reading them. Raises UserError as `entries_of`
    does."""
    entries = entries_of(store, system, lambda _: None)  # who reads them says so
    return len(entries), sum(map(_height, entries))


def _height(entry: SessionFolder) -> int:
    try:
        return read_record(entry).metrics
    except UserError:
        return 0  # who reads its metrics says so


def _metrics_or_damage(entry: SessionFolder) -> pl.DataFrame | str:
    try:
        return _metrics(entry)
    except UserError as error:
        return str(error)


def _metrics(entry: SessionFolder) -> pl.DataFrame:
    foreign = entry.foreign()
    if foreign:
        raise UserError(_foreign(entry.path / foreign[0]))
    columns = [name for name in store_tables.HISTORY if name in store_tables.METRICS]
    table = read_table(entry, METRICS, columns)
    system = entry.path.parent.name
    others = table.filter((pl.col("system") != system) | (pl.col("session") != entry.session))
    if not others.is_empty():
        raise entry.damage(f"holds metrics of session {others['session'][0]} of {others['system'][0]}")
    return table.with_columns(rehearsal=pl.lit(read_record(entry).rehearsal))


def read_table(
    entry: SessionFolder, name: str, columns: Iterable[str] | None = None, *, sums: Mapping[str, str] | None = None
) -> pl.DataFrame:
    """A table of an entry, or some of its columns; `sums`: checksums read before. Raises UserError for damage."""
    content = entry.check(name, sums if sums is not None else entry.sums())
    try:
        return store_tables.from_parquet(content, _SCHEMAS[name], columns)
    except ValueError as error:
        raise entry.damage(f"{name} {error}") from None


def _unique(store: Path, table: pl.DataFrame, say: Say) -> pl.DataFrame:
    """The rows without those of a run that an earlier session has too."""
    keys = ["run_id", "metric"]
    twice = table.filter(table.select(keys).is_duplicated())
    for run_id in twice["run_id"].unique().sort():
        sessions = sorted(twice.filter(pl.col("run_id") == run_id)["session"].unique())
        say(f"{store}: run {run_id} appears twice, in sessions {' and '.join(sessions)}: {folders.HINT}")
    return table if twice.is_empty() else table.unique(keys, keep="first", maintain_order=True)


def _foreign(path: Path) -> str:
    return f"{path}: does not belong in a store: {folders.HINT}"


def _no_session(store: Path, session: str, entries: Sequence[SessionFolder]) -> str:
    latest = ", ".join(each.session for each in entries[-3:])
    return f"{store}: no session {session!r}; the latest are {latest}"
