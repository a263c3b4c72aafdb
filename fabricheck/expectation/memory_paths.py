"""Memories: inside a GPU, between a GPU and the host, and inside the host."""

from __future__ import annotations

from collections import Counter

from fabricheck.expectation import memory
from fabricheck.expectation.gpus import host_share
from fabricheck.expectation.question import (
    CACHE_GAIN,
    FLOOR_FRACTION,
    SHARED_CORE_START_UP_US,
    SHARED_MEMORY_FLOOR,
    SHARED_MEMORY_START_UP_US,
    START_UP_US,
    Limits,
    Question,
)
from fabricheck.records.operations import MEMORY_PATHS, PAIRS
from fabricheck.topology.host import host_paths

# Copies inside a GPU's memory that fit its caches are faster than the memory (50 MB on an H200, 256 MB on an MI300X,
# with source and destination in it).
_BEYOND_GPU_CACHES = 256 << 20


def same_gpu(question: Question) -> Limits:
    rate = memory.local_copy_gbps(question.topology)
    if rate and question.operation == "bidirectional":
        rate /= 2  # both directions pass the same memory (OpenPOWER §5.2)
    return _inside_gpu(question, rate)


def _inside_gpu(question: Question, rate: float | None) -> Limits:
    share = question.bytes // (question.ranks if question.operation in MEMORY_PATHS else 1)
    ceiling = rate if share >= _BEYOND_GPU_CACHES else None
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


def _by_cores(question: Question) -> Limits:
    """By all cores of a NUMA node, of which each copied byte is read and written."""
    topology, nominal = question.topology, None
    why, expected = "all cores copy as much as one of them at least", question.host_copy_gbps
    if topology.host_memory_gbps:
        why = "half of the bandwidth of a NUMA node's memory (McCalpin 1995)"
        nominal = expected = topology.host_memory_gbps / max(1, len(topology.cpus)) / 2
    return Limits(nominal, expected, None, START_UP_US["cores"], why)


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
    start_up = SHARED_CORE_START_UP_US if question.oversubscribed else SHARED_MEMORY_START_UP_US
    copy = memory.host_copy_gbps(question.topology, question.host_copy_gbps)
    if copy is None:
        why = "the host's copy rate is unknown"
        return Limits(None, None, None, start_up, f"{question.topology.system}: {why}")
    share = 1.0 if question.operation in PAIRS else host_share(question.operation, question.ranks)
    expected = copy / share
    others = 1 if question.operation in PAIRS and question.schedule == "uncontended" else question.ranks
    others *= question.groups
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
