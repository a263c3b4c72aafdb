"""Flows and cuts of a directed graph with capacities: what links allow, whatever the algorithm.

A `FlowNetwork` has vertices, of which some are terminals (GPUs that take part); all others only forward. Rates are in
any unit, results in the same. Every cut that is returned is one that the network has, so that a value is never below
what an algorithm could reach; found by maximum flows on capacities rounded to 2^-28 of the demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# Capacities are whole 32-bit numbers, and a residual is the sum of two.
_WHOLE = float(1 << 29)
_UNLIMITED = 1 << 30
_LARGEST_PROGRAM = 12_000  # variables of a linear program that is solved in about a second


@dataclass(frozen=True, eq=False)
class FlowNetwork:
    """`capacity[u, v]`: Gb/s from vertex u to vertex v, 0 without a link. `terminals`: the vertices that send and
    receive, in order."""

    vertices: tuple[str, ...]
    terminals: tuple[int, ...]
    capacity: Matrix

    @property
    def size(self) -> int:
        """Number of terminals."""
        return len(self.terminals)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the terminals, in order."""
        return tuple(self.vertices[one] for one in self.terminals)

    @cached_property
    def backwards(self) -> FlowNetwork:
        """The same with every link turned round."""
        return replace(self, capacity=np.ascontiguousarray(self.capacity.T))

    @cached_property
    def symmetric(self) -> bool:
        """Every link is as fast one way as the other."""
        return bool(np.array_equal(self.capacity, self.capacity.T))

    @cached_property
    def _edges(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Matrix]:
        heads, tails = np.nonzero(self.capacity)
        return heads, tails, self.capacity[heads, tails]

    def out_of(self, members: Mask) -> float:
        """Capacity in Gb/s of all links that leave a set of vertices."""
        return float(self.capacity[np.ix_(members, ~members)].sum())


def widest_rates(network: FlowNetwork) -> Matrix:
    """Rate of the widest single path between each two terminals; shape (n, n), infinite on the diagonal, 0 if none."""
    widest = network.capacity.copy()
    np.fill_diagonal(widest, np.inf)
    for middle in range(len(widest)):
        np.maximum(widest, np.minimum(widest[:, middle, None], widest[None, middle, :]), out=widest)
    rates: Matrix = widest[np.ix_(network.terminals, network.terminals)]
    return rates


def flow_between(network: FlowNetwork, source: int, destination: int) -> float:
    """Maximum flow between two vertices: over all paths at once (Ford and Fulkerson)."""
    demand = min(float(network.capacity[source].sum()), float(network.capacity[:, destination].sum()))
    members = _source_side(network, {source: np.inf}, {destination: np.inf}, demand)
    return network.out_of(members) if demand else 0.0


def flow_rates(network: FlowNetwork) -> Matrix:
    """Maximum flow between each two terminals; shape (n, n), infinite on the diagonal.

    Where direct links and paths over one vertex reach what the ends can send and receive, that is the answer.
    """
    capacity = network.capacity
    ends = np.minimum(capacity.sum(axis=1)[:, None], capacity.sum(axis=0)[None, :])
    rows = capacity[list(network.terminals)]
    near = np.stack([row + np.minimum(row[:, None], capacity).sum(axis=0) for row in rows])
    rates: Matrix = ends[np.ix_(network.terminals, network.terminals)]
    for source, other in np.argwhere(near[:, network.terminals] < rates * (1 - 1e-12)):
        if source != other:
            rates[source, other] = flow_between(network, network.terminals[source], network.terminals[other])
    np.fill_diagonal(rates, np.inf)
    return rates


def least_cut(network: FlowNetwork) -> float:
    """The least that leaves any set with some but not all of the terminals: no value that all must know is faster."""
    return min(broadcast_cut(each, network.terminals[0]) for each in _both_ways(network))


def broadcast_cut(network: FlowNetwork, root: int) -> float:
    """The Gb/s that a broadcast from vertex `root` reaches: the least cut between it and a terminal (Edmonds,
    "Edge-disjoint branchings", 1973). Infinite where there is no other terminal."""
    others = (terminal for terminal in network.terminals if terminal != root)
    return min((flow_between(network, root, terminal) for terminal in others), default=float("inf"))


def gather_cut(network: FlowNetwork) -> float:
    """What every terminal can send of its own to all others at the same time: the least, over sets S of vertices that
    leave out a terminal, of the capacity out of S over the number of terminals in S.

    An allgather whose buffer holds n shares can have n times that (Zhao et al., "ForestColl", arXiv:2402.06787,
    section 4); a reduce-scatter the same of the network backwards. Infinite for fewer than two terminals.
    """
    terminals = np.array(network.terminals)
    share = float("inf")
    if network.size < 2:
        return share
    for terminal in network.terminals:
        side = np.ones(len(network.vertices), dtype=bool)
        side[terminal] = False
        share = min(share, network.out_of(side) / (network.size - 1))
    for terminal in network.terminals:
        while share > 0:
            supply = {int(one): share for one in terminals}
            side = _source_side(network, supply, {terminal: np.inf}, network.size * share)
            inside = int(side[terminals].sum())
            if not inside or network.out_of(side) / inside >= share * (1 - 1e-9):
                break
            share = network.out_of(side) / inside
    return share


