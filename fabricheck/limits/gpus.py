"""GPUs and memories of one node: pairs, collectives, both through host memory, and copies between memories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from fabricheck.limits import algorithms, memory, optimum
from fabricheck.limits.question import (
    CACHE_GAIN,
    FLOOR_FRACTION,
    SHARED_CORE_START_UP_US,
    SHARED_MEMORY_FLOOR,
    SHARED_MEMORY_START_UP_US,
    START_UP_US,
    Limits,
    Question,
    in_turn,
)
from fabricheck.records.operations import MEMORY_PATHS, ONE_PATH, PAIRS, ROOTED
from fabricheck.topology.graph import node_graph
from fabricheck.topology.hardware import least_payload
from fabricheck.topology.host import host_paths
from fabricheck.topology.model import Gpu, Switch, Topology


def pair(question: Question) -> Limits:
    """Limits of a pair of GPUs of one node, in Gb/s, by the widest path between them."""
    graph = node_graph(question.topology)
    source, destination = question.gpus
    path = graph.widest_path(source, destination)
    expected = ceiling = path.rate_gbps
    why = f"widest path {'-'.join(path.devices)} (De Sensi §III-D)"
    if question.operation == "pingpong":
        # Half of the time there, half of it back.
        expected = in_turn([2 * expected, 2 * graph.widest_path(destination, source).rate_gbps])
        ceiling = max(ceiling, expected)
    elif question.operation == "bidirectional":
        expected = min(expected, graph.widest_path(destination, source).rate_gbps)
    if question.transport not in ONE_PATH:
        ways = ((source, destination), (destination, source))
        ceiling = max(ceiling, *(graph.flow_gbps(*way) for way in ways))
    if question.beside is not None and question.beside.edges:
        shared = min(graph.path_rate(edge) / count for edge, count in question.beside.edges.items())
        if shared < expected:
            expected, why = shared, f"{why}, shared with other pairs of the round"
    elif question.schedule == "contended" and not (graph.fully_connected or graph.star):
        # A round has at most one pair for two GPUs; how many of them share a link is not known here.
        expected /= max(1, len(question.topology.gpus) // 2)
        why += ", shared by all pairs of a round at worst"
    return Limits(max(path.rate_gbps, expected), expected, ceiling, START_UP_US[question.transport], why)


def collective(question: Question) -> Limits:
    """Limits of a collective over GPUs of one node, in Gb/s of its buffer (algbw)."""
    n, operation = len(question.node_gpus), question.operation
    best = optimum.collective(question.topology, operation, question.node_gpus)
    # The messages of a list are what copies send, without a library's rings and trees.
    mover = "copy" if question.implementation == "transfers" else question.transport
    own_algorithm = algorithm_of(question.topology, operation, mover, question.node_gpus)
    if reduced := in_switch(question, own_algorithm):
        own_algorithm = reduced
    graph = node_graph(node_part(question.topology, frozenset(question.gpus)))
    # A GPU sends, or receives, all of a rooted collective's buffer; of the others' the own share does not travel.
    injection = graph.least_injection_gbps * (1 if operation in ROOTED or operation == "allreduce" else n / (n - 1))
    # No library is known to keep more peers busy than a GPU has links for.
    floor_share = algorithms.usable_share(graph) if operation == "alltoall" else 1.0
    start_up = START_UP_US[question.transport] * max(1, n - 1)
    expected, why, whole = own_algorithm.gbps, own_algorithm.name, node_graph(question.topology)
    if question.at_once > 1 and not (whole.fully_connected or whole.star):
        expected, why = expected / question.at_once, f"{why}, shared by all groups at worst"
    return Limits(max(injection, best), expected, best, start_up, why, floor_share)


def in_switch(question: Question, other: algorithms.Algorithm) -> algorithms.Algorithm | None:
    """What NCCL does where the switch reduces and data are faster that way than by the `other`; None where it does not.

    NCCL does so by itself unless a variable keeps it from that: four B200 take a ring, eight the switch
    (stas00/ml-engineering@744d01e network/README.md).
    """
    library = question.transport == "ccl" and question.implementation == "library"
    if question.operation != "allreduce" or not library or question.without_switch:
        return None
    reduced = algorithms.allreduce_in_switch(node_graph(node_part(question.topology, frozenset(question.node_gpus))))
    if reduced is None:
        return None
    links = between_gpus(question.topology)
    by_switch, by_ring = least_payload(links, "ccl in switch"), least_payload(links, "ccl")
    gain = by_switch.share / by_ring.share if by_switch and by_ring else 1.0
    return reduced if gain * reduced.gbps > other.gbps else None


def between_gpus(topology: Topology) -> list[str]:
    """The technologies of the links between GPUs and their switches."""
    graph = node_graph(topology).graph
    return [link.technology for link in topology.links if graph.has_edge(*link.ends)]


@lru_cache(maxsize=1024)
def algorithm_of(topology: Topology, operation: str, transport: str, gpus: tuple[Gpu, ...]) -> algorithms.Algorithm:
    """What a transport is expected to do, and what that gives, in Gb/s; the root of a rooted operation first."""
    graph = node_graph(node_part(topology, frozenset(gpus)))
    if transport in ONE_PATH and operation != "alltoall":
        return algorithms.by_copies(graph, operation, gpus[0])
    return algorithms.by_library(graph, operation)


def staging(question: Question) -> Limits:
    """Three steps, not pipelined: device to host, host to host, host to device.

    De Sensi §III-A estimates the first two of them. With all GPUs at once the CPUs' links are shared, and so is the
    host's memory by their copies; the root of a rooted collective copies alone.
    """
    topology, pairs = question.topology, question.operation in PAIRS
    copy = memory.host_copy_gbps(topology, question.host_copy_gbps)
    start_up = START_UP_US["staging"] * max(1, question.ranks - 1)
    if any(memory.host_link_gbps(topology, gpu) is None for gpu in question.gpus):
        return Limits(None, None, None, start_up, f"{topology.system}: the rate between GPUs and CPU is unknown")
    senders, receivers = _ends(question)
    out, back = staged_shares(question.operation, question.ranks)
    alone = [_slowest(topology, [gpu], to_device=False) for gpu in senders]
    alone_back = [_slowest(topology, [gpu], to_device=True) for gpu in receivers]
    ceiling = 1 / (out / max(alone) + back / max(alone_back))
    nominal = min(*alone, *alone_back)
    why = "device to host, host to host, host to device, one after another (De Sensi §III-A)"
    if copy is None:
        return Limits(nominal, None, ceiling, start_up, f"{why}; the host's copy rate is unknown")
    moved = out if pairs else host_share(question.operation, question.ranks)
    if pairs and question.schedule == "uncontended":
        expected = 1 / (out / min(alone) + moved / copy + back / min(alone_back))
        return Limits(nominal, expected, ceiling, start_up, why)
    together = senders if not pairs else question.node_gpus
    links = out / _slowest(topology, together, to_device=False), back / _slowest(topology, receivers, to_device=True)
    expected = 1 / (links[0] + moved / _host_copy(question, copy) + links[1])
    # At worst the ranks' copies and reductions follow one another.
    crowd = 1 / (links[0] + moved / copy + links[1]) / question.per_node / question.at_once / expected
    return Limits(nominal, expected, ceiling, start_up, why, min(1.0, crowd))


def _ends(question: Question) -> tuple[tuple[Gpu, ...], tuple[Gpu, ...]]:
    """The GPUs that copy to the host and from it."""
    gpus = question.node_gpus
    if question.operation in PAIRS and question.schedule == "uncontended":
        return gpus[:1], gpus[-1:]
    if question.operation == "broadcast":
        return gpus[:1], gpus[1:] or gpus
    if question.operation == "reduce":
        return gpus[1:] or gpus, gpus[:1]
    return gpus, gpus


def _host_copy(question: Question, copy: float) -> float:
    """Gb/s of a rank's copies between host buffers while all ranks copy: the memory's bandwidth is shared."""
    nominal = question.topology.host_memory_gbps
    if nominal is None or question.operation in (*ROOTED, *PAIRS):
        return copy
    return min(copy, nominal / 2 / question.per_node)


def _slowest(topology: Topology, gpus: Sequence[Gpu], *, to_device: bool) -> float:
    return min(memory.host_device_gbps(topology, gpus, to_device=to_device).values())


def staged_shares(operation: str, n: int) -> tuple[float, float]:
    """Shares of `bytes` that a rank copies from its device and back to it."""
    if operation == "allgather":
        return 1 / n, 1.0
    if operation == "reduce_scatter":
        return 1.0, 1 / n
    return 1.0, 1.0


def host_share(operation: str, n: int) -> float:
    """Share of `bytes` that a rank copies between host buffers in a collective."""
    if operation == "allreduce":
        return 2 * (n - 1) / n
    return 1.0 if operation in ROOTED else (n - 1) / n


@lru_cache(maxsize=64)
def node_part(topology: Topology, gpus: frozenset[Gpu]) -> Topology:
    """The node as these GPUs alone use it. The others forward where no way leads round them, and are left out else."""
    if len(gpus) == len(topology.gpus):
        return topology
    gone = [gpu for gpu in topology.gpus if gpu not in gpus]
    names = {gpu.name for gpu in gone}
    alone = replace(
        topology,
        gpus=tuple(gpu for gpu in topology.gpus if gpu in gpus),
        links=tuple(link for link in topology.links if not names & set(link.ends)),
    )
    if node_graph(alone).joined_widely(alone.gpus) or not node_graph(topology).joined_widely(alone.gpus):
        return alone
    return replace(
        topology, gpus=alone.gpus, switches=(*topology.switches, *(Switch(gpu.name, gpu.model) for gpu in gone))
    )


# Copies inside a GPU's memory that fit its caches are faster than the memory (50 MB on an H200, 256 MB on an MI300X,
# with source and destination in it).
BEYOND_GPU_CACHES = 256 << 20


def same_gpu(question: Question) -> Limits:
    """What copies within the memory of one GPU may reach: Gb/s for goodput, µs for start-up."""
    rate = memory.local_copy_gbps(question.topology)
    if rate and question.operation == "bidirectional":
        rate /= 2  # both directions pass the same memory (OpenPOWER §5.2)
    return _inside_gpu(question, rate)


def _inside_gpu(question: Question, rate: float | None) -> Limits:
    share = question.bytes // (question.ranks if question.operation in MEMORY_PATHS else 1)
    ceiling = rate if share >= BEYOND_GPU_CACHES else None
    return Limits(rate, rate, ceiling, START_UP_US[question.transport], "half of the GPU memory's bandwidth")


def memory_path(question: Question) -> Limits:
    """All ranks move the same share of `bytes`, so the slowest of them tells how fast all are together."""
    topology, start_up = question.topology, START_UP_US[question.transport]
    if question.transport == "cores":
        return _by_cores(question)
    on_gpu = Counter(question.gpus)
    if question.operation == "local_copy":
        rate = memory.local_copy_gbps(topology)
        together = rate * question.ranks / max(on_gpu.values(), default=1) if rate else None
        return _inside_gpu(question, together)
    to_device = {"host_to_device": True, "device_to_host": False}.get(question.operation)
    if not on_gpu or not all(host_paths(topology, gpu) for gpu in on_gpu):
        return Limits(None, None, None, start_up, f"{topology.system}: the rate between GPUs and CPU is unknown")
    nominal, expected = (
        question.ranks * min(rates[gpu.name] / number for gpu, number in on_gpu.items())
        for rates in (
            memory.host_device_gbps(topology, question.node_gpus, to_device=to_device, at_cpus=at_cpus)
            for at_cpus in (False, True)
        )
    )
    why = "links between GPUs and CPUs, shared where all of them go at once (Schieffer §IV)"
    if topology.host_memory_gbps:
        ways = 1 if question.operation in {"host_to_device", "device_to_host"} else 2
        expected = min(expected, question.nodes * topology.host_memory_gbps / ways)
    if question.host_memory == "pageable" and question.transport != "kernel" and question.host_copy_gbps:
        expected = min(expected, question.ranks * question.host_copy_gbps)
        why += ", through a page-locked buffer at the rate of the processor's own copy"
    return Limits(nominal, expected, nominal, start_up, why)


# How often the memory is read or written for each byte (McCalpin 1995, without the reads of what is overwritten); of
# copies twice.
_MEMORY_ACCESSES = {"host_read": 1, "host_triad": 3}
# 5.3 TB/s, the most that any processor's memory carries (AMD's data sheet of the MI300A, 2023).
_FASTEST_HOST_MEMORY_GBPS = 42_400.0


def _by_cores(question: Question) -> Limits:
    """By all cores of a NUMA node."""
    topology, nominal, expected, ceiling = question.topology, None, question.host_copy_gbps, None
    accesses = _MEMORY_ACCESSES.get(question.operation, 2)
    why = "all cores copy as much as one of them at least"
    if topology.host_memory_gbps:
        why = f"bandwidth of a NUMA node's memory, which each byte takes {accesses}x (McCalpin 1995)"
        nominal = expected = topology.host_memory_gbps / max(1, len(topology.cpus)) / accesses
    elif expected:
        expected *= min(1.0, 2 / accesses)
        # Many cores are more than tenfold one.
        ceiling = _FASTEST_HOST_MEMORY_GBPS / accesses
    return Limits(nominal, expected, ceiling, START_UP_US["cores"], why)


def host_and_device(question: Question) -> Limits:
    """Between two ranks by MPI, with buffers on different sides (OpenPOWER §5.3)."""
    if question.buffers == "host-host":
        return shared_memory(question)
    gpu = question.gpus[1 if question.buffers == "host-device" else 0]
    link = memory.host_link_gbps(question.topology, gpu)
    ways = [memory.host_link_gbps(question.topology, gpu, to_device=way) for way in (True, False)]
    ceiling = max((each for each in ways if each), default=None)
    why = f"link between {gpu.name} and its CPU (OpenPOWER §5.3)"
    return Limits(link, link, ceiling, START_UP_US[question.transport], why)


def shared_memory(question: Question) -> Limits:
    """What ranks of the host backend on one node may reach: Gb/s by the host's copy rate, µs for start-up."""
    start_up = SHARED_CORE_START_UP_US if question.oversubscribed else SHARED_MEMORY_START_UP_US
    copy = memory.host_copy_gbps(question.topology, question.host_copy_gbps)
    if copy is None:
        why = "the host's copy rate is unknown"
        return Limits(None, None, None, start_up, f"{question.topology.system}: {why}")
    share = 1.0 if question.operation in PAIRS else host_share(question.operation, question.ranks)
    expected = copy / share
    others = 1 if question.operation in PAIRS and question.schedule == "uncontended" else question.ranks
    others *= question.at_once
    why = "one copy of each message at the rate that this run measured"
    if not question.host_copy_gbps:
        why = "one copy of each message at half of the memory's bandwidth"
    return Limits(
        expected,
        expected,
        expected * CACHE_GAIN,
        start_up,
        why,
        SHARED_MEMORY_FLOOR / FLOOR_FRACTION / others,
    )
