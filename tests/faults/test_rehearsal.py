"""Systems in miniature, two nodes each: Alps (four NVIDIA GPUs and NICs a node) and LUMI (eight of AMD's, four NICs),
healthy, and with faults of `rehearse_faults`, several at once where each has a line of its own. And a fleet of four
nodes of Alps in one job.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.suite import suite_root
from fabricheck_lab import faults
from fabricheck_lab.cluster import Cluster, require_machine
from fabricheck_lab.emulate_faults import fault as command
from fabricheck_lab.rehearsal import up_in_miniature
from fabricheck_lab.rehearse_faults import SHAPES, TOGETHER, Told, faults_of, keep, measure, run

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.matrix]


@pytest.fixture(scope="module")
def alps() -> Iterator[Cluster]:
    yield from in_miniature("alps")


@pytest.fixture(scope="module")
def lumi() -> Iterator[Cluster]:
    yield from in_miniature("lumi")


@pytest.fixture(scope="module")
def fleet() -> Iterator[Cluster]:
    yield from in_miniature("alps", 4)


def in_miniature(system: str, nodes: int = 2) -> Iterator[Cluster]:
    try:
        require_machine()
    except UserError as error:
        pytest.skip(str(error))
    cluster = up_in_miniature(system, nodes, None, suite_root(), f"{system}{nodes}x{os.getpid() % 100000}")
    try:
        yield cluster
    finally:
        cluster.down_now()


def require_named(cluster: Cluster, folder: Path, *names: str) -> Told:
    """Plants faults together and runs their check once: each has a line of its verdict that names the part."""
    (shape,) = (each for each in SHAPES if each.system == cluster.layout.topology.system)
    faults = [each for each in faults_of(shape) if each.what in names]
    assert len(faults) == len(names)
    assert len({each.check for each in faults}) == 1
    told, rows = measure(cluster, faults, folder)
    if file := os.environ.get("FABRICHECK_FAULT_ROWS"):
        for row in rows:
            keep(row, Path(file))
    assert told.status != 0, told.output
    assert [row for row in rows if not row.named] == [], told.lines
    return told


def test_a_healthy_miniature_is_green_and_called_a_rehearsal(lumi: Cluster, tmp_path: Path) -> None:
    """Of AMD's GPUs, which share their NICs; of NVIDIA's the good node of the fleet is."""
    told = run(lumi, tmp_path, "--tag=smoke")
    assert told.status == 0, told.output
    assert told.output.strip().splitlines()[-1].startswith("PASS: REHEARSAL on emulated GPUs")
    assert (told.verdict["verdict"], told.verdict["rehearsal"]) == ("PASS", True)
    measured = Counter(each["test"].split()[0] for each in told.verdict["runs"])
    assert measured == {"SmokePeers": 1, "SmokeHostCopies": 1, "SmokeLibraries": 2, "SmokeNodes": 2, "EveryMessage": 3}
    assert {host for each in told.verdict["runs"] for host in each["hosts"]} == {"nid001", "nid002"}


@pytest.mark.parametrize("names", TOGETHER, ids=["in a node", "between nodes", "port by port"])
def test_faults_of_nvidias_gpus_are_red_and_named(alps: Cluster, tmp_path: Path, names: tuple[str, ...]) -> None:
    require_named(alps, tmp_path, *names)


@pytest.mark.parametrize(
    "names",
    [
        ("PCIe at Gen 3", "a throttled GPU", "another process on a GPU"),
        ("a hung GPU",),
        ("a GPU is missing",),
        ("*CCL over sockets on one node", "another driver on one node"),
    ],
    ids=["in a node", "hung", "missing", "between nodes"],
)
def test_faults_of_amds_gpus_are_red_and_named(lumi: Cluster, tmp_path: Path, names: tuple[str, ...]) -> None:
    require_named(lumi, tmp_path, *names)


def test_bad_gpus_links_and_nics_of_a_fleet_are_named_with_their_nodes(fleet: Cluster, tmp_path: Path) -> None:
    """Three nodes are bad; the fourth, with the same GPUs and links, is good in all that was measured."""
    for words in ("gpu-link nid002 gpu0 gpu1 50", "slow nid003:hsn1 50", "gpu-missing nid004 gpu3"):
        command.main([*words.split(), f"--name={fleet.layout.name}"], standalone_mode=False)
    try:
        told = run(fleet, tmp_path, "--name=SmokePeers|FleetNetwork %transport=ccl", "--nodes=all")
    finally:
        faults.clear(fleet)
    evidence = {each["node"]: each["evidence"] for each in told.verdict["fleet"]["bad"]}
    assert told.status != 0
    assert told.verdict["fleet"]["message"] == "1 of 4 nodes good, 3 bad, 0 not checked", told.output
    assert set(evidence) == {"nid002", "nid003", "nid004"}, told.output
    # By their peers or, where these are noisy, by the minimum.
    assert "unidirectional_uncontended_0_1_256kib_goodput" in [
        x for one in evidence["nid002"] for x in one.get("metrics", ())
    ]
    assert ("nic", "hsn1") in [(x["kind"], x.get("name")) for one in evidence["nid003"] for x in one["components"]]
