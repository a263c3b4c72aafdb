"""A test that runs fabricbench once, on one node or on several, and is judged by what it measured."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.builtins import fixture, run_after, run_before, sanity_function, variable
from reframe.core.exceptions import PerformanceError, SanityError
from reframe.core.pipeline import RegressionTestPlugin

from fabricheck import mpi
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.metrics import expected_metric_names
from fabricheck.records.operations import backend_of
from fabricheck.records.run import Run
from fabricheck.records.verdict import Problem, Verdict
from fabricheck.results.fabricbench import read_lack, read_run
from fabricheck.results.guards import require, require_fresh, require_words_of_all_nodes
from fabricheck.rfm.build import BuildFabricbench, missing_backend
from fabricheck.suite import suite_root
from fabricheck.tuning import Library, Profile, libraries_of, load_profiles

if TYPE_CHECKING:
    from fabricheck.judge.system import SystemJudge

RESULT = "result.jsonl"
EXIT_STATUS = "exit-status"

# fabricbench's exit status where all was measured and data arrived wrong, and where the machine lacks what it needs.
WRONG_DATA = 5
LACK = 6

REDUCTIONS = ("allreduce", "reduce_scatter", "reduce")
# What only an MPI library's own collectives can do.
COLLECTIVES_ONLY = (*REDUCTIONS, "sparse_alltoallv")

# How launchers and Slurm say that a node, a rank or the job was ended, what explains the others first.
_ENDED = (
    re.compile(r"srun: error: Node failure on "),
    re.compile(r"srun: error: \S+: tasks? \S+: (?!Exited|Terminated)"),
    re.compile(r"noticed that process rank .* exited on signal"),
    re.compile(r"\*\*\* JOB .* CANCELLED"),
)
# srun ends the others with the first task that ended: what was terminated before that is no consequence.
_TERMINATED = re.compile(r"srun: error: \S+: tasks? \S+: Terminated")
_OTHERS_ENDED = re.compile(r"Terminating StepId|\*\*\* STEP .* CANCELLED")

# Inside a node whose GPUs have links of their own, *CCL has no reason to go another way.
DIRECT_LINKS = ("nvlink", "xgmi")


class FabricbenchCheck(RegressionTestPlugin):
    """Runs fabricbench, one rank a GPU, and passes only where every metric does.

    The contract, by phase:

    - *class body* of the test: `transport` (a parameter or a variable), `operations` and `sizes`. It may set `nodes`,
      `schedules`, `implementation`, `budget`, `tags`, `matrix`, `least_ranks`, and `ranks` for partitions without
      GPUs. Of memory paths it may set, as parameter or attribute, and then names in `plan_settings`: `access`,
      `buffers`, `host_memory`, `host_numa` (as fabricbench's options); and `placement` (`same-gpu` or `spread`: which
      GPUs go at the same time), `ranks_per_device`.
    - *init*: selects partitions and environments by features. A transport other than `mpi` needs a partition with
      `gpu` and an environment with `nccl` or `rccl`; it does not depend on the MPI library and is measured once. More
      than one node needs a partition with `multinode`; nodes that are emulated have no memory of their own to measure.
    - *setup*: the ranks of a node are as many as its GPUs (`devices` of the partition) and at least
      `ranks_per_device`; without GPUs `ranks`, and one where there are several nodes. `nodes` is 0 for all of the
      partition's (its `extras["nodes"]`). The collectives of an MPI library take device memory only where the
      environment has the feature `device-collectives`; elsewhere reductions are left out, and the others are lists of
      transfers. The launcher's options for binding ranks come from `fabricheck.mpi`, variables from the tuning profile
      that the partition's `extras["tuning_profile"]` names.
    - Where the node lacks what the test needs, such as a second NUMA node, the test is skipped with the reason, and the
      run is INCOMPLETE; where the site's files say that it does not apply, such as for too few ranks, it is not. What
      the machine itself is found to lack is declared in the partition's `extras["lacks"]`, a reason by the setting that
      needs it, such as `host_numa=remote`. The test runs all the same, and where the machine has it, it is measured.
    - *run*: `result.jsonl` and the exit status are left in the stage directory, and kept.
    - *sanity*: raises SanityError where something else was measured than was asked for, or not all of it.
    - *performance*: every metric that the plan promises becomes a performance variable; PerformanceError where the
      verdict is not PASS. ReFrame's own references are not used: it passes a metric without one.

    The messages begin with the verdict, which `fabricheck run` reads.
    """

    fabricbench = fixture(BuildFabricbench, scope="environment")
    operations = variable(typ.List[str])
    #: By transport, `host` for the host backend, and `other` for all that is not named.
    sizes = variable(typ.Dict[str, str])
    schedules = variable(typ.List[str], value=["uncontended", "contended"])
    implementation = variable(str, value="automatic")
    #: Ranks of a node without GPUs; 0: one over several nodes, else as many as it has cores, between 2 and 4.
    ranks = variable(int, value=0)
    #: Fewer than these cannot measure it: the test is skipped.
    least_ranks = variable(int, value=2)
    #: File with the messages of sparse operations; a relative name is below the suite's folder.
    matrix = variable(str, value="")
    #: Seconds of measuring for one size of one pair or group.
    budget = variable(float, value=0.1)
    #: Fewer only where they would take longer than the budget (De Sensi et al., section III-A: 100 to 1,000).
    least_iterations = variable(int, value=100)
    #: Iterations that are not kept.
    warmup = variable(int, value=10)
    #: Seconds without progress after which a run is ended.
    timeout = variable(float, value=60.0)
    #: Variables that the test is about; they have to be in effect.
    settings = variable(typ.Dict[str, str], value={})
    #: The collective libraries by which the environments are known that measure GPUs without MPI.
    gpu_libraries = variable(typ.List[str], value=["nccl", "rccl"])
    #: Whether it is about GPUs also where MPI moves the data.
    needs_gpu = variable(bool, value=False)
    #: Attributes of the test that are options of fabricbench by the same name, and that the result file has to confirm.
    plan_settings = variable(typ.List[str], value=[])
    #: Ranks that drive one GPU together.
    ranks_per_device = variable(int, value=1)
    #: Values of attributes to which `nightly` is restricted; with others a test has not that tag.
    nightly_only = variable(typ.Dict[str, typ.List[str]], value={})
    #: Passed on to fabricbench as it is.
    more_options = variable(typ.List[str], value=[])
    #: The profile in effect, for ReFrame's report and the store.
    tuning_profile = variable(str, value="default")
    #: Why it was skipped, for ReFrame's report, which has no reasons of skips.
    left_out = variable(str, value="")
    #: Whether the site's own description says that, so that nothing is missing; likewise.
    not_applicable = variable(bool, value=False)
    #: What the site says that the machine lacks, and this test needs; likewise.
    declared_lack = variable(str, value="")

    @run_after("init")
    def select(self) -> None:
        where = "-emulated" if self.wanted_nodes == 1 else "+multinode"
        if self.transport == "mpi":
            self.valid_systems = [f"{where} +gpu" if self.needs_gpu else where]
            self.valid_prog_environs = ["+mpi"]
        else:
            self.valid_systems = [f"{where} +gpu"]
            self.valid_prog_environs = [f"+mpi +{name}" for name in self.gpu_libraries]
        self.sourcesdir = None
        self.time_limit = "10m"
        self.keep_files = [RESULT, EXIT_STATUS]
        if any(getattr(self, name) not in values for name, values in self.nightly_only.items()):
            self.tags -= {"nightly"}

    @property
    def wanted_nodes(self) -> int:
        """Over how many nodes; 0: all of the partition's. Not declared in here, so that it may be a parameter."""
        return int(getattr(self, "nodes", 1))

    @property
    def verified(self) -> bool:
        """Whether the data have to have been checked."""
        return True

    @property
    def backend(self) -> str:
        return backend_of(self.current_environ.extras)

    def leave_out_if(self, condition: bool, reason: str, *, described: bool = True) -> None:
        """Skip the test. `described`: the site's own description says that there is nothing to measure, which is no
        fault; else something is missing, and the run is INCOMPLETE."""
        if condition:
            self.left_out = reason
            self.not_applicable = described
            self.skip(reason)

    @run_after("setup")
    def check_backend(self) -> None:
        reason = missing_backend(self.backend)
        self.leave_out_if(reason is not None, reason or "", described=False)

    @run_after("setup")
    def leave_out_collectives(self) -> None:
        """An MPI library whose own collectives cannot take device memory gets those that are lists of transfers."""
        if self.transport != "mpi" or self.backend == "host":
            return
        if "device-collectives" not in self.current_environ.features:
            self.operations = [name for name in self.operations if name not in COLLECTIVES_ONLY]
            self.implementation = "transfers"
            self.leave_out_if(not self.operations, "this MPI library's collectives do not take device memory")

    @run_after("setup")
    def set_nodes(self) -> None:
        known = int(self.current_partition.extras.get("nodes", 0))
        self.num_nodes = self.wanted_nodes or known
        where = self.current_partition.fullname
        unknown = f"{where} does not say in its extras how many nodes it has"
        self.leave_out_if(self.num_nodes < 1, unknown, described=False)
        self.leave_out_if(0 < known < self.num_nodes, f"{where} has {known} nodes and this test needs {self.num_nodes}")

    @run_after("setup")
    def set_ranks(self) -> None:
        gpus = [device.num_devices for device in self.current_partition.devices if device.device_type == "gpu"]
        if self.backend == "host" or not gpus:
            cores = self.current_partition.processor.num_cores or mpi.physical_cores()
            alone = min(max(cores, 2), 4)
            self.num_tasks_per_node = self.ranks or (alone if self.num_nodes == 1 else 1)
        else:
            self.num_tasks_per_node = max(gpus[0], self.ranks_per_device)
            self.num_gpus_per_node = gpus[0]
        self.num_tasks = self.num_tasks_per_node * self.num_nodes
        too_few = f"needs {self.least_ranks} ranks and this partition has {self.num_tasks}"
        self.leave_out_if(self.num_tasks < self.least_ranks, too_few)
        most = self.current_environ.extras.get("most_ranks", self.num_tasks)
        too_many = f"needs {self.num_tasks} ranks, and {self.current_environ.name} is for {most} at most"
        self.leave_out_if(self.num_tasks > most, too_many)

    @run_before("run")
    def limit_waiting(self) -> None:
        """A job that cannot start, such as for a node that is down, must not wait for ever."""
        if (limit := self.current_partition.extras.get("max_pending_time")) is not None:
            self.max_pending_time = limit

    @run_before("run")
    def add_launcher_options(self) -> None:
        self.job.launcher.options += self.current_environ.extras.get("launcher_options", [])

    @run_before("run")
    def end_together(self) -> None:
        """Else srun waits until the job's time is over for ranks that hang."""
        if self.current_partition.launcher_type.registered_name == "srun":
            self.env_vars["SLURM_KILL_BAD_EXIT"] = "1"

    @run_before("run")
    def bind_ranks(self) -> None:
        family = self.current_environ.extras.get("mpi")
        if self.current_partition.launcher_type.registered_name != "mpirun" or family not in mpi.NAMES:
            return
        cores = self.current_partition.processor.num_cores or mpi.physical_cores()
        launch = mpi.launch(family, self.num_tasks, cores)
        self.job.launcher.options += list(launch.options)
        self.env_vars.update(launch.environment)

    @property
    def libraries(self) -> tuple[Library, ...]:
        return libraries_of(self.transport)

    @property
    def profile(self) -> Profile:
        return profile_of(self.current_partition.extras)

    @run_before("run")
    def tune(self) -> None:
        self.tuning_profile = self.profile.name
        self.tuning = {**self.profile.environment(self.libraries), **self.settings}
        self.env_vars.update(self.tuning)

    @run_before("run")
    def command(self) -> None:
        self.executable = shlex.quote(self.fabricbench.program)
        self.executable_opts = self.fabricbench_options(RESULT)
        # Not every scheduler tells ReFrame the exit status.
        self.postrun_cmds = ["status=$?", f"echo $status > {EXIT_STATUS}", "exit $status"]

    def fabricbench_options(self, output: str) -> list[str]:
        return [
            f"--transport={self.transport}",
            f"--operations={','.join(self.operations)}",
            f"--implementation={self.implementation}",
            f"--schedules={','.join(self.schedules)}",
            f"--sizes={self.chosen_sizes()}",
            f"--budget={self.budget:g}",
            f"--min-iterations={self.least_iterations}",
            f"--warmup={self.warmup}",
            f"--timeout={self.timeout:g}",
            f"--expect-ranks={self.num_tasks}",
            f"--expect-nodes={self.num_nodes}",
            f"--output={output}",
            *([f"--matrix={suite_root() / self.matrix}"] if self.matrix else []),
            *(f"--{name.replace('_', '-')}={value}" for name, value in self.chosen_settings().items()),
            *self.chosen_ranks(),
            *self.more_options,
        ]

    @run_before("run")
    def note_start(self) -> None:
        self.started = datetime.now(timezone.utc)

    def chosen_sizes(self) -> str:
        kind = "host" if self.backend == "host" else self.transport
        return str(self.sizes[kind if kind in self.sizes else "other"])

    def chosen_settings(self) -> dict[str, str]:
        return {name: str(getattr(self, name)) for name in self.plan_settings}

    def chosen_ranks(self) -> list[str]:
        options = []
        if self.ranks_per_device > 1:
            options.append(f"--ranks-per-device={self.ranks_per_device}")
        if getattr(self, "placement", None) is not None:  # not declared in here, so that it may be a parameter
            from fabricheck.expectation.memory import placements
            from fabricheck.topology.model import find_topology

            where = self.current_partition.fullname
            # Rank i drives GPU i.
            found = placements(find_topology(where, suite_root() / "site_configs"), self.num_tasks_per_node)
            sets = found.same_gpu if self.placement == "same-gpu" else found.spread
            self.leave_out_if(not sets, f"no GPUs of {where} can be placed {self.placement}")
            options.append("--together=" + ",".join("+".join(map(str, one)) for one in sets))
        return options

    @run_before("run")
    def look_up_lacks(self) -> None:
        lacks = self.current_partition.extras.get("lacks", {})
        needed = [f"{name}={value}" for name, value in self.chosen_settings().items()]
        self.declared_lack = "; ".join(f"{each}: {lacks[each]}" for each in needed if each in lacks)

    @run_before("sanity")
    def skip_what_cannot_be(self) -> None:
        file = Path(self.stagedir) / RESULT
        lack = read_lack(file) if self.exit_status() == LACK and file.exists() else None
        declared = f", as the site says ({self.declared_lack})" if self.declared_lack else ""
        self.leave_out_if(bool(lack), f"this node cannot run it: {lack}{declared}", described=bool(declared))

    def exit_status(self) -> int:
        file = Path(self.stagedir) / EXIT_STATUS
        try:
            return int(file.read_text())
        except (OSError, ValueError):
            text = f"the job ended before fabricbench did and left no exit status{self.last_words()}"
            raise SanityError(f"INCOMPLETE: {text}") from None

    def judge(self) -> RunJudgement:
        status = self.exit_status()
        file = Path(self.stagedir) / RESULT
        if not file.exists() or file.stat().st_size == 0:
            raise SanityError(f"INCOMPLETE: fabricbench left no results (exit status {status}){self.last_words()}")
        run = self.read_guarded(file, status, self.wanted_environment(), self.paths())
        parameters = {name: getattr(self, name) for name in type(self).param_space.params}
        attributes = {
            **{name: value for name, value in parameters.items() if isinstance(value, (str, int))},
            "$system": self.current_system.name,
            "$partition": self.current_partition.fullname,
            "$environ": self.current_environ.name,
        }
        return self.system_judge().judge(run, type(self).__name__, attributes)

    def system_judge(self) -> SystemJudge:
        from fabricheck.judge.system import SystemJudge

        return SystemJudge.of(self.current_system.name)

    def wanted_environment(self) -> dict[str, str]:
        """The variables that the site's own tuning puts into effect."""
        return {**self.current_environ.extras.get("required_environment", {}), **self.tuning}

    def read_guarded(
        self, file: Path, status: int, environment: Mapping[str, str | None], paths: tuple[list[str], list[str]]
    ) -> Run:
        """The run in a result file, with all that keeps it from being the run that this test asked for as problems.

        `status`: fabricbench's exit status. `environment`: variables that have to be in effect (`None`: unset).
        `paths`: as `paths` gives them.
        """
        run = read_run(file)
        forbidden, required = paths
        problems = require(
            run,
            transport=self.transport,
            backend=self.backend,
            ranks=self.num_tasks,
            nodes=self.num_nodes,
            devices=self.backend != "host",
            # With this status fabricbench repeats what its file says already, and the judge with it.
            exit_code=0 if status == WRONG_DATA and any(each.wrong_bytes > 0 for each in run.samples) else status,
            operations=self.operations,
            environment=environment,
            mpi_library=mpi.LIBRARIES.get(self.current_environ.extras.get("mpi", "")),
            plan=self.chosen_settings(),
            paths_forbidden=forbidden,
            paths_required=required,
            interfaces=self.current_partition.extras.get("network_interfaces", []) if self.num_nodes > 1 else [],
            verified=self.verified,
        )
        words = require_words_of_all_nodes(run, self.errors())
        return replace(run, problems=(*words, *run.problems, *problems, *require_fresh(run, not_before=self.started)))

    def paths(self) -> tuple[list[str], list[str]]:
        """Paths that the libraries must not, and must, have reported (regular expressions).

        The environment's `extras["required_paths"]` adds to the second, by transport.
        """
        required = list(self.current_environ.extras.get("required_paths", {}).get(self.transport, []))
        if self.transport != "ccl":
            return [], required
        if {*DIRECT_LINKS} & set(self.current_partition.features):
            return ["^NET/", "^SHM"], ["^P2P", *required]
        return ["^NET/Socket"], required

    def last_words(self) -> str:
        """What ended a rank, by the launcher or scheduler, and the last line that fabricbench said on stderr."""
        lines = self.errors().splitlines()
        ended = what_ended(lines)
        said = next((line for line in reversed(lines) if line.startswith("fabricbench:")), "")
        return "".join(f": {each}" for each in (ended, said) if each)

    def errors(self) -> str:
        file = Path(self.stagedir) / str(self.stderr.evaluate())
        return file.read_text(encoding="utf-8", errors="replace")

    @sanity_function
    def measured_what_was_asked_for(self) -> bool:
        self.judgement = self.judge()
        if self.judgement.problems:
            raise SanityError(summary(self.judgement.problems, self.last_words()))
        return True

    @run_before("performance")
    def set_metrics(self) -> None:
        for each in self.judgement.judgements:
            self.perf_variables[each.name] = sn.make_performance_function(lambda value=each.value: value, each.unit)
            self.reference[f"{self.current_partition.fullname}:{each.name}"] = (_target(each), None, None, each.unit)

    @run_after("performance")
    def all_metrics_pass(self) -> None:
        recorded = set(self.perfvalues_names())
        lost = [name for name in expected_metric_names(self.judgement.run.header) if name not in recorded]
        if lost:
            raise PerformanceError(f"INCOMPLETE: ReFrame did not record {', '.join(lost[:3])}")
        bad = [each for each in self.judgement.judgements if each.verdict is not Verdict.PASS]
        if bad:
            raise PerformanceError(summary([Problem(each.verdict, f"{each.name}: {each.reason}") for each in bad], ""))

    def perfvalues_names(self) -> list[str]:
        return [key.rsplit(":", 1)[1] for key in self.perfvalues]


