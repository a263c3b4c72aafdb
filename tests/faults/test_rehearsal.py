"""Systems in miniature, two nodes each: Alps (four NVIDIA GPUs and NICs a node) and LUMI (eight of AMD's, four NICs),
healthy, and Alps with faults."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fabricheck.emulation import faults
from fabricheck.emulation.cluster import Cluster, require_machine
from fabricheck.emulation.gpu_faults import nvlink_down, other_process, pcie, slow_link, throttled
from fabricheck.emulation.rehearsal import up_in_miniature, variables_of
from fabricheck.errors import UserError
from fabricheck.records.verdict import Verdict
from fabricheck.suite import suite_root
from tests.faults.matrix import NO_COUNTERPART, Outcome, settle

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.full]


@dataclass(frozen=True)
class Told:
    status: int
    output: str
    verdict: dict[str, Any]


@pytest.fixture(scope="module")
def alps() -> Iterator[Cluster]:
    yield from in_miniature("alps")


@pytest.fixture
def lumi() -> Iterator[Cluster]:
    yield from in_miniature("lumi")


def in_miniature(system: str) -> Iterator[Cluster]:
    try:
        require_machine()
    except UserError as error:
        pytest.skip(str(error))
    cluster = up_in_miniature(system, 2, None, suite_root(), f"{system}test")
    try:
        yield cluster
    finally:
        cluster.down_now()


def run(cluster: Cluster, folder: Path, *options: str) -> Told:
    system = f"--system={cluster.layout.topology.system}"
    command = [sys.executable, "-m", "fabricheck", "run", system, "--no-store", f"--output={folder}", *options]
    done = cluster.run(command, timeout_s=400, environment=variables_of(cluster.layout.name))
    (session,) = (folder / "runs").iterdir()
    verdict = json.loads((session / "verdict.json").read_text(encoding="utf-8"))
    return Told(done.returncode, done.stdout, verdict)


def require_healthy(told: Told) -> None:
    """Everything of the smoke test is there and green, on both nodes and between them, and called a rehearsal."""
    assert told.status == 0, told.output
    assert told.output.strip().splitlines()[-1].startswith("PASS: REHEARSAL on emulated GPUs")
    assert (told.verdict["verdict"], told.verdict["rehearsal"]) == ("PASS", True)
    measured = Counter(each["test"].split()[0] for each in told.verdict["runs"])
    assert measured == {"SmokePeers": 1, "SmokeHostCopies": 1, "SmokeLibraries": 2, "SmokeNodes": 2}
    assert {host for each in told.verdict["runs"] for host in each["hosts"]} == {"nid001", "nid002"}


def test_a_healthy_miniature_is_green_and_called_a_rehearsal(alps: Cluster, tmp_path: Path) -> None:
    require_healthy(run(alps, tmp_path, "--tag=smoke"))


def test_so_is_one_of_amds_gpus_which_share_their_nics(lumi: Cluster, tmp_path: Path) -> None:
    require_healthy(run(lumi, tmp_path, "--tag=smoke"))


def test_a_slow_link_between_two_gpus_is_red_and_only_its_pairs(alps: Cluster, tmp_path: Path) -> None:
    for node in ("nid001", "nid002"):
        slow_link(alps, node, ("gpu1", "gpu2"), 60, one_side=False)
    try:
        told = run(alps, tmp_path, "--name=SmokePeers")
    finally:
        faults.clear(alps)
    assert told.status == 3, told.output
    (peers,) = told.verdict["runs"]
    slow = {each["name"].rpartition("_uncontended_")[2][:3] for each in peers["metrics"] if each["verdict"] != "PASS"}
    assert slow == {"1_2", "2_1"}


def test_what_a_node_says_of_its_gpus_is_red_and_named(alps: Cluster, tmp_path: Path) -> None:
    """Three faults that this check measures or does not: the node says each, by GPU and amount."""
    throttled(alps, "nid001", "gpu2", 20, "sw_thermal_slowdown")
    nvlink_down(alps, "nid001", "gpu0", 7)
    pcie(alps, "nid001", "gpu1", 3, None)
    try:
        told = run(alps, tmp_path, "--name=SmokePeers")
    finally:
        faults.clear(alps)
    for fault, how, said in (
        ("a GPU is throttled", "fault gpu-slow nid001 gpu2 20", "GPU 2: is throttled: thermal slowdown by the driver"),
        ("an NVLink is down", "fault nvlink-down nid001 gpu0 7", "GPU 0: 17 of 18 links to other GPUs are active"),
        ("PCIe of a GPU came up at Gen 3", "fault pcie nid001 gpu1 3", "GPU 1: PCIe runs at Gen 3 x16 of Gen 5 x16"),
    ):
        settle(outcome(told, fault, how, said), Verdict.DEGRADED, said)


def test_a_gpu_that_somebody_else_uses_is_invalid(alps: Cluster, tmp_path: Path) -> None:
    other_process(alps, "nid001", "gpu0", 1 << 30, None)
    try:
        told = run(alps, tmp_path, "--name=SmokePeers")
    finally:
        faults.clear(alps)
    said = "GPU 0: is in use by process 4242 (python, 1.07 GB)"
    settle(
        outcome(told, "somebody else computes on a GPU", "fault other-process nid001 gpu0", said), Verdict.INVALID, said
    )


def outcome(told: Told, fault: str, how: str, said: str) -> Outcome:
    problems = [each for one in told.verdict["runs"] for each in one["problems"]]
    line = next((each for each in problems if said in each["message"]), None)
    assert line is not None, told.output
    return Outcome(fault, how, line["verdict"], told.status, f"{line['verdict']}: {line['message']}", NO_COUNTERPART)
