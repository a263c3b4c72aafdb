"""The readings of rounds of pairs in a result file of fabricbench."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from fabricheck.errors import UserError
from fabricheck.records.run import Run
from fabricheck.topology.model import Topology
from fabricheck.topology.network import node_of
from fabricheck.topology.placement import ends_of_ranks, port_used

#: Both directions are loaded all the time, so that what pairs on one link get does not hang on which of them goes when.
OPERATION = "bidirectional"
#: All that can be looked at, the best first.
OPERATIONS = (OPERATION, "unidirectional", "pingpong")
#: Of two files in one folder: a screen, and what was suspected in it, measured again.
SCREEN, RETEST = "screen.jsonl", "retest.jsonl"
#: Pairs of places that went at the same time, with the goodput of each in Gb/s.
Rounds = Sequence[Sequence[tuple[tuple[str, str], float]]]


def places_of(run: Run, topology: Topology) -> tuple[str, ...]:
    """The node or port of each rank in the network, in rank order.

    Of a rank that drives a GPU, the port of that GPU's NIC. Of others, where a node has one: the port over which the
    kernel's counters say that its data went; where it has as many as ports: those, in the order of the network's file,
    by node-local rank. The node where none of these says the port. Raises UserError for a host that is not a node of
    the network, and where there is none.
    """
    network = topology.network
    if network is None:
        raise UserError(f"the topology of {topology.system} has no network: describe how its nodes are connected")
    if not run.ranks:
        raise UserError(f"{run.path}: has no valid header, so the nodes of its ranks are unknown")
    counts = Counter(each.host for each in run.ranks)
    ends = ends_of_ranks(run, topology) or {each.rank: network.node_of_host(each.host) for each in run.ranks}
    places = []
    for rank in run.ranks:
        end = ends[rank.rank]
        ports = network.ports_of(node_of(end))
        if end in ports or rank.device is not None:
            places.append(end)
        elif counts[rank.host] == 1:
            places.append(port_used(run, rank.host, ports) or end)
        else:
            has_ports = counts[rank.host] == len(ports) and rank.local_rank < len(ports)
            places.append(ports[rank.local_rank] if has_ports else end)
    return tuple(places)


def operation_of(run: Run) -> str:
    """The best of the operations of pairs that a run has; empty where it has none."""
    return next((each for each in OPERATIONS if any(samples.operation == each for samples in run.samples)), "")


def pairs_again(run: Run | None, topology: Topology, operation: str) -> Rounds:
    """The rounds of a run over suspects; none where it is not there, did not get to its end, or cannot be read."""
    if run is None or run.footer is None or run.problems:
        return ()
    try:
        return pairs_of(run, topology, operation=operation)
    except UserError:
        return ()


def pairs_of(run: Run, topology: Topology, *, operation: str) -> list[list[tuple[tuple[str, str], float]]]:
    """The rounds of a run: pairs of places, each with the median of its goodput in Gb/s.

    Only `operation` counts, at the largest size, and of it only pairs of two nodes. Pairs of one round went at the same
    time. Raises UserError where a run has none.
    """
    places = places_of(run, topology)
    samples = [each for each in run.samples if each.operation == operation and len(set(each.ranks)) == 2]
    size = max((each.bytes for each in samples), default=0)
    rounds: dict[tuple[str, int], list[tuple[tuple[str, str], float]]] = defaultdict(list)
    for number, measured in enumerate(samples):
        if measured.bytes == size and max(measured.ranks) < len(places):
            alone = -1 - number if measured.round < 0 else measured.round
            pair = (places[measured.ranks[0]], places[measured.ranks[1]])
            if node_of(pair[0]) == node_of(pair[1]):
                continue  # nothing of it went over the network
            rounds[measured.schedule, alone].append((pair, float(np.median(measured.goodput_gbps))))
    if not rounds:
        text = f"has no {operation} pairs of two nodes: run fabricbench --operations {operation}"
        raise UserError(f"{run.path}: {text}")
    return list(rounds.values())
