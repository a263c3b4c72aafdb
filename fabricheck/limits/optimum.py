"""What any algorithm could get from links of a node: the bound above which no right result lies; and the best rings.

In Gb/s, in the convention of result files: bytes of the buffer over time, where the buffers of alltoall, allgather and
reduce-scatter hold n shares, the own one among them. GPUs that take no part forward. Nothing reduces or multiplies on
the way, unless a switch says that it does.

Rings over all GPUs of a node are found in its graph: edge-disjoint ones, and one over GPUs that their fabric does not
join, through each island and through the CPUs to the next.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fabricheck.errors import UserError
from fabricheck.records.operations import COLLECTIVES, ROOTED
from fabricheck.topology.flows import FlowNetwork
from fabricheck.topology.graph import NodeGraph, node_graph
from fabricheck.topology.model import Gpu, Topology


def collective(topology: Topology, operation: str, gpus: Sequence[Gpu]) -> float:
    """What one of COLLECTIVES cannot exceed between different GPUs, the root of a rooted one first.

    Infinite for a single GPU. Raises UserError for another operation.
    """
    if operation not in COLLECTIVES:
        raise UserError(f"{operation!r} is not a collective: {', '.join(COLLECTIVES)}")
    return _collective(topology, operation, frozenset(gpus), gpus[0] if operation in ROOTED else None)


@lru_cache(maxsize=1024)
def _collective(topology: Topology, operation: str, gpus: frozenset[Gpu], root: Gpu | None) -> float:
    """Every cut has to let through what the GPUs on its sending side have for the others, in buffers: that of one
    (broadcast: Edmonds, "Edge-disjoint branchings", 1973; allgather: Zhao et al., "ForestColl", arXiv:2402.06787,
    section 4), or of an alltoall each one's share for each other."""
    n = len(gpus)
    if n < 2:
        return math.inf
    network = node_graph(topology).network(tuple(gpus))
    inside, rates = network.cuts
    senders = inside.sum(axis=1)
    has_root = inside[:, network.terminals.index(root.name)] if root is not None else np.ones(len(inside), dtype=bool)
    buffers = {
        "alltoall": senders * (n - senders) / n,
        "allgather": senders / n,
        "reduce_scatter": (n - senders) / n,
        "reduce": ~has_root,
    }.get(operation, has_root)
    best = float((rates[buffers > 0] / buffers[buffers > 0]).min())
    if operation == "allreduce" and all(switch.in_network_reduction is False for switch in topology.switches):
        packages: dict[str, list[str]] = {}
        for gpu in gpus:
            packages.setdefault(gpu.package or gpu.name, []).append(gpu.name)
        best = min(
            best, *(_between_parts(network, parts) for parts in ([[gpu.name] for gpu in gpus], [*packages.values()]))
        )
    return best


def _between_parts(network: FlowNetwork, parts: Sequence[Sequence[str]]) -> float:
    """What an allreduce cannot exceed where nothing on the way reduces or multiplies: 2 (k - 1) messages of a value go
    between k parts (each of n one-way messages in a gossip, Harary and Schwenk 1974)."""
    if len(parts) < 2:
        return math.inf
    members = [np.isin(network.terminals, part) for part in parts]
    ways = (sum(map(network.out_of, members)), sum(network.out_of(~part) for part in members))
    return min(ways) / (2 * (len(parts) - 1))


# Steps of the search before the best found so far is taken, and links of all rings together: it goes as deep.
_BUDGET, _DEEPEST = 50_000, 700


@dataclass(frozen=True)
class Rings:
    """Rings that share no link, each used in both directions at `rate_gbps` for each direction.

    `rings` are the names of the GPUs in order.
    """

    rings: tuple[tuple[str, ...], ...]
    rate_gbps: float

    @property
    def total_gbps(self) -> float:
        """Gb/s of all rings together, both directions of each counted."""
        return 2 * len(self.rings) * self.rate_gbps


@lru_cache(maxsize=64)
def edge_disjoint_rings(graph: NodeGraph) -> Rings:
    """The rings over all GPUs with the highest total rate (De Sensi §IV-C): none where there are none, or one GPU.

    All rings have the rate of one kind of link; a wider edge carries several rings. Every rate that occurs is tried.
    Only links from GPU to GPU count.
    """
    names = graph.gpu_names
    pairs = [pair for pair in itertools.combinations(names, 2) if graph.graph.has_edge(*pair)]
    widths = {(a, b): min(graph.rate((a, b)), graph.rate((b, a))) for a, b in pairs}
    rates = sorted({width / graph.links(edge) for edge, width in widths.items()}, reverse=True)
    best = Rings((), 0.0)
    for rate in rates:
        slots = {edge: math.floor(width / rate + 1e-9) for edge, width in widths.items()}
        rings = _most_rings(names, {edge: count for edge, count in slots.items() if count}, rate)
        if rings.total_gbps > best.total_gbps:
            best = rings
    return best


