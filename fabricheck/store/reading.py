"""Reads a store. Nothing damaged or foreign is passed over in silence: a line names the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import polars as pl

from fabricheck.errors import UserError
from fabricheck.statistics.constants import READERS
from fabricheck.store import folders
from fabricheck.store.folders import METRICS, SessionFolder
from fabricheck.store.metric_rows import from_parquet
from fabricheck.store.session import SessionRecord, read_record
from fabricheck.waiting import steps

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
    read = _read(entries_of(store, system, say), say)
    tables = [table.with_columns(rehearsal=pl.lit(record.rehearsal)) for record, table in read]
    if not any(table.height for table in tables):
        raise UserError(f"{store}: has no metric of {system} yet: run `fabricheck run --system {system}`")
    rows = pl.concat(tables)
    return rows.sort("started", "run_id", "partition", "environment", "test", "metric", maintain_order=True)


def _read(entries: Sequence[SessionFolder], say: Say) -> Iterator[tuple[SessionRecord, pl.DataFrame]]:
    """The record and the metrics of entries, in their order; of a run that several have, those of the first."""
    owner: dict[str, SessionFolder] = {}
    with ThreadPoolExecutor(READERS) as pool:
        contents = steps(pool.map(_content_or_damage, entries), len(entries), "sessions read")
        for entry, content in zip(entries, contents, strict=True):
            if isinstance(content, str):
                say(content)
                continue
            record, table = content
            twice = [run_id for run_id in record.runs if owner.setdefault(run_id, entry) != entry]
            for run_id in twice:
                say(f"{entry.path}: run {run_id} is in {owner[run_id].path} too: {folders.HINT}")
            yield record, table.filter(~pl.col("run_id").is_in(twice))


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


def count_values(store: Path, system: str) -> int:
    """How many rows `history` has of a system, without reading them. Raises UserError as `entries_of` does."""
    return sum(map(_height, entries_of(store, system, lambda _: None)))  # who reads them says what is wrong


def _height(entry: SessionFolder) -> int:
    try:
        return read_record(entry).metrics
    except UserError:
        return 0  # who reads its metrics says so


def _content_or_damage(entry: SessionFolder) -> tuple[SessionRecord, pl.DataFrame] | str:
    try:
        return read_entry(entry)
    except UserError as error:
        return str(error)


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
    for system in names:
        content = folders.scan(store / system)
        damage += map(_foreign, content.foreign)
        remarks += [f"{path}: incomplete: it is being written, or its process was killed" for path in content.drafts]
        entries += len(content.entries)
        metrics += sum(record.metrics for record, _ in _read(content.entries, damage.append))
    return Verified(entries, metrics, tuple(damage), tuple(remarks))


def _foreign(path: Path) -> str:
    return f"{path}: does not belong in a store: {folders.HINT}"
