"""One job for many tests: a queue is waited for once, and MPI and devices start once for what plans have in common.

Tests stay single: ReFrame sets each up, writes its job script, and judges what is left in its stage directory. Only its
job is not submitted: those of a partition and environment on as many nodes become one job, in which each distinct
script launches fabricbench with a list of plans. A test finds in its stage directory what its own job would have left.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import reframe.frontend.cli
from reframe.core.exceptions import FailureLimitError, JobNotStartedError, ReframeError, TaskExit
from reframe.frontend.executors import ABORT_REASONS, RegressionTask
from reframe.frontend.executors.policies import SerialExecutionPolicy
from reframe.utility import osext

from fabricheck.fleet.held_jobs import BEGAN, SESSION, WAIT_FOR_MORE, hand_over, is_idle, keep, let_go
from fabricheck.fleet.nodes import SLURM
from fabricheck.fleet.resume import JOB_ID
from fabricheck.fleet.settings import KEY
from fabricheck.results.node_state import FOLDER
from fabricheck.results.start_failures import ENDLESS
from fabricheck.rfm.build_fabricbench import BuildFabricbench
from fabricheck.rfm.duration import job_seconds, seconds_together
from fabricheck.rfm.job_end import BEGUN, EXIT_STATUS, leave_words, read_words, take_over
from fabricheck.rfm.launch import nodes_of
from fabricheck.rfm.launch_plans import LAUNCH
from fabricheck.rfm.measure import FabricbenchCheck

#: Variable of ReFrame's environment: whether tests share jobs; interleaved: all environments in one, A B, B A, A B, …
JOBS = "FABRICHECK_JOBS"
TOGETHER, INTERLEAVED = "together", "interleaved"
# Jobs of a group beyond those planned: for what a lost node or a reached limit left over.
_MOST_FURTHER = 2
# Until the first plan of a launch begins: LIMIT_S for the state of its nodes, and start_limit_s of fabricbench for MPI.
_START_S = 120.0
# Of a comparison of two stacks.
_ROUNDS_WITH_SETTINGS = 2


def use_shared_jobs() -> None:
    """Gives ReFrame our policy in place of its serial one, where `fabricheck run` started it."""
    if JOBS in os.environ:
        reframe.frontend.cli.SerialExecutionPolicy = SharedJobs


class _NotSubmitted:
    """The scheduler of a job that another one stands for."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def submit(self, job: Any) -> None:
        job._jobid = 0

    def finished(self, job: Any) -> bool:
        return True

    def wait(self, job: Any) -> None:
        pass

    def cancel(self, job: Any) -> None:
        pass


