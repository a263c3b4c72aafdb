"""verify finds whatever is not as it was stored; prune removes samples and nothing else."""

from __future__ import annotations

import hashlib
import os
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricheck.errors import UserError
from fabricheck.history import folders
from fabricheck.history.folders import FILES, METRICS, PRUNED, RUNS, SAMPLES, SESSION, SUMS, SessionFolder
from fabricheck.history.reading import history, stored_runs
from fabricheck.history.upkeep import prune, verify
from tests.support.effort import effort
from tests.support.sessions import FIRST_NIGHT, NOW, add

DAY = timedelta(days=1)


def damage_of(store: Path) -> tuple[str, ...]:
    found = verify(store)
    assert all("\n" not in line for line in (*found.damage, *found.remarks))
    return found.damage


def forge(entry: SessionFolder, name: str, content: bytes) -> None:
    """Change a file and its checksum with it."""
    (entry.path / name).write_bytes(content)
    sums = "".join(f"{hashlib.sha256((entry.path / each).read_bytes()).hexdigest()}  {each}\n" for each in FILES)
    (entry.path / SUMS).write_text(sums)


def test_a_store_as_it_was_written(root: Path, store: Path) -> None:
    for night in range(3):
        add(root, store, night, runs=2)
    found = verify(store)
    assert (found.entries, found.metrics, found.damage, found.remarks) == (3, 12, (), ())


