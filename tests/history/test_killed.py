"""A kill at any moment loses at most what was being written, and corrupts nothing."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.history import folders
from fabricheck.history.folders import FILES, METRICS, SessionFolder
from fabricheck.history.reading import history, verify
from tests.support.sessions import ROOT, add

WRITER = Path(__file__).with_name("killed_writer.py")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def run_writer(*arguments: str | Path) -> int:
    job = subprocess.run(
        [sys.executable, str(WRITER), *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    return int(job.stdout)


def entries_in(store: Path) -> tuple[SessionFolder, ...]:
    """The entries of a store, each of them whole."""
    content = folders.scan(store / "local")
    assert content.foreign == ()
    for entry in content.entries:
        assert entry.foreign() == ()
        for name in FILES:
            entry.read(name)
    return content.entries


def test_killed_at_every_line(store: Path) -> None:
    kills = run_writer("lines", store)
    entries = entries_in(store)
    # Some lines come before the rename and some after it, or the test would not have tried both.
    assert kills > 40
    assert 1 < len(entries) < kills
    # Whoever was killed before the rename left a draft or nothing, and whoever came after was not kept from writing.
    assert len(folders.scan(store / "local").drafts) + len(entries) <= kills + 1
    assert {entry.read("session.json") for entry in entries} == {b"session.json\n" * 40}


def test_killed_at_any_time(store: Path) -> None:
    kills = run_writer("times", store, "1")
    sessions = {entry.session for entry in entries_in(store)}
    done = {file.name.removeprefix("done-") for file in store.parent.glob("done-*")}
    assert done <= sessions
    assert len(sessions) <= len(done) + kills
    assert folders.scan(store / "local").drafts, "no kill met a writer at work"


def test_sessions_that_were_stored_survive_the_kill_of_their_writer(root: Path, store: Path) -> None:
    rng = random.Random(7)
    stored: list[str] = []
    for first in range(0, 40, 10):
        command = [sys.executable, str(WRITER), "append", str(root), str(store), str(first)]
        with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as job:
            assert job.stdout is not None
            stored += [job.stdout.readline().strip() for _ in range(rng.randint(1, 3))]
            threading.Event().wait(rng.uniform(0, 0.05))
            job.send_signal(signal.SIGKILL)
            stored += job.stdout.read().split()
    assert len(stored) >= 4
    assert verify(store).damage == ()
    found = history(store, system="local")
    assert set(stored) <= set(found["session"])
    assert found.height == 2 * found["session"].n_unique()
    assert found["session"].n_unique() <= len(stored) + 4
    # A writer may go on where the last one was killed.
    add(root, store, 70)
    assert verify(store).damage == ()


def test_everything_is_on_the_disk_before_the_entry_gets_its_name(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kill cannot show: without the flushes a power cut could leave a name without content."""
    said: list[str] = []
    fsync, rename = os.fsync, os.rename

    def note_fsync(descriptor: int) -> None:
        said.append(f"fsync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name[:9]}")
        fsync(descriptor)

    def note_rename(source: Path, target: Path) -> None:
        said.append("rename")
        rename(source, target)

    folders.create(store)
    (store / "local").mkdir()
    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "rename", note_rename)
    folders.commit(store / "local", "20261121T083632Z", "s", dict.fromkeys(FILES, b"x"))
    files = [f"fsync {name[:9]}" for name in (*FILES, folders.SUMS)]
    assert said == [*files, "fsync .writing-", "rename", "fsync local"]


def test_of_two_writers_of_one_session_one_is_refused(store: Path) -> None:
    folders.create(store)
    outcomes: list[str] = []
    together = threading.Barrier(8)

    def write(number: int) -> None:
        together.wait()
        try:
            folders.commit(store / "local", "20261121T083632Z", "s", dict.fromkeys(FILES, b"%d" % number))
            outcomes.append(f"stored {number}")
        except UserError as error:
            outcomes.append(str(error))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    (winner,) = [each for each in outcomes if each.startswith("stored")]
    assert sum("is stored already" in each for each in outcomes) == 7
    (entry,) = entries_in(store)
    assert entry.read(METRICS) == winner.removeprefix("stored ").encode()
    assert folders.scan(store / "local").drafts == ()


def test_a_full_disk_leaves_nothing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders.create(store)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot be written: No space left on device; nothing was stored"):
        folders.commit(store / "local", "20261121T083632Z", "s", dict.fromkeys(FILES, b"x"))
    assert list((store / "local").iterdir()) == []


def test_checksums_are_those_that_sha256sum_reads(store: Path) -> None:
    folders.create(store)
    entry = folders.commit(store / "local", "20261121T083632Z", "s", FILES_WITH_CONTENT)
    lines = (entry.path / folders.SUMS).read_text().splitlines()
    assert lines == [f"{hashlib.sha256(FILES_WITH_CONTENT[name]).hexdigest()}  {name}" for name in FILES]


FILES_WITH_CONTENT = {name: name.encode() for name in FILES}
