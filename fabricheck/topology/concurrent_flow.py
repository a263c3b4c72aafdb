"""Maximum concurrent flow: what each two GPUs can have when all send to all others at the same time.

Where one shortest path for each pair reaches what the GPUs can send and receive, that is the answer; else a linear
program has it, with a commodity for each source, not for each pair. What is too large for that, which is larger than
any node, gets a lower and an upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fabricheck.topology.flows import FlowNetwork, gather_cut

_LARGEST_PROGRAM = 12_000  # variables that are solved in about a second


@dataclass(frozen=True)
class Bounds:
    """`lower`: what a routing that was found gives; `upper`: what none exceeds. Equal where the optimum is known."""

    lower: float
    upper: float

    @property
    def exact(self) -> bool:
        """The optimum is known."""
        return self.upper <= self.lower * (1 + 1e-6)


def concurrent_rate(network: FlowNetwork) -> Bounds:
    """The rate that each terminal can send to each other one at the same time, split over any paths.

    Infinite for fewer than two terminals, 0 where one of them is not reached.
    """
    if network.size < 2:
        return Bounds(float("inf"), float("inf"))
    bounds = _shortest_at_once(network)
    if bounds.exact:
        return bounds
    if network.size * len(network._edges[0]) <= _LARGEST_PROGRAM:
        rate = _optimum(network)
        return Bounds(rate, rate)
    return Bounds(bounds.lower, min(bounds.upper, gather_cut(network).rate))


def _shortest_at_once(network: FlowNetwork) -> Bounds:
    """Each pair over one shortest path, against what each terminal can send and receive: exact where links are direct
    or all go through one switch."""
    import scipy.sparse
    import scipy.sparse.csgraph

    capacity, where = network.capacity, list(network.terminals)
    graph: Any = scipy.sparse.csr_array((capacity > 0).astype(float))
    hops, previous = scipy.sparse.csgraph.dijkstra(graph, indices=where, unweighted=True, return_predecessors=True)
    if not np.isfinite(hops[:, where]).all():
        return Bounds(0.0, 0.0)
    loads = np.zeros_like(capacity)
    for source, before in zip(where, previous.tolist(), strict=True):
        for destination in where:
            vertex = destination
            while vertex != source:
                loads[before[vertex], vertex] += 1
                vertex = before[vertex]
    ends = min(capacity[where].sum(axis=1).min(), capacity[:, where].sum(axis=0).min())
    used = loads > 0
    return Bounds(float((capacity[used] / loads[used]).min()), float(ends) / (network.size - 1))


def _optimum(network: FlowNetwork) -> float:
    """The highest rate. Variables are the flow of each source on each edge, and the rate; what a vertex receives of a
    source, less what it sends on, is the rate at a terminal and nothing elsewhere.

    Raises RuntimeError where the solver fails.
    """
    import scipy.optimize
    from scipy import sparse

    heads, tails, rates = network._edges
    size, edges, vertices = network.size, np.arange(len(heads)), len(network.vertices)
    scale = float(rates.max())
    incidence: Any = sparse.csr_array(
        (np.repeat([1.0, -1.0], len(edges)), (np.concatenate([tails, heads]), np.tile(edges, 2))),
        shape=(vertices, len(edges)),
    )
    taken = np.zeros((vertices, 1))
    taken[list(network.terminals)] = -1.0
    flows: Any = sparse.kron(sparse.eye_array(size), incidence)
    balance: Any = sparse.csr_array(sparse.hstack([flows, sparse.csr_array(np.tile(taken, (size, 1)))]))
    own = np.arange(size) * vertices + np.array(network.terminals)  # a source sends what the others receive
    balance = balance[np.setdiff1d(np.arange(size * vertices), own)]
    of_edges: list[Any] = [sparse.eye_array(len(edges))] * size
    limited: Any = sparse.hstack([*of_edges, sparse.csr_array((len(edges), 1))])
    objective = np.zeros(balance.shape[1])
    objective[-1] = -1.0
    solved: Any = scipy.optimize.linprog(
        objective, limited, rates / scale, balance, np.zeros(balance.shape[0]), method="highs"
    )
    if not solved.success:
        raise RuntimeError(f"the concurrent flow could not be computed: {solved.message}")
    return float(-solved.fun) * scale
