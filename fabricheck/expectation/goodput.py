"""Expected goodput inside a node, from its graph alone, in Gb/s.

Point-to-point: bytes / time. Collectives as De Sensi §IV defines them: bytes of the buffer / time, where the buffer of
an alltoall holds what leaves the GPU; `fabricheck.expectation.of_metric` converts to the conventions of result files.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from functools import lru_cache

from fabricheck.expectation import memory
from fabricheck.expectation.rings import Rings, edge_disjoint_rings
from fabricheck.topology.graph import Edge, NodeGraph
from fabricheck.topology.model import Gpu


def in_turn(*rates: float) -> float:
    """Rate of steps that follow one another, each moving all the bytes: the sum of their times (De Sensi §III-A)."""
    return 1 / sum(1 / rate for rate in rates)


def point_to_point(graph: NodeGraph, source: Gpu, destination: Gpu) -> float:
    """Nominal and expected goodput: the single path with the highest bandwidth (De Sensi §III-D)."""
    return graph.widest_path(source, destination).rate_gbps


def staging(graph: NodeGraph, source: Gpu, destination: Gpu, host_copy_gbps: float) -> float:
    """Expected goodput of a staged transfer: the times of device to host, host to host and host to device, summed.

    De Sensi §III-A. `host_copy_gbps`: rate of the copy in the middle (infinite: it takes no time).
    Raises UserError if a GPU has no known link to a CPU.
    """
    links = memory.host_device_gbps(graph.topology, [source]), memory.host_device_gbps(graph.topology, [destination])
    return in_turn(links[0][source.name], host_copy_gbps, links[1][destination.name])


def alltoall(graph: NodeGraph) -> float:
    """Expected goodput of a GPU in an alltoall (De Sensi §IV-A), never above the least injection.

    What a pair gets when all send at once, times the peers that a GPU can serve at the same time: the injection where
    GPUs are fully connected or on a switch; on LUMI 100 Gb/s over six usable links.
    """
    if len(graph.topology.gpus) < 2:
        return math.inf
    ways = min(graph.ways(gpu) for gpu in graph.topology.gpus)
    return graph.pair_share_gbps * ways


def allreduce(graph: NodeGraph) -> float:
    """Expected goodput of an allreduce as the paper estimates it (De Sensi §IV-C).

    Fully connected: the sum of a GPU's outgoing links (a pipelined tree). On a switch: each GPU sends and receives
    2 (n - 1) / n of its buffer (Patarasuk and Yuan 2009). Otherwise: edge-disjoint rings, over which twice the buffer
    is sent (reduce-scatter, then allgather).

    The estimate for fully connected GPUs is above what any algorithm can reach without reduction in the network; that
    is `allreduce_bound`.
    """
    if len(graph.topology.gpus) < 2:
        return math.inf
    if graph.fully_connected:
        return graph.least_injection_gbps
    if graph.star:
        return allreduce_bound(graph)
    return spread(graph) / 2


def allreduce_bound(graph: NodeGraph) -> float:
    """What no allreduce can exceed without reduction in the network: 2 (n - 1) / n of the buffer leave each GPU.

    Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
    """
    n = len(graph.topology.gpus)
    return graph.least_injection_gbps * n / (2 * (n - 1)) if n > 1 else math.inf


def spread(graph: NodeGraph) -> float:
    """Gb/s at which every GPU can receive what all others send to all: the traffic of allgather and reduce_scatter.

    The injection where GPUs are fully connected or on a switch; a ring through the CPUs where the GPU fabric has
    several islands; otherwise all directions of the edge-disjoint rings, or a tree where that is better.
    """
    if len(graph.topology.gpus) < 2:
        return math.inf
    if graph.fully_connected or graph.star:
        return graph.least_injection_gbps
    if len(graph.islands) > 1:
        return _ring_over_islands(graph)
    # Along a spanning tree every edge carries at most what all but one GPU send, so that its narrowest edge counts.
    pairs = itertools.permutations(graph.topology.gpus, 2)
    along_tree = min(graph.widest_path(a, b).rate_gbps for a, b in pairs)
    return max(rings(graph).total_gbps, along_tree)


def allgather(graph: NodeGraph) -> float:
    """Expected goodput of an allgather: receive buffer / time; (n - 1) / n of it arrives over `spread`."""
    n = len(graph.topology.gpus)
    return spread(graph) * n / (n - 1) if n > 1 else math.inf


def reduce_scatter(graph: NodeGraph) -> float:
    """Expected goodput of a reduce_scatter: send buffer / time; the traffic of an allgather the other way round."""
    return allgather(graph)


def broadcast(graph: NodeGraph, root: Gpu) -> float:
    """Expected goodput of a broadcast: the least cut between the root and another GPU (Edmonds' branching theorem)."""
    others = [gpu for gpu in graph.topology.gpus if gpu != root]
    if graph.star:
        return min(graph.injection_gbps(root), graph.least_injection_gbps)
    return min((graph.flow_gbps(root, other) for other in others), default=math.inf)


def reduce(graph: NodeGraph, root: Gpu) -> float:
    """Expected goodput of a reduce: a broadcast backwards."""
    return broadcast(graph, root)


@lru_cache(maxsize=64)
def rings(graph: NodeGraph) -> Rings:
    """The edge-disjoint rings of a node, found once."""
    return edge_disjoint_rings(graph)


# The reference collectives over device-to-device copies (De Sensi §IV-D): simple, not pipelined.


def copy_broadcast(graph: NodeGraph, root: Gpu) -> float:
    """The root writes to all peers at once: its links are shared by n - 1 copies."""
    others = [gpu for gpu in graph.topology.gpus if gpu != root]
    if not others:
        return math.inf
    narrowest = min(point_to_point(graph, root, other) for other in others)
    return min(narrowest, graph.injection_gbps(root) / len(others))


def copy_reduce(graph: NodeGraph, root: Gpu) -> float:
    """The root reads all peers' buffers at once: its ingress is shared by n - 1 copies, as in `copy_broadcast`."""
    return copy_broadcast(graph, root)


def copy_allreduce(graph: NodeGraph, root: Gpu) -> float:
    """A reduction on one GPU, followed by a broadcast from it (De Sensi §IV-D)."""
    if len(graph.topology.gpus) < 2:
        return math.inf
    return in_turn(copy_reduce(graph, root), copy_broadcast(graph, root))


def copy_allgather(graph: NodeGraph) -> float:
    """Every GPU writes its share of the buffer to all others at once; the buffer is n shares."""
    return graph.pair_share_gbps * len(graph.topology.gpus)


def _ring_over_islands(graph: NodeGraph) -> float:
    """Both directions of one ring that visits the islands in turn, through the CPUs between them."""
    order = [name for island in graph.islands for name in sorted(island)]
    by_name = {gpu.name: gpu for gpu in graph.topology.gpus}
    loads: Counter[Edge] = Counter()
    for a, b in zip(order, order[1:] + order[:1], strict=True):
        path = graph.widest_path(by_name[a], by_name[b])
        loads.update(path.edges)
        loads.update((end, start) for start, end in path.edges)
    return 2 * min(graph.rate(edge) / load for edge, load in loads.items())