def what_ended(lines: Sequence[str]) -> str:
    """Of what launcher and scheduler said, the line about the rank, node or job that ended first; else empty."""
    before = itertools.takewhile(lambda line: not _OTHERS_ENDED.search(line), lines)
    found = itertools.chain(
        (line for how in _ENDED for line in lines if how.search(line)),
        (line for line in before if _TERMINATED.search(line)),
    )
    return next(found, "")


def profile_of(extras: Mapping[str, object]) -> Profile:
    """The tuning profile that the `extras` of a partition name. Raises UserError where there is none of that name."""
    return load_profiles(suite_root() / "config" / "tuning.yaml").profile(str(extras.get("tuning_profile", "default")))


def launch_command(test: rfm.RegressionTest) -> str:
    """How the launcher starts the ranks of `test`, for further commands of its job; before the run phase."""
    # ReFrame tells the job only when it runs it.
    test.job.num_tasks = test.num_tasks
    test.job.num_tasks_per_node = test.num_tasks_per_node
    return str(test.job.launcher.run_command(test.job))


def _target(judged: Judgement) -> float:
    """The value to show beside the measured one in ReFrame's reports; 0 where there is none."""
    if judged.reference is not None:
        return judged.reference.value
    return judged.expectation.expected or 0.0


def summary(problems: object, more: str) -> str:
    """One line: the worst first, with how many others there are."""
    order = list(Verdict)
    ranked = sorted(problems, key=lambda each: order.index(each.verdict), reverse=True)  # type: ignore[call-overload]
    others = f" (and {len(ranked) - 1} more)" if len(ranked) > 1 else ""
    return f"{ranked[0].verdict.value}: {ranked[0].message}{others}{more}"