@settings(max_examples=effort(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from([*FILES, SUMS]),
    place=st.floats(0, 1, exclude_max=True),
    bit=st.integers(0, 7) | st.none(),
)
def test_a_single_bit_or_an_end_that_is_missing(
    root: Path, store: Path, name: str, place: float, bit: int | None
) -> None:
    entry = SessionFolder(
        store / "local" / f"{FIRST_NIGHT:%Y%m%dT%H%M%SZ}-00000000-0000-4000-8000-000000000000", "", ""
    )
    if not store.exists():
        add(root, store, 0)
        add(root, store, 1)
    file = entry.path / name
    content = file.read_bytes()
    position = int(place * (len(content) - 1))  # the newline at the end of the list of checksums says nothing
    changed = bytearray(content)
    if bit is not None:
        changed[position] ^= 1 << bit
    file.write_bytes(bytes(changed) if bit is not None else content[:position])
    try:
        damage = damage_of(store)
        assert damage and all(str(entry.path) in line for line in damage)
    finally:
        file.write_bytes(content)
    assert damage_of(store) == ()


@pytest.mark.parametrize("between", ["\r", "\x0b", "\x1c", "\r\n"])
def test_checksums_in_lines_that_sha256sum_does_not_know(root: Path, store: Path, between: str) -> None:
    entry, _ = add(root, store, 0)
    sums = (entry.path / SUMS).read_bytes()
    (entry.path / SUMS).write_bytes(sums.replace(b"\n", between.encode(), 1))
    (line,) = damage_of(store)
    assert "is not a list of the checksums" in line


@pytest.mark.parametrize("name", [*FILES, SUMS])
def test_a_file_that_is_gone(root: Path, store: Path, name: str) -> None:
    entry, _ = add(root, store, 0)
    (entry.path / name).unlink()
    (line,) = damage_of(store)
    assert f"{entry.path}: {name} is missing" in line


def test_strangers_and_drafts(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0)
    strangers = [store / "notes", store / "local" / "results.jsonl", entry.path / "more.parquet"]
    for each in strangers:
        each.touch()
    (store / "local" / ".writing-0123").mkdir()
    assert damage_of(store) == tuple(f"{each}: does not belong in a store: move it elsewhere" for each in strangers)
    (remark,) = verify(store).remarks
    assert "incomplete: it is being written, or its process was killed" in remark


def test_files_of_another_entry_with_right_checksums(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0)
    other, _ = add(root, store, 1, runs=2)
    originals = {name: (entry.path / name).read_bytes() for name in FILES}
    for name in FILES:
        forge(entry, name, (other.path / name).read_bytes())
        (line,) = damage_of(store)
        assert line.startswith(f"{entry.path}: ")
        forge(entry, name, originals[name])
    for name in (RUNS, METRICS, SAMPLES):
        forge(entry, name, b"PAR1 is how a Parquet file begins, and PAR1")
        (line,) = damage_of(store)
        assert f"{name} is not a Parquet file" in line
        forge(entry, name, originals[name])
    forge(entry, METRICS, originals[RUNS])
    (line,) = damage_of(store)
    assert "its columns are not those of this format" in line
    with pytest.raises(UserError, match="its columns are not those of this format"):
        history(store, system="local")
    forge(entry, METRICS, originals[METRICS])
    for text in (b"{}", b"[", originals[SESSION].replace(b'"format": 3', b'"format": 4')):
        forge(entry, SESSION, text)
        (line,) = damage_of(store)
        assert "session.json is not of this format" in line


def test_a_run_in_two_entries(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0)
    add(root, root / "second", 0, session="other")
    copy = f"{entry.started}-other"
    (root / "second" / "local" / copy).rename(store / "local" / copy)
    (line,) = damage_of(store)
    assert "run 00000000000000000000000000000000 is in" in line


def test_verify_needs_a_store(store: Path) -> None:
    with pytest.raises(UserError, match="there is no store"):
        verify(store)


# prune


def test_prune_removes_the_samples_of_old_sessions_only(root: Path, store: Path) -> None:
    entries = [add(root, store, night)[0] for night in range(4)]
    before = history(store, system="local")
    now = FIRST_NIGHT + 12 * DAY
    planned = prune(store, 10 * DAY, now, dry_run=True)
    assert [each.session for each in planned.entries] == [each.session for each in entries[:2]]
    assert all((each.path / SAMPLES).exists() for each in entries)
    done = prune(store, 10 * DAY, now)
    assert done == planned
    assert done.bytes > 0
    assert [(each.path / SAMPLES).exists() for each in entries] == [False, False, True, True]
    assert history(store, system="local").equals(before)
    found = verify(store)
    assert (found.damage, len(found.remarks)) == ((), 2)
    with pytest.raises(UserError, match="its samples were pruned"):
        list(stored_runs(entries[0]))
    assert prune(store, 10 * DAY, now).entries == ()


def test_prune_leaves_damaged_sessions_alone(root: Path, store: Path) -> None:
    """Their samples may be what the metrics can be made from again."""
    entry, _ = add(root, store, 0)
    (entry.path / METRICS).write_bytes(b"")
    done = prune(store, DAY, NOW)
    assert done.entries == ()
    assert (entry.path / SAMPLES).exists()
    assert len(done.kept) == 1


def test_prune_that_was_killed_in_between(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0)
    (entry.path / PRUNED).write_text("2026-11-21T00:00:00Z\n")
    assert verify(store).damage == ()
    assert len(prune(store, DAY, NOW).entries) == 1
    assert not (entry.path / SAMPLES).exists()


def test_prune_removes_what_killed_writers_left_a_day_ago(root: Path, store: Path) -> None:
    add(root, store, 0)
    old, new, file = (store / "local" / f".writing-{name}" for name in ("old", "new", "file"))
    old.mkdir()
    (old / SESSION).touch()
    new.mkdir()
    file.touch()
    for each in (old, file):
        os.utime(each, (NOW.timestamp() - 90_000,) * 2)
    os.utime(new, (NOW.timestamp() - 60,) * 2)
    assert set(prune(store, 1000 * DAY, NOW, dry_run=True).drafts) == {old, file}
    assert set(prune(store, 1000 * DAY, NOW).drafts) == {old, file}
    assert (old.exists(), file.exists(), new.exists()) == (False, False, True)


def test_samples_are_noted_as_pruned_before_they_go(root: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry, _ = add(root, store, 0)

    def unlink(self: Path, missing_ok: bool = False) -> None:
        assert entry.pruned
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "unlink", unlink)
    with pytest.raises(UserError, match="cannot be written: Input/output error"):
        folders.remove_samples(entry, "2026-11-21T00:00:00Z")
    assert verify(store).damage == ()
