"""Graphs on which the model was once wrong, each recalculated from the papers and by linear programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fabricheck.limits import algorithms, optimum
from fabricheck.limits.gpus import algorithm_of
from fabricheck.records.run import Groups
from fabricheck.topology.graph import node_graph
from fabricheck.topology.model import Gpu, Link, Switch, Topology
from tests.support.nodes import expected_of, graph, node, system

MI250X = ("lumi", "dardel", "frontier")


def best(topology: Topology, operation: str, gpus: Sequence[Gpu] | None = None) -> float:
    return optimum.collective(topology, operation, gpus or topology.gpus)


def by(topology: Topology, operation: str, transport: str = "ccl") -> float:
    return algorithm_of(topology, operation, transport, topology.gpus).gbps


def test_aurora_alltoall() -> None:
    assert best(system("aurora"), "alltoall") == pytest.approx(960)
    assert by(system("aurora"), "alltoall") == pytest.approx(960)


@pytest.mark.parametrize("name", MI250X)
def test_mi250x_rings_and_optima(name: str) -> None:
    for operation in ("allgather", "reduce_scatter"):
        assert by(system(name), operation) == pytest.approx(1828.6, abs=0.05)
        assert best(system(name), operation) == pytest.approx(2666.7, abs=0.05)
    assert by(system(name), "allreduce") == pytest.approx(914.3, abs=0.05)
    assert best(system(name), "allreduce") == pytest.approx(1333.3, abs=0.05)


@pytest.mark.parametrize(("name", "ring"), [("summit", 614.4), ("sierra", 682.67)])
def test_two_sockets(name: str, ring: float) -> None:
    assert by(system(name), "allgather") == pytest.approx(ring, abs=0.01)
    assert best(system(name), "allgather") == pytest.approx(1024)


@pytest.mark.parametrize("pattern", ["rail_unidirectional", "asymmetric_unidirectional"])
def test_dgx_a100_has_a_nic_for_each_gpu(pattern: str) -> None:
    found = expected_of(
        system("dgx-a100"), pattern, list(range(8)) * 2, nodes=2, groups=Groups(2, 8, 1), transport="mpi"
    )
    assert found.expected == pytest.approx(200)
    # NCCL's plugin may use all of them (CommBench §5.2.1).
    assert found.ceiling == pytest.approx(1.05 * 1600)


@pytest.mark.parametrize(("thin", "expected"), [(False, 1000), (True, 1010)])
def test_two_switches_with_a_thin_link_beside_their_trunk(thin: bool, expected: float) -> None:
    made = node(4, [(0, 2, 1, 10.0)] if thin else [])
    ends = [("gpu0", "left"), ("gpu1", "left"), ("gpu2", "right"), ("gpu3", "right")]
    links = [Link(pair, "test", 1, 4000.0, "test") for pair in ends]
    links.append(Link(("left", "right"), "trunk", 1, 1000.0, "test"))
    made = replace(made, switches=(Switch("left", "test"), Switch("right", "test")), links=(*made.links, *links))
    assert best(made, "alltoall") == pytest.approx(expected)
    assert by(made, "alltoall") == pytest.approx(1000)


def test_gpus_behind_a_cpu() -> None:
    made = node(8, [])
    made = replace(made, links=tuple(Link((gpu.name, "cpu0"), "PCIe", 1, 256.0, "test") for gpu in made.gpus))
    assert best(made, "alltoall") == pytest.approx(292.6, abs=0.05)
    assert by(made, "alltoall") == pytest.approx(292.6, abs=0.05)


def test_a_link_may_be_slower_one_way() -> None:
    slower = Link(("gpu0", "gpu1"), "test", 2, 400.0, "test", back_gbps=100.0)
    made = replace(node(2, []), links=(slower,))
    first, second = made.gpus
    assert node_graph(made).widest_path(first, second).rate_gbps == pytest.approx(800)
    assert node_graph(made).widest_path(second, first).rate_gbps == pytest.approx(200)
    there, back = (expected_of(made, "unidirectional", pair, transport="copy") for pair in ((0, 1), (1, 0)))
    assert there.expected == pytest.approx(800)
    assert back.expected == pytest.approx(200)
    # A ping-pong takes half of its time each way.
    assert expected_of(made, "pingpong", (0, 1), transport="copy").expected == pytest.approx(2 / (1 / 800 + 1 / 200))
    assert best(made, "alltoall") == pytest.approx(400)
    assert best(made, "broadcast", (first, second)) == pytest.approx(800)


@pytest.mark.parametrize(("operation", "expected"), [("alltoall", 44.6), ("broadcast", 85.9), ("reduce", 85.9)])
def test_staged_collectives_share_the_hosts_copies(operation: str, expected: float) -> None:
    found = expected_of(system("lumi"), operation, range(8), transport="staging")
    assert found.expected == pytest.approx(expected, abs=0.05)


def test_staging_of_two_terms() -> None:
    """De Sensi §III-A counts the copy from the device and that between host buffers."""
    lumi = system("lumi")
    copy = 819.2
    two = algorithms.staging_of_two_terms(graph("lumi"), lumi.gpu(0), copy)
    assert two == pytest.approx(1 / (1 / 288 + 1 / copy))
