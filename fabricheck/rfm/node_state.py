"""Asks every node of a job for its state, before and after the test, in the job's own script."""

from __future__ import annotations

import shlex
import sys

import reframe as rfm

from fabricheck.fleet.settings import KEY
from fabricheck.results.node_state import FOLDER
from fabricheck.rfm.launch import launch_command
from fabricheck.state.programs import module_command

#: Seconds after which a launch that asks the nodes is ended; the test goes on.
LIMIT_S = 45
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
    local = partition.scheduler.registered_name == "local" and getattr(test, "num_nodes", 1) == 1
    local = local and KEY not in partition.extras
    launch = "" if local else f"{launch_command(test)} "
    before, after = (state_command(when, launch) for when in ("before", "after"))
    test.prerun_cmds = [f"mkdir -p {FOLDER}", before, *test.prerun_cmds]
    test.postrun_cmds = [*test.postrun_cmds[:-1], after, *test.postrun_cmds[-1:]]


def state_command(when: str, launch: str) -> str:
    """One line of a shell that leaves the state of each node in `FOLDER`; it ends in bounded time, and never fails.

    `launch`: the launcher with its options and a blank, empty where this very node is asked. Compute nodes where the
    Python that this is does not run, as of another architecture, use their own.
    """
    rank = ""
    for name in reversed(_LOCAL_RANKS):
        rank = f"${{{name}:-{rank}}}" if rank else f"${{{name}:-0}}"
    _, *ask = module_command("fabricheck.state.collect", FOLDER, when)
    script = (
        f'[ "{rank}" = 0 ] || exit 0; p={shlex.quote(sys.executable)}; "$p" -c "" || p=python3; '
        f'exec "$p" {shlex.join(ask)}'
    )
    command = f"timeout --kill-after=5 {LIMIT_S} {launch}sh -c {shlex.quote(script)}"
    return f"{command} > {FOLDER}/{when}.log 2>&1 < /dev/null || true"
