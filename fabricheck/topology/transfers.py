"""Patterns that are lists of messages, and how fast the busiest part of a machine lets them go.

A step is a tuple of messages that go at the same time; the steps of a pattern follow one another. Positions are places
among the ranks of a measurement; shares are parts of its `bytes` (docs/formats.md).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

from fabricheck.errors import UserError
from fabricheck.records.operations import GROUP_PATTERNS, SPARSE, STRIPING, TRAINING, VICTIMS
from fabricheck.records.run import Groups
from fabricheck.topology.graph import NodeGraph
from fabricheck.topology.model import Gpu, Nic, Topology
from fabricheck.topology.nic import assigned_nic, nic_of

# Operations whose expected goodput follows from their messages. A victim's ping-pong is a pair like any other.


@dataclass(frozen=True)
class Message:
    """`share` of the bytes of a measurement, from one position to another."""

    source: int
    destination: int
    share: float


Step = tuple[Message, ...]


def steps_of(
    operation: str, *, ranks: int, bytes: int, groups: Groups | None, messages: Sequence[tuple[int, ...]] = ()
) -> tuple[Step, ...]:
    """The steps of one of `LISTED`, as fabricbench takes them; `messages` are those of a sparse operation.

    A pipelined striping is given as the three steps that it overlaps, and a training step as what rings send. Raises
    UserError where what they depend on is not given.
    """
    if operation in GROUP_PATTERNS and groups is not None:
        return (_between_groups(operation, groups),)
    if operation in STRIPING and groups is not None:
        return _striping(operation, groups)
    if operation in TRAINING and groups is not None:
        return (_training(groups),)
    if operation in SPARSE and messages:
        steps: dict[tuple[int, ...], list[Message]] = defaultdict(list)
        for source, destination, size, *step in messages:
            steps[tuple(step)].append(Message(source, destination, size / bytes))
        return tuple(map(tuple, steps.values()))
    if operation in VICTIMS and ranks > 1:
        if VICTIMS[operation] == "pingpong":
            return ((Message(0, 1, 1.0),),)
        return (tuple(Message(a, b, 1 / ranks) for a in range(ranks) for b in range(ranks) if a != b),)
    raise UserError(f"{operation}: its ranks are unknown")


def _between_groups(operation: str, groups: Groups) -> Step:
    """Rank i of group m is m g + i (CommBench §4.3, figures 6 and 7). Raises UserError where no group sends."""
    family, direction = GROUP_PATTERNS[operation]
    everyone, active = range(groups.size), range(groups.active)
    pairs: list[tuple[int, int]] = []
    for source, destination in permutations(range(groups.count), 2):
        if (direction == "unidirectional" and source) or (direction == "bidirectional" and source and destination):
            continue
        # In the asymmetric pattern the active ranks of the first group exchange with all of the other.
        senders = everyone if family == "asymmetric" and source else active
        receivers = everyone if family == "asymmetric" and not source else active
        for i, j in product(senders, receivers):
            if family != "rail" or i == j:
                pairs.append((source * groups.size + i, destination * groups.size + j))
    sent = sum(source < groups.size for source, _ in pairs)
    if not sent:
        raise UserError(f"{operation}: groups {groups} send nothing")
    return tuple(Message(source, destination, 1 / sent) for source, destination in pairs)


def _striping(operation: str, groups: Groups) -> tuple[Step, ...]:
    """CommBench, section 4.2, figure 4."""
    size, share = groups.size, 1 / groups.active
    others = range(1, groups.active)
    split = tuple(Message(0, i, share) for i in others)
    translate = tuple(Message(i, size + i, share) for i in range(groups.active))
    assemble = tuple(Message(size + i, size, share) for i in others)
    return {
        "striping_direct": ((Message(0, size, 1.0),),),
        "striping_split": (split,),
        "striping_translate": (translate,),
        "striping_assemble": (assemble,),
    }.get(operation, (split, translate, assemble))


#: Shares of the bytes of a training step: the buffer of the allreduce, and that of the reduce-scatter or allgather, as
#: a layer of GPT-3 175B needs them (`training_parts` in src/fabricbench/patterns.hpp).
TENSOR_SHARE, LAYER_SHARE = 4 / 22, 9 / 22


def _training(groups: Groups) -> Step:
    """All at once: rings inside groups, of which an allreduce sends the buffer twice but for a rank's own part, and
    rings of the ranks of one place in all groups, on which a reduce-scatter and an allgather each send it once."""
    count, size = groups.count, groups.size
    inside, across = 2 * (size - 1) / size * TENSOR_SHARE, 2 * (count - 1) / count * LAYER_SHARE
    ring = []
    for group, place in ((i, j) for i in range(count) for j in range(size)):
        rank = group * size + place
        ring.append(Message(rank, group * size + (place + 1) % size, inside))
        ring.append(Message(rank, (group + 1) % count * size + place, across))
    return tuple(ring)


def _let_through(step: Iterable[Message], passed: Callable[[Message], Iterable[tuple[Hashable, float]]]) -> float:
    """Gb/s at which all bytes are through when each part of the machine carries its share of them; infinite without
    load. `passed`: the parts that a message passes, with the rate of each in Gb/s."""
    loads: dict[Hashable, float] = defaultdict(float)
    rates: dict[Hashable, float] = {}
    for message in step:
        for part, rate in passed(message):
            loads[part] += message.share
            rates[part] = rate
    return min((rates[part] / load for part, load in loads.items() if load > 0), default=math.inf)


def messages_inside_nodes(step: Iterable[Message], places: Sequence[int]) -> Step:
    """The messages that stay on a node. `places`: the node of each position."""
    return tuple(each for each in step if places[each.source] == places[each.destination])


def messages_between_nodes(step: Iterable[Message], places: Sequence[int]) -> Step:
    """The messages that go from node to node."""
    return tuple(each for each in step if places[each.source] != places[each.destination])


def sent_and_received(step: Iterable[Message]) -> tuple[dict[int, float], dict[int, float]]:
    """Shares that each position sends, and receives."""
    sent: dict[int, float] = defaultdict(float)
    received: dict[int, float] = defaultdict(float)
    for transfer in step:
        sent[transfer.source] += transfer.share
        received[transfer.destination] += transfer.share
    return sent, received


def fabric_gbps(graph: NodeGraph, gpus: Sequence[Gpu], step: Iterable[Message]) -> float:
    """What the links of a node let through, each message on its widest path (De Sensi §III-D)."""

    def links(message: Message) -> Iterator[tuple[Hashable, float]]:
        source, destination = gpus[message.source], gpus[message.destination]
        for edge in graph.widest_path(source, destination).edges if source != destination else ():
            yield edge, graph.path_rate(edge)

    return _let_through(step, links)


def injection_gbps(graph: NodeGraph, gpus: Sequence[Gpu], step: Iterable[Message]) -> float:
    """What no routing can exceed: all that a GPU sends, or receives, passes its own links."""

    def ends(message: Message) -> Iterator[tuple[Hashable, float]]:
        source, destination = gpus[message.source], gpus[message.destination]
        if source != destination:
            yield ("out", source.name), graph.injection_gbps(source)
            yield ("in", destination.name), graph.reception_gbps(destination)

    return _let_through(step, ends)


def network_gbps(topology: Topology, gpus: Sequence[Gpu], places: Sequence[int], step: Iterable[Message]) -> float:
    """What the NICs of all nodes let through, each rank on its own (CommBench §5.2.1).

    Ranks without GPUs are dealt out to the NICs as the node's scheme deals out GPUs. Where the association is dynamic
    or unknown, what a node sends is spread over all its NICs, and a rank without a GPU uses one of them.
    """
    of_node = sum(one.rate_gbps for one in topology.nics)

    def nics(message: Message) -> Iterator[tuple[Hashable, float]]:
        for way, position in (("out", message.source), ("in", message.destination)):
            nic = _nic(topology, gpus, places, position)
            yield (way, places[position], nic.name if nic else ""), nic.rate_gbps if nic else of_node
            if nic is None and not gpus:
                yield (way, position), min(one.rate_gbps for one in topology.nics)

    return _let_through(step, nics)


def _nic(topology: Topology, gpus: Sequence[Gpu], places: Sequence[int], position: int) -> Nic | None:
    if gpus:
        return nic_of(topology, gpus[position])
    neighbours = [other for other, place in enumerate(places) if place == places[position]]
    return assigned_nic(topology, neighbours.index(position), len(neighbours))


def node_network_gbps(topology: Topology, places: Sequence[int], step: Iterable[Message]) -> float:
    """What no association of ranks to NICs can exceed: all NICs of a node together."""
    total = sum(one.rate_gbps for one in topology.nics)
    return _let_through(
        step, lambda each: ((("out", places[each.source]), total), (("in", places[each.destination]), total))
    )


def busiest(step: Iterable[Message]) -> float:
    """The largest share that one position sends or receives."""
    sent, received = sent_and_received(step)
    return max((*sent.values(), *received.values()), default=0.0)