class SharedJobs(SerialExecutionPolicy):
    """One test after the other, those that can share a job at the end. What a test needs is built when the first one
    comes that this system does not leave out."""

    def __init__(self) -> None:
        super().__init__()
        self._unbuilt: dict[Any, None] = {}
        self._waiting: list[RegressionTask] = []
        self._bodies: dict[RegressionTask, str] = {}
        self._launch_of: dict[RegressionTask, Path] = {}
        self._jobs = self._held_nodes = 0

    def runcase(self, case: Any) -> None:
        """ReFrame calls it with each test case: builds it, runs it alone, or keeps it for a shared job."""
        try:
            if isinstance(case.check, BuildFabricbench) and not self.dry_run_mode:
                case.prepare()  # tests take it as it is, before it is built
                self._unbuilt[case] = None
            elif self.dry_run_mode or not (plan_list := list_of(case)):
                if _is_interleaved() and not self.dry_run_mode:
                    self._leave_out(case, "it cannot be interleaved: it has a job of its own")
                    return
                self._build_for(case)
                super().runcase(case)
            else:
                self._prepare(case, plan_list)
        except ABORT_REASONS as error:
            self._abort(error)
            raise

    def _build_for(self, case: Any) -> None:
        for needed in case.deps:
            if needed in self._unbuilt:
                del self._unbuilt[needed]
                super().runcase(needed)

    def _prepare(self, case: Any, plan_list: str) -> None:
        """Up to the job script, which is not submitted."""
        task = self._new_task(case)
        with _ending(task):
            options = {"sched_flex_alloc_nodes": self.sched_flex_alloc_nodes, "sched_options": self.sched_options}
            task.setup(task.testcase.partition, task.testcase.environ, **options)
            self._build_for(case)
            before = [self._task_index[needed] for needed in case.deps if needed in self._task_index]
            if any(needed.failed for needed in before):
                task.skip_from_deps()
            elif any(needed.skipped for needed in before):
                task.do_skip("skipped due to skipped dependencies")
            else:
                task.check.plan_list = plan_list
                task.check.job._scheduler = _NotSubmitted(task.check.job.scheduler)
                task.check.job.launcher.options += _size_of_step(task.check)
                task.compile()
                task.compile_wait()
                task.run()
                self._bodies[task] = _take_body(task)
                take_over(task.check)
                self._waiting.append(task)

    def _new_task(self, case: Any) -> RegressionTask:
        task = RegressionTask(case, self.task_listeners)
        self._task_index[case] = task
        self.stats.add_task(task)
        return task

    def exit(self) -> None:
        """ReFrame calls it after the last test case: runs those that were kept, in shared jobs."""
        try:
            for task in [task for task in self._waiting if (_stage(task) / EXIT_STATUS).exists()]:
                self._judge(task)
            if _is_interleaved():
                self._waiting = in_turns(self._waiting)
            while self._waiting:
                self._run_together(_of_a_job(self._waiting))
        except ABORT_REASONS as error:
            self._abort(error)
            raise
        for case in self._unbuilt:
            self._leave_out(case, "no selected check runs in this environment")
        super().exit()

    def _leave_out(self, case: Any, reason: str) -> None:
        with _ending(task := self._new_task(case)):
            task.check.not_applicable = True
            task.check.left_out = reason
            task.do_skip(reason)

    def _abort(self, error: BaseException) -> None:
        """What has ended is still judged."""
        for task in [*self._waiting]:
            if (_stage(task) / EXIT_STATUS).exists() and not isinstance(error, FailureLimitError):
                self._judge(task)
            else:
                self._waiting.remove(task)
                task.abort(error)

    def _run_together(self, tasks: Sequence[RegressionTask]) -> None:
        """Runs tasks in one job, what that leaves over in another, and judges them."""
        error, left = None, tasks
        for _ in range(1 + _MOST_FURTHER):
            before, (error, left) = left, self._run_job(left)
            if not left or len(left) == len(before):
                break
        for task in left:
            task.check.job._exception = error
            self._leave_words(task)
        for task in tasks:
            self._judge(task)

    def _run_job(self, tasks: Sequence[RegressionTask]) -> tuple[ReframeError | None, list[RegressionTask]]:
        """Runs `tasks` in the job that waits for them, else submits one, until all have ended: what ended the job, if
        anything did, and which never began."""
        self._jobs += 1
        first = max((task.check for task in tasks), key=lambda check: (check.num_nodes, check.num_tasks))
        folder = _stage(tasks[0]).parent / f"shared-job-{self._jobs}"
        job = copy.copy(first.job)
        job._scheduler = tasks[0].testcase.partition.scheduler
        job._jobid, job._script_filename = None, "job.sh"
        job._name, job._stdout, job._stderr = f"fabricheck-{self._jobs}", "job.out", "job.err"
        job.time_limit = min(*map(_most_seconds, tasks), job_seconds(_seconds(tasks)))
        error = None
        try:
            lines = [f"launch_plans {words}" for words in self._write_launches(folder, tasks)]
            folder = _hand_over(job, tasks, lines) or self._submit(job, folder, tasks, lines)
            self._wait_for(job, tasks, folder)
        except ABORT_REASONS:
            with contextlib.suppress(JobNotStartedError):
                job.cancel()
                job.wait()
            raise
        except ReframeError as reason:
            error = reason
        finally:
            for task in tasks:
                own = task.check.job
                own._jobid, own._nodelist = job._jobid or 0, job._nodelist
                own._state, own._completion_time = job._state, job._completion_time
                if _is_begun(task):
                    self._leave_words(task)
        return error, [task for task in tasks if not _is_begun(task)]

    def _submit(self, job: Any, folder: Path, tasks: Sequence[RegressionTask], lines: Sequence[str]) -> Path:
        """Submits a job with these `lines` in its `folder`; it waits for relaunches where the session wants that."""
        waits = SESSION in os.environ and job.scheduler.registered_name in SLURM
        if waits:
            nodes = max(task.check.num_nodes for task in tasks)
            if self._held_nodes + nodes > nodes_of(tasks[0].testcase.partition):
                # Else this job would wait for nodes that are kept for relaunches.
                let_go(Path(os.environ[SESSION]))
                self._held_nodes = 0
            self._held_nodes += nodes
            keep(folder, map(_name, tasks), job.time_limit)
        with osext.change_dir(str(folder)):
            job.prepare([f"touch {BEGAN}", LAUNCH, *lines, *([WAIT_FOR_MORE] if waits else [])])
            job.submit()
        (folder / JOB_ID).write_text(json.dumps([job.scheduler.registered_name, job.name, str(job.jobid)]))
        return folder

    def _wait_for(self, job: Any, tasks: Sequence[RegressionTask], folder: Path) -> None:
        """Until a job has ended, waits in its `folder` for more, or hangs; tells which tasks have begun in it."""
        told: set[RegressionTask] = set()
        started: dict[Path, float] = {}
        is_ended = False
        self._pollctl.reset_poll_rate()
        while True:
            job.scheduler.poll(job)
            for task in tasks:
                if task not in told and _is_begun(task):
                    told.add(task)
                    self.printer.status("RUN", task.info())
            if job.finished():
                job.wait()
                return
            if is_idle(folder):
                return
            for place in () if is_ended else {self._launch_of[task] for task in tasks}:
                own = [task for task in tasks if self._launch_of[task] == place]
                if (place / FOLDER).exists() and _hangs(place, own, started.setdefault(place, time.monotonic())):
                    is_ended = True
                    (place / "ended").touch()
                    job.cancel()
                    break
            self._pollctl.snooze()

    def _leave_words(self, task: RegressionTask) -> None:
        """What a plan and its job printed, where the job was ended before it could leave that."""
        leave_words(_stage(task), self._launch_of[task])

    def _judge(self, task: RegressionTask) -> None:
        self._waiting.remove(task)
        with _ending(task):
            _time(task)
            task.run_complete()
            task.run_wait()
            if not self.skip_sanity_check:
                task.sanity()
            if not self.skip_performance_check:
                task.performance()
            self._retired_tasks.append(task)
            task.finalize()

    def _write_launches(self, folder: Path, tasks: Sequence[RegressionTask]) -> list[str]:
        """Writes the folder of each launch; its name and that of the list of plans in it."""
        launches: dict[tuple[str, str, int], list[RegressionTask]] = {}
        compares = len({task.testcase.environ.name for task in tasks}) > 1
        for task in tasks:
            turn = _round(task) if _is_interleaved() else 0
            launches.setdefault((self._bodies[task], task.check.plan_list, turn), []).append(task)
        words = []
        for number, ((body, list_name, turn), members) in enumerate(launches.items(), start=1):
            place = folder / f"launch-{number}"
            place.mkdir(parents=True)
            self._launch_of |= dict.fromkeys(members, place)
            # Twice, since what differs between two launches of one stack is no setting of it.
            more = ["--library-settings"] * (compares and turn < _ROUNDS_WITH_SETTINGS)
            (place / list_name).write_text("".join(_line(task, more) for task in members))
            (place / "launch.sh").write_text(body)
            words.append(f"{place} {list_name}")
        return words


