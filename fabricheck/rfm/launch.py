"""How the ranks of a test are started: launcher, binding, environment, tuning profile."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

import reframe as rfm
import reframe.core.runtime as rt
from reframe.core.exceptions import ReframeError
from reframe.core.launchers import JobLauncher

from fabricheck import mpi
from fabricheck.errors import UserError
from fabricheck.extras import number_of_nodes, parse_cores
from fabricheck.fleet.allocation import parse_duration
from fabricheck.fleet.nodes import SLURM, ask_slurm
from fabricheck.fleet.record import Fleet
from fabricheck.fleet.settings import KEY
from fabricheck.records.component import Component, short_host
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.rfm.build_fabricbench import API_OF_CCL, missing_backend
from fabricheck.state.programs import module_command
from fabricheck.suite import described, suite_root
from fabricheck.topology.hardware import gpu_product
from fabricheck.topology.host import host_links
from fabricheck.topology.model import Topology, find_topology
from fabricheck.topology.nic import gpus_of_ports
from fabricheck.topology.transport_paths import data_nics, fabrics_of
from fabricheck.tuning import Profile, load_profiles

#: Of a job's time what one launch over a fleet may take: it may have to be done again.
SHARE_OF_JOB = 0.4


def prepare_launcher(test: rfm.RegressionTest) -> None:
    """Gives the job of `test` the launcher's options and variables, and a limit for waiting; before the run phase."""
    extras = test.current_partition.extras
    if (limit := extras.get("max_pending_time")) is not None:
        # A job that cannot start, such as for a node that is down, must not wait for ever.
        test.max_pending_time = limit
    if test.job.scheduler.registered_name in SLURM:
        # Else Slurm starts it anew where a node is lost, beside what it has measured.
        test.job.options += ["--no-requeue"]
    test.job.launcher.options += test.current_environ.extras.get("launcher_options", [])
    launcher = test.current_partition.launcher_type.registered_name
    if launcher == "srun":
        # Else srun waits until the job's time is over for ranks that hang.
        test.env_vars["SLURM_KILL_BAD_EXIT"] = "1"
    cores = extras.get("cores")
    if cores and test.backend != "host":
        test.job.launcher.options += binding_options(launcher, cores, devices_of_ranks(test))
    elif launcher == "srun" and test.backend != "host":
        # Else Slurm may bind each rank to one core.
        threads = share_of_rank(test) * (test.current_partition.processor.num_cpus_per_core or 1)
        test.num_cpus_per_task = threads if threads > 1 else None
        if threads > 1 and KEY in extras:  # whose own launcher ReFrame does not know
            test.job.launcher.options.append(f"--cpus-per-task={threads}")
    family = test.current_environ.extras.get("mpi")
    if launcher == "mpirun" and family in mpi.NAMES:
        ranks = test.num_tasks_per_node or test.num_tasks
        launch = mpi.launch(family, ranks, cores_of(test), share_of_rank(test))
        test.job.launcher.options += list(launch.options)
        test.env_vars.update({**launch.environment, **mpi.as_root(family)})
    if KEY in extras:
        launch_in_job(test, extras[KEY])


def set_variables(test: rfm.RegressionTest, variables: Mapping[str, str | None]) -> None:
    """Has the job of `test` set these variables; None: unset it, whoever set it."""
    test.env_vars.update({name: value for name, value in variables.items() if value is not None})
    test.prerun_cmds = [*test.prerun_cmds, *(f"unset {name}" for name, value in variables.items() if value is None)]


class _WordsOnly(JobLauncher):
    """A launcher whose options are all of its words."""

    def command(self, job: Any) -> list[str]:
        return []


def launch_in_job(test: rfm.RegressionTest, fleet: str) -> None:
    """Has the fleet's own launcher start the ranks, as steps of its job: on each node by itself."""
    options = test.job.launcher.options
    test.job.launcher = _WordsOnly()
    limit, patience = f"{parse_duration(test.job_time) * SHARE_OF_JOB:.0f}", f"{test.patience:g}"
    # A partition of Flux has no launcher of ReFrame's.
    name = {"local": "flux"}.get(launcher := test.current_partition.launcher_type.registered_name, launcher)
    if name == "mpirun" and test.current_environ.extras.get("mpi") != "openmpi":
        name = "mpiexec"  # Hydra, which knows no slots
    words = module_command(test.fleet_launcher, fleet, name, str(test.num_tasks_per_node), limit, patience)
    test.job.launcher.options = [*map(shlex.quote, words), *options, "--"]


def started_at(test: rfm.RegressionTest) -> datetime:
    """Now; over a fleet that resumes an earlier run, when that began: its results are this test's."""
    extras = test.current_partition.extras
    fleet = Fleet.read(Path(extras[KEY])) if KEY in extras else None
    return datetime.fromisoformat(fleet.began) if fleet and fleet.earlier else datetime.now(timezone.utc)


