"""What the algorithms that people run get out of a node, each by its name; never more than the optimum.

In Gb/s, bytes of the buffer over time, in the convention of result files: the buffers of alltoall, allgather and
reduce-scatter hold n shares, the own one among them. `graph` is that of the GPUs that take part.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from fabricheck.limits import memory
from fabricheck.limits.optimum import edge_disjoint_rings, ring_over_islands
from fabricheck.limits.question import in_turn
from fabricheck.topology.flows import widest_rates
from fabricheck.topology.graph import NodeGraph, node_graph
from fabricheck.topology.model import Gpu, Topology
from fabricheck.topology.nic import alltoall_asymptotic_gbps, node_gbps

#: The name of the one in which a switch adds.
IN_SWITCH = "reduced in the switch (NVLink SHARP)"


@dataclass(frozen=True)
class Algorithm:
    """What an algorithm gets, and its name with the source of the formula."""

    gbps: float
    name: str


def staging_of_two_terms(graph: NodeGraph, source: Gpu, host_copy_gbps: float) -> float:
    """The estimate of De Sensi §III-A, which leaves out the copy to the receiving device: the times of device to host
    and host to host, summed. Raises UserError if the GPU has no known link to a CPU."""
    out = memory.host_device_gbps(graph.topology, [source], to_device=False)
    return in_turn([out[source.name], host_copy_gbps])


def alltoall(graph: NodeGraph) -> Algorithm:
    """Each pair over its shortest paths, all at once: n times what the most loaded edge leaves a pair (De Sensi
    §IV-A), and no more than a single path of the narrowest pair carries."""
    n = len(graph.topology.gpus)
    if n < 2:
        return Algorithm(math.inf, "a single GPU")
    path = float(widest_rates(graph.network(graph.topology.gpus)).min())
    rate = n * min(path, graph.pair_share_gbps)
    return Algorithm(rate, "each pair over its shortest paths, edge forwarding index (De Sensi §IV-A)")


def alltoall_over_usable_links(graph: NodeGraph) -> float:
    """The estimate of De Sensi §IV-A, without the own share: what the most loaded edge leaves a pair, times the peers
    to which a GPU has links of its own (LUMI: 100 Gb/s over six of them, 600 Gb/s)."""
    ways = min((graph.ways(gpu) for gpu in graph.topology.gpus), default=0)
    return graph.pair_share_gbps * ways if ways else math.inf


#: What libraries do for a collective with all pairs at once, and how its rings and trees go on.
_NAMES = {
    "allgather": ("every GPU to all others at once", "", ""),
    "allreduce": (
        "every GPU to all others at once, reduce-scatter then allgather",
        ", reduce-scatter then allgather",
        ", reduce then broadcast",
    ),
    "broadcast": ("a part to each other GPU, which passes it on", ", pipelined", ""),
}


def by_library(graph: NodeGraph, operation: str) -> Algorithm:
    """The best that libraries do for one of COLLECTIVES: all pairs at once; edge-disjoint rings (De Sensi §IV-C), or a
    ring through the CPUs; a pipelined tree. A reduction is its opposite backwards, a broadcast or an allgather.

    Of an allgather's buffer the own share does not travel; of an allreduce's 2 (n - 1) / n are sent (Patarasuk and Yuan
    2009). What more a broadcast's links let through (Edmonds 1973, `optimum`), libraries leave.
    """
    operation = {"reduce_scatter": "allgather", "reduce": "broadcast"}.get(operation, operation)
    n = len(graph.topology.gpus)
    if n < 2 or operation == "alltoall":
        return alltoall(graph)
    pairs = alltoall(graph).gbps
    if operation == "allgather":
        at_once, on_ring, on_tree, most = pairs, n / (n - 1), n / (n - 1), graph.least_injection_gbps * n / (n - 1)
    elif operation == "allreduce":
        at_once, on_ring, on_tree = pairs / 2, n / (2 * (n - 1)), 1.0
        # 2 (n - 1) buffers leave the GPUs, whatever the algorithm.
        most = sum(graph.injection_gbps(gpu) for gpu in graph.topology.gpus) / (2 * (n - 1))
    else:
        at_once, on_ring, on_tree, most = pairs * (n - 1) / n, 1.0, 1.0, math.inf
    name, of_rings, of_tree = _NAMES[operation]
    all_at_once = Algorithm(at_once, name)
    # A ring of two is their link, of which a buffer goes one way.
    if n == 2 or at_once >= most * (1 - 1e-9):
        return all_at_once
    candidates = [
        all_at_once,
        Algorithm(edge_disjoint_rings(graph).total_gbps * on_ring, f"edge-disjoint rings (De Sensi §IV-C){of_rings}"),
        Algorithm(_tree_over_links(graph) * on_tree, f"one pipelined tree over links between GPUs{of_tree}"),
    ]
    if len(graph.wide_islands) > 1:
        candidates.append(Algorithm(ring_over_islands(graph) * on_ring, f"one ring, through the CPUs{of_rings}"))
    return max(candidates, key=lambda algorithm: algorithm.gbps)


def allreduce_in_switch(graph: NodeGraph) -> Algorithm | None:
    """Every GPU's buffer goes to the switch once, which adds them; each GPU then sends its share of the sum to the
    switch, which sends it to all: n + 1 shares over each link, both ways (NVLink SHARP, NCCL's NVLS; Hot Chips 34).

    None where a GPU is on no switch that reduces.
    """
    n = len(graph.topology.gpus)
    able = {switch.name for switch in graph.topology.switches if switch.in_network_reduction}
    rates = [
        max((graph.path_rate((gpu.name, name)) for name in able if graph.graph.has_edge(gpu.name, name)), default=0.0)
        for gpu in graph.topology.gpus
    ]
    if n < 2 or not min(rates):
        return None
    return Algorithm(min(rates) * n / (n + 1), IN_SWITCH)


def allreduce_over_all_links(graph: NodeGraph) -> float:
    """The estimate in Gb/s of De Sensi §IV-C where all GPUs are linked: the sum of a GPU's outgoing links.

    That is more than any algorithm reaches without reduction in the network, since 2 (n - 1) / n of the buffer leave
    each GPU (Patarasuk and Yuan 2009).
    """
    return graph.least_injection_gbps


@lru_cache(maxsize=64)
def _tree_over_links(graph: NodeGraph) -> float:
    """Rate of the widest tree of links from GPU to GPU, each used both ways: 0 where they do not join all GPUs."""
    import networkx as nx

    names = graph.gpu_names
    links: nx.Graph[str] = nx.Graph()
    links.add_nodes_from(names)
    for first, other in itertools.combinations(names, 2):
        if graph.graph.has_edge(first, other):
            links.add_edge(first, other, rate=min(graph.rate((first, other)), graph.rate((other, first))))
    if not nx.is_connected(links):
        return 0.0
    tree = nx.maximum_spanning_tree(links, weight="rate")
    return min((float(data["rate"]) for _, _, data in tree.edges(data=True)), default=math.inf)


def by_copies(graph: NodeGraph, operation: str, root: Gpu) -> Algorithm:
    """The reference collectives over device-to-device copies, simple and not pipelined (De Sensi §IV-D): a root writes
    to all peers at once, or reads from them, each on its widest path; an allreduce does one after the other."""
    if operation not in ("broadcast", "reduce", "allreduce"):
        return Algorithm(alltoall(graph).gbps, "every GPU to all others at once, as an alltoall")
    others = [gpu for gpu in graph.topology.gpus if gpu != root]
    writes = graph.rate_of_pairs((root, other) for other in others)
    reads = graph.rate_of_pairs((other, root) for other in others)
    if operation == "broadcast":
        return Algorithm(writes, "the root writes to all peers at once (De Sensi §IV-D)")
    if operation == "reduce":
        return Algorithm(reads, "the root reads from all peers at once (De Sensi §IV-D)")
    return Algorithm(in_turn([reads, writes]), "reduce on one GPU, then broadcast (De Sensi §IV-D)")


def usable_share(graph: NodeGraph) -> float:
    """Share of its peers to which a GPU has links of its own: how much of an alltoall's pairs can be busy where a
    library takes one peer for each link (De Sensi §IV-A)."""
    peers = len(graph.topology.gpus) - 1
    return min(itertools.chain((graph.ways(gpu) / peers for gpu in graph.topology.gpus), [1.0])) if peers else 1.0


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
    over_links = alltoall_over_usable_links(graph)
    yield Estimate("alltoall over usable links, without the own share", over_links, "Gb/s", "De Sensi §IV-A")
    if graph.fully_connected or graph.star:
        total = allreduce_over_all_links(graph)
        yield Estimate("allreduce, the sum of a GPU's links", total, "Gb/s", "De Sensi §IV-C")
    elif both_ways := edge_disjoint_rings(graph).total_gbps:
        yield Estimate("allreduce over edge-disjoint rings", both_ways / 2, "Gb/s", "De Sensi §IV-C")
    copy = memory.host_copy_gbps(topology, None)
    if copy and memory.host_link_gbps(topology, first):
        staged = staging_of_two_terms(graph, first, copy)
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
    yield Estimate("rail, all GPUs, both directions together", 2 * every, "Gb/s", "CommBench §5.4")
