"""The table of what a node should give: nominal, expected and reference of every pair and collective."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fabricheck.errors import UserError
from fabricheck.limits import optimum
from fabricheck.limits.memory import host_device_gbps, host_link_gbps
from fabricheck.limits.of_metric import expectation
from fabricheck.limits.question import MeasuredSeries
from fabricheck.records.metrics import parse_metric_name
from fabricheck.records.operations import COLLECTIVES, PAIRS
from fabricheck.statistics.constants import LARGE
from fabricheck.topology.graph import node_graph
from fabricheck.topology.hardware import least_payload
from fabricheck.topology.model import Gpu, Topology
from fabricheck.topology.nic import alltoall_asymptotic_gbps, node_gbps
from fabricheck.yardsticks.references import References


@dataclass(frozen=True)
class ExpectedRow:
    """What one pair, group or part of a node should give, in Gb/s. `devices` are names, in order.

    `optimum`: what any algorithm could get; `expected`: what the algorithm that `source` names gets; `achievable`: what
    the judge holds a large transfer to where nothing was measured, which `payload` explains. `reference` and
    `reference_bytes`: the value measured when all was well, and at which size; None if uncalibrated.
    """

    operation: str
    transport: str
    devices: tuple[str, ...]
    nominal: float | None
    source: str
    optimum: float | None = None
    expected: float | None = None
    achievable: float | None = None
    ceiling: float | None = None
    reference: float | None = None
    reference_bytes: int | None = None
    payload: str = ""


def expected_rows(topology: Topology, references: References | None = None) -> Iterator[ExpectedRow]:
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
) -> ExpectedRow:
    expected = expectation(
        topology,
        MeasuredSeries(
            operation=operation,
            implementation="transfers" if operation in PAIRS else "library",
            transport="ccl" if way == "direct" else way,
            schedule="uncontended",
            devices=devices,
            nodes=1,
            bytes=LARGE,
            quantity="goodput",
            host_copy_gbps=None,
        ),
    )
    value, size = kept.get((operation, tuple(devices)), (None, None)) if way == "direct" else (None, None)
    gpus = [topology.gpu(index) for index in devices]
    return ExpectedRow(
        operation,
        way,
        tuple(gpu.name for gpu in gpus),
        expected.nominal,
        expected.source,
        optimum=_optimum(topology, operation, gpus) if way != "staging" else None,
        expected=expected.expected,
        achievable=expected.achievable,
        ceiling=expected.ceiling,
        reference=value,
        reference_bytes=size,
        payload=expected.achievable_source,
    )


def _optimum(topology: Topology, operation: str, gpus: Sequence[Gpu]) -> float:
    if operation in PAIRS:
        return node_graph(topology).flow_gbps(gpus[0], gpus[1])
    return optimum.collective(topology, operation, gpus)


def _summary(topology: Topology) -> Iterator[ExpectedRow]:
    graph = node_graph(topology)
    for gpu in topology.gpus:
        yield ExpectedRow("injection", "-", (gpu.name,), graph.injection_gbps(gpu), "sum of a GPU's links")
    if topology.gpus:
        yield ExpectedRow("bisection", "-", graph.gpu_names, graph.bisection_gbps, "least cut into halves")
    linked = [gpu for gpu in topology.gpus if host_link_gbps(topology, gpu)]
    shared = host_device_gbps(topology, linked)
    for gpu in linked:
        why = "alone; expected: all GPUs at once (Schieffer §IV-C)"
        alone = host_link_gbps(topology, gpu)
        yield ExpectedRow("host_device", "-", (gpu.name,), alone, why, expected=shared[gpu.name])
    if topology.nics:
        names = tuple(nic.name for nic in topology.nics)
        total = sum(nic.rate_gbps for nic in topology.nics)
        why = f"all NICs; expected: all GPUs active, {topology.nic_scheme or 'no association given'} (CommBench §5.2.1)"
        data = least_payload((nic.model for nic in topology.nics), "nic")
        expected = node_gbps(topology)
        yield ExpectedRow(
            "node_to_node",
            "-",
            names,
            total,
            why,
            expected=expected,
            achievable=expected * data.share if data is not None else None,
            payload=f"{data.share:.1%} by {data.mover}: {data.source}" if data is not None else "",
        )
        if topology.gpus:
            asymptotic = alltoall_asymptotic_gbps(topology)
            why = "of one GPU, for very many nodes (De Sensi §V-C)"
            yield ExpectedRow("alltoall_asymptotic", "-", names, asymptotic, why, expected=asymptotic)


def _goodputs(references: References) -> dict[tuple[str, tuple[int, ...]], tuple[float, int]]:
    """The uncontended goodputs in Gb/s by operation and ranks, each at its largest size."""
    goodputs: dict[tuple[str, tuple[int, ...]], tuple[float, int]] = {}
    for test in references.tests.values():
        for entry in test.entries:
            for name, reference in entry.metrics.items():
                try:
                    metric = parse_metric_name(name)
                except UserError:
                    continue  # `fabricheck validate` reports it
                if metric.train or metric.operation not in {*PAIRS, *COLLECTIVES}:
                    continue
                if (metric.quantity, metric.schedule, reference.unit) != ("goodput", "uncontended", "Gb/s"):
                    continue
                key = (metric.operation, metric.ranks or tuple(range(metric.world)))
                if key not in goodputs or goodputs[key][1] < metric.bytes:
                    goodputs[key] = (reference.value, metric.bytes)
    return goodputs
