"""Maximum concurrent flow: what each two GPUs can have when all send to all others at the same time.

The linear program has a commodity for each source, not for each pair. Symmetries of the graph make most of its
variables alike: colour refinement finds which ones may be set equal without losing anything (Grohe, Kersting,
Mladenov and Selman, "Dimension reduction via colour refinement", ESA 2014), so that a ring or torus of hundreds of GPUs
leaves a small program. What remains too large gets both bounds instead, which are the same when they meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fabricheck.topology.flows import FlowNetwork, Matrix

Ids = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_LARGEST_PROGRAM = 12_000  # variables after reduction that are solved in about a second
# Of the bounds: how often, how strongly use lengthens an edge, how often cuts are tried, and when both are near enough.
_ROUNDS = 200
_SHARPNESS = 30.0
_SWEEP = 10
_GAP = 0.01


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
    hops = _distances(network, np.ones(len(network._edges[0])))[:, network.terminals]
    if not np.isfinite(hops).all():
        return Bounds(0.0, 0.0)
    at_once = _shortest_at_once(network)
    if at_once.exact:
        return at_once
    scale = float(network.capacity.max())
    program = _reduced(_Program.of(network, scale))
    if program.columns <= _LARGEST_PROGRAM:
        rate = program.solve() * scale
        return Bounds(rate, rate)
    return _bounds(network)


@dataclass(frozen=True)
class _Program:
    """Maximise the last variable x so that equal @ x = 0 and limited @ x <= limits, x >= 0.

    Variables are the flow of a source on an edge, by source; the last one is the rate. `equal` has a row for each
    source and vertex, `limited` one for each edge. Colours are of columns and rows that could be alike.
    """

    equal: Any
    limited: Any
    limits: Matrix
    column_colour: Ids
    row_colour: Ids

    @property
    def columns(self) -> int:
        return int(self.equal.shape[1])

    @classmethod
    def of(cls, network: FlowNetwork, scale: float) -> _Program:
        import scipy.sparse

        heads, tails, rates = network._edges
        vertices, size, edges = len(network.vertices), network.size, len(heads)
        where = np.array(network.terminals)
        source, edge = (each.ravel() for each in np.meshgrid(np.arange(size), np.arange(edges), indexing="ij"))
        useful = tails[edge] != where[source]  # what returns to its source serves nobody
        source, edge = source[useful], edge[useful]
        flows = len(edge)
        column = np.arange(flows)
        into, out = source * vertices + tails[edge], source * vertices + heads[edge]
        received = (np.arange(size)[:, None] * vertices + where[None, :]).ravel()
        rows = np.concatenate([into, out, received])
        columns = np.concatenate([column, column, np.full(len(received), flows)])
        values = np.concatenate([np.ones(flows), -np.ones(flows), -np.ones(len(received))]).astype(np.int64)
        equal = scipy.sparse.csr_array((values, (rows, columns)), shape=(size * vertices, flows + 1))
        own = np.arange(size) * vertices + where
        kept = np.setdiff1d(np.arange(size * vertices), own)  # a source sends what the others receive
        limited = scipy.sparse.csr_array((np.ones(flows, dtype=np.int64), (edge, column)), shape=(edges, flows + 1))
        hops = _distances(network, np.ones(edges))
        near = np.stack([hops[source, heads[edge]], hops[source, tails[edge]], rates[edge]])
        colour = np.append(_ids(near) + 1, 0)
        terminal = np.isin(np.arange(vertices), where)
        vertex = np.stack([hops.ravel(), np.tile(terminal, size)])[:, kept]
        row_colour = np.concatenate([_ids(vertex), -1 - _ids(rates[None, :])])
        return cls(equal[kept], limited, rates / scale, colour, row_colour)

    def solve(self) -> float:
        """The highest rate. Raises RuntimeError where the solver fails."""
        import scipy.optimize

        objective = np.zeros(self.columns)
        objective[-1] = -1.0
        solved: Any = scipy.optimize.linprog(
            objective,
            A_ub=self.limited.astype(float),
            b_ub=self.limits,
            A_eq=self.equal.astype(float),
            b_eq=np.zeros(self.equal.shape[0]),
            method="highs",
        )
        if not solved.success:
            raise RuntimeError(f"the concurrent flow could not be computed: {solved.message}")
        return float(-solved.fun)


def _ids(keys: npt.NDArray[Any]) -> Ids:
    """A number for each different column of `keys`."""
    ids: Ids = np.unique(keys, axis=1, return_inverse=True)[1].ravel()
    return ids


def _reduced(program: _Program) -> _Program:
    """The program with one variable for each class of variables, and one row for each class of rows."""
    import scipy.sparse

    whole = scipy.sparse.vstack([program.equal, program.limited], format="csr").astype(np.uint64)
    columns, rows = _refined(whole, program.column_colour, program.row_colour)
    _, row = np.unique(rows, return_index=True)
    classes, column, member = np.unique(columns, return_index=True, return_inverse=True)
    # The rate stays the last variable: its column is a class of its own.
    order = np.argsort(column)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    members = scipy.sparse.csr_array(
        (np.ones(len(member), dtype=np.int64), (np.arange(len(member)), place[member.ravel()])),
        shape=(len(member), len(classes)),
    )
    height = program.equal.shape[0]
    equal, limited = row[row < height], row[row >= height] - height
    return _Program(
        program.equal[equal] @ members,
        program.limited[limited] @ members,
        program.limits[limited],
        np.arange(len(classes)),
        np.arange(len(row)),
    )


def _refined(matrix: Any, columns: Ids, rows: Ids) -> tuple[Ids, Ids]:
    """Colours such that rows of one colour have the same sum over the columns of each colour, and columns likewise.

    Sums are compared by random 64-bit numbers for each colour.
    """
    random = np.random.default_rng(17)
    turned = matrix.T.tocsr()
    columns, rows = _ids(columns[None, :]), _ids(rows[None, :])
    while True:
        before = (columns.max(), rows.max())
        rows = _split(random, rows, matrix, columns)
        columns = _split(random, columns, turned, rows)
        if (columns.max(), rows.max()) == before:
            return columns, rows


def _split(random: np.random.Generator, colours: Ids, matrix: Any, others: Ids) -> Ids:
    def number(ids: Ids) -> Hashes:
        return random.integers(0, 1 << 64, size=int(ids.max()) + 1, dtype=np.uint64)[ids]

    mixed = number(colours) + matrix @ number(others)
    split: Ids = np.unique(mixed, return_inverse=True)[1].ravel()
    return split


def _distances(network: FlowNetwork, lengths: Matrix) -> Matrix:
    """From each terminal to each vertex over edges of these lengths, which are above 0; shape (n, vertices)."""
    import scipy.sparse
    import scipy.sparse.csgraph

    heads, tails, _ = network._edges
    graph: Any = scipy.sparse.csr_array((lengths, (heads, tails)), shape=(len(network.vertices),) * 2)
    distances: Matrix = scipy.sparse.csgraph.dijkstra(graph, indices=list(network.terminals))
    return distances


def _shortest_at_once(network: FlowNetwork) -> Bounds:
    """Each pair over one shortest path, against what each terminal can send and receive: exact where links are direct
    or all go through one switch."""
    import scipy.sparse
    import scipy.sparse.csgraph

    heads, tails, rates = network._edges
    where = np.array(network.terminals)
    index = scipy.sparse.csr_array((np.arange(1, len(heads) + 1), (heads, tails)), shape=network.capacity.shape)
    graph: Any = scipy.sparse.csr_array((np.ones(len(heads)), (heads, tails)), shape=network.capacity.shape)
    _, previous = scipy.sparse.csgraph.dijkstra(graph, indices=list(where), return_predecessors=True)
    loads = _tree_loads(previous, where, index.toarray(), len(heads))
    ends = min(network.capacity[where].sum(axis=1).min(), network.capacity[:, where].sum(axis=0).min())
    return Bounds(float((rates[loads > 0] / loads[loads > 0]).min()), float(ends) / (network.size - 1))


def _bounds(network: FlowNetwork) -> Bounds:
    """Both bounds by multiplicative weights: used edges become longer (Arora, Hazan and Kale 2012, section 3.4).

    The mean of all routings so far gives the lower bound. Each set of lengths gives an upper one, since what all pairs
    need of length for each unit of rate is no more than the edges have; so does each cut between near and far vertices.
    """
    import scipy.sparse
    import scipy.sparse.csgraph

    heads, tails, rates = network._edges
    edges, where = len(heads), np.array(network.terminals)
    index = scipy.sparse.csr_array((np.arange(1, edges + 1), (heads, tails)), shape=network.capacity.shape).toarray()
    used = np.zeros(edges)
    lower, upper = 0.0, float("inf")
    for turn in range(1, _ROUNDS + 1):
        busy = used / rates
        lengths = np.exp(_SHARPNESS * (busy / busy.max() - 1)) / rates if turn > 1 else 1 / rates
        graph: Any = scipy.sparse.csr_array((lengths, (heads, tails)), shape=network.capacity.shape)
        far, previous = scipy.sparse.csgraph.dijkstra(graph, indices=list(where), return_predecessors=True)
        upper = min(upper, float((rates * lengths).sum() / far[:, where].sum()))
        if turn % _SWEEP == 0:
            upper = min(upper, _swept_cuts(network, far))
        used += _tree_loads(previous, where, index, edges)
        lower = max(lower, turn / float((used / rates).max()))
        if upper <= lower * (1 + _GAP):
            break
    return Bounds(lower, upper)


def _swept_cuts(network: FlowNetwork, far: Matrix) -> float:
    """The least share of a pair over the cuts between the vertices that are nearest to a terminal and all others."""
    terminal = np.zeros(len(network.vertices))
    terminal[list(network.terminals)] = 1.0
    least = float("inf")
    for order in np.argsort(far, axis=1, kind="stable"):
        sums = network.capacity[np.ix_(order, order)].cumsum(axis=0).cumsum(axis=1)
        leaving = sums[:-1, -1] - np.diagonal(sums)[:-1]
        inside = terminal[order].cumsum()[:-1]
        pairs = inside * (network.size - inside)
        least = min(least, float((leaving[pairs > 0] / pairs[pairs > 0]).min()))
    return least


def _tree_loads(previous: npt.NDArray[Any], where: Ids, index: npt.NDArray[Any], edges: int) -> Matrix:
    """How much passes each edge when every terminal sends one unit to each other one along its tree."""
    sources = np.arange(len(where))
    below = np.zeros(previous.shape)
    below[:, where] = 1.0
    loads = np.zeros(edges)
    # From the leaves of each tree to its root, all trees at the same time. Lengths may differ by less than a sum of
    # them shows, so hops are counted.
    for vertex in np.argsort(-_depths(previous), axis=1, kind="stable").T[:-1]:
        parent = previous[sources, vertex]
        reached = parent >= 0
        source, child, up = sources[reached], vertex[reached], parent[reached]
        amount = below[source, child]
        np.add.at(below, (source, up), amount)
        np.add.at(loads, index[up, child] - 1, amount)
    return loads


def _depths(previous: npt.NDArray[Any]) -> Ids:
    """Hops from the root of each tree to each vertex; `previous` is negative at roots."""
    rows = np.arange(len(previous))[:, None]
    depths = np.zeros(previous.shape, dtype=np.int64)
    above = previous
    while (inside := above >= 0).any():
        depths += inside
        above = np.where(inside, previous[rows, np.maximum(above, 0)], -1)
    return depths
