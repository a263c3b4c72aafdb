"""Tests that share a job are judged as if each had its own: what ends one of them costs no other."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fabricheck.rfm.job_end import BEGUN, EXIT_STATUS, RESULT
from tests.support.bench import built

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.full]

NAMES = ("BothDirections", "EveryMessage", "SmokeLibraries")
PLANTED, LAST = "EveryMessage", "BothDirections"
ENVIRONMENT = {**os.environ, "FABRICHECK_SITES": ""}


@dataclass(frozen=True)
class Finished:
    """Of a run: the verdict of the session, those of its tests and their metrics, its problems, and its folder."""

    verdict: str
    judged: dict[str, str]
    metrics: dict[str, list[tuple[str, str]]]
    problems: list[dict[str, object]]
    folder: Path

    @property
    def jobs(self) -> list[Path]:
        return sorted(self.folder.glob("stage/*/*/*/shared-job-*"))

    @property
    def scripts(self) -> dict[str, str]:
        """The job script of each test, wherever the run is."""
        root = str(self.folder.parents[2])
        found = [*self.folder.glob("*/*/*/*/*/rfm_job.sh")]
        return {file.parent.name: file.read_text().replace(root, "") for file in found}


def of_test(name: str, **variables: object) -> list[str]:
    """ReFrame's options that set variables of a test."""
    return [f"--setvar={name}.{variable}={value}" for variable, value in variables.items()]


def command_of(folder: Path, *options: str) -> list[str]:
    programs = folder / "built" / "openmpi"
    if not programs.exists():
        programs.mkdir(parents=True)
        shutil.copy(built("openmpi").program, programs)
    names = [f"--name=^{name}" for name in NAMES]
    where = [f"--built={folder / 'built'}", f"--output={folder / 'output'}", "--no-store", "--launches=1"]
    command = [sys.executable, "-m", "fabricheck", "run", "--environment=openmpi", *names, *where, *options]
    quick = [each for name in NAMES for each in of_test(name, budget=0.01, least_iterations=10, node_state="no")]
    return [*command, *([] if "--" in options else ["--"]), *quick]


def run(folder: Path, *options: str) -> Finished:
    with subprocess.Popen(command_of(folder, *options), env=ENVIRONMENT, stdout=subprocess.DEVNULL) as process:
        status = process.wait(200)
    return finished(folder, status)


def finished(folder: Path, status: int) -> Finished:
    left = max((folder / "output" / "runs").iterdir())
    written = json.loads((left / "verdict.json").read_text())
    assert status == {"PASS": 0, "DEGRADED": 1, "FAIL": 3, "INCOMPLETE": 4, "INVALID": 5}[written["verdict"]]
    judged = {each["test"].split()[0]: each["verdict"] for each in written["runs"]}
    metrics = {
        each["test"].split()[0]: [(metric["name"], metric["unit"]) for metric in each["metrics"]]
        for each in written["runs"]
    }
    return Finished(written["verdict"], judged, metrics, written["problems"], left)


def others(done: Finished) -> set[str]:
    """Of all tests but the one in which something is planted, verdicts that are not of speed."""
    return {verdict for name, verdict in done.judged.items() if name != PLANTED} & {"INCOMPLETE"}


def test_a_shared_job_comes_to_the_same_as_a_job_for_each(tmp_path: Path) -> None:
    plant = ("--", *of_test(PLANTED, more_options="--inject=wrong-byte:1"))
    together, alone = run(tmp_path / "together", *plant), run(tmp_path / "alone", "--one-by-one", *plant)
    assert (len(together.jobs), alone.jobs) == (1, [])
    assert together.metrics == alone.metrics and set(together.metrics) == set(NAMES)
    assert together.scripts == alone.scripts and len(alone.scripts) == len(NAMES)
    assert [done.judged[PLANTED] for done in (together, alone)] == ["FAIL", "FAIL"]
    assert others(together) == set()


def start_hanging(folder: Path) -> tuple[subprocess.Popen[bytes], set[str]]:
    """A run that hangs in its last test, when that has begun, and the tests that have ended."""
    command = command_of(folder, "--", *of_test(LAST, more_options="--inject=hang:1"))
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    while not (begun := [*folder.glob(f"output/runs/*/stage/*/*/*/{LAST}_*/{BEGUN}")]):
        assert process.poll() is None
        time.sleep(0.1)
    ended = {file.parent.name.partition("_")[0] for file in begun[0].parents[1].glob(f"*_*/{EXIT_STATUS}")}
    assert ended
    return process, ended


