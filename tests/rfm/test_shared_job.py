"""Which tests share a job, how long that may take, and what comes after a job that ended early."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from reframe.core.exceptions import JobError

from fabricheck.fleet.held_jobs import CLOSED, SESSION
from fabricheck.rfm.job_end import BEGUN, EXIT_STATUS
from fabricheck.rfm.shared_job import INTERLEAVED, JOBS, SharedJobs, _hangs, _line, _of_a_job, _time, in_turns
from tests.support.effort import effort


def made_task(folder: Path, name: str, seconds: float, limit: float | None = None) -> Any:
    """A task of a plan of `seconds` and a minute to start, on a partition whose jobs may take `limit` seconds."""
    stage = folder / name
    stage.mkdir()
    check = SimpleNamespace(
        stagedir=str(stage), planned_seconds=60.0 + seconds, is_limit_given=limit is not None, time_limit=limit or 1e6,
        num_nodes=1, num_tasks=2, num_tasks_per_node=2, num_cpus_per_task=None, plan_options=[], executable_opts=[],
        job=SimpleNamespace(options=[]),
    )  # fmt: skip
    partition = SimpleNamespace(fullname="site:gpu")
    return SimpleNamespace(
        check=check, testcase=SimpleNamespace(partition=partition, environ=SimpleNamespace(name="e"))
    )


def test_environments_take_turns_in_one_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = []
    for environment, plans, number in product("ab", "yx", range(3)):
        tasks.append(task := made_task(tmp_path, f"{environment}{number}{plans}", 1))
        task.testcase.environ.name, task.check.plan_list = environment, plans
        setattr(task.check, ".repeat_no", number)
    assert len(_of_a_job(tasks)) == 6
    monkeypatch.setenv(JOBS, INTERLEAVED)
    ordered = "a0x b0x a0y b0y b1x a1x b1y a1y a2x b2x a2y b2y"
    assert names_of(_of_a_job(in_turns(tasks))) == ordered.split()


def names_of(tasks: Sequence[Any]) -> list[str]:
    return [Path(task.check.stagedir).name for task in tasks]


@pytest.mark.parametrize(("limit", "expected"), [(None, "abcd"), (400, "abcd"), (180, "ab"), (100, "a")])
def test_a_job_has_as_many_plans_as_its_partition_has_time_for(
    tmp_path: Path, limit: float | None, expected: str
) -> None:
    tasks = [made_task(tmp_path, name, 50, limit) for name in "abcd"]
    assert names_of(_of_a_job(tasks)) == [*expected]


def test_the_limit_of_a_plan_follows_from_it(tmp_path: Path) -> None:
    assert "--time-limit=520" in _line(made_task(tmp_path, "plan", 50))  # twice 110 s, and five minutes


def test_a_plan_that_is_longer_than_its_partition_allows_has_a_job_of_its_own(tmp_path: Path) -> None:
    tasks = [made_task(tmp_path, name, seconds, 180) for name, seconds in (("long", 500), ("short", 20))]
    assert names_of(_of_a_job(tasks)) == ["long"]
    assert "--time-limit=180" in _line(tasks[0])


@pytest.mark.parametrize("left_over", [0, 7, 9])
def test_what_a_job_that_reached_its_limit_left_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_over: int
) -> None:
    """Of ten plans the job of the third is ended by its limit; those after it have begun in none."""
    tasks = [made_task(tmp_path, str(number), 10) for number in range(10)]
    jobs: list[list[str]] = []
    judged: list[object] = []

    def run_job(self: SharedJobs, members: Sequence[Any]) -> tuple[JobError | None, list[Any]]:
        jobs.append(names_of(members))
        ended = members if len(jobs) > 1 else members[: 10 - left_over]
        for task in ended:
            (Path(task.check.stagedir) / BEGUN).touch()
            (Path(task.check.stagedir) / EXIT_STATUS).touch()
        return (JobError("timed out") if len(jobs) == 1 else None), [task for task in members if task not in ended]

    monkeypatch.setattr(SharedJobs, "_run_job", run_job)
    monkeypatch.setattr(SharedJobs, "_judge", lambda self, task: judged.append(task))
    SharedJobs._run_together(object.__new__(SharedJobs), tasks)
    assert jobs == [names_of(tasks), *[names_of(tasks[10 - left_over :])] * bool(left_over)]
    assert judged == tasks


def test_jobs_that_begin_nothing_are_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [made_task(tmp_path, name, 10) for name in "ab"]
    jobs: list[list[str]] = []
    judged: list[object] = []
    error = JobError("no such account")

    def run_job(self: SharedJobs, members: Sequence[Any]) -> tuple[JobError, list[Any]]:
        jobs.append(names_of(members))
        return error, [*members]

    monkeypatch.setattr(SharedJobs, "_run_job", run_job)
    monkeypatch.setattr(SharedJobs, "_leave_words", lambda self, task: None)
    monkeypatch.setattr(SharedJobs, "_judge", lambda self, task: judged.append(task.check.job._exception))
    SharedJobs._run_together(object.__new__(SharedJobs), tasks)
    assert (jobs, judged) == ([["a", "b"]], [error, error])


@pytest.mark.parametrize("seed", range(effort(10)))
def test_a_job_waits_for_no_node_that_its_session_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    nodes, policy, kept = rng.randint(1, 9), object.__new__(SharedJobs), dict[Path, int]()
    policy._held_nodes = 0
    monkeypatch.setenv(SESSION, str(tmp_path))
    job: Any = MagicMock(scheduler=SimpleNamespace(registered_name="slurm"), time_limit=60)
    job.name = "job"
    for number in range(rng.randint(1, 6)):
        (folder := tmp_path / str(number)).mkdir()
        task = made_task(folder, "plan", 10)
        task.testcase.partition.extras = {"nodes": nodes}
        task.check.unique_name, task.check.num_nodes = "Test", rng.randint(1, nodes)
        policy._submit(job, folder, [task], [])
        kept = {each: count for each, count in kept.items() if not (each / CLOSED).exists()}
        kept[folder] = task.check.num_nodes
        assert sum(kept.values()) <= nodes


def test_of_an_interrupted_job_what_has_ended_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [made_task(tmp_path, name, 10) for name in "abc"]
    policy = object.__new__(SharedJobs)
    judged: list[Any] = []
    aborted: list[BaseException] = []
    policy._waiting = [*tasks]
    for task in tasks:
        task.abort = aborted.append
    (Path(tasks[1].check.stagedir) / EXIT_STATUS).touch()
    monkeypatch.setattr(SharedJobs, "_judge", lambda self, task: judged.append(task))
    interrupt = KeyboardInterrupt()
    policy._abort(interrupt)
    assert (names_of(judged), aborted) == (["b"], [interrupt, interrupt])


def test_a_test_takes_as_long_as_its_own_plan_whatever_its_job_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prepared in 2 s, it waits for its job, takes 30 s in it, and is judged when that has ended after some minutes."""
    task = made_task(tmp_path, "plan", 50)
    for name, when in ((BEGUN, 1000), (EXIT_STATUS, 1030)):
        (tmp_path / "plan" / name).touch()
        os.utime(tmp_path / "plan" / name, (when, when))
    task._timestamps = {"setup_start": 100.0, "run_finish": 102.0}
    monkeypatch.setattr("fabricheck.rfm.shared_job.time.time", lambda: 1300.0)
    _time(task)
    assert task._timestamps == {"setup_start": 1268.0, "run_finish": 1270.0}


NO_ROUTE = "WARNING: Open MPI failed to TCP connect to a peer MPI process.\n"


@pytest.mark.parametrize(
    ("begun", "seconds", "written", "hangs"),
    [
        ((), 10.0, {}, False),
        ((), 10.0, {"launch/launch.err": "srun: job 1 queued"}, False),
        ((), 1e6, {}, True),
        ((BEGUN,), 1e6, {}, False),
        ((), 10.0, {"launch/launch.err": NO_ROUTE}, True),
        ((BEGUN,), 10.0, {"a/plan.err": NO_ROUTE}, True),
        ((BEGUN, EXIT_STATUS), 10.0, {"a/plan.err": NO_ROUTE}, False),
    ],
)
def test_a_launch_is_ended_that_does_not_begin_or_waits_for_ever(
    tmp_path: Path, begun: Sequence[str], seconds: float, written: dict[str, str], hangs: bool
) -> None:
    task = made_task(tmp_path, "a", 10)
    (tmp_path / "launch").mkdir()
    for name in begun:
        (tmp_path / "a" / name).touch()
    for name, text in written.items():
        (tmp_path / name).write_text(text)
    assert _hangs(tmp_path / "launch", [task], time.monotonic() - seconds) is hangs
