"""Programs of the machine are asked in bounded time, and say why they have no answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fabricheck.rfm.command_line import state_command
from fabricheck.session.doctor import ask_this_node
from fabricheck.session.reframe import reframe_command
from fabricheck.state.capture import ask_gpu_facts
from fabricheck.state.programs import ask, module_command


def test_what_a_program_prints_and_that_it_is_not_there() -> None:
    assert ask([sys.executable, "-c", "print('x')"]).output == "x\n"
    missing = ask(["no-such-program"])
    assert missing.missing and not missing.given and not missing.problem


def test_a_program_that_hangs_is_left() -> None:
    """Also where a child of it keeps its output open."""
    answer = ask(["sh", "-c", "sleep 1000 & sleep 1000"], seconds=0.2)
    assert answer.problem == "did not respond in 0.2 s"


def test_a_program_that_fails_says_why() -> None:
    assert ask(["sh", "-c", "echo no >&2; exit 3"]).problem == "ended with exit status 3: no"
    assert ask(["sh", "-c", "kill -11 $$"]).problem == "was ended by signal 11"


def test_a_module_in_the_current_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json", "fabricheck", "reframe", "runpy", "pathlib"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'planted')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    command = ["sh", "-c", state_command("before", "", 1)]
    subprocess.run(command, env={**os.environ, "SLURM_LOCALID": "0"}, timeout=60, check=True)
    ask_this_node(60)
    ask_gpu_facts()
    monkeypatch.setattr("pathlib.Path.exists", lambda _: False)  # where ReFrame has no script beside this Python
    assert "-c" in reframe_command()
    assert ask([*reframe_command(), "--version"]).given
    assert ask(module_command("fabricheck", "--version")).given
    monkeypatch.undo()
    assert not (tmp_path / "planted").exists()
