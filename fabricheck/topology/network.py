"""What joins the nodes of a system: switches, links and the routes between the nodes' ports."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise, product
from typing import TYPE_CHECKING

from ClusterShell.NodeSet import NodeSet, NodeSetParseError

from fabricheck.errors import UserError
from fabricheck.records.component import Component, Kind
from fabricheck.topology.schema import NetworkEntry
from fabricheck.units import parse_rate
from fabricheck.yamlfile import YamlFile

if TYPE_CHECKING:
    import networkx as nx

# The largest systems have some ten thousand nodes.
_MOST_NAMES = 100_000
_LONGEST_NUMBER = 100

#: How far two nodes are from each other (De Sensi et al. SC24, section V-B), nearest first.
DISTANCES = ("same-switch", "same-group", "other-groups")


@dataclass(frozen=True)
class NetworkSwitch:
    """A switch between nodes. `group`: what the vendor calls a group, pod, cell or dragonfly group; None: its own."""

    name: str
    group: str | None = None


@dataclass(frozen=True)
class NetworkLink:
    """`count` parallel links of `rate_gbps` each, full duplex, between two ends: a node's port or a switch."""

    ends: tuple[str, str]
    technology: str
    count: int
    rate_gbps: float
    source: str

    @property
    def name(self) -> str:
        """The cable of a port, such as `nid001:hsn0--leaf0`, or the trunk between two switches, `leaf0--spine0`."""
        return "--".join(self.ends)

    @property
    def total_gbps(self) -> float:
        """Rate of all parallel links together, in one direction, in Gb/s."""
        return self.count * self.rate_gbps


@dataclass(frozen=True)
class Route:
    """One way from a node to another: nodes, ports, cables, switches and trunks by name, in order.

    `rate_gbps`: of its slowest link, in Gb/s.
    """

    components: tuple[str, ...]
    rate_gbps: float


