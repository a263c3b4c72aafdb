"""A ring over GPUs that their fabric does not join: through each island, and through the CPUs to the next."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from fabricheck.topology.graph import Edge, NodeGraph

_MOST_ORDERS = 3_000  # of one island that are tried
_MOST_RINGS = 3_000


def ring_over_islands(graph: NodeGraph) -> float:
    """Gb/s of both directions of the best ring that visits one island after the other."""
    return _rate(graph, best_ring(graph))


def best_ring(graph: NodeGraph) -> tuple[str, ...]:
    """The GPUs in the order of that ring.

    Of each island's orders those with the widest links count. All are tried where there are few, so that the names of
    GPUs do not matter; the first ones by index where there are too many.
    """
    orders = [_best_orders(graph, island) for island in graph.wide_islands]
    rings = itertools.islice(itertools.product(*orders), _MOST_RINGS)
    return max((tuple(itertools.chain(*ring)) for ring in rings), key=lambda ring: _rate(graph, ring))


def _best_orders(graph: NodeGraph, island: frozenset[str]) -> list[tuple[str, ...]]:
    """Orders of an island's GPUs with the widest narrowest link, one for each two ends."""
    names = [name for name in graph.gpu_names if name in island]
    best: dict[tuple[str, str], tuple[str, ...]] = {}
    widest = 0.0
    for order in itertools.islice(_paths(graph, names), _MOST_ORDERS):
        narrowest = _rate_of_path(graph, order)
        if narrowest > widest * (1 + 1e-9):
            best, widest = {}, narrowest
        if narrowest >= widest * (1 - 1e-9):
            best.setdefault((order[0], order[-1]), order)
    return list(best.values()) or [tuple(names)]


def _paths(graph: NodeGraph, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Orders in which each GPU is linked to the next one directly or by one switch; all orders where there are none."""
    near = {one: {other for other in names if other != one and graph.are_near(one, other)} for one in names}
    found = False
    stack: list[tuple[str, ...]] = [(name,) for name in reversed(names)]
    steps = 0
    while stack and steps < 100 * _MOST_ORDERS:
        steps += 1
        path = stack.pop()
        if len(path) == len(names):
            found = True
            yield path
            continue
        stack.extend((*path, name) for name in reversed(names) if name in near[path[-1]] and name not in path)
    if not found:
        yield from itertools.permutations(names)


def _rate_of_path(graph: NodeGraph, order: Sequence[str]) -> float:
    by_name = {gpu.name: gpu for gpu in graph.topology.gpus}
    return min(
        (graph.widest_path(by_name[a], by_name[b]).rate_gbps for a, b in itertools.pairwise(order)),
        default=float("inf"),
    )


def _rate(graph: NodeGraph, order: Sequence[str]) -> float:
    by_name = {gpu.name: gpu for gpu in graph.topology.gpus}
    loads: dict[Edge, float] = defaultdict(float)
    for a, b in zip(order, [*order[1:], order[0]], strict=True):
        for one, other in ((a, b), (b, a)):
            for edge, share in graph.widest_shares(by_name[one], by_name[other]).items():
                loads[edge] += share
    return 2 * min(graph.path_rate(edge) / load for edge, load in loads.items())
