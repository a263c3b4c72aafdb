"""Graphs on which the model was once wrong, each recalculated from the papers and by linear programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fabricheck.records.run import Groups
from fabricheck.topology import algorithms, optimum
from fabricheck.topology.gpus import algorithm_of
from fabricheck.topology.graph import node_graph
from fabricheck.topology.model import Gpu, Link, Switch, Topology
from tests.support.nodes import expected_of, graph, node, system

GIB = 1 << 30
MI250X = ("lumi", "dardel", "frontier")


def best(topology: Topology, operation: str, gpus: Sequence[Gpu] | None = None) -> float:
    return optimum.collective(topology, operation, gpus or topology.gpus)


def by(topology: Topology, operation: str, transport: str = "ccl") -> float:
    return algorithm_of(topology, operation, transport, topology.gpus).gbps


def islands(order: Sequence[int]) -> Topology:
    """Two islands, each a ring of four GPUs, joined by their CPUs; `order` renames the GPUs."""
    ring = [(4 * island + at, 4 * island + (at + 1) % 4) for island in range(2) for at in range(4)]
    made = node(8, [(order[a], order[b], 1, 400.0) for a, b in ring])
    links = [Link((f"gpu{order[one]}", f"cpu{one // 4}"), "host", 1, 400.0, "test") for one in range(8)]
    cpus = tuple(replace(made.cpus[0], name=f"cpu{one}") for one in range(2))
    links.append(Link(("cpu0", "cpu1"), "X-Bus", 1, 400.0, "test"))
    return replace(made, links=(*made.links, *links), cpus=cpus)


def test_aurora_alltoall() -> None:
    assert best(system("aurora"), "alltoall") == pytest.approx(960)
    assert by(system("aurora"), "alltoall") == pytest.approx(960)


@pytest.mark.parametrize("name", MI250X)
def test_mi250x_alltoall_has_two_numbers(name: str) -> None:
    paper = algorithms.alltoall_over_usable_links(graph(name))
    assert paper == pytest.approx(600)
    assert paper * 8 / 7 == pytest.approx(685.7, abs=0.05)
    assert best(system(name), "alltoall") == pytest.approx(1200)


@pytest.mark.parametrize("name", MI250X)
def test_mi250x_allgather_by_copy_is_the_traffic_of_an_alltoall(name: str) -> None:
    assert by(system(name), "allgather", "copy") == by(system(name), "alltoall", "copy") == pytest.approx(800)


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


def test_a_chain_in_a_subset_of_lumi_is_plausible() -> None:
    found = expected_of(system("lumi"), "allreduce", (0, 1, 2))
    assert found.ceiling is not None and found.ceiling >= 400
    assert found.expected is not None and found.expected <= 400


@pytest.mark.parametrize("pair", [(0, 3), (0, 4), (1, 2), (2, 6), (4, 7), (5, 6)])
def test_an_alltoall_of_two_is_point_to_point_both_ways(pair: tuple[int, int]) -> None:
    found = expected_of(system("lumi"), "alltoall", pair)
    alone = expected_of(system("lumi"), "pingpong", pair)
    assert found.expected == pytest.approx(2 * 400)  # half of the buffer is the own share
    assert alone.expected == pytest.approx(400)


@pytest.mark.parametrize("gpus", [4, 8])
def test_a_mesh_with_two_wide_pairs(gpus: int) -> None:
    wide = {(0, 1), (2, 3)}
    pairs = [(a, b) for a in range(gpus) for b in range(a + 1, gpus)]
    made = node(gpus, [(a, b, 1, 1000.0 if (a, b) in wide else 10.0) for a, b in pairs])
    assert best(made, "allgather") == pytest.approx(80)
    assert by(made, "allgather") <= 80
    if gpus == 4:
        assert node_graph(made).bisection_gbps == pytest.approx(40)
        assert best(made, "allreduce") == pytest.approx(40)
        assert by(made, "allreduce") <= 40


@pytest.mark.parametrize(("thin", "expected"), [(False, 1000), (True, 1010)])
def test_two_switches_with_a_thin_link_beside_their_trunk(thin: bool, expected: float) -> None:
    made = node(4, [(0, 2, 1, 10.0)] if thin else [])
    ends = [("gpu0", "left"), ("gpu1", "left"), ("gpu2", "right"), ("gpu3", "right")]
    links = [Link(pair, "test", 1, 4000.0, "test") for pair in ends]
    links.append(Link(("left", "right"), "trunk", 1, 1000.0, "test"))
    made = replace(made, switches=(Switch("left", "test"), Switch("right", "test")), links=(*made.links, *links))
    assert best(made, "alltoall") == pytest.approx(expected)
    assert by(made, "alltoall") == pytest.approx(1000)


def test_a_thin_link_beside_the_x_bus_lowers_nothing() -> None:
    summit = system("summit")
    thin = replace(summit, links=(*summit.links, Link(("gpu0", "gpu3"), "test", 1, 10.0, "test")))
    for operation in ("alltoall", "allgather", "allreduce", "broadcast"):
        assert best(thin, operation) >= best(summit, operation) * (1 - 1e-6)
        assert by(thin, operation) >= by(summit, operation) * (1 - 1e-6)
    assert node_graph(thin).widest_path(thin.gpu(0), thin.gpu(3)).rate_gbps == pytest.approx(400)


def test_gpus_behind_a_cpu() -> None:
    made = node(8, [])
    made = replace(made, links=tuple(Link((gpu.name, "cpu0"), "PCIe", 1, 256.0, "test") for gpu in made.gpus))
    assert best(made, "alltoall") == pytest.approx(292.6, abs=0.05)
    assert by(made, "alltoall") == pytest.approx(292.6, abs=0.05)


@pytest.mark.parametrize(
    ("gpus", "links"),
    [(8, [(one, (one + 1) % 8) for one in range(8)]), (4, [(0, 1), (1, 2), (2, 3)])],
    ids=["ring of 8", "chain of 4"],
)
def test_rings_and_chains(gpus: int, links: list[tuple[int, int]]) -> None:
    made = node(gpus, [(a, b, 1, 400.0) for a, b in links])
    assert best(made, "alltoall") == pytest.approx(400)
    assert by(made, "alltoall") == pytest.approx(400)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5, 6, 7), (3, 6, 0, 5, 7, 2, 4, 1), (0, 2, 1, 3, 4, 7, 5, 6)])
def test_names_do_not_matter_in_two_islands(order: Sequence[int]) -> None:
    plain, renamed = islands(range(8)), islands(order)
    for operation in ("alltoall", "allgather", "allreduce", "broadcast"):
        assert best(renamed, operation) == pytest.approx(best(plain, operation))
        for transport in ("ccl", "copy"):
            root = tuple(renamed.gpu(order[gpu.index]) for gpu in plain.gpus)
            found = algorithm_of(renamed, operation, transport, root).gbps
            assert found == pytest.approx(by(plain, operation, transport)), (operation, transport)


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


@pytest.mark.parametrize("name", ["alps", "leonardo", "hgx-h200", "lumi", "summit", "aurora"])
def test_packed_trees_are_not_implausible(name: str) -> None:
    """What an optimal schedule reaches is not above the ceiling."""
    topology = system(name)
    everyone = [gpu.index for gpu in topology.gpus]
    for operation in ("alltoall", "allgather", "allreduce", "broadcast"):
        found = expected_of(topology, operation, everyone)
        assert found.ceiling is not None
        assert found.ceiling >= best(topology, operation)
