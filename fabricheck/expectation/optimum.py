"""What any algorithm could get from the links of a node: the bound above which no right result lies.

In Gb/s, in the convention of result files: bytes of the buffer over time, where the buffers of alltoall, allgather and
reduce-scatter hold n shares, the own one among them. GPUs that take no part forward. Nothing reduces or multiplies on
the way, unless a switch says that it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from fabricheck.errors import UserError
from fabricheck.records.operations import COLLECTIVES
from fabricheck.topology.concurrent_flow import Bounds, concurrent_rate
from fabricheck.topology.flows import FlowNetwork, allreduce_cut, broadcast_cut, gather_cut, least_cut
from fabricheck.topology.graph import node_graph
from fabricheck.topology.model import Gpu, Topology


@dataclass(frozen=True)
class Optimum:
    """`gbps`: what no algorithm exceeds. `reached`: what is known to be possible; the same where both are known."""

    gbps: float
    reached: float

    @property
    def exact(self) -> bool:
        """The optimum is known, not only bounded."""
        return self.gbps <= self.reached * (1 + 1e-6)


def point_to_point(topology: Topology, source: Gpu, destination: Gpu) -> Optimum:
    """Over all paths at once, which striping could use: the maximum flow."""
    flow = node_graph(topology).flow_gbps(source, destination)
    return Optimum(flow, flow)


def collective(topology: Topology, operation: str, gpus: Sequence[Gpu]) -> Optimum:
    """The optimum of one of COLLECTIVES between different GPUs, the root of a rooted one first.

    Infinite for a single GPU. Raises UserError for another operation.
    """
    if operation not in COLLECTIVES:
        raise UserError(f"{operation!r} is not a collective: {', '.join(COLLECTIVES)}")
    return _collective(topology, operation, frozenset(gpus), gpus[0] if operation in _ROOTED else None)


@lru_cache(maxsize=1024)
def _collective(topology: Topology, operation: str, gpus: frozenset[Gpu], root: Gpu | None) -> Optimum:
    if len(gpus) < 2:
        return Optimum(math.inf, math.inf)
    network = node_graph(topology).network(sorted(gpus, key=lambda gpu: gpu.index))
    if root is not None:
        bounds = _ROOTED[operation](network, root.name)
    elif operation == "allreduce" and any(switch.in_network_reduction for switch in topology.switches):
        bounds = _known(least_cut(network).rate)  # the switches reduce
    else:
        bounds = _UNROOTED[operation](network)
    return Optimum(bounds.upper, bounds.lower)


def _known(rate: float) -> Bounds:
    return Bounds(rate, rate)


def _alltoall(network: FlowNetwork) -> Bounds:
    pair = concurrent_rate(network)
    return Bounds(network.size * pair.lower, network.size * pair.upper)


def _broadcast(network: FlowNetwork, root: str) -> Bounds:
    return _known(broadcast_cut(network, network.terminals[network.names.index(root)]).rate)


# Alltoall: the maximum concurrent flow. Allgather and reduce-scatter: the least cut for each GPU that sends or receives
# (ForestColl, arXiv:2402.06787). Allreduce: the least of all cuts and divisions of the GPUs, with 2 (k - 1) buffers
# between k parts. Broadcast and reduce: the least cut between the root and another GPU (Edmonds 1973).
_UNROOTED: dict[str, Callable[[FlowNetwork], Bounds]] = {
    "alltoall": _alltoall,
    "allgather": lambda network: _known(network.size * gather_cut(network).rate),
    "reduce_scatter": lambda network: _known(network.size * gather_cut(network.backwards).rate),
    "allreduce": lambda network: _known(allreduce_cut(network)),
}
_ROOTED: dict[str, Callable[[FlowNetwork, str], Bounds]] = {
    "broadcast": _broadcast,
    "reduce": lambda network, root: _broadcast(network.backwards, root),
}
