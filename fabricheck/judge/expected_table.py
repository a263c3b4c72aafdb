"""The table of what a node should give: nominal, expected and reference of every pair and collective."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fabricheck.errors import UserError
from fabricheck.expectation.memory import host_device_gbps, host_link_gbps
from fabricheck.expectation.of_metric import expectation
from fabricheck.judge.references import References
from fabricheck.records.metrics import parse_metric_name
from fabricheck.records.operations import COLLECTIVES, PAIRS
from fabricheck.topology.graph import node_graph
from fabricheck.topology.model import Topology
from fabricheck.topology.nic import alltoall_asymptotic_gbps, node_gbps

# Large enough that start-up times do not count.
_BYTES = 1 << 30


@dataclass(frozen=True)
class Row:
    """What one pair, group or part of a node should give, in Gb/s. `devices` are names, in order.

    `reference` and `reference_bytes`: the value measured when all was well, and at which size; None if uncalibrated.
    """

    operation: str
    transport: str
    devices: tuple[str, ...]
    nominal: float | None
    expected: float | None
    ceiling: float | None
    reference: float | None
    reference_bytes: int | None
    source: str


def rows(topology: Topology, references: References | None = None) -> Iterator[Row]:
    """Every ordered pair by each way, every collective by each way, and the node's own numbers, for large transfers."""
    kept = _goodputs(references) if references is not None else {}
    gpus = sorted(topology.gpus, key=lambda gpu: gpu.index)
    ways = ["direct"]
    if any(host_link_gbps(topology, gpu) for gpu in gpus):
        ways.append("staging")
    for way, (source, destination) in itertools.product(ways, itertools.permutations(gpus, 2)):
        yield _row(topology, "pingpong", way, (source.index, destination.index), kept)
    everyone = tuple(gpu.index for gpu in gpus)
    for operation in COLLECTIVES if len(gpus) > 1 else ():
        for way in ("direct", "copy", *ways[1:]):
            if way != "copy" or operation != "alltoall":  # which is the same list of transfers
                yield _row(topology, operation, way, everyone, kept)
    yield from _summary(topology)


def _row(
    topology: Topology,
    operation: str,
    way: str,
    devices: Sequence[int],
    kept: dict[tuple[str, tuple[int, ...]], tuple[float, int]],
) -> Row:
    found = expectation(
        topology,
        operation=operation,
        implementation="transfers" if operation in PAIRS else "library",
        transport="ccl" if way == "direct" else way,
        schedule="uncontended",
        devices=devices,
        nodes=1,
        bytes=_BYTES,
        quantity="goodput",
        host_copy_gbps=None,
    )
    value, size = kept.get((operation, tuple(devices)), (None, None)) if way == "direct" else (None, None)
    names = tuple(topology.gpu(index).name for index in devices)
    return Row(operation, way, names, found.nominal, found.expected, found.ceiling, value, size, found.source)


def _summary(topology: Topology) -> Iterator[Row]:
    graph = node_graph(topology)
    for gpu in topology.gpus:
        value = graph.injection_gbps(gpu)
        yield Row("injection", "-", (gpu.name,), value, None, None, None, None, "sum of a GPU's links")
    if topology.gpus:
        names = graph.gpu_names
        yield Row("bisection", "-", names, graph.bisection_gbps, None, None, None, None, "least cut into halves")
    linked = [gpu for gpu in topology.gpus if host_link_gbps(topology, gpu)]
    shared = host_device_gbps(topology, linked)
    for gpu in linked:
        alone = host_link_gbps(topology, gpu)
        why = "alone; expected: all GPUs at once (Schieffer §IV-C)"
        yield Row("host_device", "-", (gpu.name,), alone, shared[gpu.name], None, None, None, why)
    if topology.nics:
        names = tuple(nic.name for nic in topology.nics)
        total = sum(nic.rate_gbps for nic in topology.nics)
        why = f"all NICs; expected: all GPUs active, {topology.nic_scheme or 'no association given'} (CommBench §5.2.1)"
        yield Row("node_to_node", "-", names, total, node_gbps(topology), None, None, None, why)
        if topology.gpus:
            asymptotic = alltoall_asymptotic_gbps(topology)
            why = "of one GPU, for very many nodes (De Sensi §V-C)"
            yield Row("alltoall_asymptotic", "-", names, asymptotic, asymptotic, None, None, None, why)


def _goodputs(references: References) -> dict[tuple[str, tuple[int, ...]], tuple[float, int]]:
    """The uncontended goodputs in Gb/s by operation and ranks, each at its largest size."""
    found: dict[tuple[str, tuple[int, ...]], tuple[float, int]] = {}
    for test in references.tests.values():
        for entry in test.entries:
            for name, reference in entry.metrics.items():
                try:
                    metric = parse_metric_name(name)
                except UserError:
                    continue  # `fabricheck validate` reports it
                if metric.operation not in {*PAIRS, *COLLECTIVES}:
                    continue
                if (metric.quantity, metric.schedule, reference.unit) != ("goodput", "uncontended", "Gb/s"):
                    continue
                key = (metric.operation, metric.ranks or tuple(range(metric.world)))
                if key not in found or found[key][1] < metric.bytes:
                    found[key] = (reference.value, metric.bytes)
    return found
