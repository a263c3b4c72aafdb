"""Patterns that are lists of messages: each step as fast as the busiest link, NIC or core allows."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from fabricheck.topology import memory, transfers
from fabricheck.topology.graph import node_graph
from fabricheck.topology.question import (
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


def listed(question: Question) -> Limits:
    """Each step as fast as the busiest link, NIC or core allows; one step after another."""
    why = "the busiest link, NIC or core of each step, one step after another (CommBench §4.2, §5.2.1)"
    steps = [
        (replace(question, transport=one), step) for one, step in zip(question.transports, question.steps, strict=True)
    ]
    ceilings = [_step_ceiling(*each) for each in steps]
    # Pieces let steps overlap, and the slowest alone counts at best.
    ceiling = min(ceilings) if question.operation == "striping_pipelined" else in_turn(ceilings)
    start_up = sum(_step_start_up_us(*each) for each in steps)
    expected = [_step_gbps(*each) for each in steps]
    # All ranks' copies pass one memory, whose sharing is not known; on the host caches and shared cores play in.
    least = 1 / question.per_node if question.gpus else SHARED_MEMORY_FLOOR / FLOOR_FRACTION / question.per_node
    at_worst = [_step_gbps(*each, least) for each in steps]
    if None in expected or None in at_worst:
        why = f"{question.topology.system}: the rate of a link on the path is unknown"
        return Limits(None, None, ceiling, start_up, why)
    rate = in_turn([one for one in expected if one is not None])
    crowd = in_turn([one for one in at_worst if one is not None]) / rate if math.isfinite(rate) else 1.0
    if question.company:
        crowd *= question.ranks / (question.ranks + question.company)
        why += ", shared with other ranks at worst"
    return Limits(rate, rate, ceiling, start_up, why, crowd)


def _step_start_up_us(question: Question, step: transfers.Step) -> float:
    sent = Counter(each.source for each in step)
    received = Counter(each.destination for each in step)
    messages = max((*sent.values(), *received.values()), default=1)
    if question.gpus:
        return messages * START_UP_US[question.transport]
    return messages * (SHARED_CORE_START_UP_US if question.oversubscribed else SHARED_MEMORY_START_UP_US)


def _step_gbps(question: Question, step: transfers.Step, copy_share: float = 1.0) -> float | None:
    """`copy_share`: of the rate of a copy in host memory that each rank gets."""
    topology, gpus, places = question.topology, question.gpus, question.places
    inside, across = transfers.messages_inside_nodes(step, places), transfers.messages_between_nodes(step, places)
    if across and not topology.nics:
        return None
    network = transfers.network_gbps(topology, gpus, places, across)
    if not gpus:
        copy = memory.host_copy_gbps(topology, question.host_copy_gbps)
        if inside and copy is None:
            return None
        return min(network, copy * copy_share / transfers.busiest(inside)) if inside and copy else network
    if question.transport == "staging":
        return _staged_step_gbps(question, step, network, copy_share)
    local = memory.local_copy_gbps(topology)
    same = [each for each in inside if gpus[each.source] == gpus[each.destination]]
    if same and local is None:
        return None
    own = local / transfers.busiest(same) if same and local else math.inf
    return min(network, own, transfers.fabric_gbps(node_graph(topology), gpus, inside))


def _staged_step_gbps(question: Question, step: transfers.Step, network: float, copy_share: float) -> float | None:
    """Device to host, host to host, host to device: one after another (De Sensi §III-A)."""
    topology = question.topology
    copy = memory.host_copy_gbps(topology, question.host_copy_gbps)
    inside = transfers.messages_inside_nodes(step, question.places)
    if any(memory.host_link_gbps(topology, gpu) is None for gpu in question.gpus) or (inside and copy is None):
        return None
    out = min(memory.host_device_gbps(topology, question.node_gpus, to_device=False).values())
    back = min(memory.host_device_gbps(topology, question.node_gpus, to_device=True).values())
    sent, received = transfers.sent_and_received(step)
    hosts = min(network, copy * copy_share / transfers.busiest(inside) if inside and copy else math.inf)
    return in_turn([out / max(sent.values()), hosts, back / max(received.values())])


def _step_ceiling(question: Question, step: transfers.Step) -> float:
    topology, gpus, places = question.topology, question.gpus, question.places
    inside, across = transfers.messages_inside_nodes(step, places), transfers.messages_between_nodes(step, places)
    network = transfers.node_network_gbps(topology, places, across) if across else math.inf
    if across and not topology.nics:
        return math.inf
    burst = max((one.burst_bytes for one in topology.nics), default=0) * max(2, question.nodes) if across else 0
    if burst:
        network = math.inf if question.bytes <= burst else network * question.bytes / (question.bytes - burst)
    if not gpus:
        copy = memory.host_copy_gbps(topology, question.host_copy_gbps)
        return min(network, copy * CACHE_GAIN / transfers.busiest(inside)) if inside and copy else network
    same = any(gpus[each.source] == gpus[each.destination] for each in inside)
    if same or question.transport == "staging":
        return network
    return min(network, transfers.injection_gbps(node_graph(topology), gpus, inside))
