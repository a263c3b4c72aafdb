"""What the papers themselves expect of a node, each by its formula and section: shown beside the model's own values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fabricheck.expectation import algorithms, memory
from fabricheck.topology.graph import node_graph
from fabricheck.topology.model import Topology
from fabricheck.topology.nic import GroupPattern, alltoall_asymptotic_gbps, node_gbps, pattern_gbps


@dataclass(frozen=True)
class Estimate:
    """One expectation of a paper. `unit` is `Gb/s`, or `paths` of the edge forwarding index."""

    what: str
    value: float
    unit: str
    source: str


def estimates(topology: Topology) -> Iterator[Estimate]:
    """The papers' formulas for this node, those that apply to it. None without GPUs."""
    if len(topology.gpus) < 2:
        return
    graph = node_graph(topology)
    first = min(topology.gpus, key=lambda gpu: gpu.index)
    yield Estimate("edge forwarding index", graph.edge_forwarding_index, "paths", "De Sensi §IV-A")
    alltoall = algorithms.alltoall_over_usable_links(graph)
    yield Estimate("alltoall over usable links, without the own share", alltoall, "Gb/s", "De Sensi §IV-A")
    if graph.fully_connected or graph.star:
        allreduce = algorithms.allreduce_over_all_links(graph)
        yield Estimate("allreduce, the sum of a GPU's links", allreduce, "Gb/s", "De Sensi §IV-C")
    elif rings := algorithms.rings(graph).total_gbps:
        yield Estimate("allreduce over edge-disjoint rings", rings / 2, "Gb/s", "De Sensi §IV-C")
    copy = memory.host_copy_gbps(topology, None)
    if copy and memory.host_link_gbps(topology, first):
        staged = algorithms.staging_of_two_terms(graph, first, copy)
        yield Estimate("staging, device to host and host to host", staged, "Gb/s", "De Sensi §III-A")
    if not topology.nics:
        return
    asymptotic = alltoall_asymptotic_gbps(topology)
    yield Estimate("alltoall of one GPU over very many nodes", asymptotic, "Gb/s", "De Sensi §V-C")
    alone, every = node_gbps(topology, 1), node_gbps(topology)
    equation = {"packed": "eq. (1)", "one-to-one": "eq. (1), p = 1", "round-robin": "eq. (2)"}
    source = f"CommBench §5.2.1, {equation.get(topology.nic_scheme or '', 'all NICs')}"
    yield Estimate("a node's NICs, one GPU active", alone, "Gb/s", source)
    yield Estimate("a node's NICs, all GPUs active", every, "Gb/s", source)
    size = len(topology.gpus)
    both = pattern_gbps(topology, GroupPattern("rail", 2, size, size, "bidirectional"))
    yield Estimate("rail, all GPUs, both directions together", both, "Gb/s", "CommBench §5.4")
