"""GPUs of one node: pairs, collectives, and both through host memory."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from fabricheck.expectation import goodput, memory
from fabricheck.expectation.question import START_UP_US, Limits, Question
from fabricheck.records.operations import PAIRS, ROOTED
from fabricheck.topology.graph import node_graph
from fabricheck.topology.model import Gpu, Switch, Topology


def pair(question: Question) -> Limits:
    graph = node_graph(question.topology)
    source, destination = question.gpus
    path = graph.widest_path(source, destination)
    expected = path.rate_gbps
    why = f"widest path {'-'.join(path.devices)} (De Sensi §III-D)"
    if question.schedule == "contended" and not (graph.fully_connected or graph.star):
        # A round has at most one pair for two GPUs; how many of them share a link is not known here.
        expected /= max(1, len(question.topology.gpus) // 2)
        why += ", shared by all pairs of a round at worst"
    return Limits(path.rate_gbps, expected, path.rate_gbps, START_UP_US[question.transport], why)


def collective(question: Question) -> Limits:
    graph = node_graph(_part(question.topology, frozenset(question.gpus)))
    n, root = len(question.node_gpus), question.gpus[0]
    injection = graph.least_injection_gbps
    by_copy = question.transport in {"copy", "kernel"}
    ceiling = injection
    own = n / (n - 1)  # of an alltoall's buffer, the own share does not travel
    if question.operation == "alltoall":
        expected, ceiling = goodput.alltoall(graph) * own, injection * own
        source = "edge forwarding index (De Sensi §IV-A), own share included"
    elif question.operation in ("allgather", "reduce_scatter"):
        expected, ceiling = goodput.allgather(graph), injection * own
        source = "injection or edge-disjoint rings, (n-1)/n of the buffer"
        if by_copy:
            expected, source = goodput.copy_allgather(graph), "all pairs at once"
    elif question.operation == "allreduce":
        bound = goodput.allreduce_bound(graph)
        expected = min(goodput.allreduce(graph), bound)
        source = "trees or edge-disjoint rings (De Sensi §IV-C), at most 2(n-1)/n of the buffer sent"
        if by_copy:
            expected = goodput.copy_allreduce(graph, root)
            source = "reduce on one GPU, then broadcast (De Sensi §IV-D)"
        # Only a switch that reduces (NVLink SHARP) lets the buffer cross a GPU's links once.
        if not any(switch.in_network_reduction for switch in question.topology.switches):
            ceiling = bound
    else:
        ceiling = graph.injection_gbps(root)
        expected, source = goodput.broadcast(graph, root), "least cut between the root and another GPU"
        if by_copy:
            expected, source = goodput.copy_broadcast(graph, root), "the root's links shared by all peers"
    start_up = START_UP_US[question.transport] * max(1, n - 1)
    return Limits(ceiling, expected, max(ceiling, expected), start_up, source)


def staging(question: Question) -> Limits:
    """Three steps, not pipelined (De Sensi §III-A). With all GPUs at once the CPUs' links are shared."""
    topology = question.topology
    copy = memory.host_copy_gbps(topology, question.host_copy_gbps)
    start_up = START_UP_US["staging"] * max(1, question.ranks - 1)
    if any(memory.host_link_gbps(topology, gpu) is None for gpu in question.gpus):
        return Limits(None, None, None, start_up, f"{topology.system}: the rate between GPUs and CPU is unknown")
    alone = min(memory.host_device_gbps(topology, [gpu])[gpu.name] for gpu in question.node_gpus)
    shared = min(memory.host_device_gbps(topology, question.node_gpus).values())
    out, back = staged_shares(question.operation, question.ranks)
    ceiling = 1 / (out / alone + back / alone)
    why = "device to host, host to host, host to device, one after another (De Sensi §III-A)"
    if copy is None:
        return Limits(alone, None, ceiling, start_up, f"{why}; the host's copy rate is unknown")
    moved = out if question.operation in PAIRS else host_share(question.operation, question.ranks)
    link = alone if question.operation in PAIRS and question.schedule == "uncontended" else shared
    expected = 1 / (out / link + moved / copy + back / link)
    # All ranks' copies and reductions pass one memory, whose sharing is not known.
    crowd = 1.0 if question.operation in PAIRS and question.schedule == "uncontended" else 1 / question.per_node
    return Limits(alone, expected, ceiling, start_up, why, crowd)


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
def _part(topology: Topology, gpus: frozenset[Gpu]) -> Topology:
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
    if len(node_graph(alone).islands) <= len(node_graph(topology).islands):
        return alone
    return replace(
        topology, gpus=alone.gpus, switches=(*topology.switches, *(Switch(gpu.name, gpu.model) for gpu in gone))
    )
