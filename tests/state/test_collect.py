"""The collector on this machine: one file a node, whole or with a note; whatever hangs or fails, it ends well."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fabricheck.results.node_state import FOLDER, read_state, read_states
from fabricheck.rfm.command_line import state_command
from fabricheck.state import collect, kernel


def launch(folder: Path, when: str, launcher: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / FOLDER).mkdir(exist_ok=True)
    # As another Python than this one would find it: by the path that the command names.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = ["sh", "-c", state_command(when, launcher, 1)]
    return subprocess.run(
        command, cwd=folder, env={**clean, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_node_is_asked_before_and_after(tmp_path: Path) -> None:
    for when in ("before", "after"):
        done = launch(tmp_path, when)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    states = read_states(tmp_path / "result.jsonl")
    (name,) = states.before
    assert states.unread == ()
    assert set(states.after) == {name}
    before, after = states.before[name], states.after[name]
    assert (before.when, after.when) == ("before", "after")
    assert after.time_s > before.time_s
    assert before.memory_bytes > 0
    assert before.notes == ()


def test_one_rank_of_a_node_asks(tmp_path: Path) -> None:
    """By the launcher's variable, and where it sets none by who comes first."""
    assert launch(tmp_path, "before", SLURM_LOCALID="1").returncode == 0
    assert launch(tmp_path, "before", OMPI_COMM_WORLD_LOCAL_RANK="3").returncode == 0
    assert list((tmp_path / FOLDER).glob("*.json")) == []
    several = "env sh -c 'for i in 1 2 3; do \"$@\" & done; wait' sh "
    assert launch(tmp_path, "before", several).returncode == 0
    (file,) = (tmp_path / FOLDER).glob("*.json")
    assert read_state(file).when == "before"
    assert read_states(tmp_path / "result.jsonl").twice == ()
    assert (tmp_path / FOLDER / "before.log").read_text() == ""


@pytest.mark.parametrize("launcher", ["false ", "no-such-launcher ", "sh -c 'kill -9 $$' "])
def test_a_launcher_that_fails_costs_the_test_nothing(tmp_path: Path, launcher: str) -> None:
    done = launch(tmp_path, "before", launcher)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_launcher_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabricheck.rfm.command_line.LIMIT_S", 1)
    assert launch(tmp_path, "before", "sleep 50; ").returncode == 0


def test_what_hangs_or_fails_is_noted_and_the_rest_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("the driver\nsays no")

    monkeypatch.setattr(collect, "PATIENCE_S", 4.0)
    monkeypatch.setattr(collect, "WATCH_S", 0.0)
    monkeypatch.setattr(collect, "_gpus", lambda: threading.Event().wait(20))
    monkeypatch.setattr(kernel, "memory", fails)
    state = collect.collect("before")
    assert state.notes == ("the GPUs: no response in 4 s", "memory: the driver says no")
    assert state.gpus == ()
    assert state.tcp


def test_its_exit_status_is_0_where_it_cannot_write(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fabricheck.state.collect", str(tmp_path / "none"), "before"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert "No such file" in done.stderr


def test_a_node_where_this_python_does_not_run_uses_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a shared file system, of which the login node has another architecture."""
    foreign = tmp_path / "bin" / "python"
    foreign.parent.mkdir()
    foreign.write_bytes(b"\x7fELF of another machine")
    foreign.chmod(0o755)
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(foreign))
    assert launch(tmp_path, "before", PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin").returncode == 0
    assert len([*(tmp_path / FOLDER).glob("*.before.json")]) == 1