def reasons_not_to_run(test: rfm.RegressionTest) -> Iterator[tuple[str, bool]]:
    """Why the test's environment cannot run it at all, and whether the site's own description says so."""
    reason = missing_backend(test.backend)
    if reason is not None:
        yield reason, False
    extras = test.current_environ.extras
    if "not_gpu_aware" in extras and test.transport == "mpi" and test.backend != "host":
        yield mpi.not_gpu_aware(extras.get("mpi", ""), extras["not_gpu_aware"]), True
    for reason in (*_missing_of_gpus(test), *_missing_of_nics(test), *_missing_of_fabrics(test)):
        yield reason, True
    if KEY in test.current_partition.extras and hasattr(test, "suite"):
        yield "over a fleet only fabricbench runs, no vendor suite", True


def _missing_of_gpus(test: rfm.RegressionTest) -> Iterator[str]:
    """What the test needs and the GPUs of the topology do not have."""
    technology, fp8 = getattr(test, "host_link", ""), getattr(test, "datatype", "").startswith("float8")
    topology = topology_of(test.current_partition.fullname) if technology or fp8 else None
    if topology is None:
        return
    if technology and all(link.technology != technology for link in host_links(topology, topology.gpus)):
        yield f"no GPU of {test.current_partition.fullname} is joined to its CPU by {technology}"
    products = [product for gpu in topology.gpus if (product := gpu_product(gpu.model)) is not None]
    if fp8 and any(product.backend == "cuda" and int(product.arch) < 90 for product in products):
        yield "NCCL adds up FP8 on GPUs from Hopper on"


def _missing_of_nics(test: rfm.RegressionTest) -> Iterator[str]:
    """Why a test of one NIC of a node, by its number, or of several at once, has none there."""
    wanted, where = getattr(test, "nic", ""), test.current_partition.fullname
    topology = topology_of(where) if wanted else None
    if topology is None:
        return
    nics = len(data_nics(topology))
    if wanted == "all":
        if nics < 2:
            yield f"a node of {where} has fewer than two NICs to share a message"
    elif not wanted.isdecimal():  # by name: fabricbench knows which there are
        return
    elif int(wanted) >= nics:
        yield f"a node of {where} has {nics} NICs, counted from 0, and this is for NIC {wanted}"
    elif not any(fabric.loops_back for fabric in fabrics_of(topology)):
        yield f"sockets, and libfabric over Omni-Path, keep data that stay on a node of {where} away from its NICs"


def _missing_of_fabrics(test: rfm.RegressionTest) -> Iterator[str]:
    """Why a test of NICs has no provider: that of sockets takes no memory of GPUs (libfabric 2.7, prov/tcp), and
    perftest is for verbs."""
    topology = topology_of(test.current_partition.fullname) if test.transport == "fabric" else None
    fabrics = fabrics_of(topology) if topology is not None else ()
    if not fabrics:
        return
    on_host = test.backend == "host" or getattr(test, "buffers", "") == "host-host"
    if getattr(test, "tool", "") == "perftest" and not any(fabric.verbs for fabric in fabrics):
        yield f"the NICs of {test.current_partition.fullname} have no verbs, which perftest needs"
    elif not on_host and not any(fabric.rdma for fabric in fabrics):
        yield "libfabric's sockets take no memory of GPUs; tests between hosts measure these NICs"


