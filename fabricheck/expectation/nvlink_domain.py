"""Several nodes whose GPUs one NVLink fabric joins (NVL72): between them too, data go over its switches."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from fabricheck.expectation.question import Question
from fabricheck.topology.model import Gpu, Topology

# By these, data stay on NVLink between nodes; copies and kernels of fabricbench are inside a node.
_ABLE = ("ccl", "mpi")


def in_domains(question: Question) -> Question | None:
    """The same question, with each domain as one large node that has the GPUs and NICs of all; None where NVLink ends
    at the node, and for who cannot use it between nodes.

    """
    topology, nodes = question.topology, question.nodes
    size = min(nodes, topology.nvlink_domain_nodes)
    if size < 2 or not question.gpus or not topology.switches or question.transport not in _ABLE or question.buffers:
        return None
    whole, number = _whole(topology, size), len(topology.gpus)
    place = {gpu.name: at for at, gpu in enumerate(topology.gpus)}
    node_of_rank = [rank * nodes // len(question.gpus) for rank in range(len(question.gpus))]
    used = tuple(
        whole.gpus[node % size * number + place[gpu.name]]
        for node, gpu in zip(node_of_rank, question.gpus, strict=True)
    )
    alone = nodes <= size
    ends = () if alone else question.ends
    return replace(question, topology=whole, gpus=used, nodes=math.ceil(nodes / size), ends=ends)


def unknown_domain(question: Question) -> bool:
    """Whether nobody can say if these nodes are in one domain: the system has several, and so few nodes may be of two.

    Then NICs say what is expected, and NVLink what is plausible.
    """
    topology = question.topology
    return question.nodes <= topology.nvlink_domain_nodes < topology.nodes


@lru_cache(maxsize=64)
def _whole(topology: Topology, nodes: int) -> Topology:
    """`nodes` such nodes with their switches in common; links to CPUs are left out."""
    switches = {switch.name for switch in topology.switches if not switch.host_only}
    links = [link for link in topology.links if switches & {*link.ends}]

    def name(node: int, device: str) -> str:
        return device if device in switches else f"node{node}-{device}"

    return replace(
        topology,
        gpus=tuple(
            Gpu(name(node, gpu.name), node * len(topology.gpus) + at, gpu.model)
            for node in range(nodes)
            for at, gpu in enumerate(topology.gpus)
        ),
        links=tuple(
            replace(link, ends=(name(node, link.ends[0]), name(node, link.ends[1])))
            for node in range(nodes)
            for link in links
        ),
        nics=tuple(replace(nic, name=name(node, nic.name)) for node in range(nodes) for nic in topology.nics),
        switches=tuple(switch for switch in topology.switches if switch.name in switches),
    )
