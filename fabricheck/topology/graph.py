"""Paths, loads and capacities of a node's link graph.

Between two GPUs, data travel over GPUs and switches. Only GPUs that this fabric does not join (Summit's two halves)
reach each other through their CPUs. NICs and switches to the host carry nothing here. Links have a
rate for each direction.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import networkx as nx
import numpy as np

from fabricheck.errors import UserError
from fabricheck.topology.flows import FlowNetwork, Matrix, widest_rates
from fabricheck.topology.model import Gpu, Link, Topology

Edge = tuple[str, str]
_Routing = tuple["nx.DiGraph[str]", "nx.DiGraph[str]"]


@dataclass(frozen=True)
class Path:
    """A path by the names of its devices, and the rate of its narrowest edge in Gb/s."""

    devices: tuple[str, ...]
    rate_gbps: float

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The directed edges from the source to the destination."""
        return tuple(itertools.pairwise(self.devices))


class NodeGraph:
    """The link graph of one node; everything is computed once.

    GPUs are named by `Gpu` objects of the topology. Rates are Gb/s in one direction.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._cpus = {cpu.name for cpu in topology.cpus}
        fabric = {gpu.name for gpu in topology.gpus} | {one.name for one in topology.switches if not one.host_only}
        self._whole = self._build(fabric | self._cpus)
        self._kept: dict[tuple[str, str], tuple[Path, ...]] = {}
        self._fabric: nx.DiGraph[str] = self._whole.subgraph(fabric).copy()

    def _build(self, names: set[str]) -> nx.DiGraph[str]:
        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(sorted(names))
        for link in self.topology.links:
            if set(link.ends) <= names:
                for start, end in (link.ends, link.ends[::-1]):
                    data = graph.get_edge_data(start, end, {"rate": 0.0, "count": 0})
                    rate, count = data["rate"] + link.towards(end), data["count"] + link.count
                    graph.add_edge(start, end, rate=rate, count=count)
        return graph

    @cached_property
    def islands(self) -> tuple[frozenset[str], ...]:
        """Names of the GPUs that the GPU fabric joins, a set for each group; the largest first."""
        return _islands(self._fabric, self.gpu_names)

    @cached_property
    def wide_islands(self) -> tuple[frozenset[str], ...]:
        """`islands` without links that are narrower than those to the CPUs, where these are what joins them."""
        return _islands(self._routings[-1][0], self.gpu_names)

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """The graph over which GPUs reach each other: the fabric, with the CPUs where it has several islands.

        Edges carry `rate` (Gb/s, all parallel links) and `count` (parallel links).
        """
        if len(self.islands) <= 1:
            return self._fabric
        # A CPU may only be passed from one island to another: GPUs of one island use their fabric.
        return self._whole

    @cached_property
    def gpu_names(self) -> tuple[str, ...]:
        """Names of the GPUs in the order of their indexes."""
        return tuple(gpu.name for gpu in sorted(self.topology.gpus, key=lambda gpu: gpu.index))

    def rate(self, edge: Edge) -> float:
        """Gb/s of an edge in its direction, all parallel links together."""
        return float(self.graph.edges[edge]["rate"])

    def path_rate(self, edge: Edge) -> float:
        """Gb/s of an edge of any path, over CPUs too."""
        return float(self._whole.edges[edge]["rate"])

    def links(self, edge: Edge) -> int:
        """Number of parallel links of an edge."""
        return int(self.graph.edges[edge]["count"])

    # Capacities

    def network(self, gpus: Sequence[Gpu]) -> FlowNetwork:
        """What data between these GPUs may use; other GPUs forward: the GPU fabric, where it joins them widely; else
        the CPUs too, since data may go through them rather than over a narrow link."""
        names = tuple(gpu.name for gpu in sorted(gpus, key=lambda gpu: gpu.index))
        return _network(self._fabric if self.joined_widely(gpus) else self._whole, names)

    def joined_widely(self, gpus: Sequence[Gpu]) -> bool:
        """GPU links that are at least as wide as those to the CPUs join these GPUs, over other GPUs where need be."""
        return self._are_joined_widely(frozenset(gpu.name for gpu in gpus))

    def _are_joined_widely(self, members: frozenset[str]) -> bool:
        wide = _at_least(self._fabric, self._widest_to_cpus(members))
        return any(members <= island for island in _islands(wide, self.gpu_names))

    @cached_property
    def _routings(self) -> tuple[_Routing, ...]:
        """Graphs that all GPUs may be routed over, each with what data inside an island use and what data between
        islands use: the fabric, where it joins them; the fabric with the CPUs, where it does not, or only narrowly."""
        across = (self._fabric, self._fabric if len(self.islands) == 1 else self._whole)
        if self.joined_widely(self.topology.gpus):
            return (across,)
        wide = _at_least(self._fabric, self._widest_to_cpus(self.gpu_names))
        without: nx.DiGraph[str] = self._whole.copy()
        without.remove_edges_from([edge for edge in self._fabric.edges if not wide.has_edge(*edge)])
        return across, (wide, without)

    def _widest_to_cpus(self, members: Iterable[str]) -> float:
        return max((self._to_cpus.get(name, 0.0) for name in members), default=0.0)

    @cached_property
    def _to_cpus(self) -> Mapping[str, float]:
        """Rate of the fastest link between a device and a CPU, in either direction."""
        rates: dict[str, float] = defaultdict(float)
        for start, end, data in self._whole.edges(data=True):
            for name in {start, end} if {start, end} & self._cpus else ():
                rates[name] = max(rates[name], data["rate"])
        return rates

    # Paths

    def widest_path(self, source: Gpu, destination: Gpu) -> Path:
        """The single path with the highest bandwidth: the nominal point-to-point goodput (De Sensi §III-D).

        Of several, the one with the fewest hops, then the first by name. Raises UserError if there is none.
        """
        return self._widest_paths(source.name, destination.name)[0]

    def widest_shares(self, source: Gpu, destination: Gpu) -> dict[Edge, float]:
        """Share of a message on each edge when all widest paths with the fewest hops carry the same: what does not
        depend on how devices are named. Raises UserError if there is no path."""
        paths = self._widest_paths(source.name, destination.name)
        edges = Counter(edge for path in paths for edge in path.edges)
        return {edge: count / len(paths) for edge, count in edges.items()}

    def rate_of_pairs(self, pairs: Iterable[tuple[Gpu, Gpu]]) -> float:
        """What each of several pairs gets, in Gb/s, when all are busy, each on its widest paths; infinite of none."""
        loads: dict[Edge, float] = defaultdict(float)
        for source, destination in pairs:
            for edge, share in self.widest_shares(source, destination).items():
                loads[edge] += share
        return min((self.path_rate(edge) / load for edge, load in loads.items()), default=math.inf)

    def _widest_paths(self, source: str, destination: str) -> tuple[Path, ...]:
        """The widest paths with the fewest hops, in the order of their names."""
        if (source, destination) not in self._kept:
            ends = self.gpu_names.index(source), self.gpu_names.index(destination)
            graph, rate = self._fabric, float(self._widest_in_fabric[ends])
            over_cpus = float(self._widest_in_whole[ends])
            if over_cpus > rate and not self._are_joined_widely(frozenset((source, destination))):
                graph, rate = self._whole, over_cpus
            if not rate:
                raise UserError(f"{self.topology.system}: no path from {source} to {destination}")
            paths = nx.all_shortest_paths(_at_least(graph, rate), source, destination)
            self._kept[source, destination] = tuple(Path(tuple(path), rate) for path in sorted(paths))
        return self._kept[source, destination]

    # Loads

    @cached_property
    def edge_loads(self) -> Mapping[Edge, float]:
        """Paths over every directed edge when each GPU sends to each other one over shortest paths.

        A pair with several shortest paths puts an equal share of itself on each: the only tie-breaking that does not
        depend on how devices are named.
        """
        return self._loads(self._fabric, self.graph)

    def _loads(self, inside: nx.DiGraph[str], across: nx.DiGraph[str]) -> dict[Edge, float]:
        """Paths over each edge: Brandes' edge betweenness, of the fabric inside an island and of `across` elsewhere."""
        loads: dict[Edge, float] = defaultdict(float)
        islands = _islands(inside, self.gpu_names)
        for graph, islands_of_graph in ((inside, True), (across, False)):
            for island in islands:
                others = island if islands_of_graph else set(self.gpu_names) - island
                if (len(island) < 2 and islands_of_graph) or not others:
                    continue
                between: Any = nx.edge_betweenness_centrality_subset(graph, sorted(island), sorted(others))
                for edge, load in between.items():
                    if load:
                        loads[edge] += load
        return loads

    @property
    def edge_forwarding_index(self) -> float:
        """Highest number of paths over any edge under shortest-path routing (De Sensi §IV-A), 0 for a single GPU.

        The links of an edge share its paths, so four paths over four parallel links count one. At least 1: a path
        cannot be crossed by less than itself.
        """
        shares = (load / self._whole.edges[edge]["count"] for edge, load in self.edge_loads.items())
        return max((max(1.0, share) for share in shares), default=0.0)

    @cached_property
    def pair_share_gbps(self) -> float:
        """Gb/s that every ordered pair of GPUs gets when all send to all at once, each pair over its shortest paths;
        infinite for a single GPU.

        The rate of an edge over the paths on it, where that is least (De Sensi §IV-A: 100 Gb/s on LUMI). Narrow links
        are left out where that is better and the others still join all GPUs, so that a thin link more takes nothing
        from anyone.
        """
        if len(self.topology.gpus) < 2:
            return math.inf
        best = 0.0
        for fabric, graph in self._routings:
            for least in sorted({data["rate"] for _, _, data in graph.edges(data=True)}):
                inside, across = _at_least(fabric, least), _at_least(graph, least)
                if not self._joined(across):
                    break
                loads = self._loads(inside, across)
                best = max(best, min(self.path_rate(edge) / load for edge, load in loads.items()))
        return best

    def _joined(self, graph: nx.DiGraph[str]) -> bool:
        names = set(self.gpu_names)
        return any(names <= group for group in nx.strongly_connected_components(graph))

    # Injection and cuts

    def injection_gbps(self, gpu: Gpu) -> float:
        """Gb/s that a GPU can send to the other GPUs: the sum of its links to GPUs and switches, and to its CPU where
        that is the way to another island (De Sensi §II)."""
        return float(sum(data["rate"] for _, _, data in self.graph.out_edges(gpu.name, data=True)))

    def reception_gbps(self, gpu: Gpu) -> float:
        """Gb/s that a GPU can receive from the other GPUs: `injection_gbps` the other way."""
        return float(sum(data["rate"] for _, _, data in self.graph.in_edges(gpu.name, data=True)))

    @property
    def least_injection_gbps(self) -> float:
        """The least that a GPU can send or receive, in Gb/s; infinite without GPUs."""
        rates = [(self.injection_gbps(gpu), self.reception_gbps(gpu)) for gpu in self.topology.gpus]
        return min((min(each) for each in rates), default=math.inf)

    def ways(self, gpu: Gpu) -> int:
        """Peers to which a GPU can send at the same time over links of its own; any number through a switch or CPU."""
        peers = len(self.topology.gpus) - 1
        neighbours = set(self.graph[gpu.name])
        if neighbours - set(self.gpu_names):
            return peers
        return min(peers, sum(self.links((gpu.name, other)) for other in neighbours))

    @cached_property
    def fully_connected(self) -> bool:
        """Every GPU is linked to every other one directly."""
        return all(self._fabric.has_edge(a, b) for a, b in itertools.combinations(self.gpu_names, 2))

    @cached_property
    def star(self) -> bool:
        """Every GPU reaches every other one through a single switch, and has no other links to GPUs."""
        switches = {one.name for one in self.topology.switches}
        if not switches or len(self.topology.gpus) < 2:
            return False
        neighbours = [set(self._fabric[name]) for name in self.gpu_names]
        return all(one and one <= switches and one == neighbours[0] for one in neighbours)

    @cached_property
    def bisection_gbps(self) -> float | None:
        """Gb/s across the worst division of the GPUs into halves (one more on one side if their number is odd), in the
        slower direction.

        None where that would take too long: of large nodes whose GPUs are not all equal on switches. 0 for fewer than
        two.
        """
        half = len(self.gpu_names) // 2
        if half == 0:
            return 0.0
        if self.star:
            ends = sorted(min(self.injection_gbps(gpu), self.reception_gbps(gpu)) for gpu in self.topology.gpus)
            return sum(ends[:half])
        network = _network(self.graph, self.gpu_names)
        inside, rates = network.cuts
        halves = np.isin(inside.sum(axis=1), (half, len(self.gpu_names) - half))
        return float(rates[halves].min()) if network.has_all_cuts else None

    def flow_gbps(self, source: Gpu, destination: Gpu) -> float:
        """Gb/s from one GPU to another over all paths at once: the least cut between the two."""
        start, other = (self.gpu_names.index(gpu.name) for gpu in (source, destination))
        network = self._network_of_fabric if self.joined_widely((source, destination)) else self._network_of_whole
        inside, rates = network.cuts
        return float(rates[inside[:, start] & ~inside[:, other]].min())

    @cached_property
    def _network_of_fabric(self) -> FlowNetwork:
        return _network(self._fabric, self.gpu_names)

    @cached_property
    def _network_of_whole(self) -> FlowNetwork:
        return _network(self._whole, self.gpu_names)

    @cached_property
    def _widest_in_fabric(self) -> Matrix:
        return widest_rates(self._network_of_fabric)

    @cached_property
    def _widest_in_whole(self) -> Matrix:
        return widest_rates(self._network_of_whole)

    def links_of(self, edge: Edge) -> tuple[Link, ...]:
        """The kinds of links that an edge is made of."""
        return self._links_of.get(frozenset(edge), ())

    @cached_property
    def _links_of(self) -> Mapping[frozenset[str], tuple[Link, ...]]:
        links: dict[frozenset[str], tuple[Link, ...]] = {}
        for link in self.topology.links:
            links[frozenset(link.ends)] = (*links.get(frozenset(link.ends), ()), link)
        return links


