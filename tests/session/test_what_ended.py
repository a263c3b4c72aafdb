"""Which line of the launcher and of Slurm (22.05) says what ended a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabricheck.records.component import Component
from fabricheck.rfm.outcome import first_ended, what_ended
from tests.support.made_runs import made_run

CANCELLED = ["srun: launch/slurm: _step_signal: Terminating StepId=40.0", "*** STEP 40.0 ON nid001 CANCELLED AT …"]
OTHERS = ["srun: error: nid004: task 3: Terminated", "srun: error: nid001: task 0: Terminated"]
HNP, REMOTE = "  HNP daemon   : [[1,0],0] on node nid001", "  Remote daemon: [[1,0],1] on node nid002"


@pytest.mark.parametrize(
    ("lines", "ended"),
    [
        (["srun: error: nid003: task 2: Terminated", *CANCELLED, *OTHERS], "srun: error: nid003: task 2: Terminated"),
        ([*CANCELLED, "srun: error: nid003: task 2: Killed", *OTHERS], "srun: error: nid003: task 2: Killed"),
        (["srun: error: Node failure on nid003", *CANCELLED, *OTHERS], "srun: error: Node failure on nid003"),
        (["srun: error: nid003: task 2: Exited with exit code 3", *CANCELLED, *OTHERS], ""),
        # Open MPI 4.1, help-errmgr-base.txt; what it says of its own end comes later.
        (["ORTE has lost communication with a remote daemon.", HNP, REMOTE, OTHERS[0]], REMOTE),
        ([*CANCELLED, *OTHERS], ""),
        ([], ""),
    ],
)
def test_the_first_to_end_is_named_and_not_who_was_ended_with_it(lines: list[str], ended: str) -> None:
    assert what_ended(lines) == ended


NOTICED = "mpirun noticed that process rank 1 with PID 16252 on node 10.79.0.2 exited on signal 9 (Killed)."


@pytest.mark.parametrize(
    ("line", "code", "nodes"),
    [
        (NOTICED, "rank-crashed", ["nid002"]),
        ("srun: error: nid001: task 0: Segmentation fault", "rank-crashed", ["nid001"]),
        # Before the header nobody knows where ranks are but the launcher.
        (NOTICED.replace("rank 1", "rank 7"), "rank-crashed", ["10.79.0.2"]),
        (REMOTE, "benchmark-failed", []),
    ],
)
def test_the_node_of_the_rank_that_ended_first_is_named_as_ranks_know_it(
    line: str, code: str, nodes: list[str]
) -> None:
    run = replace(made_run(["nid001", "nid002"], []), footer=None)
    (ended,) = first_ended(run, f"fabricbench: rank 0 was ended from outside by signal 15\n{line}\n")
    assert (ended.code, ended.components) == (code, tuple(map(Component.of_node, nodes)))
    assert not tuple(first_ended(run, "fabricbench: rank 0 was ended from outside by signal 15\n"))