def _hand_over(job: Any, tasks: Sequence[RegressionTask], lines: Sequence[str]) -> Path | None:
    """The folder of a job of the session that takes these `lines`, which is `job` from then on; None without one."""
    session = os.environ.get(SESSION)
    folder = hand_over(Path(session), [*map(_name, tasks)], lines, _seconds(tasks)) if session else None
    if folder is not None:
        *_, job._jobid = json.loads((folder / JOB_ID).read_text())
        job._submit_time = time.time()
    return folder


def _name(task: RegressionTask) -> str:
    return f"{task.check.unique_name} @{task.testcase.partition.fullname}+{task.testcase.environ.name}"


@contextlib.contextmanager
def _ending(task: RegressionTask) -> Iterator[None]:
    """What ends a task ends no other, as in ReFrame's own policies."""
    try:
        yield
    except TaskExit:
        pass
    except ABORT_REASONS as error:
        task.abort(error)
        raise
    except BaseException:
        task.fail(sys.exc_info())


def list_of(case: Any) -> str:
    """The list in which the plan of a test case may be: one for each library that tells of its paths once in a process,
    and can be asked to only before it starts. Empty where it has to have a job of its own: it is more than one launch
    of fabricbench, or in a container or a fleet."""
    check = case.check
    alone = getattr(type(check), "write_command", None) is not FabricbenchCheck.write_command
    if (
        os.environ[JOBS] not in (TOGETHER, INTERLEAVED)
        or alone
        or "container" in case.environ.extras
        or KEY in case.partition.extras
    ):
        return ""
    libraries = {"ccl": "ccl", "mpi": f"mpi-{getattr(check, 'buffers', 'device-device')}"}
    return f"plans-{libraries.get(check.transport, 'without-library')}"


def _is_interleaved() -> bool:
    return os.environ.get(JOBS) == INTERLEAVED


def _round(task: RegressionTask) -> int:
    """Which repetition of its test a task is, from 0."""
    return int(getattr(task.check, ".repeat_no", 0))


