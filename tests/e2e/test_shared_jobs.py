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

import pytest

from fabricheck.rfm.job_end import BEGUN, EXIT_STATUS
from tests.support.bench import built

pytestmark = [pytest.mark.e2e, pytest.mark.quiet]

NAMES = ("BothDirections", "EveryMessage", "SmokeLibraries")
PLANTED = "EveryMessage"
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
    programs.mkdir(parents=True, exist_ok=True)
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


def test_what_ended_early_is_resumed(tmp_path: Path) -> None:
    broken = run(tmp_path, "--", *of_test(PLANTED, more_options="--inject=crash:1"))
    assert broken.judged[PLANTED] == "INVALID"  # for the defect; without it, INCOMPLETE
    assert others(broken) == set() and set(broken.judged) == set(NAMES) and len(broken.jobs) == 1
    resumed = run(tmp_path, "--resume")
    assert set(resumed.judged) == set(NAMES) and resumed.judged[PLANTED] not in ("INVALID", "INCOMPLETE")
    taken = {file.parent.name.split("_")[0] for file in resumed.folder.rglob("taken-over")}
    (plans,) = (file.read_text().split("\n") for file in resumed.jobs[0].glob("*/plans-*"))
    assert taken == {*NAMES} - {PLANTED}
    assert [line for line in plans if line and f"/{PLANTED}_" not in line] == []


def test_ctrl_c_ends_the_job_and_what_was_measured_is_judged(tmp_path: Path) -> None:
    last = "BothDirections"
    plant = ("--", *of_test(last, more_options="--inject=hang:1"))
    with subprocess.Popen(command_of(tmp_path, *plant), env=ENVIRONMENT, stdout=subprocess.DEVNULL) as process:
        while not (begun := [*tmp_path.glob(f"output/runs/*/stage/*/*/*/{last}_*/{BEGUN}")]):
            assert process.poll() is None
            time.sleep(0.1)
        ended = {file.parent.name.partition("_")[0] for file in begun[0].parents[1].glob(f"*_*/{EXIT_STATUS}")}
        assert ended
        process.send_signal(signal.SIGINT)
        status = process.wait(200)
    done = finished(tmp_path, status)
    assert (done.verdict, done.problems[0]["code"]) == ("INCOMPLETE", "run-interrupted")
    assert [name for name in ended if done.judged[name] == "INCOMPLETE"] == []
    # ReFrame kills the launcher before its ranks have ended: they end when they notice that.
    end = time.monotonic() + 20
    while left := [words for words in command_lines() if str(tmp_path) in words]:
        assert time.monotonic() < end, left
        time.sleep(0.1)


def command_lines() -> list[str]:
    """Of all processes of this machine."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(file.read_text(errors="replace"))
    return lines


@pytest.mark.full
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


def test_an_upgrade_is_interleaved_in_one_job_and_names_what_does_not_run(tmp_path: Path) -> None:
    for name in ("openmpi", "mpich"):
        (tmp_path / "built" / name).mkdir(parents=True)
    shutil.copy(built("openmpi").program, tmp_path / "built" / "openmpi")
    broken = tmp_path / "built" / "mpich" / "fabricbench"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] || exit 3\n')
    broken.chmod(0o755)
    words = ("upgrade", "openmpi", "MPICH", "--rounds=2", "--name=^SmokeLibraries", "--json")
    quick = of_test("SmokeLibraries", budget=0.01, least_iterations=10, node_state="no")
    places = (f"--built={tmp_path / 'built'}", f"--output={tmp_path / 'output'}")
    done = subprocess.run(
        [sys.executable, "-m", "fabricheck", *words, *places, "--", *quick],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    found = json.loads(done.stdout)
    assert (done.returncode, found["exit_status"], len(found["failures"]), found["left_out"]) == (1, 1, 1, [])
    (folder,) = (tmp_path / "output" / "upgrades" / "runs").iterdir()
    lists = [file.read_text() for file in sorted(folder.glob("stage/*/*/*/shared-job-1/launch-*/plans-*"))]
    assert ["/openmpi/" in each for each in lists] == [True, False, False, True]
