"""Pairs and collectives over several nodes: the NICs, what joins the nodes, and the nodes themselves.

Where one NVLink fabric joins the GPUs of several nodes (NVL72), data go over its switches between them too.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from fabricheck.limits import memory
from fabricheck.limits.gpus import collective, staged_shares
from fabricheck.limits.question import START_UP_US, Limits, Question
from fabricheck.records.operations import MEMORY_PATHS, ONE_PATH, PAIRS, ROOTED
from fabricheck.topology import between_nodes, host, nic
from fabricheck.topology.model import Gpu, Nic, Topology
from fabricheck.topology.network import node_of
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
    if question.transport == "staging" and question.gpus and expected:
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
    used = _nics_told(question) or topology.nics
    rate = question.stripes * min(one.rate_gbps for one in used)
    expected, why = _and_gpu_links(question, rate, f"rate of the NIC ({used[0].model})")
    nominal = rate if expected is None else expected
    return Limits(nominal, expected, sum(one.rate_gbps for one in topology.nics), start_up, why)


def _pair_between(question: Question, all_nics: float) -> tuple[float, float | None, float, str]:
    """Nominal, expected and highest plausible Gb/s, and why. Expected is None where a link on the path is unknown."""
    topology = question.topology
    own = [nic.nics_of(topology, gpu) for gpu in question.gpus]
    told = _nics_told(question)
    used = told or tuple(used_nic for nics in own for used_nic in nics) or topology.nics
    rate = min(used_nic.rate_gbps for used_nic in used)
    if question.transport == "ccl" and not told:
        # *CCL spreads the channels of a pair over all NICs next to the GPU (ncclTopoGetLocalNet, NCCL's src/graph).
        rate *= max(1, min(map(len, own), default=1))
    if question.transport == "fabric":
        return _pair_by_nics(question, rate, all_nics)
    expected = rate
    if question.schedule == "contended":
        expected = rate / _sharing(question)
    # A library may use all NICs of a node for one message (OpenPOWER §5.5).
    way = _way_between(question)
    if way is None:
        return rate, expected, all_nics, f"rate of the NIC ({used[0].model})"
    return min(rate, way.nominal), min(expected, way.expected), min(all_nics, way.ceiling), _why(question, way)


def _sharing(question: Question) -> int:
    """How many ranks of a node use a NIC at the same time, where all that can do so."""
    if question.beside and question.beside.nic:
        return question.beside.nic
    return math.ceil(max(1, len(question.topology.gpus)) / len(question.topology.nics))


def _pair_by_nics(question: Question, rate: float, all_nics: float) -> tuple[float, float | None, float, str]:
    """The same of a message in equal stripes over NICs of `rate` Gb/s each, chosen for each rank.

    In rounds of all ranks several may share a NIC; a message in stripes has all NICs of its node for itself.
    """
    stripes, model = question.stripes, question.topology.nics[0].model
    of_nics = f"rate of the NIC ({model})" if stripes == 1 else f"rate of {stripes} NICs ({model})"
    narrow, why = _and_gpu_links(question, stripes * rate, of_nics)
    nominal = stripes * rate if narrow is None else narrow
    shared = rate / _sharing(question) if question.schedule == "contended" and stripes == 1 else stripes * rate
    expected = None if narrow is None else min(narrow, shared)
    way = _way_between(question)
    if way is None:
        return nominal, expected, all_nics, why
    most = way.nominal if stripes == 1 else way.ceiling
    if expected is not None:
        why = why if min(most, stripes * way.expected) > expected else _why(question, way)
        expected = min(expected, most, stripes * way.expected)
    return min(nominal, most), expected, min(all_nics, way.ceiling), why


def _why(question: Question, way: between_nodes.PairRates) -> str:
    source, destination = question.ends
    return f"{way.slowest_link or 'the slowest link'} from {source} to {destination}"


def _way_between(question: Question) -> between_nodes.PairRates | None:
    """What the network carries between the ends of a pair; None where one of them is unknown."""
    network = question.topology.network
    if network is None or not question.ends:
        return None
    source, destination = question.ends
    return between_nodes.pair_rates(network, source, destination, question.beside.loads if question.beside else None)


def _nics_told(question: Question) -> list[Nic]:
    """The NICs that libfabric uses, where the topology knows all of them."""
    known = {one.name: one for one in question.topology.nics}
    names = [name for names in question.nics for name in names]
    return [known[name] for name in names] if known.keys() >= set(names) else []


def _and_gpu_links(question: Question, nics_gbps: float, why: str) -> tuple[float | None, str]:
    """The rate of NICs, for which `why` says, or of what leads from GPUs to them where that is slower.

    That is the GPU's link to its CPU, and the way on to the NIC where the topology has links of it. None where these
    lead to other CPUs only.
    """
    topology, rate = question.topology, nics_gbps
    if question.buffers == "host-host":
        return rate, why
    told = question.nics if _nics_told(question) else ((),) * len(question.gpus)
    for gpu, nics in zip(question.gpus, told, strict=False):
        try:
            path = host.nic_path(topology, gpu, nics) if nics else None
        except host.NoPathError:
            return None, f"topology.yaml has no link between the CPUs of {gpu.name} and {' and '.join(nics)}"
        if path is not None and path.gbps < rate:
            ends = " to ".join(path.limited_by)
            rate, why = path.gbps, f"the link from {ends}, on the path of {gpu.name} and {' and '.join(nics)}"
        link = memory.host_link_gbps(topology, gpu) if path is None else None
        if link is not None and link < rate:
            rate, why = link, "the GPU's link to its CPU"
    return rate, why


def _collective_between(question: Question, all_nics: float) -> tuple[float, float, float, str]:
    """Nominal, expected and highest plausible Gb/s, and why."""
    topology, operation = question.topology, question.operation
    active = (question.beside and question.beside.gpus) or question.node_gpus
    node = (nic.gpus_gbps(topology, active) if question.gpus else _host_ranks_gbps(question)) / question.at_once
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
        through /= question.at_once
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
    return min(one.rate_gbps for one in nics) * min(question.per_node * question.at_once, len(nics))


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
    by_network = question.transport in ("staging", "fabric") or question.buffers
    if size < 2 or not question.gpus or not topology.switches or by_network:
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
