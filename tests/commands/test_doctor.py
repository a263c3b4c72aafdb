"""`fabricheck doctor` as a prolog calls it: this machine, and nodes whose state is made up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabricheck.cli import main
from fabricheck.errors import UserError
from fabricheck.records.node_state import GPUS, NICS, GpuProcess, NodeState
from fabricheck.records.verdict import EXIT_CODES, Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.session import doctor
from fabricheck.suite import suite_root
from tests.support.bench import built
from tests.support.burn_ins import burn_in_lines, slower, windows_of
from tests.support.result_files import Line, settle, write
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
    assert ("no GPU was found; to compare with the expected number" in said) == (": 0 GPUs and " in last)
    assert last.startswith("PASS: ")
    assert last.endswith("; no rank was started (--built FOLDER starts one on each GPU)")


CASES: tuple[tuple[dict[str, Any], int, str], ...] = (
    ({}, 0, "PASS: nid001: 4 GPUs and 4 ports read"),
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
    assert "INCOMPLETE  nid001: 3 of the 4 GPUs of alps respond" in said
    assert "INCOMPLETE  nid001: missing ports of alps: hsn3" in said
    made(monkeypatch, node("nid001", gpus=(), notes=("the GPUs: no response in 10 s",)))
    assert call() == 4
    assert "nid001: its state could not be read: the GPUs: no response in 10 s" in capsys.readouterr().out


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
    assert "environments are openmpi; choose with --environment" in capsys.readouterr().err


def multiplied(factor: float = 1, *, by: str = "cuBLAS 130100", wrong: int = 0) -> Callable[[list[Line]], None]:
    """Of a burn-in what `--compute-only` leaves: two GPUs, the second of which takes `factor` times as long."""

    def change(lines: list[Line]) -> None:
        slower(lines, [1], factor, phase="compute")
        lines[:] = [line for line in lines if line.get("phase", "compute") == "compute" and line["record"] != "node"]
        header, samples = lines[:2]
        series = header["plan"]["series"][0] | {"operation": "local_copy", "implementation": "transfers"}
        header["plan"] |= {"operations": ["local_copy"], "series": [{**series, "ranks": [rank]} for rank in (0, 1)]}
        header |= {"transport": "kernel", "expected_records": 2}
        times = [int(8 * samples["bytes"] / 16_500)] * samples["iterations"]
        of_rank = samples | {"operation": "local_copy", "implementation": "transfers", "times_ns": times}
        lines[1:2] = [{**of_rank, "index": rank, "ranks": [rank]} for rank in (0, 1)]
        load = next(line for line in lines if line["record"] == "burn_in")
        load |= {"by": [by] * 2, "wrong_rows": [0, wrong]}
        settle(lines)
        lines[-1] |= {"windows": len(windows_of(lines, "compute")), "wrong_words": wrong}

    return change


@pytest.mark.parametrize(
    ("change", "shown", "status"),
    [
        (multiplied(), "PASS", Verdict.PASS),
        (multiplied(1.2), "DEGRADED", Verdict.DEGRADED),
        (multiplied(3), "FAIL", Verdict.FAIL),
        # What no tensor core's rate is held against.
        (multiplied(3, by="kernel"), "note", Verdict.PASS),
        (multiplied(wrong=7), "PASS", Verdict.FAIL),
    ],
)
def test_the_products_of_each_gpu_are_compared_with_its_model(
    change: Callable[[list[Line]], None],
    shown: str,
    status: Verdict,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = burn_in_lines(gpus=2, together=1)
    change(lines)
    run = read_run(write(tmp_path / "result.jsonl", lines))
    assert run.problems == ()
    monkeypatch.setattr(doctor, "start_ranks", lambda *_: doctor.RankStart(Verdict.PASS, "sent data"))
    monkeypatch.setattr(doctor, "_measured", lambda *_: run)
    made(monkeypatch, node("nid001", gpus=(gpu(0), gpu(1))))
    assert call("--full", "--built=.") == EXIT_CODES[status]
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said if "multiplies" in line] == [shown if shown == "note" else "PASS", shown]
    assert max(map(len, said)) <= 160


def test_a_full_look_needs_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--full") == 2
    assert "--built" in capsys.readouterr().err
    assert call("--full", "--prolog", f"--built={tmp_path}") == 2


@pytest.mark.e2e
def test_ranks_are_started(tmp_path: Path) -> None:
    bench = built("openmpi")
    (tmp_path / "openmpi").mkdir()
    (tmp_path / "openmpi" / "fabricbench").symlink_to(bench.program)
    launch = doctor.start_ranks(tmp_path, "openmpi", 0, 60)
    assert launch == doctor.RankStart(Verdict.PASS, "two ranks on the host sent data correctly")


#: This machine may be busier than a node, and the question is what is said of an answer.
PATIENT = "from fabricheck import prolog; prolog.guard.__defaults__ = (50,)\n"


def prolog(folder: Path, *options: str, code: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """As Slurm calls it: the program, in a process of its own. `code` runs first, and changes something."""
    program = folder / "program.py"
    program.write_text(f"import sys\n{PATIENT}{code}\nfrom fabricheck.__main__ import main\nmain()\n")
    command = [sys.executable, str(program), "doctor", "--prolog", *options]
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)


STATE = """from dataclasses import replace
from fabricheck.results.fabricbench import read_run
from fabricheck.session import doctor
from tests.commands.test_doctor import four
"""
NODE = {"PYTHONPATH": str(Path(__file__).parents[2])}


def faulty(lost: str) -> str:
    return f"{STATE}doctor.ask_this_node = lambda _: replace(four(), {lost})"


@pytest.mark.parametrize(
    ("lost", "status"), [("gpus=four().gpus", 0), ("gpus=four().gpus[:3]", 4), ("gpus=four(pcie_generation=3).gpus", 1)]
)
def test_a_prolog_fails_for_a_fault_of_its_node(tmp_path: Path, lost: str, status: int) -> None:
    done = prolog(tmp_path, "--system=alps", code=faulty(lost), **NODE)
    assert done.returncode == status, done.stdout + done.stderr


@pytest.mark.parametrize(
    "options, code, variables",
    [
        (("--system=nowhere",), "", {}),
        (("--no-such-option",), "", {}),
        (("--built=.",), "", {}),
        (("--system=alps",), "", {"FABRICHECK_SUITE": "/moved"}),
        (("--system=alps",), "", {"FABRICHECK_SITES": "/moved"}),
        ((), f"{STATE}doctor.ask_this_node = lambda _: 1 // 0", NODE),
        ((), f"{STATE}import os; doctor.ask_this_node = lambda _: os.kill(os.getpid(), 9)", NODE),
        ((), "sys.modules['click'] = None", {}),  # half an upgrade: Python ends with 1, as a DEGRADED node does
        ((), "import os\ndef fork(): raise BlockingIOError(11, 'no process is left')\nos.fork = fork", {}),
    ],
)
def test_a_prolog_takes_no_node_away_for_what_is_not_its_fault(
    tmp_path: Path, options: tuple[str, ...], code: str, variables: dict[str, str]
) -> None:
    done = prolog(tmp_path, *options, code=code, TMPDIR=str(tmp_path), **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.strip()


@pytest.mark.parametrize("streams", [">>log 2>&1", "2>&-", ">&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("lost", "status"), [("gpus=four().gpus", 0), ("gpus=four(pcie_generation=3).gpus", 1)])
def test_a_prolog_s_streams_may_be_files_or_closed(tmp_path: Path, streams: str, lost: str, status: int) -> None:
    """As where a script gathers what its commands say in a file that has something in it."""
    (tmp_path / "log").write_text("before\n")
    program = tmp_path / "program.py"
    program.write_text(f"import sys\n{PATIENT}{faulty(lost)}\nfrom fabricheck.__main__ import main\nmain()\n")
    words = ["sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, str(program), "doctor", "--prolog"]
    done = subprocess.run([*words, "--system=alps"], cwd=tmp_path, env={**os.environ, **NODE}, check=False, timeout=60)
    assert done.returncode == status


def test_a_typo_in_a_topology_takes_no_node_away_and_hides_no_fault(tmp_path: Path) -> None:
    shutil.copytree(suite_root() / "site_configs" / "alps", tmp_path / "sites" / "site_configs" / "alps")
    (tmp_path / "sites" / "site_configs" / "alps" / "topology.yaml").write_text("system: alps\ngpus: [oops\n")
    sites = {"FABRICHECK_SITES": str(tmp_path / "sites")}
    well = prolog(tmp_path, "--system=alps", code=faulty("gpus=four().gpus"), **NODE, **sites)
    assert (well.returncode, "not compared with alps" in well.stderr) == (0, True)
    bad = prolog(tmp_path, "--system=alps", code=faulty("gpus=four(rows_failed=True).gpus"), **NODE, **sites)
    assert bad.returncode == 1, bad.stdout + bad.stderr


def test_a_file_system_that_hangs_takes_no_node_away(tmp_path: Path) -> None:
    """Where a module is read from it: before doctor runs at all."""
    hangs = "from fabricheck import prolog; prolog.guard.__defaults__ = (0.3,)\n"
    (tmp_path / "click.py").write_text("import time\ntime.sleep(30)\n")
    done = prolog(tmp_path, code=hangs)
    assert (done.returncode, done.stdout) == (0, "")
    assert "no response in 0.3 s" in done.stderr


def test_a_process_that_cannot_be_ended_holds_up_nobody(tmp_path: Path) -> None:
    """As one that waits for a driver in the kernel: whoever reads what was said gets its end all the same."""
    stays = tmp_path / "stays"
    stays.touch()
    asked = f"""
def ask(_):
    import os, time
    if os.fork() == 0:
        while os.path.exists({str(stays)!r}):
            time.sleep(0.1)
        os._exit(0)
    return four(pcie_generation=3)
doctor.ask_this_node = ask
"""
    try:
        assert prolog(tmp_path, "--system=alps", code=STATE + asked, **NODE).returncode == 1
    finally:
        stays.unlink()


def test_a_part_that_was_not_looked_for_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that did not answer in time has fewer parts, or none."""
    late = replace(four(), gpus=(), nics=four().nics[:1], unread=(GPUS, NICS), notes=(f"{GPUS}: no response in 2 s",))
    made(monkeypatch, late)
    assert call("--system=alps", "--prolog") == 0
    assert call("--system=alps") == 4
    made(monkeypatch, replace(late, unread=(NICS,)))
    assert call("--system=alps", "--prolog") == 4


def test_a_node_that_cannot_be_asked_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def hanging(*_: str) -> list[str]:
        return [sys.executable, "-c", "import time; time.sleep(600)"]

    monkeypatch.setattr(doctor, "module_command", hanging)
    with pytest.raises(UserError):
        doctor.ask_this_node(0.5)
