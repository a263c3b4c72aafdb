"""How fast the network between nodes lets them be: single messages, messages beside others, and collectives.

An *end* is a node of the network, where it is not known which of its ports is used, or a port. Links are full duplex.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise, permutations

from fabricheck.topology.network import Network, Route, node_of


@dataclass(frozen=True)
class PairRates:
    """One message from an end to another, in Gb/s.

    `nominal`: of the fastest way of equal cost. `expected`: of the slowest, since it is unknown which is taken, each
    link shared fairly with the messages beside it. `ceiling`: of all ways together. `slowest_link`: what limits the
    message, or None where several do equally, as on a healthy network of equal links.
    """

    nominal: float
    expected: float
    ceiling: float
    slowest_link: str | None


def pair_rates(network: Network, source: str, destination: str, loads: Mapping[str, float] | None = None) -> PairRates:
    """The rate in Gb/s of a message between two ends on different nodes. `loads`: of all messages at the time
    (`link_loads`).

    Raises UserError for an end that the network does not have.
    """
    routes = network.routes(source, destination)
    rates = {link: rate for route in routes for link, rate in _shared_rates(network, route, loads or {})}
    expected = min(rates.values())
    slowest = [link for link, rate in rates.items() if math.isclose(rate, expected)]
    return PairRates(
        nominal=max(route.rate_gbps for route in routes),
        expected=expected,
        ceiling=least_cut_gbps(network, frozenset((node_of(source), node_of(destination)))),
        slowest_link=slowest[0] if len(slowest) == 1 else None,
    )


def link_loads(network: Network, messages: Iterable[tuple[str, str]]) -> dict[str, float]:
    """How many of these messages each link carries, by its name, whatever their direction.

    Both directions of a ping-pong may meet those of another one, so they are counted together. A message with several
    ways of equal cost puts an equal share of itself on each, as in the node's own edge forwarding index.
    Raises UserError for an end that the network does not have.
    """
    loads: dict[str, float] = defaultdict(float)
    for source, destination in messages:
        for ends, share in _shares(network, network.routes(source, destination)).items():
            loads[network.graph.edges[ends]["link"].name] += share
    return dict(loads)


@lru_cache(maxsize=256)
def alltoall_gbps(network: Network, nodes: frozenset[str]) -> float:
    """What each of `nodes` sends, in Gb/s, while each sends as much to each of the others and none is limited by its
    own ports: what the busiest direction of a trunk leaves. Infinite where no trunk is used.

    Raises UserError for an unknown node.
    """
    members = _by_leaves(network, nodes)
    loads: dict[tuple[str, str], float] = defaultdict(float)
    # Nodes on the same leaves have the same ways, so one of each stands for all.
    for source, other in permutations(members, 2):
        messages = len(members[source]) * len(members[other]) / (len(nodes) - 1)
        routes = network.routes(members[source][0], members[other][0])
        for ends, share in _shares(network, routes).items():
            if not _is_cable(ends):
                loads[ends] += messages * share
    rates = {trunk: network.graph.edges[trunk]["link"].total_gbps for trunk in loads}
    return min((rates[trunk] / load for trunk, load in loads.items()), default=math.inf)


@lru_cache(maxsize=4096)
def least_cut_gbps(network: Network, nodes: frozenset[str]) -> float:
    """The least that can pass, in Gb/s and one direction, between two of `nodes` over all ports, links and switches.

    No message, broadcast or allreduce between them can be faster, whatever its algorithm. Raises UserError for an
    unknown node.
    """
    members = _by_leaves(network, nodes)
    ports = min(_ports_gbps(network, node) for node in nodes)
    return min(ports, _least_cut_between_leaves(network, frozenset(members)))


@lru_cache(maxsize=1024)
def _least_cut_between_leaves(network: Network, leaves: frozenset[tuple[str, ...]]) -> float:
    """The least cut between groups of nodes, each on its `leaves`, whose ports have no limit."""
    pairs = list(combinations(sorted(leaves), 2))
    if all(len(each) == 1 for each in leaves):
        # A cut that parts any two leaves parts the first from one of them.
        pairs = pairs[: len(leaves) - 1]
    return min((_least_cut(network, one, other) for one, other in pairs), default=math.inf)


def _least_cut(network: Network, leaves: tuple[str, ...], others: tuple[str, ...]) -> float:
    if set(leaves) & set(others):
        return math.inf
    import networkx as nx

    graph: nx.Graph[str] = nx.Graph()
    for link in network.links:
        if not _is_cable(link.ends):
            graph.add_edge(*link.ends, capacity=link.total_gbps)
    # Other nodes do not forward, so only these two are in the graph. An edge without a capacity is unlimited.
    graph.add_edges_from((":one", leaf) for leaf in leaves)
    graph.add_edges_from((":other", leaf) for leaf in others)
    return float(nx.maximum_flow_value(graph, ":one", ":other"))


def _by_leaves(network: Network, nodes: Iterable[str]) -> dict[tuple[str, ...], list[str]]:
    """Nodes by the switches that their ports are plugged into."""
    by_leaves: dict[tuple[str, ...], list[str]] = {}
    for node in sorted(nodes):
        leaves = tuple(sorted({network.leaf_of(port) for port in network.ports_of(node)}))
        by_leaves.setdefault(leaves, []).append(node)
    return by_leaves


def _ports_gbps(network: Network, node: str) -> float:
    cables = (network.graph.edges[port, network.leaf_of(port)]["link"] for port in network.ports_of(node))
    return float(sum(cable.total_gbps for cable in cables))


def _is_cable(ends: tuple[str, str]) -> bool:
    return any(":" in end for end in ends)


def _hops(network: Network, route: Route) -> Iterable[tuple[str, str]]:
    """The two ends of each link of a route, in the order of the way."""
    return pairwise(name for name in route.components if name in network.graph)


def _shared_rates(network: Network, route: Route, loads: Mapping[str, float]) -> Iterable[tuple[str, float]]:
    for ends in _hops(network, route):
        link = network.graph.edges[ends]["link"]
        # A message that could have taken several links takes one, and that as a whole.
        yield link.name, link.total_gbps / max(1.0, loads.get(link.name, 0.0))


def _shares(network: Network, routes: tuple[Route, ...]) -> Mapping[tuple[str, str], float]:
    """The share of a message on each hop, when its ways share it evenly."""
    shares = Counter(ends for route in routes for ends in _hops(network, route))
    return {ends: count / len(routes) for ends, count in shares.items()}