@dataclass(frozen=True, eq=False)
class Network:
    """The nodes of a system, their ports and what joins them. A port is `NODE:NIC`.

    Routes are shortest paths; several of them have equal cost, and which one a message takes is not known.
    """

    nodes: tuple[str, ...]
    ports: tuple[str, ...]
    switches: tuple[NetworkSwitch, ...]
    links: tuple[NetworkLink, ...]

    @cached_property
    def graph(self) -> nx.Graph[str]:
        """Ports and switches; each edge has its NetworkLink as `link`."""
        import networkx as nx  # takes a third of what the checks take to load, and most systems have no network here

        graph: nx.Graph[str] = nx.Graph()
        for link in self.links:
            graph.add_edge(*link.ends, link=link)
        return graph

    def ports_of(self, node: str) -> tuple[str, ...]:
        """The ports of a node, in the order of the file. Raises UserError for an unknown node."""
        if node not in self._ports_by_node:
            raise UserError(f"no node {node!r} in the network; its nodes are {fold(self.nodes)}")
        return self._ports_by_node[node]

    def component(self, name: str) -> Component:
        """The component of a name in routes: a node, port, switch, or the cable or trunk between two ends.

        Raises UserError for an unknown name.
        """
        if name not in self._components:
            raise UserError(f"{name!r} is not in the network of topology.yaml")
        return self._components[name]

    @property
    def all_components(self) -> tuple[Component, ...]:
        """Nodes, ports, switches, cables and trunks."""
        return tuple(self._components.values())

    @cached_property
    def _components(self) -> dict[str, Component]:
        ends = {name: Component(Kind.NODE, node=name) for name in self.nodes}
        ends |= {port: Component(Kind.NIC, port.partition(":")[2], node_of(port)) for port in self.ports}
        ends |= {each.name: Component(Kind.SWITCH, each.name) for each in self.switches}
        links = {}
        for link in self.links:
            first, second = (ends[each] for each in link.ends)
            links[link.name] = Component(Kind.LINK, first.name, first.node, second.name, second.node)
        return ends | links

    def node_of_host(self, host: str) -> str:
        """The node of this name, with or without the domain that a host may add to it. Raises UserError for no node."""
        for name in (host, host.partition(".")[0]):
            if name in self._ports_by_node:
                return name
        text = f"a rank ran on {host!r}, which is not a node of the network in topology.yaml"
        raise UserError(f"{text}: its nodes are {fold(self.nodes)}")

    @cached_property
    def _ports_by_node(self) -> dict[str, tuple[str, ...]]:
        by_node: dict[str, list[str]] = {node: [] for node in self.nodes}
        for port in self.ports:
            by_node[node_of(port)].append(port)
        return {node: tuple(ports) for node, ports in by_node.items()}

    def leaf_of(self, port: str) -> str:
        """The switch that a port is plugged into."""
        return self._cables[port].ends[1]

    def routes(self, source: str, destination: str) -> tuple[Route, ...]:
        """All ways of equal cost from a node or port to another, in the order of their names.

        Where a node is given, those of all its ports that are equally near; so it is for ports that no switch joins, as
        on two rails without a spine: data change the rail inside a node. None from a node to itself. Raises UserError
        for an unknown node or port.
        """
        routes = [
            self._route(start, between, other)
            for start, other in product(self._ports(source), self._ports(destination))
            if node_of(start) != node_of(other)
            for between in self._between(self.leaf_of(start), self.leaf_of(other))
        ]
        if not routes and ":" in source + destination and node_of(source) != node_of(destination):
            return self.routes(node_of(source), node_of(destination))
        nearest = min((len(route.components) for route in routes), default=0)
        shortest = [route for route in routes if len(route.components) == nearest]
        return tuple(sorted(shortest, key=lambda route: route.components))

    def distance(self, near: str, other: str) -> str:
        """The distance class of two nodes, one of DISTANCES: that of the nearest of their ports.

        Without groups, all switches are in one. Raises UserError for an unknown node.
        """
        leaves = [[self.leaf_of(port) for port in self.ports_of(node)] for node in (near, other)]
        groups = [{self._group.get(leaf) for leaf in each} for each in leaves]
        if set(leaves[0]) & set(leaves[1]):
            return "same-switch"
        return "same-group" if groups[0] & groups[1] else "other-groups"

    @cached_property
    def _group(self) -> dict[str, str | None]:
        return {one.name: one.group for one in self.switches}

    def _ports(self, name: str) -> tuple[str, ...]:
        return (name,) if name in self._components and ":" in name else self.ports_of(name)

    @cached_property
    def _kept(self) -> dict[tuple[str, str], tuple[Route, ...]]:
        return {}

    def _between(self, leaf: str, other: str) -> tuple[Route, ...]:
        """Routes from switch to switch, both included; none where none join them. Kept, since nodes share leaves."""
        if (leaf, other) not in self._kept:
            import networkx as nx

            joined = self._fabric[leaf] is self._fabric[other]
            paths = nx.all_shortest_paths(self._switch_graph, leaf, other) if joined else ()
            self._kept[leaf, other] = tuple(map(self._over, paths))
        return self._kept[leaf, other]

    def _over(self, switches: Sequence[str]) -> Route:
        links = [self.graph.edges[ends]["link"] for ends in pairwise(switches)]
        components = [switches[0]]
        for link, switch in zip(links, switches[1:], strict=True):
            components += [link.name, switch]
        return Route(tuple(components), min((link.total_gbps for link in links), default=math.inf))

    @cached_property
    def _switch_graph(self) -> nx.Graph[str]:
        # Not over another node's port: nodes do not forward.
        return self.graph.subgraph(one.name for one in self.switches).copy()  # a view is slow

    @cached_property
    def _fabric(self) -> dict[str, frozenset[str]]:
        """Of each switch all that trunks join with it: several such fabrics are rails without a spine."""
        import networkx as nx

        parts = map(frozenset, nx.connected_components(self._switch_graph))
        return {switch: part for part in parts for switch in part}

    @property
    def is_rail_only(self) -> bool:
        """Whether no switches join some ports of a node: data change the rail inside nodes."""
        fabrics = ({self._fabric[self.leaf_of(port)] for port in self.ports_of(node)} for node in self.nodes)
        return any(len(own) > 1 for own in fabrics)

    def apart(self) -> tuple[str, ...]:
        """The nodes that no switches join with some of the others; none where all have a way to all."""
        fabrics = {
            node: frozenset(self._fabric[self.leaf_of(port)] for port in self.ports_of(node)) for node in self.nodes
        }
        kinds = dict.fromkeys(fabrics.values())
        alone = next((one for one, other in combinations(kinds, 2) if not one & other), None)
        return tuple(node for node, own in fabrics.items() if alone is not None and not own & alone)

    @cached_property
    def _cables(self) -> dict[str, NetworkLink]:
        return {link.ends[0]: link for link in self.links if ":" in link.ends[0]}

    def _route(self, source: str, between: Route, destination: str) -> Route:
        first, last = self._cables[source], self._cables[destination]
        start, end = (node_of(source), source, first.name), (last.name, destination, node_of(destination))
        rate = min(first.total_gbps, between.rate_gbps, last.total_gbps)
        return Route((*start, *between.components, *end), rate)


def node_of(port: str) -> str:
    """The node of a port `NODE:NIC`."""
    return port.partition(":")[0]


# What ClusterShell takes for a range, a list, a group or an operator.
_NOT_IN_NAMES = re.compile(r"[\[\],%@&!^*?\s]")


def fold(names: Iterable[str]) -> str:
    """Names in short form, such as `nid[001-004]`; others as they are, with commas."""
    listed = list(names)
    if any(_NOT_IN_NAMES.search(each) or not each for each in listed):
        return ",".join(dict.fromkeys(listed))
    return str(NodeSet.fromlist(listed))


