"""Reads a store. Nothing damaged or foreign is passed over in silence: a line names the file."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import polars as pl

from fabricheck.errors import UserError
from fabricheck.history import folders
from fabricheck.history.folders import METRICS, SessionFolder
from fabricheck.history.metric_rows import from_parquet
from fabricheck.history.session import SessionRecord, read_record
from fabricheck.judge.constants import READERS

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


def find_entries(store: Path, system: str | None) -> tuple[SessionFolder, ...]:
    """The entries of a system, or of all. Raises UserError where there is none, and as `entries_of` does."""
    names = [system] if system is not None else folders.systems(store)[0]
    entries = tuple(entry for name in names for entry in entries_of(store, name))
    if not entries:
        raise UserError(f"{store}: the store is empty")
    return entries


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
        record, table = read_entry(entry)
    except UserError as error:
        return str(error)
    return table.with_columns(rehearsal=pl.lit(record.rehearsal))


def read_entry(entry: SessionFolder) -> tuple[SessionRecord, pl.DataFrame]:
    """The record and the metrics of a session. Raises UserError where anything in its folder is damaged or foreign."""
    foreign = entry.foreign()
    if foreign:
        raise UserError(_foreign(entry.path / foreign[0]))
    content = entry.read(METRICS)
    record = read_record(entry)
    try:
        table = from_parquet(content)
    except ValueError as error:
        raise entry.damage(f"{METRICS} {error}") from None
    strangers = table.filter((pl.col("system") != record.system) | (pl.col("session") != record.session))
    if not strangers.is_empty() or not set(table["run_id"].unique()) <= set(record.runs):
        raise entry.damage(f"{METRICS} has rows of another system, session or run")
    if table.height != record.metrics:
        raise entry.damage(f"{METRICS} has {table.height} metrics and session.json {record.metrics}")
    return record, table


@dataclass(frozen=True)
class Verified:
    """What `verify` found: a line for each thing that is wrong, and for each that is only worth knowing."""

    entries: int
    metrics: int
    damage: tuple[str, ...]
    remarks: tuple[str, ...]


def verify(store: Path) -> Verified:
    """Read every file of a store and compare it with its checksum and with the others.

    Whatever the store holds, this returns. Raises UserError only where there is no store.
    """
    names, foreign = folders.systems(store)
    damage = [*filter(None, [folders.marker_damage(store)]), *map(_foreign, foreign)]
    remarks, entries, metrics = [], 0, 0
    owner: dict[str, SessionFolder] = {}
    for system in names:
        content = folders.scan(store / system)
        damage += map(_foreign, content.foreign)
        remarks += [f"{path}: incomplete: it is being written, or its process was killed" for path in content.drafts]
        entries += len(content.entries)
        for entry in content.entries:
            try:
                record, _ = read_entry(entry)
            except UserError as error:
                damage.append(str(error))
                continue
            metrics += record.metrics
            for run_id in record.runs:
                first = owner.setdefault(run_id, entry)
                if first != entry:
                    damage.append(f"{entry.path}: run {run_id} is in {first.path} too: move one out of the store")
    return Verified(entries, metrics, tuple(damage), tuple(remarks))


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
