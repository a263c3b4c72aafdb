"""The command lines of a job: of fabricbench, from what a test wants to know, and of what asks nodes how they are."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import reframe as rfm

from fabricheck.fleet.settings import KEY
from fabricheck.records.case import name_without_blanks
from fabricheck.results.node_state import FOLDER
from fabricheck.rfm.job_end import EXIT_STATUS, FAILED
from fabricheck.rfm.launch import launch_command, topology_of
from fabricheck.rfm.paths import nics_of
from fabricheck.state.programs import module_command
from fabricheck.suite import suite_root


@dataclass(frozen=True)
class MeasurementPlan:
    """What fabricbench is asked to measure. Fields as its options of the same names, and empty for its own defaults.

    `budget` and `timeout` in seconds; `sizes` as `1B:1GiB:4` or a list; `pairs`, `turns` and `together` as fabricbench
    reads them; `burn_in`: seconds of load after the measurement; `settings`: options of memory paths by name;
    `devices`: of the ranks of a node, in their order; `more`: options that are passed on as they are.
    """

    transport: str
    operations: Sequence[str]
    schedules: Sequence[str]
    sizes: str
    warmup: int
    timeout: float
    ranks: int
    nodes: int
    pairs: str = ""
    turns: int = 0
    iterations: int = 0
    implementation: str = ""
    budget: float = 0.0
    least_iterations: int = 0
    matrix: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    ranks_per_device: int = 1
    together: str = ""
    devices: Sequence[int] = ()
    burn_in: float = 0.0
    more: Sequence[str] = ()

    def options(self, output: str) -> list[str]:
        """The options for a run that leaves its result in the file `output`."""
        # A relative name is below the suite's folder.
        matrices = [str(suite_root() / each) for each in self.matrix.split(",") if each]
        given = {
            "implementation": self.implementation,
            "pairs": self.pairs,
            "turns": self.turns,
            "iterations": self.iterations,
            "budget": self.budget,
            "min-iterations": self.least_iterations,
            "matrix": ",".join(matrices),
            "ranks-per-device": self.ranks_per_device if self.ranks_per_device > 1 else 0,
            "together": self.together,
            "devices": ",".join(map(str, self.devices)),
            "burn-in": self.burn_in,
        }
        return [
            f"--transport={self.transport}",
            f"--operations={','.join(self.operations)}",
            f"--schedules={','.join(self.schedules)}",
            f"--sizes={self.sizes}",
            f"--warmup={self.warmup}",
            f"--timeout={self.timeout:g}",
            f"--expect-ranks={self.ranks}",
            f"--expect-nodes={self.nodes}",
            f"--output={output}",
            *(
                f"--{name}={value:g}" if isinstance(value, float) else f"--{name}={value}"
                for name, value in given.items()
                if value
            ),
            *(f"--{name.replace('_', '-')}={value}" for name, value in self.settings.items()),
            *self.more,
        ]


def case_options(test: rfm.RegressionTest) -> list[str]:
    """The option that leaves the name of the test case in the header; none for a name that a shell would take apart."""
    name = f"{test.display_name} @{test.current_partition.fullname}+{test.current_environ.name}"
    return [f"--case={word}"] if (word := name_without_blanks(name)) else []


def place_options(transport: str, ranks: int, nodes: int, output: str) -> list[str]:
    """Options for a tiny run whose header tells where ranks are, on which devices, with which libraries."""
    return [
        f"--transport={transport}",
        "--operations=pingpong",
        "--schedules=uncontended",
        "--pairs=0-1",
        "--sizes=8B",
        "--iterations=10",
        f"--expect-ranks={ranks}",
        f"--expect-nodes={nodes}",
        "--quiet",
        f"--output={output}",
    ]


def ranks_together(placement: str, where: str, ranks: int) -> str:
    """Which ranks go at the same time, as `0+1,0+1+2`: `same-gpu` parts of one GPU, or `spread` over GPUs.

    `where`: `system:partition`, whose topology says which GPUs those are; rank i drives GPU i. Empty where no GPUs can
    be placed so.
    """
    from fabricheck.limits.memory import placements

    topology = topology_of(where)
    if topology is None:
        return ""
    choices = placements(topology, ranks)
    sets = choices.same_gpu if placement == "same-gpu" else choices.spread
    return ",".join("+".join(map(str, one)) for one in sets)


#: Seconds after which a launch that asks the nodes is ended; the test goes on.
LIMIT_S = 45
# Ends a job, or the launch of a shared one, over nodes that cannot talk, as fabricbench ends where MPI does not start.
_END_UNCONNECTED = (
    f"if ls {FOLDER}/*.unconnected > /dev/null 2>&1; then touch ended; echo {FAILED} > {EXIT_STATUS}; exit {FAILED}; fi"
)
# What launchers call the number of a rank on its node. One rank asks; without any of these, the first to come.
_LOCAL_RANKS = (
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PALS_LOCAL_RANKID",
    "FLUX_TASK_LOCAL_ID",
    "JSM_NAMESPACE_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
)


def ask_nodes(test: rfm.RegressionTest) -> None:
    """Adds to the job of `test` what asks its nodes, once its commands are known: the last of them ends the job."""
    # The script of a local job runs on its only node; any other may run elsewhere.
    partition = test.current_partition
    nodes = getattr(test, "num_nodes", 1)
    local = partition.scheduler.registered_name == "local" and nodes == 1
    local = local and KEY not in partition.extras
    launch = "" if local else f"{launch_command(test)} "
    program = getattr(getattr(test, "fabricbench", None), "program", "")
    ports = nics_of(partition.fullname) if nodes > 1 else ()
    before, after = (state_command(when, launch, nodes, program, ports) for when in ("before", "after"))
    test.prerun_cmds = [f"mkdir -p {FOLDER}", before, *[_END_UNCONNECTED] * (nodes > 1), *test.prerun_cmds]
    test.postrun_cmds = [*test.postrun_cmds[:-1], after, *test.postrun_cmds[-1:]]


def state_command(when: str, launch: str, nodes: int = 1, program: str = "", ports: Sequence[str] = ()) -> str:
    """One line of a shell that leaves the state of each node in `FOLDER`; it ends in bounded time, and never fails.

    `launch`: the launcher with its options and a blank, empty where this very node is asked. `program`: what is run.
    `ports`: by which the nodes have to reach each other. Compute nodes where the Python that this is does not run, as
    of another architecture, use their own.
    """
    rank = ""
    for name in reversed(_LOCAL_RANKS):
        rank = f"${{{name}:-{rank}}}" if rank else f"${{{name}:-0}}"
    _, *ask = module_command("fabricheck.state.collect", FOLDER, when, str(nodes), program, ",".join(ports))
    script = (
        f'[ "{rank}" = 0 ] || exit 0; p={shlex.quote(sys.executable)}; "$p" -c "" || p=python3; '
        f'exec "$p" {shlex.join(ask)}'
    )
    command = f"timeout --kill-after=5 {LIMIT_S} {launch}sh -c {shlex.quote(script)}"
    return f"{command} > {FOLDER}/{when}.log 2>&1 < /dev/null || true"
