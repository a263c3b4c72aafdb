"""The ways of many pairs through a network as arrays, and what each pair should get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabricheck.errors import UserError
from fabricheck.topology.network import Network

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class Ways:
    """The routes of a network as tuples of positions in `components`.

    `components`: names; `kinds`: of each `node`, `port`, `cable`, `leaf`, `switch` or `trunk`; `capacities`: Gb/s in
    one direction, infinite where there is no link.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        leaves = {network.leaf_of(port) for port in network.ports}
        named: dict[str, tuple[str, float]] = dict.fromkeys(network.nodes, ("node", np.inf))
        named |= dict.fromkeys(network.ports, ("port", np.inf))
        named |= {each.name: ("leaf" if each.name in leaves else "switch", np.inf) for each in network.switches}
        for link in network.links:
            named[link.name] = ("cable" if ":" in link.ends[0] else "trunk", link.total_gbps)
        self.components = tuple(named)
        self.kinds = tuple(kind for kind, _ in named.values())
        self.capacities: FloatArray = np.array([capacity for _, capacity in named.values()])
        self.position = {name: position for position, name in enumerate(self.components)}

    def ports(self, place: str) -> tuple[str, ...]:
        """The ports of a place: itself, or all those of a node. Raises UserError for an unknown name."""
        return (place,) if ":" in place and place in self.position else self.network.ports_of(place)

    def routes(self, source: str, destination: str) -> list[tuple[int, ...]]:
        """All ways from a place (node or port) to another, of which it is unknown which one messages take."""
        routes = self.network.routes(source, destination)
        return [tuple(self.position[name] for name in route.components) for route in routes]


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


def design(ways: Ways, rounds: Sequence[Sequence[tuple[str, str]]], *, duplex: bool = True) -> Design:
    """The readings of `rounds`: pairs of places that send to each other at the same time, in both directions.

    Where a pair has several ways, each is as likely as the others. `duplex`: the pairs load both directions all the
    time; else it is not known what they get where they share a link, and such readings are doubtful. Raises UserError
    for unknown places and for a pair that no way joins.
    """
    places = tuple(pair for pairs in rounds for pair in pairs)
    routes = [ways.routes(*pair) for pair in places]
    if (alone := next((pair for pair, own in zip(places, routes, strict=True) if not own), None)) is not None:
        raise UserError(f"no route from {alone[0]} to {alone[1]}: give two nodes, or one port of each")
    numbers = np.repeat(np.arange(len(rounds)), [len(pairs) for pairs in rounds])
    counts = np.array([len(own) for own in routes], dtype=np.int64)
    reading = np.repeat(np.arange(len(places)), counts)
    probability = np.repeat(1 / counts, counts)
    flat = [way for own in routes for way in own]
    way = np.repeat(np.arange(len(flat)), [len(each) for each in flat])
    component = np.array([position for each in flat for position in each], dtype=np.int64)
    # A link is a component in a round: what other rounds send over it does not count.
    links, link = np.unique(numbers[reading[way]] * len(ways.components) + component, return_inverse=True)
    capacity = ways.capacities[links % len(ways.components)]
    # Load on each link by each reading, as one entry: ways of a reading can share a component.
    keys, entry = np.unique(reading[way] * links.size + link, return_inverse=True)
    sender, crossed = keys // max(links.size, 1), keys % max(links.size, 1)
    share: FloatArray = np.bincount(entry, probability[way], keys.size).astype(float)
    # A pair takes one of its ways, so that it never gets more than one gives.
    best = np.zeros(len(places))
    if flat:
        np.maximum.at(best, reading, np.minimum.reduceat(capacity[link], np.unique(way, return_index=True)[1]))
    expected = max_min_rates(sender, crossed, share, capacity, best)
    load = np.bincount(crossed, share * expected[sender], links.size)
    # On the way that a pair takes lies all of it, of the others what may lie there.
    used = load[link] + ((1 - share) * expected[sender])[entry]
    with np.errstate(invalid="ignore"):
        headroom = np.log(np.maximum(capacity[link] / used, 1))
    headroom[np.isinf(capacity[link])] = 0
    most = np.bincount(crossed, expected[sender], links.size)
    crowded = crossed[(most[crossed] > capacity[crossed] * (1 + 1e-9)) & (share < 1 - 1e-9)]
    doubtful = np.zeros(len(places), dtype=bool)
    # Who meets pairs that may collide on a link that is surely its own can be slowed down as well.
    doubtful[sender[np.isin(crossed, crowded)]] = True
    if not duplex:
        doubtful |= expected < best * (1 - 1e-9)
    return Design(ways, places, numbers, expected, doubtful, reading, probability, way, component, headroom)


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
