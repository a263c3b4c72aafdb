"""A kill at any moment loses at most what was being written, and corrupts nothing."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.store import folders
from fabricheck.store.folders import FILES, METRICS, SessionFolder
from fabricheck.store.reading import verify
from tests.support.sessions import ROOT

WRITER = Path(__file__).with_name("killed_writer.py")


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
    command = [sys.executable, str(WRITER), str(store)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    job = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert job.returncode == 0, job.stderr
    kills = int(job.stdout)
    entries = entries_in(store)
    # Some lines come before the rename and some after it, or the test would not have tried both.
    assert kills > 40
    assert 1 < len(entries) < kills
    assert verify(store).remarks
    # Whoever was killed before the rename left a draft or nothing, and whoever came after was not kept from writing.
    assert len(folders.scan(store / "local").drafts) + len(entries) <= kills + 1
    assert {entry.read("session.json") for entry in entries} == {b"session.json\n" * 40}


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
