"""A list of plans in one launch, and a job that launches what a plan left over; what a plan does costs itself alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.results.fabricbench import read_run
from fabricheck.rfm.job_end import BEGUN, EXIT_STATUS
from fabricheck.rfm.launch_plans import LAUNCH
from tests.support.bench import Bench

pytestmark = [pytest.mark.quiet, pytest.mark.full]

PLAN = "--operations=pingpong --sizes=8,1KiB --iterations=8 --output=result.jsonl --timeout=3"


def folders_of(folder: Path, options: Sequence[str]) -> list[Path]:
    folders = [folder / f"plan-{number}" for number in range(len(options))]
    for each in folders:
        each.mkdir()
    lines = (f"{each} {PLAN} {more}\n" for each, more in zip(folders, options, strict=True))
    (folder / "plans").write_text("".join(lines))
    return folders


def status_of(folder: Path) -> int:
    return int((folder / EXIT_STATUS).read_text())


def write_job(bench: Bench, folder: Path) -> str:
    """The job of a shared launch, as ReFrame submits it."""
    script = folder / "launch.sh"
    command = bench.command("--plans=plans", ranks=2)
    script.write_text(f"#!/bin/bash\n{command}\n")
    script.chmod(0o755)
    return f"{LAUNCH}\nlaunch_plans {folder} plans"


def run_job(bench: Bench, folder: Path) -> None:
    subprocess.run(["bash", "-c", write_job(bench, folder)], cwd=folder, check=True, timeout=200)


def test_plans_of_one_launch_leave_their_own_results(openmpi: Bench, tmp_path: Path) -> None:
    folders = folders_of(tmp_path, ["", "--operations=alltoall", "--sizes=64KiB"])
    job = openmpi.run(tmp_path, "--plans=plans", ranks=2)
    assert (job.returncode, job.stdout) == (0, "")
    runs = [read_run(folder / "result.jsonl") for folder in folders]
    assert [run.problems for run in runs] == [(), (), ()]
    operations = [{sample.operation for sample in run.samples} for run in runs]
    assert operations == [{"pingpong"}, {"alltoall"}, {"pingpong"}]
    assert {sample.bytes for sample in runs[2].samples} == {64 << 10}
    assert len({run.header["run_id"] for run in runs}) == 3
    for folder, run in zip(folders, runs, strict=True):
        assert run.header["run_id"] in (folder / "plan.out").read_text()
        assert status_of(folder) == 0


def test_a_plan_that_an_earlier_launch_began_is_left_out(openmpi: Bench, tmp_path: Path) -> None:
    folders = folders_of(tmp_path, ["", ""])
    (folders[0] / "begun").touch()
    job = openmpi.run(tmp_path, "--plans=plans", ranks=2)
    assert job.returncode == 0, job.stderr
    assert [(folder / "result.jsonl").exists() for folder in folders] == [False, True]


@pytest.mark.parametrize("options", ["", "plan-0", "missing --sizes=8"])
def test_a_list_that_is_none_is_refused(openmpi: Bench, options: str, tmp_path: Path) -> None:
    (tmp_path / "plans").write_text(options)
    job = openmpi.brief.run(tmp_path, "--plans=plans", ranks=2)
    assert job.returncode == 2
    assert job.stderr.startswith("fabricbench: --plans")


# An option that ends its plan, the exit status of the plan, and a word of the last line of its result file.
LONG = "--operations=alltoall --sizes=64KiB --iterations=10000000 --max-iterations=10000000 --time-limit=2"
ENDINGS = (
    ("--no-such-option", 2, None),
    ("--expect-ranks=3", 2, None),
    ("--inject=wrong-byte:1", 5, "footer"),
    ("--inject=crash:1", 3, "crash"),
    ("--inject=kill:1", 137, "crash"),
    ("--inject=hang:1", 4, "timeout"),
    (LONG, 4, "timeout"),
)


def test_what_ends_a_plan_costs_it_alone(openmpi: Bench, tmp_path: Path) -> None:
    folders = folders_of(tmp_path, ["", *(each for option, *_ in ENDINGS for each in (option, ""))])
    run_job(openmpi, tmp_path)
    healthy, ended = folders[::2], folders[1::2]
    assert [status_of(folder) for folder in ended] == [status for _, status, _ in ENDINGS]
    assert [status_of(folder) for folder in healthy] == [0] * len(healthy)
    assert [read_run(folder / "result.jsonl").problems for folder in healthy] == [()] * len(healthy)
    for folder, (_, _, kind) in zip(ended, ENDINGS, strict=True):
        if kind is not None:
            last = json.loads((folder / "result.jsonl").read_text().splitlines()[-1])
            assert kind in (last["record"], last.get("kind"))
        assert ("fabricbench:" in (folder / "rfm_job.err").read_text()) == (kind != "footer")


def test_memory_that_is_missing_costs_its_own_plan(openmpi: Bench, tmp_path: Path) -> None:
    script = tmp_path / "rank.sh"
    script.write_text('ulimit -v 3000000\nexec "$@"\n')
    folders = folders_of(tmp_path, ["", "--sizes=1600MiB", ""])
    run_job(replace(openmpi, wrapper=f"bash {script}"), tmp_path)
    assert [status_of(folder) == 0 for folder in folders] == [True, False, True]


def test_a_launch_that_never_begins_ends_all_its_plans(openmpi: Bench, tmp_path: Path) -> None:
    folders = folders_of(tmp_path, ["", ""])
    run_job(replace(openmpi, wrapper="false"), tmp_path)
    assert all(status_of(folder) != 0 for folder in folders)


def test_a_job_that_reaches_its_limit_costs_the_plan_that_it_was_in(openmpi: Bench, tmp_path: Path) -> None:
    """Three plans were measured when the job is ended in the fourth: a job after it has those that never began."""
    folders = folders_of(tmp_path, ["", "", "", "--inject=hang:1 --timeout=1000", "", ""])
    command = ["bash", "-c", write_job(openmpi, tmp_path)]
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True) as job:
        while not (folders[3] / BEGUN).exists():
            assert job.poll() is None
            time.sleep(0.05)
        os.killpg(job.pid, signal.SIGTERM)  # as a scheduler does to all of a job's processes
    ended = [(folder / EXIT_STATUS).exists() for folder in folders]
    assert ended == [True, True, True, False, False, False]
    run_job(openmpi, tmp_path)
    assert [read_run(folder / "result.jsonl").problems == () for folder in folders] == [True] * 3 + [False] + [True] * 2
    assert not (folders[3] / EXIT_STATUS).exists()