def allreduce_cut(network: FlowNetwork) -> float:
    """What an allreduce cannot exceed where nothing on the way reduces or multiplies: bytes of the buffer over time.

    A value passes every cut at least once each way. Among k sets of terminals, 2 (k - 1) messages of it go from set to
    set (each of n one-way messages in a gossip, Harary and Schwenk 1974): so the links out of the sets, over
    2 (k - 1), bound it for every division into sets. In a symmetric network without switches the least of these is
    reached, by trees that share no link (Tutte and Nash-Williams 1961), each used to reduce and to broadcast.
    """
    if network.size < 2:
        return float("inf")
    return min(least_cut(network), *(_partition_bound(each) for each in _both_ways(network)))


def _both_ways(network: FlowNetwork) -> Sequence[FlowNetwork]:
    return (network,) if network.symmetric else (network, network.backwards)


def _partition_bound(network: FlowNetwork) -> float:
    """The least, over partitions of the terminals into k > 1 sets, of the capacity out of each, over 2 (k - 1)."""
    blocks: list[set[int]] = [{one} for one in network.terminals]
    bound = float("inf")
    while len(blocks) > 1:
        of_blocks = sum(out_of_terminals(network, block) for block in blocks) / (2 * (len(blocks) - 1))
        if of_blocks >= bound * (1 - 1e-9):
            break
        bound = of_blocks
        if not bound:
            break
        blocks = _least_partition(network, 2 * bound)
    return bound


def _least_partition(network: FlowNetwork, price: float) -> list[set[int]]:
    """The partition of the terminals with the least sum of (capacity out of a set, less `price`).

    The greedy algorithm for the Dilworth truncation of a submodular function: Schrijver, "Combinatorial Optimization",
    2003, section 48.2. One maximum flow for each terminal.
    """
    gain: dict[int, float] = {}
    blocks: list[set[int]] = []
    for position, terminal in enumerate(network.terminals):
        later = network.terminals[position + 1 :]
        sources = {one: value for one, value in gain.items() if value > 0}
        sinks = {one: -value for one, value in gain.items() if value < 0} | dict.fromkeys(later, np.inf)
        demand = float(network.capacity[terminal].sum()) + sum(sources.values())
        side = _source_side(network, {terminal: np.inf} | sources, sinks, demand)
        inside = {one for one in network.terminals[: position + 1] if side[one]}
        gain[terminal] = network.out_of(side) - price - sum(gain[one] for one in inside - {terminal})
        joined = [block for block in blocks if block & inside]
        blocks = [block for block in blocks if not block & inside] + [inside.union(*joined)]
    return blocks


def out_of_terminals(network: FlowNetwork, members: Iterable[int]) -> float:
    """The least cut, in Gb/s, from some terminals (vertices) to all others."""
    inside = set(members)
    others = [one for one in network.terminals if one not in inside]
    demand = float(network.capacity[sorted(inside)].sum())
    return network.out_of(_source_side(network, dict.fromkeys(inside, np.inf), dict.fromkeys(others, np.inf), demand))


def _source_side(network: FlowNetwork, sources: dict[int, float], sinks: dict[int, float], demand: float) -> Mask:
    """The vertices on the side of a source of a least cut. `sources`, `sinks`: supply and demand of vertices.

    `demand`: no more than this can flow. Links more than twice as wide are narrowed to that, and never full then.
    """
    import scipy.sparse  # takes longer than judging a node without links
    import scipy.sparse.csgraph

    size = len(network.vertices)
    side = np.zeros(size, dtype=bool)
    if demand <= 0:
        side[[one for one, supply in sources.items() if np.isinf(supply)]] = True
        return _reachable(network, side)
    heads, tails, rates = network._edges
    extra = [(size, one, rate) for one, rate in sources.items()] + [
        (one, size + 1, rate) for one, rate in sinks.items()
    ]
    rows = np.concatenate([heads, [each[0] for each in extra]]).astype(np.int32)
    columns = np.concatenate([tails, [each[1] for each in extra]]).astype(np.int32)
    wanted = np.concatenate([rates, [each[2] for each in extra]])
    whole = np.rint(np.minimum(wanted / (2 * demand), 1.0) * _WHOLE).astype(np.int32)
    whole[np.isinf(wanted)] = _UNLIMITED  # never saturated, so that a cut parts the two for certain
    graph: Any = scipy.sparse.csr_array((whole, (rows, columns)), shape=(size + 2, size + 2))
    flow: Any = scipy.sparse.csgraph.maximum_flow(graph, size, size + 1)
    residual = graph - flow.flow
    residual.eliminate_zeros()
    reached = scipy.sparse.csgraph.breadth_first_order(residual, size, return_predecessors=False)
    side[reached[reached < size]] = True
    return side


def _reachable(network: FlowNetwork, start: Mask) -> Mask:
    side: Mask = start.copy()
    while True:
        more: Mask = side | (network.capacity[side] > 0).any(axis=0)
        if (more == side).all():
            return side
        side = more


def concurrent_rate(network: FlowNetwork) -> float:
    """The rate in Gb/s that each terminal can send to each other one at the same time, split over any paths; of a
    network that is larger than any node, what it cannot exceed.

    Infinite for fewer than two terminals, 0 where one of them is not reached.
    """
    if network.size < 2:
        return float("inf")
    if network.size * len(network._edges[0]) <= _LARGEST_PROGRAM:
        return _concurrent_optimum(network)
    return min(gather_cut(each) for each in _both_ways(network))


def _concurrent_optimum(network: FlowNetwork) -> float:
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
