"""What any algorithm could get from the links of a node: the bound above which no right result lies.

In Gb/s, in the convention of result files: bytes of the buffer over time, where the buffers of alltoall, allgather and
reduce-scatter hold n shares, the own one among them. GPUs that take no part forward. Nothing reduces or multiplies on
the way, unless a switch says that it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from fabricheck.errors import UserError
from fabricheck.records.operations import COLLECTIVES
from fabricheck.topology.flows import (
    FlowNetwork,
    allreduce_cut,
    broadcast_cut,
    concurrent_rate,
    gather_cut,
    least_cut,
)
from fabricheck.topology.graph import node_graph
from fabricheck.topology.model import Gpu, Topology


def point_to_point(topology: Topology, source: Gpu, destination: Gpu) -> float:
    """Over all paths at once, which striping could use: the maximum flow."""
    return node_graph(topology).flow_gbps(source, destination)


def collective(topology: Topology, operation: str, gpus: Sequence[Gpu]) -> float:
    """The optimum of one of COLLECTIVES between different GPUs, the root of a rooted one first.

    Infinite for a single GPU. Raises UserError for another operation.
    """
    if operation not in COLLECTIVES:
        raise UserError(f"{operation!r} is not a collective: {', '.join(COLLECTIVES)}")
    return _collective(topology, operation, frozenset(gpus), gpus[0] if operation in _ROOTED else None)


@lru_cache(maxsize=1024)
def _collective(topology: Topology, operation: str, gpus: frozenset[Gpu], root: Gpu | None) -> float:
    if len(gpus) < 2:
        return math.inf
    network = node_graph(topology).network(sorted(gpus, key=lambda gpu: gpu.index))
    if root is not None:
        return _ROOTED[operation](network, root.name)
    if operation == "allreduce" and any(switch.in_network_reduction for switch in topology.switches):
        return least_cut(network)  # the switches reduce
    return _UNROOTED[operation](network)


def _broadcast(network: FlowNetwork, root: str) -> float:
    return broadcast_cut(network, network.terminals[network.names.index(root)])


# Alltoall: the maximum concurrent flow. Allgather and reduce-scatter: the least cut for each GPU that sends or receives
# (ForestColl, arXiv:2402.06787). Allreduce: the least of all cuts and divisions of the GPUs, with 2 (k - 1) buffers
# between k parts. Broadcast and reduce: the least cut between the root and another GPU (Edmonds 1973).
_UNROOTED: dict[str, Callable[[FlowNetwork], float]] = {
    "alltoall": lambda network: network.size * concurrent_rate(network),
    "allgather": lambda network: network.size * gather_cut(network),
    "reduce_scatter": lambda network: network.size * gather_cut(network.backwards),
    "allreduce": allreduce_cut,
}
_ROOTED: dict[str, Callable[[FlowNetwork, str], float]] = {
    "broadcast": _broadcast,
    "reduce": lambda network, root: _broadcast(network.backwards, root),
}
