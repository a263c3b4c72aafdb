"""What of an expected goodput can be data, at every size: links carry headers too, and transfers need time to start.

Time over size is latency + sqrt(latency x bytes / rate) + bytes / rate. The middle term is of collectives, whose steps
are pipelined: k segments take (1 + k / steps) (latency + steps x bytes / (k x rate)), at best with a k that costs two
such terms; libraries overlap more than that, and tables show about one (tools/fit_curves.py). A segment fits into a
library's buffers, so that the term ends to grow where links are full.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fabricheck.limits.gpus import BEYOND_GPU_CACHES, algorithm_of, between_gpus, collective, in_switch
from fabricheck.limits.question import START_UP_US, Question
from fabricheck.records.operations import COLLECTIVES, PAIRS, ROOTED
from fabricheck.topology.graph import node_graph
from fabricheck.topology.hardware import MOVERS, Payload, least_payload
from fabricheck.topology.host import host_links
from fabricheck.topology.model import Gpu, Topology
from fabricheck.topology.network import node_of
from fabricheck.topology.nic import gpus_gbps, link_layer, nic_of
from fabricheck.topology.transport_paths import by_rdma

# Whose packets a transport's data travel in; copy engines move what MPI sends between the GPUs of a node.
_MOVERS = {"copy": "copy", "kernel": "kernel", "ccl": "ccl", "mpi": "copy", "fabric": "nic"}
# What 16 B take between two H200, rounded up, in us (docs/results/h200-2026-11-22); NCCL takes as long over eight H100
# (13 us to 17 us: NVIDIA/dgxc-benchmarking@841f546 nccl/README).
_LATENCY_US = {"copy": 10.0, "kernel": 12.0, "ccl": 15.0, "mpi": 20.0, "fabric": 20.0}
# What one more hop between nodes takes to start by NCCL: above 40 us (CommBench §5.2.4); 69 us and 164 us over two
# nodes by EFA (awslabs/awsome-distributed-ai@0b55ba5 micro-benchmarks/nccl-tests/README.md); 41 us and 219 us by RoCE
# (hisohara/ai-scripts@0780bb3 training/01_rccl-smoketest). The steps of a pipeline wait for the wire alone.
_HOP_US = {"EFA": 150.0, "Ethernet": 200.0}
_STEP_US = 40.0
# Reductions on one GPU wait for its kernel, and how MPI does its large collectives nobody knows.
_COLLECTIVES = {"ccl": COLLECTIVES, "copy": ("alltoall", "allgather", "broadcast")}
_LEAST_START_UPS = 1000
# How long TCP takes to start belongs to the system (NCCL: 36 us to 72 us, docs/results/two-gpu-nodes); from so many
# generous start-ups on, it is 5% of a transfer at most.
_LEAST_START_UPS_OF_SOCKETS = 20
#: The smallest collectives of which it is known how much of the links they fill (config/hardware.yaml).
FULL_BYTES = 512 << 20
# Over this many nodes people measured 85% and more of what is said here (reference_values/parts); noise of others took
# half of an allreduce over 1,024 GPUs (De Sensi §VI), and OCI had 49% in an alltoall over two racks (D8).
_MOST_NODES, _MARGIN_OF_MORE = 8, 0.55
# Rings over two to eight nodes had 86% to 106% of what is said here, alltoalls over two 94% to 100%
# (benchmarks/published_values.csv: 59, 65a, 68, 69a, 71a, 77b, G1, S5 to S12, B2, B3, C5), where the fabric has no
# margin of its own (config/hardware.yaml).
_MARGIN = 0.15
# Over more, pairs of several nodes meet at a NIC: about 75% (De Sensi §V-C).
_MARGIN_OF_ALLTOALL = 0.25
# How much of it the switches of an NVLink domain give is known of eight GPUs; 64 and 72 had 80% and 87% (73, D3).
_GPUS_OF_A_SWITCH, _MARGIN_OF_DOMAIN = 8, 0.25


@dataclass(frozen=True)
class TimeOverSize:
    """Time over size: `latency_us`, `gbps` of large messages, and how much of the `pipeline` term there is."""

    latency_us: float
    gbps: float
    pipeline: float = 0.0

    def time_us(self, bytes_: float) -> float:
        """The time of a transfer of so many bytes."""
        us_per_byte = 8e-3 / self.gbps
        filling_us = math.sqrt(self.latency_us * us_per_byte * min(bytes_, FULL_BYTES))
        return self.latency_us + self.pipeline * filling_us + us_per_byte * bytes_

    def value(self, quantity: str, bytes_: int) -> float:
        """Goodput in Gb/s, or latency in us."""
        time = self.time_us(bytes_)
        return time if quantity == "latency" else 8e-3 * bytes_ / time


@dataclass(frozen=True)
class Achievable:
    """A curve, whose packets or measurements say so, and the margin of healthy links where these know it."""

    curve: TimeOverSize
    source: str
    margin: float | None = None


def achievable(question: Question, expected: float | None, quantity: str) -> Achievable | None:
    """What is left of `expected`, Gb/s, for data; None where it is unknown how much the links on the way carry.

    It is unknown where the processor's cores or memory are on the way, and where messages share links by chance. How
    long a transfer takes to start is known of RDMA, not of sockets.
    """
    if not expected or question.at_once > 1:
        return None
    is_collective = question.operation in COLLECTIVES
    if is_collective and question.transport == "mpi":
        whole = _small_by_mpi(question, expected) if quantity == "latency" else None
    elif is_collective and question.nodes > 1:
        whole = _collective_between_nodes(question, expected)
    else:
        whole = _of_expected(question, expected)
    if whole is None or _start_is_unknown(question, whole.curve.gbps, quantity):
        return None
    latency_us, pipeline = _LATENCY_US[question.transport], 0.0
    if is_collective:
        latency_us, pipeline = _of_steps(question, latency_us)
    return replace(whole, curve=replace(whole.curve, latency_us=latency_us, pipeline=pipeline))


def _start_is_unknown(question: Question, gbps: float, quantity: str) -> bool:
    nodes = max(2, question.nodes)
    inside = question.nodes == 1 and question.transport != "fabric"
    if inside or by_rdma(question.topology, question.transport, nodes):
        return False
    start_us = START_UP_US[question.transport] * max(1, _hops(question))
    return quantity == "latency" or 8e-3 * question.bytes / gbps < _LEAST_START_UPS_OF_SOCKETS * start_us


def _hops(question: Question) -> int:
    """Nodes one after another: on a ring all, in a tree their logarithm."""
    rings = question.operation in ("allgather", "reduce_scatter")
    return question.nodes - 1 if rings else math.ceil(math.log2(question.nodes))


def _of_steps(question: Question, step_us: float) -> tuple[float, float]:
    """The latency of a collective, in us, and its share of the pipeline's term.

    By NCCL a node's GPUs take one step, nodes one hop after another. Two ranks have no step to overlap with another.
    MPI doubles the ranks that have the data with each step, but in an alltoall.
    """
    if question.transport == "mpi" and question.operation != "alltoall":
        return step_us * math.ceil(math.log2(question.ranks)), 0.0
    if question.transport != "ccl":
        return step_us * max(1, question.ranks - 1), 0.0
    layers = {link_layer(nic.model) for nic in question.topology.nics}
    hop_us = max((_HOP_US.get(layer or "", _STEP_US) for layer in layers), default=_STEP_US)
    hops = _hops(question)
    latency_us = step_us + hops * hop_us
    return latency_us, math.sqrt((step_us + hops * _STEP_US) / latency_us) if question.ranks > 2 else 0.0


def _of_expected(question: Question, expected: float) -> Achievable | None:
    data = _payload(question)
    if data is None:
        return None
    # NCCL keeps the links as busy as it can with more than two GPUs of a node.
    fills = question.operation not in COLLECTIVES or (question.bytes >= FULL_BYTES and len(question.node_gpus) > 2)
    why = f"{data.share:.1%} of {expected:.4g} Gb/s is payload by {data.mover} over {data.technology}: {data.source}"
    return Achievable(TimeOverSize(0.0, expected * data.share), why, data.margin if fills else None)


def _collective_between_nodes(question: Question, expected: float) -> Achievable | None:
    """By NCCL, at what its algorithm gets of the NICs, the trunks and the links inside a node.

    On a ring of n ranks (n - 1) / n of the buffer cross a node's NICs, twice in an allreduce, and all of it from or to
    a root. Trees over two nodes have it cross once, which some take and others do not, and the ring is expected. An
    alltoall goes by pairs: from each rank of a node all that is for ranks elsewhere.
    """
    topology, n = question.topology, question.ranks
    if question.transport != "ccl" or not question.gpus:
        return None
    models, gpu = [one.model for one in topology.nics], question.gpus[0].model
    own = (least_payload(models, mover) for mover in MOVERS if gpu.startswith(mover.partition(" nic of ")[2] or "-"))
    data = next(filter(None, own), None) or least_payload(models, "nic")
    if data is None:
        return None
    crossings = 1.0 if question.operation in ROOTED else (n - 1) / n
    if question.operation == "alltoall":
        crossings = question.per_node * (question.nodes - 1) / question.nodes
    if question.operation == "allreduce":
        crossings *= 2
    rate = data.share * min(gpus_gbps(topology, question.node_gpus) / crossings, expected)
    # Two ranks that add up send and receive as a pair does.
    known = question.operation == "allreduce" and (n == 2 or data.mover != "nic")
    if len(question.node_gpus) > 1:
        inside, in_node = _inside(question), collective(question).expected
        if inside is None or in_node is None:
            return None
        if in_node * inside.share < rate:
            rate, data = in_node * inside.share, inside
    fills = question.bytes >= FULL_BYTES and question.operation not in ROOTED
    margin = data.margin if known else (data.margin or _MARGIN) if fills else None
    if question.operation == "alltoall" and question.nodes > 2:
        margin = margin and _MARGIN_OF_ALLTOALL
    if question.nodes > _MOST_NODES:
        margin = _MARGIN_OF_MORE
    why = f"{data.share:.1%} is payload by {data.mover} over {data.technology}: {data.source}"
    return Achievable(TimeOverSize(0.0, rate), why, margin)


def _small_by_mpi(question: Question, expected: float) -> Achievable | None:
    """Whatever MPI does with larger messages, small ones take a latency each; unknown of ranks that share a GPU."""
    alone = question.buffers is None and len(question.node_gpus) == question.per_node
    why = "9 us to 25 us over two and four H200 by two libraries: docs/results/h200x4-2026-11-21"
    return Achievable(TimeOverSize(0.0, expected), why) if alone else None


def between_hosts(topology: Topology, expected: float | None, bytes_: int) -> float | None:
    """What MPI between two hosts on one switch gets of `expected`, Gb/s, on links so slow that processors keep up.

    That is where the start of a message is not a thousandth of its time. None elsewhere.
    """
    data = least_payload([nic.model for nic in topology.nics], "nic")
    if data is None or not expected:
        return None
    slow_enough = 8e-3 * bytes_ / (expected * data.share) >= _LEAST_START_UPS * _LATENCY_US["mpi"]
    return expected * data.share if slow_enough else None


def _payload(question: Question) -> Payload | None:
    operation, mover = question.operation, _MOVERS.get(question.transport)
    if mover is None or not question.gpus or question.buffers is not None:
        return None
    if question.nodes == 1 and mover == "nic":
        return least_payload([one.model for one in question.topology.nics], mover)
    if question.nodes > 1:
        return _between_nodes(question) if operation in PAIRS else None
    distinct = len(question.node_gpus)
    if operation == "local_copy":
        alone = question.ranks == 1 and mover in ("copy", "kernel")
        return least_payload(["GPU memory"], mover) if alone and question.bytes >= BEYOND_GPU_CACHES else None
    if operation in ("host_to_device", "device_to_host"):
        alone = question.ranks == 1 and question.host_memory == "pinned"
        links = host_links(question.topology, question.gpus)
        return least_payload([link.technology for link in links], mover) if alone and mover == "copy" else None
    if operation in PAIRS and distinct == 2:
        on_the_way = [*_on_the_way(question, *question.gpus)]
        together = least_payload(on_the_way, f"{mover} both ways") if operation == "bidirectional" else None
        return together or least_payload(on_the_way, "ccl pair" if mover == "ccl" else mover)
    if operation in _COLLECTIVES.get(question.transport, ()) and distinct == len(question.gpus) > 1:
        return _inside(question)
    return None


def _inside(question: Question) -> Payload | None:
    """Of a collective between the GPUs of a node."""
    mover = _MOVERS[question.transport]
    own_algorithm = algorithm_of(question.topology, question.operation, mover, question.node_gpus)
    if mover == "ccl" and question.operation == "alltoall":
        mover = "ccl pair"  # which it is made of
    elif in_switch(question, own_algorithm) is not None:
        mover = "ccl in switch"
    data = least_payload(between_gpus(question.topology), mover)
    if data is not None and mover == "ccl in switch" and len(question.node_gpus) > _GPUS_OF_A_SWITCH:
        return replace(data, margin=_MARGIN_OF_DOMAIN)
    return data


def _on_the_way(question: Question, source: Gpu, destination: Gpu) -> Iterable[str]:
    graph = node_graph(question.topology)
    return [link.technology for edge in graph.widest_path(source, destination).edges for link in graph.links_of(edge)]


def _between_nodes(question: Question) -> Payload | None:
    topology = question.topology
    if topology.network is None or not question.ends or question.schedule != "uncontended":
        return None
    if topology.network.distance(*map(node_of, question.ends)) != "same-switch":
        return None
    nics = [nic_of(topology, gpu) for gpu in question.gpus]
    return least_payload([nic.model for nic in nics if nic is not None], "nic")
