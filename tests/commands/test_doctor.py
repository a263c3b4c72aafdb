"""`fabricheck doctor` as a prolog calls it: this machine, and nodes whose state is made up."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabricheck.cli import main
from fabricheck.errors import UserError
from fabricheck.records.state import GpuProcess, NodeState
from fabricheck.records.verdict import Verdict
from fabricheck.session import doctor
from tests.support.bench import built
from tests.support.states import gpu, nic, node


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", *arguments])
    return int(ended.value.code or 0)


def made(patch: pytest.MonkeyPatch, state: NodeState) -> None:
    patch.setattr(doctor, "ask_this_node", lambda _: state)


def four(**changed: Any) -> NodeState:
    """A node of alps, one of whose GPUs is changed."""
    gpus = tuple(replace(gpu(each), **(changed if each == 2 else {})) for each in range(4))
    return node("nid001", gpus=gpus, nics=tuple(nic(f"hsn{each}") for each in range(4)))


def test_this_machine_is_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is said of a machine that runs tests, nothing of it is red."""
    assert call() == 0
    said = capsys.readouterr().out
    last = said.splitlines()[-1]
    assert ("no GPU was found, and nothing says how many there are" in said) == (": 0 GPUs and " in last)
    assert last.startswith("PASS: ")
    assert last.endswith("; no rank was started: name a program with --built")


CASES: tuple[tuple[dict[str, Any], int, str], ...] = (
    ({}, 0, "PASS: nid001: 4 GPUs and 4 ports looked at"),
    ({"processes": (GpuProcess(4242, "python", 1 << 30),)}, 5, "INVALID     nid001: GPU 2: is in use by process 4242"),
    ({"pcie_generation": 3}, 1, "DEGRADED    nid001: GPU 2: PCIe runs at Gen 3 x16 of Gen 5 x16"),
    ({"links": gpu().links[1:]}, 1, "DEGRADED    nid001: GPU 2: 17 of 18 links to other GPUs are active"),
    ({"rows_failed": True}, 1, "DEGRADED    nid001: GPU 2: rows of its memory could not be remapped"),
)


@pytest.mark.parametrize("changed, status, said", CASES, ids=[said for *_, said in CASES])
def test_the_exit_status_is_that_of_the_worst(
    changed: dict[str, Any],
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made(monkeypatch, four(**changed))
    assert call("--system=alps") == status
    assert any(line.startswith(said) for line in capsys.readouterr().out.splitlines())


def test_what_is_missing_or_mute_is_no_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made(monkeypatch, replace(four(), gpus=four().gpus[:3], nics=four().nics[:3]))
    assert call("--system=alps") == 4
    said = capsys.readouterr().out
    assert "INCOMPLETE  nid001: 3 of the 4 GPUs of alps answer" in said
    assert "INCOMPLETE  nid001: hsn3 of the ports of alps is not there" in said
    made(monkeypatch, node("nid001", gpus=(), notes=("the GPUs: no answer in 10 s",)))
    assert call() == 4
    assert "nid001: could not be asked: the GPUs: no answer in 10 s" in capsys.readouterr().out


def test_a_rank_that_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made(monkeypatch, four())
    program = tmp_path / "openmpi" / "fabricbench"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho no CUDA device >&2; exit 7\n")
    program.chmod(0o755)
    assert call(f"--built={tmp_path}") == 3
    out = capsys.readouterr().out
    assert "FAIL        nid001: one rank on each of 4 GPUs could not be started: mpirun ended with exit status 7" in out
    assert call(f"--built={tmp_path}", "--environment=other") == 2
    assert "environments there are openmpi; choose with --environment" in capsys.readouterr().err


def test_a_node_that_says_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(UserError, match="this node cannot be asked for its state: ended with exit status 1"):
        doctor.ask_this_node(5)


@pytest.mark.e2e
def test_ranks_are_started(tmp_path: Path) -> None:
    bench = built("openmpi")
    (tmp_path / "openmpi").mkdir()
    (tmp_path / "openmpi" / "fabricbench").symlink_to(bench.program)
    launch = doctor.start_ranks(tmp_path, "openmpi", 0, 60)
    assert launch == doctor.Launch(Verdict.PASS, "two ranks on the host sent data that arrived right")


def test_as_a_prolog_what_is_wrong_is_red_and_others_on_the_node_are_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "end_in", lambda *_: None)  # this process goes on
    busy = {"processes": (GpuProcess(4242, "python", 1 << 30),)}
    made(monkeypatch, four(**busy))
    assert call("--system=alps", "--prolog") == 0
    assert "is in use by process 4242" in capsys.readouterr().out
    made(monkeypatch, four(**busy, pcie_generation=3))
    assert call("--system=alps", "--prolog") == 1

    def mute(_: float) -> NodeState:
        raise UserError("this node cannot be asked for its state: no answer in 2.5 s")

    monkeypatch.setattr(doctor, "ask_this_node", mute)
    assert call("--prolog") == 4
    assert "INCOMPLETE: this node cannot be asked" in capsys.readouterr().out
    assert call("--prolog", "--built=.") == 2


@pytest.mark.full
def test_a_prolog_ends_whatever_hangs() -> None:
    code = (
        "import time; from fabricheck.session import doctor; doctor.ask_this_node = lambda _: time.sleep(600); "
        "from fabricheck.cli import main; main(['doctor', '--prolog'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == "fabricheck: this node did not answer in 4.5 s\n"