def node_set(text: str) -> NodeSet:
    """The names that `nid[001-002],login1` stands for. Raises UserError where it is not such a list, or of too many."""
    if _names_in(text) > _MOST_NAMES:
        raise UserError(f"{text!r} is a list of more than {_MOST_NAMES:,} names")
    try:
        return NodeSet(text, autostep=None)
    except (NodeSetParseError, AssertionError, ValueError) as error:  # the last of two steps in one range
        raise UserError(f"{text!r} is not a list of names such as nid[001-004]: {error}") from None


def _names_in(text: str) -> int:
    """How many names a list has at most, before they are made; more than all where a number is too long to be one."""
    total = 0
    for part in re.split(r",(?![^\[]*\])", text):
        names = 1
        for ranges in re.findall(r"\[([^\]]*)\]", part):
            ends = [re.findall(r"-?\d+", each) for each in ranges.split(",")]
            if any(len(end) > _LONGEST_NUMBER for pair in ends for end in pair):
                return _MOST_NAMES + 1
            # The second number of a range follows on a dash, which is none of its own.
            names *= sum(abs(abs(int(pair[1])) - int(pair[0])) + 1 if len(pair) > 1 else 1 for pair in ends)
        total += names
    return total


def unfold(text: str) -> tuple[str, ...]:
    """The names that `nid[001-002],login1` or, for ports, `nid[001-002]:hsn0` stands for.

    Raises UserError where it is not such a list.
    """
    node_list, colon, port = text.partition(":")
    names = tuple(node_set(node_list))
    if not names or (colon and not port):
        raise UserError(f"{text!r} is not a list of names such as nid[001-004] or ports such as nid[001-004]:hsn0")
    return tuple(f"{name}{colon}{port}" for name in names)


def network_from(file: YamlFile, entry: NetworkEntry, nics: Iterable[str]) -> Network:
    """The network of a topology.yaml whose nodes have these `nics`. Raises UserError that names file, line, field."""
    nodes = _unfold(file, ("network", "nodes"), entry.nodes)
    switches = tuple(
        NetworkSwitch(name, one.group)
        for position, one in enumerate(entry.switches)
        for name in _unfold(file, ("network", "switches", position, "name"), one.name)
    )
    counted = Counter([*nodes, *(one.name for one in switches)])
    if twice := next((name for name, count in counted.items() if count > 1), None):
        file.fail(("network", "switches"), f"{twice!r} is used for two parts")
    known_ports = {f"{node}:{nic}" for node in nodes for nic in nics}
    links = tuple(_read_links(file, entry, {one.name for one in switches}, known_ports))
    order = {node: position for position, node in enumerate(nodes)}
    ports = sorted({end for link in links for end in link.ends if ":" in end}, key=lambda p: (order[node_of(p)], p))
    network = Network(nodes, tuple(ports), switches, links)
    if alone := [node for node in nodes if not network.ports_of(node)]:
        file.fail(("network", "nodes"), f"{fold(alone)}: no links")
    if apart := network.apart():
        file.fail(("network", "links"), f"no links connect {fold(apart)} to the rest")
    return network


def _read_links(
    file: YamlFile, entry: NetworkEntry, switches: Container[str], ports: Container[str]
) -> Iterator[NetworkLink]:
    joined: set[frozenset[str]] = set()
    plugged: dict[str, str] = {}
    for position, link in enumerate(entry.links):
        for number, pair in enumerate(link.pairs):
            place = ("network", "links", position, "pairs", number)
            for ends in product(_unfold(file, place, pair[0]), _unfold(file, place, pair[1])):
                if unknown := [end for end in ends if end not in switches and end not in ports]:
                    file.fail(place, f"{unknown[0]!r} is neither a switch nor NODE:NIC of a node and a NIC named above")
                ordered = (ends[1], ends[0]) if ends[0] in switches and ends[1] in ports else ends
                if ordered[1] in ports or ordered[0] == ordered[1]:
                    file.fail(place, f"{ends[0]} and {ends[1]}: a link joins a port with a switch or two switches")
                if frozenset(ends) in joined:
                    file.fail(place, f"{ends[0]} and {ends[1]} are joined twice: use count")
                joined.add(frozenset(ends))
                if ordered[0] in ports and plugged.setdefault(*ordered) != ordered[1]:
                    file.fail(place, f"{ordered[0]} is plugged into {plugged[ordered[0]]} already")
                yield NetworkLink(ordered, link.technology, link.count, parse_rate(link.rate), link.source)


def _unfold(file: YamlFile, place: tuple[str | int, ...], text: str) -> tuple[str, ...]:
    try:
        return unfold(text)
    except UserError as error:
        file.fail(place, str(error))