@lru_cache(maxsize=64)
def node_graph(topology: Topology) -> NodeGraph:
    """The graph of a topology, made once for each."""
    return NodeGraph(topology)


def _network(graph: nx.DiGraph[str], terminals: Sequence[str]) -> FlowNetwork:
    """The capacities of a graph; vertices that no terminal is joined with are left out."""
    order = {name: position for position, name in enumerate(terminals)}
    joined = set().union(*(group for group in nx.weakly_connected_components(graph) if group & set(order)), order)
    vertices = sorted(joined, key=lambda name: (order.get(name, len(order)), name))
    place = {name: position for position, name in enumerate(vertices)}
    capacity = np.zeros((len(vertices), len(vertices)))
    for start, end, data in graph.edges(data=True):
        if start in place:
            capacity[place[start], place[end]] = data["rate"]
    return FlowNetwork(tuple(terminals), capacity)


@lru_cache(maxsize=4096)
def _at_least(graph: nx.DiGraph[str], rate: float) -> nx.DiGraph[str]:
    """The graph without the edges that are narrower than `rate`."""
    wide: nx.DiGraph[str] = nx.DiGraph()
    wide.add_nodes_from(graph)
    wide.add_edges_from((a, b, data) for a, b, data in graph.edges(data=True) if data["rate"] >= rate)
    return wide


@lru_cache(maxsize=4096)
def _islands(graph: nx.DiGraph[str], gpus: tuple[str, ...]) -> tuple[frozenset[str], ...]:
    """The GPUs that a graph joins, a set for each group; the largest first."""
    groups = [frozenset(group & set(gpus)) for group in nx.strongly_connected_components(graph)]
    return tuple(sorted((group for group in groups if group), key=lambda group: (-len(group), min(group))))