def test_of_a_run_that_was_killed_the_job_is_ended_and_the_rest_resumed(tmp_path: Path) -> None:
    killed, ended = start_hanging(tmp_path)
    reframe = subprocess.run(["pgrep", "--parent", str(killed.pid)], capture_output=True, check=True).stdout
    for process in (killed.pid, *map(int, reframe.split())):
        os.kill(process, signal.SIGKILL)
    killed.wait()
    assert processes_of(tmp_path)
    resumed = run(tmp_path, "--resume")
    assert processes_of(tmp_path) == []
    before = json.loads((min((tmp_path / "output" / "runs").iterdir()) / "verdict.json").read_text())
    assert (before["verdict"], before["problems"][0]["code"]) == ("INCOMPLETE", "run-interrupted")
    assert {each["test"].split()[0] for each in before["runs"] if each["verdict"] != "INCOMPLETE"} == ended
    assert set(resumed.judged) == set(NAMES) and "INCOMPLETE" not in {resumed.verdict, *resumed.judged.values()}
    taken = {file.parent.name.split("_")[0] for file in resumed.folder.rglob("taken-over")}
    (plans,) = (file.read_text().split("\n") for file in resumed.jobs[0].glob("*/plans-*"))
    assert taken == ended
    assert len([line for line in plans if line]) == len(NAMES) - len(ended)


def test_ctrl_c_ends_the_job_and_what_was_measured_is_judged(tmp_path: Path) -> None:
    process, ended = start_hanging(tmp_path)
    process.send_signal(signal.SIGINT)
    done = finished(tmp_path, process.wait(200))
    assert processes_of(tmp_path) == []
    assert (done.verdict, done.problems[0]["code"]) == ("INCOMPLETE", "run-interrupted")
    assert [name for name in ended if done.judged[name] == "INCOMPLETE"] == []


def processes_of(folder: Path) -> list[str]:
    """The command lines of this machine that name a folder."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(file.read_text(errors="replace"))
    return [line for line in lines if str(folder) in line]


def test_a_plan_that_takes_too_long_ends_at_its_own_limit(tmp_path: Path) -> None:
    limits = [each for name in NAMES for each in of_test(name, time_limit="65s", timeout=1000)]
    done = run(tmp_path, "--", *limits, *of_test(PLANTED, more_options="--inject=hang:1"))
    assert done.judged[PLANTED] == "INVALID"  # for the defect; without it, INCOMPLETE
    assert set(done.judged) == set(NAMES)
    assert len(done.jobs) == 1
    assert others(done) == set()


def test_an_environment_without_a_test_is_not_built(tmp_path: Path) -> None:
    done = run(tmp_path, "--", *(each for name in NAMES for each in of_test(name, least_ranks=1000)))
    builds = [*done.folder.glob("stage/*/*/*/BuildFabricbench*/rfm_build.sh")]
    assert (builds, done.judged) == ([], {})


def upgrade(folder: Path, *words: str) -> tuple[int, dict[str, Any], Path]:
    """Exit status, JSON and folder of a comparison of two rounds."""
    quick = of_test("SmokeLibraries", budget=0.01, least_iterations=10, node_state="no")
    places = (f"--built={folder / 'built'}", f"--output={folder / 'output'}")
    asked = ("upgrade", *words, "--rounds=2", "--name=^SmokeLibraries", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "fabricheck", *asked, *places, "--", *quick],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    (run,) = (folder / "output" / "upgrades" / "runs").iterdir()
    return done.returncode, json.loads(done.stdout), run


def test_an_upgrade_is_interleaved_in_one_job_and_names_what_does_not_run(tmp_path: Path) -> None:
    for name in ("openmpi", "mpich"):
        (tmp_path / "built" / name).mkdir(parents=True)
    shutil.copy(built("openmpi").program, tmp_path / "built" / "openmpi")
    broken = tmp_path / "built" / "mpich" / "fabricbench"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] || exit 3\n')
    broken.chmod(0o755)
    status, told, folder = upgrade(tmp_path, "openmpi", "MPICH")
    assert (status, told["exit_status"], len(told["failures"]), told["left_out"]) == (1, 1, 1, [])
    lists = [file.read_text() for file in sorted(folder.glob("stage/*/*/*/shared-job-1/launch-*/plans-*"))]
    assert ["/openmpi/" in each for each in lists] == [True, False, False, True]
    settings = [json.loads(file.read_text().splitlines()[-1])["settings"] for file in folder.rglob(RESULT)]
    assert settings and all(each["OMPI_MCA_mpi_yield_when_idle"] in ("true", "false") for each in settings)


def test_a_variable_is_tried_beside_the_sites_own_tuning(tmp_path: Path) -> None:
    (tmp_path / "built" / "openmpi").mkdir(parents=True)
    shutil.copy(built("openmpi").program, tmp_path / "built" / "openmpi")
    _, told, folder = upgrade(tmp_path, "openmpi", "MPICH_GPU_IPC_THRESHOLD=1")
    assert [(each["name"], each["old"], each["new"]) for each in told["variables"]] == [
        ("MPICH_GPU_IPC_THRESHOLD", "none", "1")
    ]
    assert (told["failures"], told["left_out"], told["rounds"]) == ([], [], 2)
    headers = {file: json.loads(file.read_text().splitlines()[0]) for file in folder.rglob(RESULT)}
    in_effect = {file: header["environment"].get("MPICH_GPU_IPC_THRESHOLD") for file, header in headers.items()}
    assert {value for file, value in in_effect.items() if "/openmpi/" in str(file)} == {None}
    assert {value for file, value in in_effect.items() if "/openmpi/" not in str(file)} == {"1"}
