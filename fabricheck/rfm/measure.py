"""A test that runs fabricbench once, on one node or on several, and is judged by what it measured.

Long because all that the author of a check may set or override is here, each with its contract.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import reframe.core.runtime as rt
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.builtins import fixture, run_after, run_before, sanity_function, variable
from reframe.core.exceptions import PerformanceError, ReframeError, SanityError
from reframe.core.pipeline import RegressionTestPlugin

from fabricheck import mpi
from fabricheck.errors import reason_of
from fabricheck.extras import Effort, effort_problems, unsupported_settings
from fabricheck.fleet.settings import KEY
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding, with_files
from fabricheck.records.metrics import expected_metric_names
from fabricheck.records.operations import COLLECTIVES_ONLY, backend_of
from fabricheck.records.verdict import Verdict
from fabricheck.results.check_judgement import JUDGEMENT, write_judgement
from fabricheck.results.node_state import FOLDER
from fabricheck.rfm.bounds import attributes_of, record_bounds
from fabricheck.rfm.build_fabricbench import BuildFabricbench
from fabricheck.rfm.command_line import MeasurementPlan, ask_nodes, case_options, ranks_together
from fabricheck.rfm.container import enter_container
from fabricheck.rfm.duration import fitted_plan
from fabricheck.rfm.foreign import complete_backends
from fabricheck.rfm.guarded import FILES_OF_NODES, judge_nodes, read_guarded
from fabricheck.rfm.job_end import (
    EXIT_STATUS,
    RESULT,
    describe_end,
    faults_of_nodes,
    missing_paths_text,
    no_result,
    not_judged,
    read_exit_status,
    read_words,
    summary,
    unsupported_reason,
)
from fabricheck.rfm.launch import (
    cores_of,
    fitting_partitions,
    gpu_environments,
    gpus_of,
    nodes_for,
    ports_of,
    prepare_launcher,
    profile_of,
    reasons_not_to_run,
    set_variables,
    started_at,
)
from fabricheck.rfm.paths import goes_by_host, paths_of, setting_of
from fabricheck.topology.transport_paths import Paths
from fabricheck.tuning import TRIED, Library, Profile, libraries_of
from fabricheck.units import few

if TYPE_CHECKING:
    from fabricheck.judge.system import SystemJudge


class FabricbenchCheck(RegressionTestPlugin):
    """Runs fabricbench, one rank a GPU, and passes only where every metric does.

    The contract, by phase:

    - *class body* of the test: `transport` (a parameter or a variable), `operations` and `sizes`. It may set `nodes`,
      `schedules`, `implementation`, `budget`, `tags`, `matrix`, `least_ranks`, `ranks` for partitions without GPUs, and
      `some_gpus`: how many of a node take part.
      Of memory paths it may set, as parameter or attribute, and then names in `plan_settings`: `access`, `buffers`,
      `host_memory`, `host_numa` (as fabricbench's options); and `placement` (`same-gpu` or `spread`: which GPUs go at
      the same time), `ranks_per_device`.
    - *init*: selects partitions and environments by features. All but `mpi` and `fabric` need a partition with `gpu`
      and an environment as `gpu_environments` chooses; it does not depend on the MPI library and is measured once. More
      than one node needs a partition that has them (`fabricheck.extras.number_of_nodes`) or the feature `multinode`,
      with `in_nvlink_domain` of nodes that NVLink joins; emulated nodes have no memory of their own to measure.
    - *setup*: the ranks of a node are as many as its GPUs (`devices` of the partition) and at least `ranks_per_device`;
      without GPUs `ranks`, and one where there are several nodes. `nodes` is 0 for all of the partition's (its
      `extras["nodes"]`); with `rank_a_port` a node has a rank for each of its NIC ports, on the GPU that the topology
      associates with it. The collectives of an MPI library take device memory only where the environment has the
      feature `device-collectives`, and no device memory goes to one whose `extras` say why it is `not_gpu_aware`;
      elsewhere reductions are left out, and the others are lists of transfers. The launcher's options for binding ranks
      come from `fabricheck.mpi`, variables from the tuning profile that the partition's `extras["tuning_profile"]`
      names.
    - Where the node does not support what the test needs, such as a second NUMA node, the test is skipped with the
      reason, and the run is INCOMPLETE; where the site's files say that it does not apply, such as for too few ranks,
      it is not. What the machine is known not to support is declared in the partition's `extras["unsupported"]`, a
      reason by the setting that needs it, such as `host_numa=remote`. The test still runs, and where the machine
      has it, it is measured.
    - *run*: `result.jsonl`, the exit status and what nodes said are left in the stage directory, and kept.
    - At the end `judgement.json` has the verdict and all findings (`fabricheck.results.check_judgement`), also where
      the test fails or is skipped.
    - *sanity*: raises SanityError where something else was measured than was requested, or not all of it.
    - *performance*: every metric that the plan promises becomes a performance variable; PerformanceError where the
      verdict is not PASS. ReFrame judges nothing, and reports what judged each metric (`fabricheck.rfm.bounds`).

    The messages are for people; `fabricheck run` reads the judgement. There is one hook a phase, which calls what
    another mixin may replace: `fitting_systems`, `fitting_environments`, `choose_operations`, `set_ranks`,
    `write_command`, `clean_up`, `judge`, `further_metrics` and `further_problems`.
    """

    fabricbench = fixture(BuildFabricbench, scope="environment")
    #: Operations of fabricbench, by the names in docs/metrics.md.
    operations = variable(typ.List[str])
    #: Message sizes, such as `8B:1GiB`, by transport; `host`: of the host backend, `other`: of all that is not named.
    sizes = variable(typ.Dict[str, str])
    #: `uncontended`: pairs or groups one after another; `contended`: all at the same time.
    schedules = variable(typ.List[str], value=["uncontended", "contended"])
    #: How an operation is measured: by the `library`, as a list of `transfers`, or `automatic`: fabricbench chooses.
    implementation = variable(str, value="automatic")
    #: Ranks of a node without GPUs; 0: one over several nodes, else as many as it has cores, between 2 and 4.
    ranks = variable(int, value=0)
    #: Fewer than these cannot measure it: the test is skipped.
    least_ranks = variable(int, value=2)
    #: Files with the messages of sparse operations, with commas: a step each. Relative names: below the suite's folder.
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
    gpu_libraries = variable(typ.List[str], value=["nccl", "rccl", "oneccl"])
    #: Whether it is about GPUs also where MPI moves the data.
    needs_gpu = variable(bool, value=False)
    #: Attributes of the test that are options of fabricbench by the same name, and that the result file has to confirm.
    plan_settings = variable(typ.List[str], value=[])
    #: Ranks that drive one GPU together.
    ranks_per_device = variable(int, value=1)
    #: Values of attributes to which `nightly` and `layers` are restricted; with others a test has not these tags.
    nightly_only = variable(typ.Dict[str, typ.List[str]], value={})
    #: Whether a node has a rank for each of its NIC ports, and pairs are those of the same port of two nodes.
    rank_a_port = variable(bool, value=False)
    #: Whether its nodes have to be those of one NVLink domain.
    in_nvlink_domain = variable(bool, value=False)
    #: Minutes that measuring may take (`fabricheck.rfm.duration`), and for ReFrame's report what was left out for that.
    minutes = variable(float, value=10.0)
    shortened = variable(str, value="")
    #: The file with what the check came to, likewise: ReFrame's report names it, and the session reads it.
    judgement_file = variable(str, value=JUDGEMENT)
    #: Passed on to fabricbench as it is.
    more_options = variable(typ.List[str], value=[])
    #: Over a fleet: seconds that a node has beyond what its equals took, at least, before it is ended.
    patience = variable(float, value=20.0)
    #: The profile in effect, for ReFrame's report and the store.
    tuning_profile = variable(str, value="default")
    #: How many nodes the partition has, likewise, 0 where nobody says it; and those of Slurm, where they are more.
    partition_nodes = variable(int, value=0)
    #: Why it was skipped, for ReFrame's report, which has no reasons of skips.
    left_out = variable(str, value="")
    #: Whether the site's own description says that, so that nothing is missing; likewise.
    not_applicable = variable(bool, value=False)
    #: What this test needs and the site says that the machine does not support; likewise.
    declared_unsupported = variable(str, value="")
    #: Whether each node is asked for its state before and after the run (docs/state.md).
    node_state = variable(typ.Bool, value=True)

    #: Least time limit of a job whose partition has none, and files to keep; other mixins replace them.
    job_time = "10m"
    #: GPUs that the ranks of a node drive, in their order; empty: the first, the second, …
    rank_devices: tuple[int, ...] = ()
    further_files: tuple[str, ...] = ()
    #: Of a partition that is a fleet inside of its job: what starts the ranks, and what was wrong with its nodes.
    fleet_launcher = "fabricheck.fleet.sweep"
    fleet_problems: tuple[Finding, ...] = ()
    plan_list = ""  # that its own plan is in, where it shares a job (fabricheck.rfm.shared_job)
    #: Nodes that take no job, which a test of all nodes leaves out.
    away: tuple[Finding, ...] = ()

    @run_after("init")
    def select(self) -> None:
        """Hook after init: selects partitions, environments and the files to keep, and drops tags (`nightly_only`)."""
        complete_backends(rt.runtime().system)
        self.valid_systems = self.fitting_systems()
        self.valid_prog_environs = self.fitting_environments()
        self.sourcesdir = None
        own = (RESULT, EXIT_STATUS, JUDGEMENT, *FILES_OF_NODES)
        self.keep_files = [*own, *self.further_files, *[FOLDER] * self.node_state]
        if any(getattr(self, name) not in values for name, values in self.nightly_only.items()):
            self.tags -= {"nightly", "layers"}

    def fitting_systems(self) -> list[str]:
        """The partitions that the test is for, as ReFrame's `valid_systems`; empty: none.

        Override it for another condition than the features `gpu` and `multinode`.
        """
        features = ["gpu"] if self.needs_gpu or self.transport not in {"mpi", "fabric"} else []
        return fitting_partitions(features, several_nodes=self.wanted_nodes != 1, in_domain=self.in_nvlink_domain)

    def fitting_environments(self) -> list[str]:
        """The environments that the test is for, as ReFrame's `valid_prog_environs`; empty: none.

        Override it for another condition than MPI or one of `gpu_libraries`.
        """
        return ["+mpi"] if self.transport == "mpi" else gpu_environments(self.gpu_libraries, self.transport)

    @property
    def wanted_nodes(self) -> int:
        """Over how many nodes; 0: all of the partition's. Not declared in here, so that it may be a parameter."""
        return int(getattr(self, "nodes", 1))

    @property
    def verified(self) -> bool:
        """Whether the result has to prove that its data were checked. Override it for a tool that cannot check them."""
        return True

    @property
    def backend(self) -> str:
        """The benchmark's backend in this environment: `host`, `cuda`, `hip` or `sycl`."""
        return backend_of(self.current_environ.extras)

    def leave_out_if(self, condition: bool, reason: str, *, described: bool = True) -> None:
        """Skip the test. `described`: the site's own description says that there is nothing to measure, which is no
        fault; else something is missing, and the run is INCOMPLETE."""
        if condition:
            self.left_out = reason
            self.not_applicable = described
            code, verdict = ("does-not-apply", Verdict.PASS) if described else ("not-measured", Verdict.INCOMPLETE)
            write_judgement(Path(self.stagedir), [Finding(code, verdict, reason)])
            self.skip(reason)

    @run_after("setup")
    def lay_out(self) -> None:
        """Hook after setup: time limit, operations, nodes and ranks; skips the test where it cannot run.

        Raises ReframeError for a partition whose `extras` are wrong.
        """
        given = getattr(self, "time_limit", None) or self.current_partition.time_limit
        self.time_limit, self.is_limit_given = given or self.job_time, bool(given)
        extras = self.current_partition.extras
        for line in effort_problems(extras):
            raise ReframeError(f"partition {self.current_partition.fullname}: {line}")
        for reason, described in reasons_not_to_run(self):
            self.leave_out_if(True, reason, described=described)
        self.choose_operations()
        self.set_nodes()
        self.set_ranks()

    def choose_operations(self) -> None:
        """An MPI library whose own collectives cannot take device memory gets those that are lists of transfers."""
        if self.transport != "mpi" or self.backend == "host":
            return
        if "device-collectives" not in self.current_environ.features:
            self.operations = [name for name in self.operations if name not in COLLECTIVES_ONLY]
            self.implementation = "transfers"
            self.leave_out_if(not self.operations, "this MPI library's collectives do not take device memory")

    def set_nodes(self) -> None:
        """Sets `num_nodes` (of `nodes`, or all of the partition's), and skips the test where there are too few.

        `partition_nodes` is 0 where the site does not state how many there are.
        """
        known, self.num_nodes, self.away, self.partition_nodes = nodes_for(self)
        where = self.current_partition.fullname
        unknown = f"{where}: give the number of nodes in its extras or topology"
        self.leave_out_if(self.num_nodes < 1, unknown, described=False)
        self.leave_out_if(0 < known < self.num_nodes, f"{where} has {known} nodes and this test needs {self.num_nodes}")

    def set_ranks(self) -> None:
        """Sets `num_tasks_per_node`, `num_tasks` and the GPUs of a node; skips the test for too few or too many ranks.

        Called after `set_nodes`. Override it for another number of ranks; call `super().set_ranks()` first.
        """
        gpus = gpus_of(self)
        on_host = self.backend == "host" or not gpus
        if not on_host:
            self.num_gpus_per_node = gpus
        if self.rank_a_port:
            ports = ports_of(self, on_host=on_host)
            self.num_tasks_per_node, self.rank_devices = ports.ranks, ports.devices
            unknown = f"no topology of {self.current_partition.fullname} names the NIC port of each GPU"
            self.leave_out_if(ports.ranks < 1, unknown, described=False)
            if self.num_nodes // 2 * ports.ranks < 2:
                self.schedules = ["uncontended"]  # no two pairs can go at the same time
        elif on_host:
            alone = min(max(cores_of(self), 2), 4)
            self.num_tasks_per_node = self.ranks or (alone if self.num_nodes == 1 else 1)
        else:
            self.num_tasks_per_node = max(gpus, self.ranks_per_device)
        if some := int(getattr(self, "some_gpus", 0)):  # not declared in here: it may be a parameter
            most = cores_of(self) if on_host else gpus
            self.leave_out_if(some > most, f"needs {some} {'cores' if on_host else 'GPUs'} and a node has {most}")
            self.num_tasks_per_node = some
        tasks = self.num_tasks = self.num_tasks_per_node * self.num_nodes
        self.leave_out_if(tasks < self.least_ranks, f"needs {self.least_ranks} ranks and this partition has {tasks}")
        most = self.current_environ.extras.get("most_ranks", tasks)
        self.leave_out_if(tasks > most, f"needs {tasks} ranks, and {self.current_environ.name} is for {most} at most")

    @property
    def libraries(self) -> tuple[Library, ...]:
        """The libraries that the transport uses, whose variables the tuning profile sets."""
        return libraries_of(self.transport)

    @property
    def profile(self) -> Profile:
        """The tuning profile of the partition. Raises UserError where it names one that does not exist."""
        return profile_of(self.current_partition.extras)

    @run_before("run")
    def prepare(self) -> None:
        """Hook before run: launcher, variables, command, container, and the commands that read the nodes' state."""
        prepare_launcher(self)
        self.tuning_profile = self.profile.name
        tried = self.current_environ.extras.get(TRIED, {})
        self.tuning = {**self.profile.environment(self.libraries), **self.settings, **tried}
        if self.transport == "mpi" and self.num_nodes > 1:
            self.env_vars.update(mpi.LOGGING.get(self.current_environ.extras.get("mpi", ""), {}))
        set_variables(self, self.tuning)
        self.declared_unsupported = unsupported_settings(self.current_partition.extras, self.chosen_settings())
        self.write_command()
        enter_container(self)
        if self.node_state:
            ask_nodes(self)
        self.started = started_at(self)

    def write_command(self) -> None:
        """Sets the job's `executable`, `executable_opts`, and `postrun_cmds`, which leave the exit status in a file.

        Override it for a job that runs more than fabricbench once; `plan` and `launch_command` have the parts.
        """
        self.executable = shlex.quote(self.fabricbench.program)
        self.plan_options = [*fitted_plan(self, self.plan()).options(RESULT), *case_options(self)]
        self.executable_opts = [f"--plans={self.plan_list}"] if self.plan_list else self.plan_options
        self.postrun_cmds = ["status=$?", f"echo $status > {EXIT_STATUS}", "exit $status"]  # not all schedulers tell it

    def plan(self) -> MeasurementPlan:
        """The options of fabricbench: budget and time-out in seconds, sizes as text (`8B:1GiB`), iterations as counts.

        Override it for an option that no attribute of the test sets.
        """
        return MeasurementPlan(
            transport=self.transport,
            operations=self.operations,
            implementation=self.implementation,
            schedules=self.schedules,
            pairs="rails" if self.rank_a_port else "",
            sizes=self.chosen_sizes(),
            budget=self.effort().budget or self.budget,
            least_iterations=self.least_iterations,
            warmup=self.warmup,
            timeout=self.timeout,
            ranks=self.num_tasks,
            nodes=self.num_nodes,
            matrix=self.matrix,
            settings={**self.effort().aggressors(self.operations), **self.chosen_settings()},
            ranks_per_device=self.ranks_per_device,
            together=self.chosen_ranks(),
            devices=self.rank_devices,
            more=[*self.more_options, *["--share-devices"] * bool(self.current_environ.extras.get("share_devices"))],
        )

    def chosen_sizes(self) -> str:
        """Those of the test, as far as the partition's `extras` have room for them."""
        kind = "host" if self.backend == "host" else self.transport
        return self.effort().sizes(str(self.sizes[kind if kind in self.sizes else "other"]))

    def effort(self) -> Effort:
        """What the partition's `extras` restrict: largest size in bytes, step of sizes, budget in seconds."""
        return Effort.of(self.current_partition.extras, self.num_nodes, by_host=goes_by_host(self))

    def chosen_settings(self) -> dict[str, str]:
        """The attributes in `plan_settings`, as options of fabricbench by name."""
        return {name: setting_of(self, name) for name in self.plan_settings}

    def chosen_ranks(self) -> str:
        """Which ranks go at the same time; empty where fabricbench is to choose."""
        if (placement := getattr(self, "placement", None)) is None:  # not declared in here: it may be a parameter
            return ""
        together = ranks_together(placement, self.current_partition.fullname, self.num_tasks_per_node)
        self.leave_out_if(not together, f"no GPUs of {self.current_partition.fullname} can be placed {placement}")
        return together

    @run_before("sanity")
    def check_leftovers(self) -> None:
        """Hook before sanity: cleans up, and skips the test where fabricbench ended because the node cannot run it.

        Raises SanityError where it cannot because of a fault of its own, such as a NIC that is down.
        """
        self.clean_up()
        folder = Path(self.stagedir)
        reason = unsupported_reason(folder, self.exit_status())
        if reason and not self.declared_unsupported:
            nodes = faults_of_nodes(folder / RESULT, self.current_partition.fullname)
            if nodes:
                own = Finding("not-measured", Verdict.INCOMPLETE, f"this node cannot run it: {reason}")
                raise not_judged(folder, [own, *nodes])
        self.leave_out_unsupported(reason, "this node")

    def leave_out_unsupported(self, reason: str | None, what: str) -> None:
        """Skip the test if there is a `reason` why `what` cannot run it: INCOMPLETE, unless the site declares it."""
        known = f", as the site declares ({self.declared_unsupported})" if self.declared_unsupported else ""
        self.leave_out_if(bool(reason), f"{what} cannot run it: {reason}{known}", described=bool(known))

    def clean_up(self) -> None:
        """Takes out of the stage directory what must not be kept; before anything of it is read."""

    def exit_status(self) -> int:
        """The exit status of the benchmark. Raises SanityError if the job left none before everything was measured."""
        return read_exit_status(self, self.last_words())

    @sanity_function
    def matches_request(self) -> bool:
        """The sanity function: judges the result and leaves `judgement.json`, also where it cannot be read.

        Raises SanityError where a problem is not DEGRADED: a slow test was measured.
        """
        try:
            self.judgement = self.as_launched(self.judge())
            write_judgement(Path(self.stagedir), self.found())
        except Exception as error:
            if not (Path(self.stagedir) / JUDGEMENT).exists():
                text = f"its result could not be read: {reason_of(error)}"
                write_judgement(Path(self.stagedir), [Finding("test-failed", Verdict.INCOMPLETE, text)])
            raise
        # What is slower than it should be was measured all the same.
        if any(each.verdict is not Verdict.DEGRADED for each in self.judgement.problems):
            raise SanityError(summary(self.judgement.problems, describe_end(self.errors())))
        return True

    def judge(self) -> RunJudgement:
        """What the result file comes to. Raises what `not_judged` returns where there is none."""
        if KEY in self.current_partition.extras:
            return judge_nodes(self)
        status, file = self.exit_status(), Path(self.stagedir) / RESULT
        if not file.exists() or file.stat().st_size == 0:
            raise no_result(self, f"fabricbench left no results (exit status {status})")
        run = read_guarded(self, file, status, self.wanted_environment(), self.paths)
        judge = self.system_judge()
        alone = judge.judge_or_invalid(run, type(self).__name__, attributes_of(self))
        # A second of imports, which a list of the checks does without.
        from fabricheck.diagnosis.of_session import with_session_findings

        return with_session_findings(alone, judge, self.current_partition.fullname)

    def as_launched(self, judged: RunJudgement) -> RunJudgement:
        """What is `judged` where ReFrame was started by itself: nothing is launched again, so that what takes a second
        launch to show is INCOMPLETE."""
        if "FABRICHECK_JOBS" in os.environ or not judged.slow_once:
            return judged
        text = f"slow in its only launch, which `fabricheck run` would confirm: {few(judged.slow_once)}"
        self.fleet_problems = (*self.fleet_problems, Finding("slow-once", Verdict.INCOMPLETE, text))
        return judged.of_one_launch(judged.slow_once)

    def found(self) -> list[Finding]:
        """All that keeps the check from passing: its metrics, what it compares beside them, and its run."""
        file = self.judgement.run.path
        metrics = [each.finding for each in self.judgement.judgements if each.verdict is not Verdict.PASS]
        own = (*with_files(metrics, file), *self.further_problems(), *with_files(self.judgement.problems, file))
        return list(dict.fromkeys(own))

    def system_judge(self) -> SystemJudge:
        """The policy, topology and references of this system. Raises UserError for a file that is wrong."""
        return _judge_of(self.current_system.name)

    def wanted_environment(self) -> dict[str, str | None]:
        """The variables that the site's own tuning, and what `upgrade` tries, put into effect; None: unset."""
        return {**self.current_environ.extras.get("required_environment", {}), **self.tuning}

    def paths(self, inside: bool) -> Paths:
        """The transport paths that the site requires and forbids, by which the library's log is checked.

        `inside`: whether all data stayed inside their nodes.
        """
        where = self.current_partition.fullname
        return paths_of(self.transport, where, self.num_nodes, self.current_environ.extras, inside=inside)

    def stderr_tail(self) -> str:
        """What ended a job that left no results, for the end of a message."""
        return missing_paths_text(self.current_environ.env_vars) + self.last_words()

    def last_words(self) -> str:
        """What launcher, scheduler and benchmark said at the end of the job."""
        return describe_end(self.errors())

    def errors(self) -> str:
        """The job's standard error."""
        return read_words(Path(self.stagedir) / str(self.stderr.evaluate()))

    def output(self) -> str:
        """The job's standard output."""
        return read_words(Path(self.stagedir) / str(self.stdout.evaluate()))

    @run_before("performance")
    def set_metrics(self) -> None:
        """Performance variables without references, so that ReFrame judges nothing by them."""
        metrics = [(each.name, each.value, each.unit) for each in self.judgement.judgements]
        for name, value, unit in (*metrics, *((name, value, "x") for name, value in self.further_metrics())):
            self.perf_variables[name] = sn.make_performance_function(float, unit, value)

    def further_metrics(self) -> Iterable[tuple[str, float]]:
        """Name and value of ratios (unit `x`) that become performance variables beside the metrics. Override it."""
        return ()

    def further_problems(self) -> Iterable[Finding]:
        """Findings that keep the test from passing though all metrics do. Override it, and add those of `super()`."""
        return self.fleet_problems

    @run_after("performance")
    def all_metrics_pass(self) -> None:
        """Hook after performance: writes bounds and all findings for ReFrame's report.

        Raises PerformanceError with the worst finding where there is one, and where ReFrame recorded too few metrics.
        """
        record_bounds(self.perfvalues, self.current_partition.fullname, self.judgement.judgements)
        recorded = {key.rsplit(":", 1)[1] for key in self.perfvalues}
        findings = self.found()
        if lost := [name for name in expected_metric_names(self.judgement.run.header) if name not in recorded]:
            text = f"ReFrame did not record {', '.join(lost[:3])}"
            findings.append(Finding("metrics-missing", Verdict.INCOMPLETE, text))
            write_judgement(Path(self.stagedir), findings)
        if findings:
            raise PerformanceError(summary(findings, ""))


class NodePairsCheck(FabricbenchCheck):
    """Every pair of nodes in one job, in rounds in which no node takes part twice (De Sensi et al., section V-B).

    A node has a rank for each of its NIC ports, which meets those of the same port of the other nodes; a single one
    where a rank uses all of them (`nic` is `all`). One direction at a time: not every MPI library over TCP has both
    directions of a link in use at once.
    """

    nodes = 0
    operations = ["unidirectional"]  # noqa: RUF012
    schedules = ["contended"]  # noqa: RUF012
    rank_a_port = True
    warmup = 2


@cache
def _judge_of(system: str) -> SystemJudge:
    from fabricheck.judge.system import SystemJudge

    return SystemJudge.of_any(system)