def devices_of_ranks(test: rfm.RegressionTest) -> list[int]:
    """The GPU of each rank of a node, in their order."""
    if test.rank_devices:
        return list(test.rank_devices)
    gpus = gpus_of(test)
    return [rank // test.ranks_per_device % gpus for rank in range(test.num_tasks_per_node)]


def binding_options(launcher: str, cores: Sequence[str], devices: Sequence[int]) -> list[str]:
    """The launcher's options that bind each rank of a node to the cores of its GPU; none for other launchers.

    `cores`: of each GPU, as Linux lists them. `devices`: the GPU of each rank. srun's need the whole node. Options of
    mpiexec are those of PALS.
    """
    chosen = [cores[device] for device in devices]
    if launcher == "srun":
        masks = (sum(1 << core for core in parse_cores(each)) for each in chosen)
        return [f"--cpu-bind=mask_cpu:{','.join(map(hex, masks))}"]
    if launcher == "mpiexec":
        return [f"--ppn {len(devices)}", f"--cpu-bind=list:{':'.join(chosen)}"]
    return []


def cores_of(test: rfm.RegressionTest) -> int:
    """Physical cores of a node: those of the partition's description, else of this machine."""
    return int(test.current_partition.processor.num_cores or mpi.physical_cores())


def share_of_rank(test: rfm.RegressionTest) -> int:
    """How many physical cores each rank gets, one where it drives no GPU; 0 where the number of a node is unknown."""
    processor = test.current_partition.processor
    cores = processor.num_cores or (mpi.physical_cores() if test.is_local() else 0)
    if test.backend == "host":
        return 1
    in_numa_node = processor.num_cores_per_numa_node or processor.num_cores_per_socket or cores
    return cores and mpi.share_of_cores(test.num_tasks_per_node or test.num_tasks, cores, in_numa_node)


def gpus_of(test: rfm.RegressionTest) -> int:
    """GPUs of a node, by the partition's description."""
    return next((each.num_devices for each in test.current_partition.devices if each.device_type == "gpu"), 0)


@dataclass(frozen=True)
class NodePorts:
    """How the NIC ports of a node are each measured by a rank: `ranks` of a node, and the devices that they drive.

    `devices` is empty on the host backend. `ranks` is 0 where no topology says which GPU has which port.
    """

    ranks: int
    devices: tuple[int, ...] = ()


def ports_of(test: rfm.RegressionTest, *, on_host: bool) -> NodePorts:
    """A rank for each NIC of a node: on the GPU that the topology associates with it, or bound by the environment. One
    where it uses all NICs at once, on the first GPU.

    An environment that binds the ranks of a node to its NICs in turn says so (`extras["rank_nics"]`); without
    that it is unknown over which NIC a rank on the host sends, and there is one a node.
    """
    where = test.current_partition.fullname
    topology = topology_of(where)
    if getattr(test, "nic", "") == "all":
        return NodePorts(1, () if on_host else (0,))
    if on_host:
        bound = test.current_environ.extras.get("rank_nics") == "round-robin"
        return NodePorts(max(len(topology.nics), 1) if bound and topology else 1)
    if topology is None:
        return NodePorts(0)
    devices = tuple(gpu.index for gpu in gpus_of_ports(topology))
    return NodePorts(len(devices), devices)


# States of a node of Slurm in which no job of a user starts on it.
_AWAY = frozenset(("DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "NOT_RESPONDING"))
# And those of one that was lost.
_LOST = frozenset(("DOWN", "FAIL", "NOT_RESPONDING"))


def nodes_for(test: rfm.RegressionTest) -> tuple[int, int, tuple[Finding, ...], int]:
    """How many nodes of the partition are described, how many the test takes, what keeps a test of all nodes from some,
    and how many there are: Slurm may have more."""
    known = nodes_of(test.current_partition)
    if test.wanted_nodes:
        return known, test.wanted_nodes, (), known
    up, away = nodes_up(test, min(known, int(test.current_partition.extras.get("most_nodes", known))))
    problems = tuple(
        Finding("node-away", Verdict.INCOMPLETE, f"{name} is {state} and was not measured", (Component.of_node(name),))
        for name, state in away.items()
    )
    return known, up, problems, max(known, len(_slurm_states(test)))


def nodes_up(test: rfm.RegressionTest, known: int) -> tuple[int, dict[str, str]]:
    """How many of the `known` nodes of the partition take a job now, by Slurm, and the state of each that does not.

    All of them for other schedulers, and where fewer than two do: the job then says why it does not start.
    """
    states = _slurm_states(test)
    away = {name: "+".join(sorted(each)) for name, each in sorted(states.items()) if _AWAY & each}
    up = len(states) - len(away)
    if not 2 <= up < known:
        return known, {}
    return up, away


def nodes_lost(test: rfm.RegressionTest, hosts: Iterable[str] = ()) -> tuple[Finding, ...]:
    """Each node of the test's job that Slurm has lost meanwhile, with its state; none for other schedulers.

    `hosts`: those that ran it, where the job told: Slurm's list of a job that ended for a node may leave that one out.
    """
    if test.job is None:
        return ()
    own = {short_host(host) for host in (*hosts, *(test.job.nodelist or ()))}
    lost = {name: states for name, states in _slurm_states(test).items() if name in own and _LOST & states}
    return tuple(
        Finding(
            "node-lost",
            Verdict.INCOMPLETE,
            f"{name} is {'+'.join(sorted(states))}: Slurm lost the node during the job",
            (Component.of_node(name),),
        )
        for name, states in sorted(lost.items())
    )


def not_launched(test: rfm.RegressionTest) -> Iterator[Finding]:
    """The first node of the test's job, if Slurm could not start its script there, which then leaves no word."""
    if test.job is None or test.job.scheduler.registered_name not in SLURM:
        return
    with contextlib.suppress(UserError):
        answer = ask_slurm(["scontrol", "show", "job", str(test.job.jobid)])
        if match := re.search(r"Reason=JobLaunchFailure\b.*?BatchHost=(\S+)", answer.output, re.DOTALL):
            text = f"{match[1]}: Slurm cannot start the job there: is the folder of results missing, or full?"
            yield Finding("start-failed", Verdict.INCOMPLETE, text, (Component.of_node(match[1]),))


def _slurm_states(test: rfm.RegressionTest) -> dict[str, set[str]]:
    """What Slurm says of each node of the partition; empty for other schedulers, and where it does not answer."""
    scheduler = test.job.scheduler
    if scheduler.registered_name not in SLURM:
        return {}
    try:
        return {each.name: each.states for each in scheduler.filternodes(test.job, scheduler.allnodes())}
    except ReframeError:
        return {}  # the job itself says what is wrong with the scheduler


def nodes_of(partition: Any) -> int:
    """How many nodes a partition of ReFrame has; 0 where neither its extras nor its topology say it."""
    if "nodes" in partition.extras:
        return number_of_nodes(partition.extras, 0)
    try:
        return _nodes_by_topology(partition.fullname)
    except UserError:
        return 0  # `fabricheck run` and `validate` say what is wrong with the file


@cache
def _nodes_by_topology(where: str) -> int:
    topology = topology_of(where)
    return topology.nodes if topology is not None else 0


def topology_of(where: str) -> Topology | None:
    """The topology of a `system:partition`; None for a system that has no folder here or in FABRICHECK_SITES.

    Raises UserError where its file is not valid.
    """
    return find_topology(where) if described(where) else None


def fitting_partitions(features: Sequence[str], *, several_nodes: bool, in_domain: bool = False) -> list[str]:
    """The partitions with all of `features`, as ReFrame's `valid_systems`.

    Of one node: all that are not emulated, as features. Of several: by name those of the current system that have
    several nodes, or say that they do by the feature `multinode`; `in_domain`: those whose nodes NVLink joins.
    """
    if not several_nodes:
        return [" ".join(["-emulated", *(f"+{each}" for each in features)])]
    partitions = rt.runtime().system.partitions
    able = [each for each in partitions if nodes_of(each) > 1 or "multinode" in each.features]
    able = [each for each in able if KEY not in each.extras]  # its network is screened as a whole
    able = [each for each in able if not in_domain or is_nvlink_domain(each.fullname)]
    return [each.fullname for each in able if set(features) <= set(each.features)]


def is_nvlink_domain(where: str) -> bool:
    """Whether NVLink joins all nodes of a `system:partition`, by its topology."""
    topology = topology_of(where)
    return topology is not None and 1 < topology.nodes <= topology.nvlink_domain_nodes


def gpu_environments(libraries: Sequence[str], transport: str) -> list[str]:
    """The environments that measure GPUs over `transport`, not `mpi`, as ReFrame's `valid_prog_environs`.

    NICs are measured by those with the feature `libfabric`. Else those with one of the collective `libraries`: they
    measure once what does not depend on the MPI library. Where this system has no such library, what needs none is
    measured by the first environment of each partition with one of their APIs.
    """
    if transport == "fabric":
        return ["+mpi +libfabric"]
    partitions = rt.runtime().system.partitions
    has_library = any(set(API_OF_CCL) & set(each.features) for one in partitions for each in one.environs)
    if has_library or transport == "ccl":
        return [f"+mpi +{name}" for name in libraries]
    return first_environments({API_OF_CCL[name] for name in libraries})


def first_environments(features: Collection[str]) -> list[str]:
    """The first environment of each partition that has MPI and one of these features, by its name."""
    names: dict[str, None] = {}
    for partition in rt.runtime().system.partitions:
        able = [each for each in partition.environs if "mpi" in each.features]
        fitting = [each.name for each in able if not {*features}.isdisjoint(each.features)]
        names.update(dict.fromkeys(fitting[:1]))
    return [*names]


def launch_command(test: rfm.RegressionTest) -> str:
    """How the launcher starts the ranks of `test`, for further commands of its job; before the run phase."""
    # ReFrame tells the job only when it runs it.
    test.job.num_tasks = test.num_tasks
    test.job.num_tasks_per_node = test.num_tasks_per_node
    test.job.num_cpus_per_task = test.num_cpus_per_task
    return str(test.job.launcher.run_command(test.job))


# Every test asks, as often as it has parameters.
_profiles = cache(load_profiles)


def profile_of(extras: Mapping[str, object]) -> Profile:
    """The tuning profile that the `extras` of a partition name. Raises UserError where there is none of that name."""
    return _profiles(suite_root() / "config" / "tuning.yaml").profile(str(extras.get("tuning_profile", "default")))
