"""Edge-disjoint rings over all GPUs of a node, found in its graph."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass

import networkx as nx

from fabricheck.topology.graph import NodeGraph

# Steps of the search before the best found so far is taken.
_BUDGET = 200_000


@dataclass(frozen=True)
class Rings:
    """Rings that share no link, each used in both directions at `rate_gbps` for each direction.

    `rings` are the names of the GPUs in order. `exact`: no larger number of rings exists at this rate.
    """

    rings: tuple[tuple[str, ...], ...]
    rate_gbps: float
    exact: bool

    @property
    def total_gbps(self) -> float:
        """Gb/s of all rings together, both directions of each counted."""
        return 2 * len(self.rings) * self.rate_gbps


def edge_disjoint_rings(graph: NodeGraph) -> Rings:
    """The rings over all GPUs with the highest total rate (De Sensi §IV-C): none where there are none, or one GPU.

    All rings have the rate of one kind of link; a wider edge carries several rings. Every rate that occurs is tried.
    Only links from GPU to GPU count.
    """
    names = graph.gpu_names
    widths = {(a, b): graph.rate((a, b)) for a, b in itertools.combinations(names, 2) if graph.graph.has_edge(a, b)}
    rates = sorted({width / graph.links(edge) for edge, width in widths.items()}, reverse=True)
    best = Rings((), 0.0, True)
    for rate in rates:
        slots = {edge: math.floor(width / rate + 1e-9) for edge, width in widths.items()}
        found = _most_rings(names, {edge: count for edge, count in slots.items() if count}, rate)
        if found.total_gbps > best.total_gbps:
            best = found
    return best


def _most_rings(names: tuple[str, ...], slots: dict[tuple[str, str], int], rate: float) -> Rings:
    if len(names) < 2:
        return Rings((), rate, True)
    if len(names) == 2:
        # A ring of two would use its edge twice; each link already goes both ways.
        return Rings((names,) * slots.get(names, 0), rate, True)
    bound = _upper_bound(names, slots)
    best: tuple[tuple[str, ...], ...] = ()
    for wanted in range(1, bound + 1):
        found, complete = _search(names, slots, wanted)
        if not found:
            return Rings(best, rate, complete)
        best = found
    return Rings(best, rate, True)


def _upper_bound(names: tuple[str, ...], slots: dict[tuple[str, str], int]) -> int:
    """Every ring crosses every cut twice."""
    multigraph: nx.Graph[str] = nx.Graph()
    multigraph.add_nodes_from(names)
    multigraph.add_edges_from((a, b, {"weight": count}) for (a, b), count in slots.items())
    if not nx.is_connected(multigraph):
        return 0
    return int(nx.stoer_wagner(multigraph)[0]) // 2


def _search(
    names: tuple[str, ...], slots: dict[tuple[str, str], int], wanted: int
) -> tuple[tuple[tuple[str, ...], ...], bool]:
    """`wanted` disjoint rings by backtracking, and whether the search was complete when there are none."""
    free: Counter[frozenset[str]] = Counter({frozenset(edge): count for edge, count in slots.items()})
    neighbours = {name: sorted({b for edge in free if name in edge for b in edge - {name}}) for name in names}
    start = names[0]
    rings: list[list[str]] = [[start]]
    steps = 0

    def extend() -> bool:
        nonlocal steps
        steps += 1
        if steps > _BUDGET:
            return False
        ring = rings[-1]
        last = ring[-1]
        if len(ring) == len(names):
            return close(frozenset((last, start)))
        # The widest edge first: narrow ones are what rings run out of.
        for name in sorted(neighbours[last], key=lambda other: (-free[frozenset((last, other))], other)):
            edge = frozenset((last, name))
            if free[edge] and name not in ring:
                free[edge] -= 1
                ring.append(name)
                if extend():
                    return True
                ring.pop()
                free[edge] += 1
        return False

    def close(edge: frozenset[str]) -> bool:
        if not free[edge]:
            return False
        free[edge] -= 1
        if len(rings) == wanted:
            return True
        rings.append([start])
        if extend():
            return True
        rings.pop()
        free[edge] += 1
        return False

    if extend():
        return tuple(tuple(ring) for ring in rings), True
    return (), steps <= _BUDGET
