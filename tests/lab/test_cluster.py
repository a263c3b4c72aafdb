"""What an emulated cluster keeps of itself, and what its names may be. Needs neither root nor Slurm."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck_lab.cluster import Cluster
from fabricheck_lab.layout import check_name
from fabricheck_lab.state import Journal, Process, end


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "*", "a*", "a-b", "a/b", "A", "1a", "a" * 17, "a\n"])
def test_a_name_that_reaches_beyond_one_cluster_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabricheck_lab.cluster.require_machine", lambda: None)
    monkeypatch.setattr("fabricheck_lab.cluster._tear_down", lambda *_: pytest.fail("something was removed"))
    for use in (check_name, Cluster.down, Cluster.find):
        with pytest.raises(UserError, match="is not a name for a cluster"):
            use(name)


def test_a_process_is_noted_before_it_is_what_was_asked_for(tmp_path: Path) -> None:
    journal, seen = Journal(tmp_path), tmp_path / "seen"
    command = ["sh", "-c", 'ls "$0" > "$1"; exec sleep 60', str(journal.started), str(seen)]
    process = journal.start("slurmd nid001", command, tmp_path / "log", dict(os.environ))
    try:
        assert process.is_running()
        assert journal.processes() == [process] == [Process.of("slurmd nid001", process.pid)]
        while not (seen.exists() and seen.read_text().endswith("\n")):
            time.sleep(0.01)
        assert len(seen.read_text().split()) == 1
    finally:
        end([process])
    assert not process.is_running()


def test_what_cannot_be_noted_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    monkeypatch.setattr("fabricheck_lab.state._PATIENCE_S", 0.5)
    (tmp_path / "started").touch()  # no folder
    with pytest.raises(FileExistsError):
        journal.start("munged", ["touch", str(tmp_path / "ran")], tmp_path / "log", dict(os.environ))
    journal.started = tmp_path / "a" / "started"
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)
    with pytest.raises(UserError, match=r"munged did not start in 0.5 s: see .*log"):
        journal.start("munged", ["touch", str(tmp_path / "ran")], tmp_path / "log", dict(os.environ))
    assert not (tmp_path / "ran").exists()


def test_what_is_about_to_start_while_a_cluster_ends_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    running = journal.start("munged", ["sleep", "60"], tmp_path / "log", dict(os.environ))
    try:
        journal.close()
        assert journal.processes() == [running]
        monkeypatch.setattr("fabricheck_lab.state._PATIENCE_S", 0.5)
        monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)  # it was there when this one began
        with pytest.raises(UserError):
            journal.start("slurmctld", ["touch", str(tmp_path / "ran")], tmp_path / "log", dict(os.environ))
    finally:
        end([running])
    assert not (tmp_path / "ran").exists()


def test_another_process_with_the_same_number_is_left_alone(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        real = Process.of("ours", child.pid)
        assert real is not None
        end([Process("ours", child.pid, real.started - 1)], patience_s=0.0)
        assert child.poll() is None
        end([real])
        assert child.wait() == -signal.SIGTERM
    finally:
        child.kill()
        child.wait()


def test_a_fault_is_planted_until_it_is_mended_and_a_torn_line_is_no_harm(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.set_fault("slow a", "a is slow")
    journal.set_fault("slow b", "b is slow")
    journal.set_fault("slow a", None)
    with journal.file.open("a") as out:
        out.write('{"fault": "slow c", "wh')
    assert journal.faults() == {"slow b": "b is slow"}
