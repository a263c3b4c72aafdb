"""Pairs of nodes by distance: how goodput and latency are distributed in each class (De Sensi et al., section V-B)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fabricheck.judge.statistics import Summary, median_interval, summarize
from fabricheck.records.finding import Finding
from fabricheck.records.metrics import SMALLEST_GOODPUT_BYTES, UNITS, Quantity
from fabricheck.records.operations import PAIRS
from fabricheck.records.run import Run, Samples
from fabricheck.records.verdict import Verdict
from fabricheck.topology.network import DISTANCES, Network
from fabricheck.units import format_size


@dataclass(frozen=True)
class DistanceClass:
    """All iterations of the `pairs` pairs of one distance, in `unit`; `interval` is the 95% one of the median."""

    operation: str
    schedule: str
    bytes: int
    quantity: Quantity
    transport: str
    distance: str
    pairs: int
    summary: Summary
    interval: tuple[float, float]

    @property
    def message(self) -> str:
        """One line for the administrator."""
        summary, (low, high), unit = self.summary, self.interval, UNITS[self.quantity]
        size = format_size(self.bytes)
        what = f"{self.operation} {self.schedule} {self.transport} {size} {self.quantity}, {self.distance}"
        return (
            f"{what} ({self.pairs} {'pair' if self.pairs == 1 else 'pairs'}): median {summary.median:.4g} {unit} "
            f"(95%: {low:.4g} to {high:.4g}), min {summary.min:.4g}, p5 {summary.p5:.4g}, p25 {summary.p25:.4g}, "
            f"p75 {summary.p75:.4g}, p95 {summary.p95:.4g}, max {summary.max:.4g}, mean {summary.mean:.4g}"
        )


def distance_classes(run: Run, network: Network) -> Iterator[DistanceClass]:
    """The classes of every pair operation, schedule and size of a run over nodes; nothing for other runs.

    The interval takes iterations to be independent, though those of one pair are alike: it is too narrow where pairs
    differ. Raises UserError for a host that the network lacks.
    """
    hosts, transport = {each.rank: each.host for each in run.ranks}, str(run.header["transport"])
    samples_by_class: dict[tuple[str, str, int, str], list[Samples]] = defaultdict(list)
    for samples in run.samples:
        ends = [network.node_of_host(hosts[rank]) for rank in samples.ranks]
        if samples.operation in PAIRS and len(set(ends)) == 2:
            samples_by_class[samples.operation, samples.schedule, samples.bytes, network.distance(*ends)].append(
                samples
            )
    for key in sorted(samples_by_class, key=lambda each: (*each[:3], DISTANCES.index(each[3]))):
        operation, schedule, size, distance = key
        quantity: Quantity = "goodput" if size >= SMALLEST_GOODPUT_BYTES else "latency"
        values = np.concatenate(
            [each.goodput_gbps if quantity == "goodput" else each.latency_us for each in samples_by_class[key]]
        )
        pairs = len({each.ranks for each in samples_by_class[key]})
        summary, interval = summarize(values), median_interval(values)
        yield DistanceClass(operation, schedule, size, quantity, transport, distance, pairs, summary, interval)


def find_distance_classes(run: Run, network: Network) -> Iterator[Finding]:
    """The classes of a run that was not cut off, a line each; they say how things are, and fail nothing."""
    if run.footer is not None:
        for distance in distance_classes(run, network):
            yield Finding("distances", Verdict.PASS, distance.message)
