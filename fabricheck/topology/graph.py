"""Paths, loads and cuts of a node's link graph, on networkx.

Between two GPUs, data travel over GPUs and switches. Only GPUs that this fabric does not join (Summit's two halves)
reach each other through their CPUs. NICs carry nothing inside a node.
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
import scipy.optimize
import scipy.sparse

from fabricheck.errors import UserError
from fabricheck.topology.model import Gpu, Topology

Edge = tuple[str, str]

_EXACT_BISECTION_GPUS = 14


@dataclass(frozen=True)
class Path:
    """A path by the names of its devices, and the rate of its narrowest edge in Gb/s."""

    devices: tuple[str, ...]
    rate_gbps: float

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The directed edges from the source to the destination."""
        return tuple(itertools.pairwise(self.devices))


@dataclass(frozen=True)
class LoadedEdge:
    """A directed edge, the number of paths over it, and that number for each of its parallel links."""

    edge: Edge
    paths: float
    paths_per_link: float


class NodeGraph:
    """The link graph of one node; everything is computed once.

    GPUs are named by `Gpu` objects of the topology. Rates are Gb/s in one direction.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        without_nics = set(topology.names) - {nic.name for nic in topology.nics}
        self._fabric = self._build(without_nics - {cpu.name for cpu in topology.cpus})
        self._whole = self._build(without_nics)
        # Kept between calls, by the graph that they belong to.
        self._widest: dict[tuple[int, str], Mapping[str, float]] = {}
        self._wide: dict[tuple[int, float], nx.Graph[str]] = {}
        self._previous: dict[tuple[int, str], Mapping[str, list[str]]] = {}
        self._trees: dict[int, nx.Graph[str]] = {}

    def _build(self, names: set[str]) -> nx.Graph[str]:
        graph: nx.Graph[str] = nx.Graph()
        graph.add_nodes_from(sorted(names))
        for link in self.topology.links:
            if set(link.ends) <= names:
                a, b = link.ends
                rate, count = self._edge_of(graph, a, b)
                graph.add_edge(a, b, rate=rate + link.total_gbps, count=count + link.count)
        return graph

    @staticmethod
    def _edge_of(graph: nx.Graph[str], a: str, b: str) -> tuple[float, int]:
        data = graph.get_edge_data(a, b)
        return (data["rate"], data["count"]) if data else (0.0, 0)

    @cached_property
    def islands(self) -> tuple[frozenset[str], ...]:
        """Names of the GPUs that the GPU fabric joins, a set for each group; the largest first."""
        names = {gpu.name for gpu in self.topology.gpus}
        groups = [frozenset(group & names) for group in nx.connected_components(self._fabric)]
        return tuple(sorted((group for group in groups if group), key=lambda group: (-len(group), min(group))))

    @cached_property
    def graph(self) -> nx.Graph[str]:
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
        """Gb/s of an edge in one direction, all parallel links together."""
        return float(self.graph.edges[edge]["rate"])

    def links(self, edge: Edge) -> int:
        """Number of parallel links of an edge."""
        return int(self.graph.edges[edge]["count"])

    def _between(self, source: str, destination: str) -> nx.Graph[str]:
        """The graph that a pair may use."""
        same = any({source, destination} <= island for island in self.islands)
        return self._fabric if same else self.graph

    # Paths

    def shortest_paths(self, source: Gpu, destination: Gpu) -> tuple[Path, ...]:
        """All paths with the fewest hops, in the order of their devices' names. Raises UserError if there is none."""
        graph = self._between(source.name, destination.name)
        return self._fewest_hops(graph, source.name, destination.name)

    def widest_path(self, source: Gpu, destination: Gpu) -> Path:
        """The single path with the highest bandwidth: the nominal point-to-point goodput (De Sensi §III-D).

        Of several, the one with the fewest hops, then the first by name. Raises UserError if there is none.
        """
        graph = self._between(source.name, destination.name)
        rate = self._widest_rates(graph, source.name).get(destination.name)
        if rate is None:
            raise UserError(f"{self.topology.system}: no path leads from {source.name} to {destination.name}")
        first = self._fewest_hops(self._at_least(graph, rate), source.name, destination.name)[0]
        return Path(first.devices, rate)

    def _at_least(self, graph: nx.Graph[str], rate: float) -> nx.Graph[str]:
        """The graph without the edges that are narrower than `rate`."""
        key = (id(graph), rate)
        if key not in self._wide:
            wide: nx.Graph[str] = nx.Graph()
            wide.add_nodes_from(graph)
            wide.add_edges_from((a, b) for a, b, data in graph.edges(data=True) if data["rate"] >= rate)
            self._wide[key] = wide
        return self._wide[key]

    def _fewest_hops(self, graph: nx.Graph[str], source: str, destination: str) -> tuple[Path, ...]:
        key = (id(graph), source)
        if key not in self._previous:
            found: Any = nx.predecessor(graph, source)
            self._previous[key] = found
        previous = self._previous[key]
        if destination not in previous:
            raise UserError(f"{self.topology.system}: no path leads from {source} to {destination}")
        paths: list[tuple[str, ...]] = [(destination,)]
        while paths[0][0] != source:
            paths = [(before, *path) for path in paths for before in previous[path[0]]]
        return tuple(Path(devices, self._narrowest(devices)) for devices in sorted(paths))

    def _narrowest(self, devices: Sequence[str]) -> float:
        return min(float(self._whole.edges[edge]["rate"]) for edge in itertools.pairwise(devices))

    def _widest_rates(self, graph: nx.Graph[str], source: str) -> Mapping[str, float]:
        """Rate of the widest path to every device: the narrowest edge on the way in the maximum spanning tree."""
        key = (id(graph), source)
        if key not in self._widest:
            tree = self._spanning_tree(graph)
            rates = {source: math.inf}
            for parent, child in nx.bfs_edges(tree, source):
                rates[child] = min(rates[parent], float(tree.edges[parent, child]["rate"]))
            self._widest[key] = rates
        return self._widest[key]

    def _spanning_tree(self, graph: nx.Graph[str]) -> nx.Graph[str]:
        if id(graph) not in self._trees:
            self._trees[id(graph)] = nx.maximum_spanning_tree(graph, weight="rate")
        return self._trees[id(graph)]

    # Loads

    @cached_property
    def edge_loads(self) -> tuple[LoadedEdge, ...]:
        """Load of every directed edge when each GPU sends to each other one over shortest paths; the heaviest first.

        A pair with several shortest paths puts an equal share of itself on each: the only tie-breaking that does not
        depend on how devices are named. The load for each parallel link counts (De Sensi §IV-A).
        """
        loads: dict[Edge, float] = defaultdict(float)
        for source, destination in itertools.permutations(self.topology.gpus, 2):
            paths = self.shortest_paths(source, destination)
            for path in paths:
                for edge in path.edges:
                    loads[edge] += 1 / len(paths)
        found = (LoadedEdge(edge, load, load / int(self._whole.edges[edge]["count"])) for edge, load in loads.items())
        return tuple(sorted(found, key=lambda one: (-one.paths_per_link, one.edge)))

    @property
    def most_loaded(self) -> tuple[LoadedEdge, ...]:
        """The edges with the highest load for each link: where an alltoall is slowest."""
        if not self.edge_loads:
            return ()
        highest = self.edge_loads[0].paths_per_link
        return tuple(one for one in self.edge_loads if math.isclose(one.paths_per_link, highest))

    @property
    def edge_forwarding_index(self) -> float:
        """Highest number of paths over any edge under shortest-path routing (De Sensi §IV-A), 0 for a single GPU.

        The links of an edge share its paths, so four paths over four parallel links count one. At least 1: a path
        cannot be crossed by less than itself.
        """
        return max((max(1.0, one.paths_per_link) for one in self.edge_loads), default=0.0)

    @cached_property
    def pair_share_gbps(self) -> float:
        """Gb/s that every ordered pair of GPUs gets when all send to all at once; infinite for a single GPU.

        The best split of each pair over its paths with at most one other GPU on the way (all shortest paths, where
        there is none such). On every system of the papers this is the rate of a link divided by the edge forwarding
        index (De Sensi §IV-A: 100 Gb/s on LUMI), but unlike that it never falls when a link is added.
        """
        pairs = [self._short_paths(a, b) for a, b in itertools.permutations(self.topology.gpus, 2)]
        if not pairs:
            return math.inf
        if all(len(paths) == 1 for paths in pairs):
            loads = Counter(edge for paths in pairs for edge in paths[0].edges)
            return min(float(self._whole.edges[edge]["rate"]) / load for edge, load in loads.items())
        return self._best_split(pairs)

    def _short_paths(self, source: Gpu, destination: Gpu) -> tuple[Path, ...]:
        graph = self._between(source.name, destination.name)
        gpus = set(self.gpu_names)
        if graph is not self._fabric or len(gpus) > 2 + _EXACT_BISECTION_GPUS:
            return self.shortest_paths(source, destination)
        switches = {one.name for one in self.topology.switches}
        found = {
            devices
            for middle in (None, *sorted(gpus - {source.name, destination.name}))
            for devices in _join(graph, switches, source.name, middle, destination.name)
        }
        if not found:
            return self.shortest_paths(source, destination)
        return tuple(Path(devices, self._narrowest(devices)) for devices in sorted(found))

    def _best_split(self, pairs: Sequence[Sequence[Path]]) -> float:
        """Linear program: maximise the share s so that each pair's paths carry s and no edge more than its rate."""
        edges: dict[Edge, int] = {}
        rows: list[int] = []
        columns: list[int] = []
        pair_rows: list[int] = []
        pair_columns: list[int] = []
        column = 1
        for number, paths in enumerate(pairs):
            for path in paths:
                for edge in path.edges:
                    rows.append(edges.setdefault(edge, len(edges)))
                    columns.append(column)
                pair_rows.append(number)
                pair_columns.append(column)
                column += 1
        loads: Any = scipy.sparse.csr_array(([1.0] * len(rows), (rows, columns)), shape=(len(edges), column))
        carried: Any = scipy.sparse.csr_array(
            (
                [1.0] * len(pair_rows) + [-1.0] * len(pairs),
                (pair_rows + list(range(len(pairs))), pair_columns + [0] * len(pairs)),
            ),
            shape=(len(pairs), column),
        )
        rates = np.array([float(self._whole.edges[edge]["rate"]) for edge in edges])
        scale = float(rates.max())
        objective = np.zeros(column)
        objective[0] = -1.0
        solved: Any = scipy.optimize.linprog(
            objective, A_ub=loads, b_ub=rates / scale, A_eq=carried, b_eq=np.zeros(len(pairs)), method="highs"
        )
        if not solved.success:
            raise RuntimeError(f"the share of a pair could not be computed: {solved.message}")
        return float(-solved.fun) * scale

    # Injection and cuts

    def injection_gbps(self, gpu: Gpu) -> float:
        """Gb/s that a GPU can send to the other GPUs: the sum of its links to GPUs and switches, and to its CPU where
        that is the way to another island (De Sensi §II)."""
        edges: Iterable[Edge] = ((gpu.name, other) for other in self.graph[gpu.name])
        return sum(self.rate(edge) for edge in edges)

    @property
    def least_injection_gbps(self) -> float:
        """Injection of the GPU that has the least, in Gb/s; infinite without GPUs."""
        return min((self.injection_gbps(gpu) for gpu in self.topology.gpus), default=math.inf)

    def ways(self, gpu: Gpu) -> int:
        """Peers to which a GPU can send at the same time over links of its own; any number through a switch."""
        peers = len(self.topology.gpus) - 1
        switches = {one.name for one in self.topology.switches}
        neighbours = set(self.graph[gpu.name])
        if neighbours & switches:
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

    def cut_gbps(self, one: Iterable[str], other: Iterable[str]) -> float:
        """Gb/s from a set of GPUs to a disjoint set: the least cut between them."""
        flow: nx.Graph[str] = nx.Graph()
        flow.add_edges_from((a, b, {"capacity": data["rate"]}) for a, b, data in self.graph.edges(data=True))
        flow.add_edges_from((" source", name) for name in one)  # no capacity: unlimited
        flow.add_edges_from((" sink", name) for name in other)
        return float(nx.maximum_flow_value(flow, " source", " sink"))

    @cached_property
    def bisection_gbps(self) -> float | None:
        """Gb/s across the worst division of the GPUs into halves (one more on one side if their number is odd).

        None where it would take too long: above 14 GPUs that are not all alike on switches. 0 for fewer than two.
        """
        names = self.gpu_names
        half = len(names) // 2
        if half == 0:
            return 0.0
        if self.star:
            by_injection = sorted(self.injection_gbps(gpu) for gpu in self.topology.gpus)
            return sum(by_injection[:half])
        if len(names) > _EXACT_BISECTION_GPUS:
            return None
        halves = (set(one) for one in itertools.combinations(names, half))
        # Of two equal halves each division appears twice: keep the one with the first GPU.
        return min(self.cut_gbps(one, set(names) - one) for one in halves if len(names) % 2 or names[0] in one)

    def flow_gbps(self, source: Gpu, destination: Gpu) -> float:
        """Gb/s from one GPU to another over all paths at once: the least cut between the two."""
        return self.cut_gbps([source.name], [destination.name])


@lru_cache(maxsize=64)
def node_graph(topology: Topology) -> NodeGraph:
    """The graph of a topology, made once for each."""
    return NodeGraph(topology)


def _join(
    graph: nx.Graph[str], switches: set[str], source: str, middle: str | None, destination: str
) -> list[tuple[str, ...]]:
    """Paths from source to destination by way of `middle`, each part direct or through one switch."""
    if middle is None:
        return [(source, *via, destination) for via in _parts(graph, switches, source, destination)]
    return [
        (source, *first, middle, *second, destination)
        for first in _parts(graph, switches, source, middle)
        for second in _parts(graph, switches, middle, destination)
        if not set(first) & set(second)
    ]


def _parts(graph: nx.Graph[str], switches: set[str], a: str, b: str) -> list[tuple[str, ...]]:
    direct: list[tuple[str, ...]] = [()] if graph.has_edge(a, b) else []
    return direct + [(one,) for one in sorted(set(graph[a]) & set(graph[b]) & switches)]
