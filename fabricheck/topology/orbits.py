"""What the graph of a node makes equal: devices, and tuples of devices, that an automorphism maps onto each other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import networkx as nx

from fabricheck.topology.graph import node_graph
from fabricheck.topology.model import Gpu, Topology
from fabricheck.topology.nic import nic_of

# Automorphisms of larger nodes are not looked for: nothing is equal there.
_MOST_DEVICES = 64


def orbit(topology: Topology, gpus: tuple[Gpu, ...], *, hosts: bool = False, nics: bool = False) -> int:
    """A number that two tuples of GPUs share if and only if a symmetry of the node maps one onto the other, in order.

    Symmetries keep the kinds of devices and the technology, number and rate of links. Counted are the links over which
    GPUs reach each other; `hosts`: also those to CPUs; `nics`: also which NIC each GPU uses. Without symmetries that
    could be found, every tuple has a number of its own.
    """
    if len(topology.names) > _MOST_DEVICES:
        return hash(tuple(gpu.name for gpu in gpus))
    numbers, known = _known(topology, hosts, nics)
    if gpus not in numbers:
        marked = _marked(_graph(topology, hosts, nics), gpus)
        digest = _digest(marked)
        same = (
            number
            for number, (other_digest, other) in enumerate(known)
            if digest == other_digest and nx.is_isomorphic(marked, other, node_match=_same, edge_match=_same)
        )
        numbers[gpus] = next(same, len(known))
        if numbers[gpus] == len(known):
            known.append((digest, marked))
    return numbers[gpus]


@lru_cache(maxsize=64)
def _known(
    topology: Topology, hosts: bool, nics: bool
) -> tuple[dict[tuple[Gpu, ...], int], list[tuple[str, nx.DiGraph[str]]]]:
    """The numbers of the tuples that were seen, and of each orbit one tuple as a marked graph: kept and forgotten
    together, since a number means nothing without the others."""
    return {}, []


def _same(node: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(node["kind"] == other["kind"])


@lru_cache(maxsize=64)
def _graph(topology: Topology, hosts: bool, nics: bool) -> nx.DiGraph[str]:
    used = set(node_graph(topology).graph)
    if hosts:
        used |= {cpu.name for cpu in topology.cpus} | {one.name for one in topology.host_switches}
    graph: nx.DiGraph[str] = nx.DiGraph()
    for devices, kind in ((topology.gpus, "gpu"), (topology.cpus, "cpu"), (topology.switches, "switch")):
        graph.add_nodes_from((one.name, {"kind": kind}) for one in devices if one.name in used)
    for link in topology.links:
        for start, end in (link.ends, link.ends[::-1]):
            if start in graph and end in graph:
                kind = f"{link.count} {link.technology} {link.towards(end):g};"
                before = graph.edges[start, end]["kind"] if graph.has_edge(start, end) else ""
                graph.add_edge(start, end, kind=f"{before}{kind}")
    if nics:
        for nic in topology.nics:
            graph.add_node(nic.name, kind=f"nic {nic.model} {nic.rate_gbps:g}")
        for gpu in topology.gpus:
            own = nic_of(topology, gpu)
            if own is not None:
                graph.add_edge(gpu.name, own.name, kind="uses")
    return graph


def _digest(graph: nx.DiGraph[str]) -> str:
    """What equal graphs share, and most others do not: the kinds of all devices with those of their links."""
    kinds = {name: str(data["kind"]) for name, data in graph.nodes(data=True)}
    around = ((kinds[one], sorted((data["kind"], kinds[two]) for two, data in graph[one].items())) for one in graph)
    return repr(sorted(around))


def _marked(graph: nx.DiGraph[str], gpus: Sequence[Gpu]) -> nx.DiGraph[str]:
    """The graph, with each GPU of the tuple told apart by its places in it."""
    marked = graph.copy()
    for place, gpu in enumerate(gpus):
        marked.nodes[gpu.name]["kind"] += f" {place}"
    return marked