def _most_rings(names: tuple[str, ...], slots: dict[tuple[str, str], int], rate: float) -> Rings:
    if len(names) < 2:
        return Rings((), rate)
    if len(names) == 2:
        # A ring of two would use its edge twice; each link already goes both ways.
        return Rings((names,) * slots.get(names, 0), rate)
    # Where all edges have the same parallel links, the rings of one of them serve them all.
    copies = math.gcd(*slots.values()) if slots else 1
    single = {edge: count // copies for edge, count in slots.items()}
    ends = Counter(name for edge, count in single.items() for name in edge * count)
    most = min(ends[name] for name in names) // 2
    best: tuple[tuple[str, ...], ...] = ()
    # Every ring takes two links of each GPU. As many rings as that allows are tried first, then by bisection.
    few, many, wanted = 0, most + 1, most
    while few + 1 < many:
        if rings := _search(names, single, wanted):
            best, few = rings, wanted
        else:
            many = wanted
        wanted = (few + many) // 2
    return Rings(best * copies, rate)


def _search(names: tuple[str, ...], slots: dict[tuple[str, str], int], wanted: int) -> tuple[tuple[str, ...], ...]:
    """`wanted` disjoint rings by backtracking; none where there are none, or none was found in time."""
    free: Counter[frozenset[str]] = Counter({frozenset(edge): count for edge, count in slots.items()})
    start, size = names[0], len(names)
    steps = itertools.count()
    if wanted * size > _DEEPEST:
        return ()

    def completed(rings: tuple[tuple[str, ...], ...], ring: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        """The rings and an open one, which begins at `start`, with all that are missing; none where that cannot be."""
        if len(rings) == wanted:
            return rings
        last = ring[-1]
        if len(ring) == size:
            able, rings, ring = [start], (*rings, ring), ()
        else:
            able = [name for name in names if name not in ring]
        # The widest edge first: narrow ones are what rings run out of.
        for name in sorted(able, key=lambda other: (-free[frozenset((last, other))], other)):
            edge = frozenset((last, name))
            if not free[edge] or next(steps) > _BUDGET:
                continue
            free[edge] -= 1
            if whole := completed(rings, (*ring, name)):
                return whole
            free[edge] += 1
        return ()

    return completed((), (start,))


_MOST_ORDERS = 3_000  # of one island that are tried
_MOST_RINGS = 3_000
_MOST_ISLANDS = 6  # whose orders are all tried, too


def ring_over_islands(graph: NodeGraph) -> float:
    """Gb/s of both directions of the best ring that visits one island after the other."""
    return _rate(graph, best_ring(graph))


def best_ring(graph: NodeGraph) -> tuple[str, ...]:
    """The GPUs in the order of that ring.

    Of each island's orders those with the widest links count. All are tried where there are few, and all orders of the
    islands, so that the names of GPUs do not matter; the first ones by index where there are too many.
    """
    first, *others = (_best_orders(graph, island) for island in graph.wide_islands)
    turns = itertools.permutations(others) if len(others) < _MOST_ISLANDS else [others]
    rings = itertools.chain.from_iterable(itertools.product(first, *turn) for turn in turns)
    tried = itertools.islice(rings, _MOST_RINGS)
    return max((tuple(itertools.chain(*ring)) for ring in tried), key=lambda ring: _rate(graph, ring))


def _best_orders(graph: NodeGraph, island: frozenset[str]) -> list[tuple[str, ...]]:
    """Orders of an island's GPUs with the widest narrowest link, one for each two ends."""
    names = [name for name in graph.gpu_names if name in island]
    best: dict[tuple[str, str], tuple[str, ...]] = {}
    widest = 0.0
    for order in itertools.islice(itertools.permutations(names), _MOST_ORDERS):
        narrowest = _rate_of_path(graph, order)
        if narrowest > widest * (1 + 1e-9):
            best, widest = {}, narrowest
        if narrowest >= widest * (1 - 1e-9):
            best.setdefault((order[0], order[-1]), order)
    return list(best.values()) or [tuple(names)]


def _rate_of_path(graph: NodeGraph, order: Sequence[str]) -> float:
    by_name = {gpu.name: gpu for gpu in graph.topology.gpus}
    return min(
        (graph.widest_path(by_name[a], by_name[b]).rate_gbps for a, b in itertools.pairwise(order)),
        default=float("inf"),
    )


def _rate(graph: NodeGraph, order: Sequence[str]) -> float:
    by_name = {gpu.name: gpu for gpu in graph.topology.gpus}
    ring = [by_name[name] for name in (*order, order[0])]
    return 2 * graph.rate_of_pairs(pair for ends in itertools.pairwise(ring) for pair in (ends, ends[::-1]))
