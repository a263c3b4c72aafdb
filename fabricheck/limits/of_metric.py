"""What the judge asks: nominal, expected and highest plausible value of one metric."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from fabricheck.errors import UserError
from fabricheck.limits import memory
from fabricheck.limits.achievable import Achievable, achievable
from fabricheck.limits.across_nodes import across_nodes, in_domains, through_nics, unknown_domain
from fabricheck.limits.gpus import collective, host_and_device, memory_path, pair, same_gpu, shared_memory, staging
from fabricheck.limits.question import (
    CACHE_GAIN,
    FLOOR_FRACTION,
    SHARED_CORE_START_UP_US,
    SHARED_MEMORY_FLOOR,
    SHARED_MEMORY_START_UP_US,
    START_UP_US,
    Limits,
    MeasuredSeries,
    Question,
    in_turn,
)
from fabricheck.records.judgement import Expectation
from fabricheck.records.operations import (
    COLLECTIVES,
    LISTED,
    MEMORY_PATHS,
    PAIRS,
    SPARSE,
    STRIPING,
    TRAINING,
    Transport,
)
from fabricheck.topology import transfers
from fabricheck.topology.graph import node_graph
from fabricheck.topology.model import Topology

TRANSPORTS: tuple[str, ...] = get_args(Transport)

# Rates of data sheets are rounded, and signalling can be a little faster (NVLink's 25 GB/s are 25.8 on the wire).
MARGIN = 1.05


def expectation(topology: Topology, series: MeasuredSeries) -> Expectation:
    """What one metric should be, in its own unit: Gb/s for `goodput`, us for `latency`.

    Of a latency, only `ceiling` is known: the least plausible time. Raises UserError for unknown names or devices.
    """
    question = _question(topology, series)
    by_nvlink = in_domains(question)
    if by_nvlink is not None and not unknown_domain(question):
        question = by_nvlink
    limits = _limits(question)
    if by_nvlink is not None and by_nvlink is not question and limits.ceiling is not None:
        limits = replace(limits, ceiling=max(limits.ceiling, _limits(by_nvlink).ceiling or 0.0))
    data = achievable(question, _finite(limits.expected), series.quantity)
    if series.quantity == "latency":
        return _with_achievable(_latency(question, limits), data, series.quantity, series.bytes)
    floor = series.floor_fraction * limits.floor_share
    if limits.expected:
        ideal_us = 8e-3 * series.bytes / limits.expected
        floor *= ideal_us / (ideal_us + limits.start_up_us)
    ceiling = _finite(limits.ceiling)
    if ceiling is not None:
        ceiling *= MARGIN
    of_limits = Expectation(_finite(limits.nominal), _finite(limits.expected), ceiling, floor, limits.source)
    return _with_achievable(of_limits, data, series.quantity, series.bytes)


def _question(topology: Topology, series: MeasuredSeries) -> Question:
    """Raises UserError for unknown names or devices."""
    for kind, name, known in (
        ("operation", series.operation, (*PAIRS, *COLLECTIVES, *LISTED, *MEMORY_PATHS)),
        ("implementation", series.implementation, ("transfers", "library")),
        ("transport", series.transport, TRANSPORTS),
        ("schedule", series.schedule, ("uncontended", "contended")),
        ("quantity", series.quantity, ("goodput", "latency")),
    ):
        if name not in known:
            raise UserError(f"unknown {kind} {name!r}: {', '.join(known)}")
    operation, nodes, ranks = series.operation, series.nodes, series.ranks
    if nodes < 1 or series.bytes < 1:
        raise UserError(f"a measurement has at least one node and one byte, not {nodes} and {series.bytes}")
    gpus = tuple(topology.gpu(device) for device in series.devices)
    if operation in PAIRS and gpus and len(gpus) != 2:
        raise UserError(f"{operation} is between two devices, not {len(gpus)}")
    if ranks is None:
        alone = 1 if operation in MEMORY_PATHS else max(2, nodes)
        ranks = len(gpus) or (2 if operation in PAIRS else alone)
    blocks = tuple(rank * nodes // ranks for rank in range(ranks))
    given = vars(series) | {
        "gpus": gpus,
        "ranks": ranks,
        "ends": series.ends if topology.network is not None else (),
        "places": series.places if series.places is not None else blocks,
    }
    question = Question(topology=topology, **given)
    if operation not in LISTED:
        return question
    steps = transfers.steps_of(
        operation, ranks=ranks, bytes=series.bytes, groups=series.groups, messages=series.messages
    )
    question = replace(question, steps=steps)
    return replace(question, transports=_transports(question, series.step_transports))


def _with_achievable(limits: Expectation, data: Achievable | None, quantity: str, bytes_: int) -> Expectation:
    if data is None:
        return limits
    value = data.curve.value(quantity, bytes_)
    return replace(limits, achievable=value, achievable_source=data.source, achievable_margin=data.margin)


def _transports(question: Question, step_transports: Sequence[str]) -> tuple[str, ...]:
    if question.operation in STRIPING and step_transports:
        split, translate, assemble = step_transports
        transport = {"striping_split": split, "striping_assemble": assemble}.get(question.operation, translate)
        if question.operation != "striping_pipelined":  # whose steps all go by one
            return (split, translate, assemble) if question.operation == "striping" else (transport,)
    return (question.transport,) * len(question.steps)


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


# The least one-way time in microseconds that anything could take; well below what was ever measured, so that only a
# wrong clock or a transfer that did not happen falls under it.
_SHARED_MEMORY_US = 0.02  # one cache line between two cores takes tens of ns
_DEVICE_US = 0.1  # one crossing of PCIe or NVLink; nvbandwidth reads a peer's memory in 0.8 us on an H200
_LAUNCH_US = 0.5  # a copy or kernel that is launched and waited for
_NETWORK_US = 0.3  # two NICs and a switch; the best of De Sensi §V-B2 is 1.02 us


def _least_plausible_us(transport: str, *, between_nodes: bool, devices: bool) -> float:
    """One-way time in us below which a latency cannot be right."""
    least = _SHARED_MEMORY_US
    if devices:
        least = _DEVICE_US if transport in ("mpi", "fabric") else _LAUNCH_US
    return max(least, _NETWORK_US) if between_nodes else least


def _latency(question: Question, limits: Limits) -> Expectation:
    """Below the start of any transfer, or below the time that the bytes need at the highest rate, nothing is right."""
    least = _least_plausible_us(question.transport, between_nodes=question.nodes > 1, devices=bool(question.gpus))
    if limits.ceiling and math.isfinite(limits.ceiling):
        least = max(least, 8e-3 * question.bytes / (limits.ceiling * MARGIN))
    return Expectation(None, None, least, 0.0, f"least plausible time; {limits.source}")


def _limits(question: Question) -> Limits:
    if question.transport == "fabric" and question.nodes == 1:
        return through_nics(question)
    if question.operation in MEMORY_PATHS:
        return memory_path(question)
    if question.steps:
        return listed(question)
    if question.nodes > 1:
        return across_nodes(question)
    if not question.gpus:
        return shared_memory(question)
    if question.buffers is not None:
        return host_and_device(question)
    if len(set(question.gpus)) == 1:
        return same_gpu(question)
    if question.transport == "staging":
        return staging(question)
    if question.operation in PAIRS:
        return pair(question)
    return collective(question)


def listed(question: Question) -> Limits:
    """Each step as fast as the busiest link, NIC or core allows; one step after another."""
    why = "the busiest link, NIC or core of each step, one step after another (CommBench §4.2, §5.2.1)"
    steps = [
        (replace(question, transport=one), step) for one, step in zip(question.transports, question.steps, strict=True)
    ]
    ceilings = [_step_ceiling(*each) for each in steps]
    # Pieces let steps overlap, and the slowest alone counts at best.
    ceiling = min(ceilings) if question.operation == "striping_pipelined" else in_turn(ceilings)
    if question.operation in SPARSE:  # whose ranks go on to the next step while others are busy in this one
        ceiling = _step_ceiling(question, tuple(message for step in question.steps for message in step))
    if question.operation in TRAINING:  # switches that reduce and multicast take half of it from the ranks at best
        ceiling *= 2
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
