"""Pairs and collectives over several nodes: the NICs, what joins the nodes, and the nodes themselves.

Where one NVLink fabric joins the GPUs of several nodes (NVL72), data go over its switches between them too.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from fabricheck.records.operations import MEMORY_PATHS, ONE_PATH, PAIRS, ROOTED
from fabricheck.topology import between_nodes, memory, nic
from fabricheck.topology.gpus import collective, staged_shares
from fabricheck.topology.model import Gpu, Topology
from fabricheck.topology.network import node_of
from fabricheck.topology.question import START_UP_US, Limits, Question
from fabricheck.topology.transport_paths import fabrics_of


def across_nodes(question: Question) -> Limits:
    """Limits of an operation whose ranks are on several nodes, in Gb/s; None where no NIC is known."""
    topology, operation = question.topology, question.operation
    start_up = START_UP_US[question.transport] * max(1, question.ranks - 1)
    all_nics = sum(one.rate_gbps for one in topology.nics)
    if not all_nics:
        return Limits(None, None, None, start_up, f"{topology.system}: no NIC is known")
    between = _pair_between if operation in PAIRS else _collective_between
    rate, expected, ceiling, source = between(question, all_nics)
    if question.transport == "staging" and question.gpus:
        links = [
            [memory.host_link_gbps(topology, gpu, to_device=way) for gpu in question.gpus] for way in (False, True)
        ]
        out_links, back_links = ([one for one in way if one] for way in links)
        if len(out_links) < len(question.gpus):
            return Limits(rate, None, ceiling, start_up, f"{source}; the rate between GPUs and CPU is unknown")
        out, back = staged_shares(operation, question.ranks)
        expected = 1 / (out / min(out_links) + 1 / expected + back / min(back_links))
        source += ", between a copy to the host and one from it (De Sensi §III-A)"
    burst = max(one.burst_bytes for one in topology.nics) * max(2, question.nodes)
    if burst:
        # What a shaper's bucket lets pass at once can arrive at any speed.
        ceiling = math.inf if question.bytes <= burst else ceiling * question.bytes / (question.bytes - burst)
    return Limits(rate, expected, ceiling, start_up, source)


def through_nics(question: Question) -> Limits:
    """Limits of what leaves memory of a node by a NIC and comes back by one, in Gb/s; None where nothing does.

    Both ways of the link between GPU and CPU, or PCIe switch, are as fast as the slower of them.
    """
    topology, start_up = question.topology, START_UP_US["fabric"]
    if not any(fabric.loops_back for fabric in fabrics_of(topology)):
        return Limits(None, None, None, start_up, "data that stay on a node pass by its NICs")
    if question.operation not in (*PAIRS, *MEMORY_PATHS):
        return Limits(None, None, None, start_up, "what several messages leave each other of a NIC is unknown")
    nic_gbps = min(one.rate_gbps for one in topology.nics)
    rate, why = _and_gpu_links(question, nic_gbps, f"rate of the NIC ({topology.nics[0].model})")
    return Limits(rate, rate, sum(one.rate_gbps for one in topology.nics), start_up, why)


def _pair_between(question: Question, all_nics: float) -> tuple[float, float, float, str]:
    """Nominal, expected and highest plausible Gb/s, and why."""
    topology = question.topology
    used = [one for one in (nic.nic_of(topology, gpu) for gpu in question.gpus) if one]
    rate = min(one.rate_gbps for one in used or topology.nics)
    if question.nics > 1:
        return _striped_pair(question, rate, all_nics)
    expected = rate
    if question.schedule == "contended":
        sharing = question.beside.nic if question.beside else None
        expected = rate / (sharing or math.ceil(max(1, len(topology.gpus)) / len(topology.nics)))
    # A library may use all NICs of a node for one message (OpenPOWER §5.5).
    way = _way_between(question)
    if way is None:
        return rate, expected, all_nics, f"rate of the NIC ({(used or topology.nics)[0].model})"
    source, destination = question.ends
    why = f"{way.slowest_link or 'the slowest link'} from {source} to {destination}"
    return min(rate, way.nominal), min(expected, way.expected), min(all_nics, way.ceiling), why


def _striped_pair(question: Question, rate: float, all_nics: float) -> tuple[float, float, float, str]:
    """The same of a message in stripes over several NICs of `rate` Gb/s each, of which no other rank uses any.

    From a GPU or to it they all pass its own link.
    """
    nics = f"rate of {question.nics} NICs ({question.topology.nics[0].model})"
    narrow, why = _and_gpu_links(question, question.nics * rate, nics)
    way = _way_between(question)
    if way is None:
        return narrow, narrow, all_nics, why
    nominal = min(narrow, way.ceiling)
    return nominal, min(nominal, question.nics * way.expected), min(all_nics, way.ceiling), why


def _way_between(question: Question) -> between_nodes.PairRates | None:
    """What the network carries between the ends of a pair; None where one of them is unknown."""
    network = question.topology.network
    if network is None or not question.ends:
        return None
    source, destination = question.ends
    return between_nodes.pair_rates(network, source, destination, question.beside.loads if question.beside else None)


def _and_gpu_links(question: Question, nics_gbps: float, why: str) -> tuple[float, str]:
    """The rate of NICs, for which `why` says, or of the links between GPUs and CPUs where these are slower."""
    links = [link for gpu in question.node_gpus if (link := memory.host_link_gbps(question.topology, gpu))]
    rate = min([nics_gbps, *links])
    return rate, "the GPU's link to its CPU" if rate < nics_gbps else why


def _collective_between(question: Question, all_nics: float) -> tuple[float, float, float, str]:
    """Nominal, expected and highest plausible Gb/s, and why."""
    topology, operation = question.topology, question.operation
    active = (question.beside and question.beside.gpus) or question.node_gpus
    node = (nic.gpus_gbps(topology, active) if question.gpus else _host_ranks_gbps(question)) / question.groups
    share = _remote_share(operation, question.nodes, question.per_node)
    source = f"the node's NICs carry {share:.4g} of the buffer (De Sensi §V-C)"
    ceiling = all_nics / share
    if operation == "allreduce":
        ceiling = all_nics  # switches may reduce (SHARP), so that the buffer crosses once
    if topology.network is not None and question.ends:
        nodes = frozenset(map(node_of, question.ends))
        cut = between_nodes.least_cut_gbps(topology.network, nodes)
        # In an alltoall all nodes use the trunks at once; the best rings and trees of the others pass a cut once.
        through = between_nodes.alltoall_gbps(topology.network, nodes) if operation == "alltoall" else cut
        through /= question.groups
        if through < node:
            node, source = through, f"the links between the nodes carry {share:.4g} of the buffer for each of them"
        if operation in ("allreduce", *ROOTED):
            # At least once the buffer passes whatever parts two of the nodes.
            ceiling = min(ceiling, cut)
    rate = expected = node / share
    if question.gpus and question.transport != "staging" and len(question.node_gpus) > 1:
        inside = collective(question)
        if inside.expected is not None:
            expected = min(expected, inside.expected)
    return rate, expected, ceiling, source


def _host_ranks_gbps(question: Question) -> float:
    """All NICs of a node where it has a rank for each; one rank uses one, as a GPU does (CommBench §2.1.2)."""
    nics = question.topology.nics
    return min(one.rate_gbps for one in nics) * min(question.per_node * question.groups, len(nics))


def _remote_share(operation: str, nodes: int, per_node: int) -> float:
    """Bytes that leave a node, for each byte of one rank's buffer.

    alltoall: of each of the node's ranks, the share of ranks elsewhere (De Sensi §V-C). The rest: best known
    algorithms that reduce or gather inside the node first.
    """
    away = (nodes - 1) / nodes
    return {
        "alltoall": per_node * away,
        "allreduce": 2 * away,
        "allgather": away,
        "reduce_scatter": away,
        "broadcast": 1.0,
        "reduce": 1.0,
    }[operation]


def in_domains(question: Question) -> Question | None:
    """The same question, with each domain as one large node that has the GPUs and NICs of all; None where NVLink ends
    at the node, and for who cannot use it between nodes."""
    topology, nodes = question.topology, question.nodes
    size = min(nodes, topology.nvlink_domain_nodes)
    if size < 2 or not question.gpus or not topology.switches or question.transport == "staging" or question.buffers:
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
    beside = question.beside if question.operation in PAIRS else None
    return replace(question, topology=whole, gpus=used, nodes=math.ceil(nodes / size), ends=ends, beside=beside)


def unknown_domain(question: Question) -> bool:
    """Whether it is unknown if these nodes are in one domain: the system has several, and so few nodes may be of two.
    Copies and kernels have no other way than NVLink.

    Then NICs say what is expected, and NVLink what is plausible.
    """
    topology = question.topology
    return question.transport not in ONE_PATH and question.nodes <= topology.nvlink_domain_nodes < topology.nodes


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
