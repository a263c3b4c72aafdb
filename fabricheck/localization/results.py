"""The readings of rounds of pairs in a result file of fabricbench."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from fabricheck.errors import UserError
from fabricheck.records.run import Run
from fabricheck.topology.network import Network

#: Both directions are loaded all the time, so that what pairs on one link get does not hang on which of them goes when.
OPERATION = "bidirectional"
#: All that can be looked at, the best first.
OPERATIONS = (OPERATION, "unidirectional", "pingpong")


def places_of(run: Run, network: Network) -> tuple[str, ...]:
    """The node or port of each rank, in rank order.

    One rank on a node: the port over which the kernel's counters say that its data went, or the node where they do not
    say. As many as it has ports: those, in the order of the network's file, by node-local rank. Raises UserError for a
    host that the network lacks, or any other number of ranks.
    """
    if not run.ranks:
        raise UserError(f"{run.path}: no valid header says where the ranks were")
    counts = Counter(each.host for each in run.ranks)
    found = []
    for each in run.ranks:
        ports = network.ports_of(each.host)
        if counts[each.host] == 1:
            found.append(_port_used(run, each.host, ports) or each.host)
        elif counts[each.host] == len(ports) and each.local_rank < len(ports):
            found.append(ports[each.local_rank])
        else:
            raise UserError(
                f"{run.path}: {counts[each.host]} ranks on {each.host}, whose ports are {len(ports)}: run one rank on "
                "each node, or one for each port"
            )
    return tuple(found)


# The rest is what schedulers and file systems send.
_MOST = 0.9


def _port_used(run: Run, host: str, ports: Sequence[str]) -> str | None:
    sent = (run.footer or {}).get("proof", {}).get("interfaces", {}).get(host, {})
    bytes_of = {port: sent.get(port.partition(":")[2], 0) for port in ports}
    port = max(ports, key=lambda each: bytes_of[each])
    return port if bytes_of[port] > _MOST * sum(sent.values()) else None


def pairs_of(
    run: Run, network: Network, bytes_: int | None = None, operation: str = OPERATION
) -> list[list[tuple[tuple[str, str], float]]]:
    """The rounds of a run: pairs of places, each with the median of its goodput in Gb/s.

    Only `operation` counts, at `bytes_` or else at the largest size. Pairs of one round went at the same time.
    Raises UserError where a run has none, and for ranks of one node.
    """
    places = places_of(run, network)
    samples = [each for each in run.samples if each.operation == operation and len(set(each.ranks)) == 2]
    size = bytes_ if bytes_ is not None else max((each.bytes for each in samples), default=0)
    rounds: dict[tuple[str, int], list[tuple[tuple[str, str], float]]] = defaultdict(list)
    for number, each in enumerate(samples):
        if each.bytes == size and max(each.ranks) < len(places):
            alone = -1 - number if each.round < 0 else each.round
            pair = (places[each.ranks[0]], places[each.ranks[1]])
            rounds[each.schedule, alone].append((pair, float(np.median(each.goodput_gbps))))
    if not rounds:
        what = f" of {bytes_} B" if bytes_ is not None else ""
        raise UserError(f"{run.path}: holds no {operation} pairs{what}: run fabricbench --operations {operation}")
    return list(rounds.values())
