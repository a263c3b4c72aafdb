"""The ways of many pairs through a network as arrays: the Network's routes, quick enough for 10,000 nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import overload

import networkx as nx
import numpy as np
import numpy.typing as npt

from fabricheck.errors import UserError
from fabricheck.topology.network import Network, Route, node_of

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

#: The one of several equal-cost routes from a place to another that messages take; None: nobody knows.
Routing = Callable[[str, str, Sequence[Route]], "Route | None"]


class Ways:
    """Routes between places (nodes or ports) of a network, as tuples of positions in `components`.

    The same ways as `Network.routes`. `components`: names; `kinds`: of each `node`, `port`, `cable`,
    `leaf`, `switch` or `trunk`; `capacities`: Gb/s in one direction, infinite where there is no link.
    """

    def __init__(self, network: Network, routing: Routing | None = None) -> None:
        self.network, self.routing = network, routing
        leaves = {network.leaf_of(port) for port in network.ports}
        named: dict[str, tuple[str, float]] = dict.fromkeys(network.nodes, ("node", np.inf))
        named |= dict.fromkeys(network.ports, ("port", np.inf))
        named |= {one.name: ("leaf" if one.name in leaves else "switch", np.inf) for one in network.switches}
        for link in network.links:
            named[link.name] = ("cable" if ":" in link.ends[0] else "trunk", link.total_gbps)
        self.components = tuple(named)
        self.kinds = tuple(kind for kind, _ in named.values())
        self.capacities: FloatArray = np.array([capacity for _, capacity in named.values()])
        self._rates: list[float] = self.capacities.tolist()
        self.position = {name: position for position, name in enumerate(self.components)}
        self._trunk = {
            ends: self.position[link.name]
            for link in network.links
            if ":" not in link.ends[0]
            for ends in (link.ends, link.ends[::-1])
        }
        self._switches = network.graph.subgraph(one.name for one in network.switches).copy()
        self._before: dict[str, dict[str, list[str]]] = {}
        self._between: dict[tuple[str, str], tuple[tuple[int, ...], ...]] = {}
        self._ports = {port: (port,) for port in network.ports}
        self._ends: dict[str, tuple[int, ...]] = {}

    def ports(self, place: str) -> tuple[str, ...]:
        """The ports of a place: itself, or all those of a node. Raises UserError for an unknown name."""
        return self._ports[place] if place in self._ports else self.network.ports_of(place)

    def routes(self, source: str, destination: str) -> list[tuple[int, ...]]:
        """All ways from a place to another; the one that messages take, where the routing is known."""
        ways: list[tuple[str, str, tuple[int, ...]]] = []
        for start, other in product(self.ports(source), self.ports(destination)):
            if node_of(start) != node_of(other):
                between = self.between(self.network.leaf_of(start), self.network.leaf_of(other))
                ways.extend((start, other, way) for way in between)
        nodes = node_of(source), node_of(destination)
        if not ways and nodes[0] != nodes[1] and nodes != (source, destination):
            return self.routes(*nodes)
        nearest = min((len(way) for _, _, way in ways), default=0)
        routes = [(*self._end(a), *way, *self._end(b)[::-1]) for a, b, way in ways if len(way) == nearest]
        if self.routing is None or len(routes) < 2:
            return routes
        given_routes = self.routing(source, destination, _Named(self, routes))
        return routes if given_routes is None else [tuple(self.position[name] for name in given_routes.components)]

    def route(self, way: tuple[int, ...]) -> Route:
        """A way in names."""
        return Route(tuple(self.components[each] for each in way), min(self._rates[each] for each in way))

    def between(self, leaf: str, other: str) -> tuple[tuple[int, ...], ...]:
        """Switches and trunks of all shortest ways from a leaf to another, both included."""
        if (leaf, other) not in self._between:
            if leaf not in self._before:
                before: dict[str, list[str]] = nx.predecessor(self._switches, leaf)  # type: ignore[assignment]
                self._before[leaf] = before
            self._between[leaf, other] = tuple(self._in_positions(way) for way in sorted(self._back(leaf, other)))
        return self._between[leaf, other]

    def _back(self, leaf: str, other: str) -> list[tuple[str, ...]]:
        if other == leaf:
            return [(leaf,)]
        return [(*way, other) for hop in self._before[leaf].get(other, ()) for way in self._back(leaf, hop)]

    def _in_positions(self, way: tuple[str, ...]) -> tuple[int, ...]:
        positions = [self.position[way[0]]]
        for ends in pairwise(way):
            positions += [self._trunk[ends], self.position[ends[1]]]
        return tuple(positions)

    def _end(self, port: str) -> tuple[int, ...]:
        if port not in self._ends:
            names = (node_of(port), port, f"{port}--{self.network.leaf_of(port)}")
            self._ends[port] = tuple(self.position[name] for name in names)
        return self._ends[port]


@dataclass(frozen=True)
class _Named(Sequence[Route]):
    """Ways in names, each made when it is requested: a routing looks at few of them."""

    ways: Ways
    positions: Sequence[tuple[int, ...]]

    def __len__(self) -> int:
        return len(self.positions)

    @overload
    def __getitem__(self, index: int) -> Route: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Route]: ...
    def __getitem__(self, index: int | slice) -> Route | Sequence[Route]:
        if isinstance(index, slice):
            return _Named(self.ways, self.positions[index])
        return self.ways.route(self.positions[index])


@dataclass(frozen=True, eq=False)
class Design:
    """What pairs of rounds can tell of a network: one reading for each pair of each round.

    R readings; W ways, in the order of the readings; E entries, each a component on a way.
    `places`: source and destination of each reading, `rounds` (R,) its round; `expected_gbps` (R,) goodput with the
    contention of its round; `doubtful` (R,): what is expected is not known, such as where ways can collide.
    `reading`, `probability` (W,): of a way. `way`, `component`, `headroom` (E,): `headroom` is -log of the share of its
    capacity that the component has in use, 0 where it is full or has no capacity.
    """

    ways: Ways
    places: tuple[tuple[str, str], ...]
    rounds: IntArray
    expected_gbps: FloatArray
    doubtful: npt.NDArray[np.bool_]
    reading: IntArray
    probability: FloatArray
    way: IntArray
    component: IntArray
    headroom: FloatArray


def design(
    ways: Ways, rounds: Sequence[Sequence[tuple[str, str]]], *, adaptive: bool = False, duplex: bool = True
) -> Design:
    """The readings of `rounds`: pairs of places that send to each other at the same time, in both directions.

    Where a pair has several ways, each is as likely as the others. `adaptive`: the switches spread pairs evenly, so
    that ways do not collide by chance. `duplex`: the pairs load both directions all the time; else it is not known what
    they get where they share a link, and such readings are doubtful. Raises UserError for unknown places and for a pair
    that no way joins.
    """
    parts = [_round(ways, pairs, adaptive=adaptive, duplex=duplex) for pairs in rounds]
    readings = np.cumsum([0, *(len(pairs) for pairs in rounds)])
    counts = np.cumsum([0, *(part.probability.size for part in parts)])
    return Design(
        ways=ways,
        places=tuple(pair for pairs in rounds for pair in pairs),
        rounds=np.repeat(np.arange(len(rounds)), [len(pairs) for pairs in rounds]),
        expected_gbps=_joined([part.expected for part in parts]),
        doubtful=np.concatenate([np.zeros(0, dtype=bool), *(part.doubtful for part in parts)]),
        reading=_joined_positions([part.reading + start for part, start in zip(parts, readings, strict=False)]),
        probability=_joined([part.probability for part in parts]),
        way=_joined_positions([part.way + start for part, start in zip(parts, counts, strict=False)]),
        component=_joined_positions([part.component for part in parts]),
        headroom=_joined([part.headroom for part in parts]),
    )


def _joined(parts: Sequence[FloatArray]) -> FloatArray:
    return np.concatenate([np.zeros(0), *parts])


def _joined_positions(parts: Sequence[IntArray]) -> IntArray:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


@dataclass(frozen=True, eq=False)
class _Round:
    expected: FloatArray
    doubtful: npt.NDArray[np.bool_]
    reading: IntArray
    probability: FloatArray
    way: IntArray
    component: IntArray
    headroom: FloatArray


def _round(ways: Ways, pairs: Sequence[tuple[str, str]], *, adaptive: bool, duplex: bool) -> _Round:
    routes = [ways.routes(*pair) for pair in pairs]
    for pair, own_routes in zip(pairs, routes, strict=True):
        if not own_routes:
            raise UserError(f"no route from {pair[0]} to {pair[1]}: give two nodes, or one port of each")
    flat = [way for each in routes for way in each]
    reading = np.repeat(np.arange(len(pairs)), [len(each) for each in routes])
    probability = np.repeat([1 / len(each) for each in routes], [len(each) for each in routes])
    way = np.repeat(np.arange(len(flat)), [len(each) for each in flat])
    component = np.fromiter((one for each in flat for one in each), dtype=np.int64, count=way.size)
    # Load on each component by each reading, as one entry: ways of a reading can share a component.
    size = len(ways.components)
    keys, inverse = np.unique(reading[way] * size + component, return_inverse=True)
    share: FloatArray = np.bincount(inverse, probability[way], keys.size).astype(float)
    # A pair takes one of its ways, so that it never gets more than one gives.
    alone = np.zeros(len(pairs))
    np.maximum.at(alone, reading, np.minimum.reduceat(ways.capacities[component], np.unique(way, return_index=True)[1]))
    expected = max_min_rates(keys // size, keys % size, share, ways.capacities, alone)
    load = np.bincount(keys % size, share * expected[keys // size], size)
    # On the way that a pair takes lies all of it, of the others what may lie there.
    used = load[component] + ((1 - share) * expected[keys // size])[inverse]
    with np.errstate(invalid="ignore"):
        headroom = np.log(np.maximum(ways.capacities[component] / used, 1))
    headroom[np.isinf(ways.capacities[component])] = 0
    doubtful = np.zeros(len(pairs), dtype=bool)
    if not adaptive:
        most = np.bincount(keys % size, expected[keys // size], size)
        crowded = (most[keys % size] > ways.capacities[keys % size] * (1 + 1e-9)) & (share < 1 - 1e-9)
        doubtful[keys[crowded] // size] = True
        # Who meets them on a link that is surely its own can be slowed down as well.
        crowd = np.isin(keys % size, keys[crowded] % size)
        doubtful[keys[crowd] // size] = True
    if not duplex:
        doubtful |= expected < alone * (1 - 1e-9)
    return _Round(expected, doubtful, reading, probability, way, component, headroom)


def max_min_rates(
    pair: IntArray, link: IntArray, share: FloatArray, capacities: FloatArray, alone: FloatArray
) -> FloatArray:
    """The max-min fair rate of each pair in Gb/s, shape (pairs,): none can gain but from one that has less.

    Of pair `pair[i]` the share `share[i]` goes over link `link[i]`, in both directions. `alone` (pairs,): what each
    gets at most. Progressive filling (Bertsekas and Gallager, "Data Networks", section 6.5.2).
    """
    rates = np.full(alone.size, np.inf)
    left = capacities.copy()
    while np.isinf(rates).any():
        open_ = np.isinf(rates[pair])
        load = np.bincount(link[open_], share[open_], capacities.size)
        fill = np.full(capacities.size, np.inf)
        np.divide(left, load, out=fill, where=load > 0)
        level = min(fill.min(), alone[np.isinf(rates)].min())
        full = fill <= level * (1 + 1e-9)
        done = np.isinf(rates) & (alone <= level * (1 + 1e-9))
        done[pair[open_ & full[link]]] = True
        rates[done] = level
        closed = done[pair]
        left = np.maximum(left - np.bincount(link[closed], share[closed], capacities.size) * level, 0)
    return rates
