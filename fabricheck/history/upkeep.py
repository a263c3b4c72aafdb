"""Looks after a store: is everything what was stored, and what may go?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.history import folders, store_tables
from fabricheck.history.folders import FILES, METRICS, RUNS, SAMPLES, SESSION, SessionFolder
from fabricheck.history.session import SessionRecord, read_record

# A writer that takes longer than this was killed.
_ABANDONED = timedelta(days=1)


@dataclass(frozen=True)
class Verified:
    """What `verify` found: a line for each thing that is wrong, and for each that is only worth knowing."""

    entries: int
    metrics: int
    damage: tuple[str, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Pruned:
    """What `prune` removed, or would have: entries whose samples went, bytes, drafts of killed writers.

    `kept` are lines about entries that are damaged, whose samples were left alone.
    """

    entries: tuple[SessionFolder, ...]
    bytes: int
    drafts: tuple[Path, ...]
    kept: tuple[str, ...]


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
        damage += [_foreign(path) for path in content.foreign]
        remarks += [f"{path}: incomplete: it is being written, or its process was killed" for path in content.drafts]
        for entry in content.entries:
            entries += 1
            problems = list(_check(entry))
            damage += problems
            if problems:
                continue
            record = read_record(entry)
            metrics += record.metrics
            for run_id in record.runs:
                first = owner.setdefault(run_id, entry)
                if first != entry:
                    damage.append(f"{entry.path}: run {run_id} is in {first.path} too: move one out of the store")
            if entry.pruned:
                remarks.append(f"{entry.path}: its samples were pruned")
    return Verified(entries, metrics, tuple(damage), tuple(remarks))


def prune(store: Path, keep_samples: timedelta, now: datetime, *, dry_run: bool = False) -> Pruned:
    """Remove the samples of sessions that began longer ago than `keep_samples`, and what killed writers left.

    Metrics, headers and judgements stay for ever. The samples of an entry whose other files are damaged are kept.
    Raises UserError where there is no store, or it cannot be written.
    """
    limit = now - keep_samples
    gone, drafts, kept, freed = [], [], [], 0
    for system in folders.systems(store)[0]:
        content = folders.scan(store / system)
        for draft in content.drafts:
            if datetime.fromtimestamp(draft.lstat().st_mtime, timezone.utc) < now - _ABANDONED:
                drafts.append(draft)
                if not dry_run:
                    folders.remove_draft(draft)
        for entry in content.entries:
            samples = entry.path / SAMPLES
            started = _moment(entry)
            if started is None:
                kept.append(f"{entry.path}: its name has no valid date: see `fabricheck store verify`")
                continue
            if started >= limit or not samples.exists():
                continue
            problems = [] if entry.pruned else list(_check(entry, but_samples=True))
            if problems:
                kept += problems
                continue
            gone.append(entry)
            freed += samples.stat().st_size
            if not dry_run:
                folders.remove_samples(entry, now.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"))
    return Pruned(tuple(gone), freed, tuple(drafts), tuple(kept))


def _moment(entry: SessionFolder) -> datetime | None:
    """When the session began, by the entry's name; None where the name was changed and has no date."""
    try:
        return datetime.strptime(entry.started, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return None


def _foreign(path: Path) -> str:
    return f"{path}: does not belong in a store: move it elsewhere"


def _check(entry: SessionFolder, *, but_samples: bool = False) -> Iterator[str]:
    """What is wrong with an entry, a line each."""
    yield from (_foreign(entry.path / name) for name in entry.foreign())
    try:
        sums = entry.sums()
    except UserError as error:
        yield str(error)
        return
    contents: dict[str, bytes] = {}
    bad = False
    for name in FILES:
        if name == SAMPLES and (but_samples or entry.pruned):
            continue
        try:
            contents[name] = entry.check(name, sums)
        except UserError as error:
            bad = True
            yield str(error)
    if bad:
        return
    try:
        record = read_record(entry, contents[SESSION])
        _check_tables(entry, record, contents)
    except UserError as error:
        yield str(error)


def _check_tables(entry: SessionFolder, record: SessionRecord, contents: dict[str, bytes]) -> None:
    """Raises UserError where the tables do not belong to each other, though each is what its checksum says."""
    name = RUNS
    try:
        runs = store_tables.from_parquet(contents[RUNS], store_tables.RUNS)
        name = METRICS
        metrics = store_tables.from_parquet(contents[METRICS], store_tables.METRICS)
        name = SAMPLES
        if SAMPLES in contents:
            samples = store_tables.from_parquet(contents[SAMPLES], store_tables.SAMPLES)
            strangers = set(samples["run_id"]) - set(record.runs)
            if strangers:
                raise ValueError(f"has samples of run {min(strangers)}, which is not in the session")
            name = RUNS
            list(store_tables.stored_runs(runs, samples))
    except ValueError as error:
        raise entry.damage(f"{name} {error}") from None
    if runs["run_id"].to_list() != record.runs:
        raise entry.damage(f"{RUNS} and {SESSION} have different runs")
    judged = [len(json.loads(text)["metrics"]) for text in runs["judgement"]]
    if metrics.height != record.metrics or sum(judged) != record.metrics:
        raise entry.damage(f"{METRICS} has {metrics.height} metrics, {SESSION} {record.metrics}")
    for name, table in ((RUNS, runs), (METRICS, metrics)):
        if not set(table["system"]) <= {record.system} or not set(table["session"]) <= {record.session}:
            raise entry.damage(f"{name} has rows of another system or session")
