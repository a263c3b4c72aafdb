"""Which line of the launcher and of Slurm (22.05) says what ended a job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import TypeAdapter

from fabricheck.records.component import Component
from fabricheck.records.finding import Finding
from fabricheck.records.node_state import NodeState
from fabricheck.records.run import Run
from fabricheck.results.guards import require_arrival
from fabricheck.results.node_state import FOLDER
from fabricheck.results.start_failures import start_failures
from fabricheck.rfm.job_end import RESULT, faults_of_nodes, missing_paths_text, words_of_job
from tests.support.made_runs import made_run
from tests.support.states import gpu, nic, node

CANCELLED = ["srun: launch/slurm: _step_signal: Terminating StepId=40.0", "*** STEP 40.0 ON nid001 CANCELLED AT …"]
OTHERS = ["srun: error: nid004: task 3: Terminated", "srun: error: nid001: task 0: Terminated"]
HNP, REMOTE = "  HNP daemon   : [[1,0],0] on node nid001", "  Remote daemon: [[1,0],1] on node nid002"


def ended_first(run: Run, errors: str) -> tuple[Finding, ...]:
    return start_failures(errors, run.hosts, ranks={str(rank.rank): rank.host for rank in run.ranks})


NOTICED = "mpirun noticed that process rank 1 with PID 16252 on node 10.79.0.2 exited on signal 9 (Killed)."


@pytest.mark.parametrize(
    ("line", "code", "nodes"),
    [
        (NOTICED, "rank-crashed", ["nid002"]),
        ("srun: error: nid001: task 0: Segmentation fault", "rank-crashed", ["nid001"]),
        (NOTICED.replace("rank 1", "rank 7"), "rank-crashed", []),
        (REMOTE, "start-failed", ["nid002"]),
    ],
)
def test_the_node_of_the_rank_that_ended_first_is_named_as_ranks_know_it(
    line: str, code: str, nodes: list[str]
) -> None:
    run = replace(made_run(["nid001", "nid002"], []), footer=None)
    (ended,) = ended_first(run, f"fabricbench: rank 0 was ended from outside by signal 15\n{line}\n")
    assert (ended.code, ended.components) == (code, tuple(map(Component.of_node, nodes)))
    assert not ended_first(run, "fabricbench: rank 0 was ended from outside by signal 15\n")


SPOKE = "fabricbench: no progress for 8 s: all ranks of the node of rank {} wait for each other\n"
#: Of a launch of four nodes, which were others than those of the next.
EARLIER = SPOKE.format(0) + SPOKE.format(1) + "fabricbench: no progress for 8 s: rank 2 did not arrive\n" + NOTICED


def test_words_of_an_earlier_launch_name_nobody_of_a_run_that_came_to_its_end() -> None:
    test = SimpleNamespace(job=None, num_nodes=3)
    run = made_run(["nid001", "nid002", "nid003"], [])
    assert words_of_job(test, run, 0, EARLIER) == ()
    assert [each.node for each in ended_first(run, SPOKE.format(0) + SPOKE.format(1))] == ["nid003"]
    assert require_arrival(run, EARLIER) != () and ended_first(run, EARLIER) != ()


def test_a_port_that_is_down_is_named_by_a_job_that_left_nothing(tmp_path: Path) -> None:
    states = TypeAdapter(NodeState)
    (tmp_path / FOLDER).mkdir()
    for host, up in (("nid001", True), ("nid002", False)):
        ports = (nic("hsn0", up=up), *map(nic, ("hsn1", "hsn2", "hsn3")))
        state = node(host, "after", gpus=tuple(map(gpu, range(4))), nics=ports)
        (tmp_path / FOLDER / f"{host}.after.json").write_bytes(states.dump_json(state))
    (port,) = faults_of_nodes(tmp_path / RESULT, "alps:gpu")
    assert (port.code, [str(part) for part in port.components]) == ("nic-down", ["nid002:hsn0"])


def test_the_paths_that_an_environment_names_and_the_machine_lacks_are_named(tmp_path: Path) -> None:
    lost = str(tmp_path / "lost")
    told = missing_paths_text({"PATH": f"{lost}/bin:{tmp_path}:$PATH", "OPAL_PREFIX": lost, "UCX_TLS": "self"})
    assert f"{lost}/bin (PATH)" in told and f"{lost} (OPAL_PREFIX)" in told and f"{tmp_path} (" not in told
    assert missing_paths_text({"PATH": f"{tmp_path}:$PATH"}) == ""