def in_turns(tasks: Sequence[RegressionTask]) -> list[RegressionTask]:
    """Round by round, every other one backwards: what drifts steadily cancels over an even number of rounds."""
    places = {name: place for place, name in enumerate(dict.fromkeys(task.testcase.environ.name for task in tasks))}

    def turn(task: RegressionTask) -> tuple[int, str, int]:
        place, number = places[task.testcase.environ.name], _round(task)
        return number, task.check.plan_list, -place if number % 2 else place

    return sorted(tasks, key=turn)


def _of_a_job(tasks: Sequence[RegressionTask]) -> list[RegressionTask]:
    """Of the tasks that share a job with the first, as many as fit into the time limit of the partition."""
    fitting: list[RegressionTask] = []
    for task in (task for task in tasks if _key(task) == _key(tasks[0])):
        if not fitting or _seconds([*fitting, task]) <= _most_seconds(task):
            fitting.append(task)
    return fitting


def _most_seconds(task: RegressionTask) -> float:
    """The time limit that its partition or the test itself gives its job."""
    return float(task.check.time_limit) if task.check.is_limit_given else math.inf


def _key(task: RegressionTask) -> tuple[object, ...]:
    """What jobs have in common that can be one. Between nodes, a launcher that is told the size of each step takes as
    many of the job's nodes as that needs."""
    check, case = task.check, task.testcase
    shape: tuple[object, ...] = (check.num_nodes, check.num_tasks, check.num_tasks_per_node)
    if _size_of_step(check):
        shape = ("nodes",)
    environment = "" if _is_interleaved() else case.environ.name
    return (case.partition.fullname, environment, *shape, check.num_cpus_per_task, tuple(check.job.options))


def _size_of_step(check: Any) -> list[str]:
    """Options of a launcher whose steps may be smaller than their job, of several nodes; none for others."""
    if check.num_nodes == 1 or check.current_partition.launcher_type.registered_name != "srun":
        return []
    tasks, of_node = check.num_tasks, check.num_tasks_per_node
    return [f"--nodes={check.num_nodes}", f"--ntasks={tasks}", f"--ntasks-per-node={of_node}"]


def _seconds(tasks: Iterable[RegressionTask]) -> float:
    return seconds_together(task.check.planned_seconds for task in tasks)


def _line(task: RegressionTask, more: Iterable[str] = ()) -> str:
    """The plan of a task in its list. Its time limit is that of a job with this plan alone."""
    limit = min(float(task.check.time_limit), job_seconds(_seconds([task])))
    return " ".join([str(_stage(task)), *_own_options(task), *more, f"--time-limit={limit:.0f}"]) + "\n"


def _own_options(task: RegressionTask) -> list[str]:
    """Of a plan, with what a hook of the check put after it."""
    return [*task.check.plan_options, *task.check.executable_opts[1:]]


def _take_body(task: RegressionTask) -> str:
    """The job script of a task without what is for the scheduler; that of a job of its own stays for people."""
    script = _stage(task) / str(task.check.job.script_filename)
    text = script.read_text()
    preamble = {f"{line}\n" for line in task.check.job.scheduler.emit_preamble(task.check.job)}
    asked, list_alone = " ".join(task.check.executable_opts), f"--plans={task.check.plan_list}"
    script.write_text(text.replace(asked, " ".join(_own_options(task))))
    return "".join(line.replace(asked, list_alone) for line in text.splitlines(keepends=True) if line not in preamble)


def _hangs(place: Path, tasks: Sequence[RegressionTask], since: float) -> bool:
    """Whether none of the `tasks` of a launch begins in time after it started (`since`, of the monotonic clock), or MPI
    waits for ever in one that has begun."""
    begun = [task for task in tasks if _is_begun(task)]
    running = [task for task in begun if not (_stage(task) / EXIT_STATUS).exists()]
    is_late = time.monotonic() - since > _START_S * (1 + tasks[0].check.num_tasks / 1000)
    files = [place / "launch.err", *(_stage(task) / "plan.err" for task in running)]
    return (is_late and not begun) or any(ENDLESS.search(read_words(file)) for file in files)


def _stage(task: RegressionTask) -> Path:
    return Path(task.check.stagedir)


def _is_begun(task: RegressionTask) -> bool:
    return any((_stage(task) / name).exists() for name in (BEGUN, EXIT_STATUS))


def _time(task: RegressionTask) -> None:
    """A task takes as long as its own plan took, and not as the job: as if that had ended just now, to be judged."""
    begun, ended = (_stage(task) / BEGUN, _stage(task) / EXIT_STATUS)
    stamps = task._timestamps
    if not (begun.exists() and ended.exists()):
        return
    took = ended.stat().st_mtime - begun.stat().st_mtime
    waited = time.time() - took - stamps["run_finish"]
    for name in stamps:
        stamps[name] += waited
