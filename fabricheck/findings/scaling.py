"""How collectives scale with the number of nodes (De Sensi et al., SC24, sections V-C and V-D, figures 9 and 10)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from fabricheck.findings.case_runs import CaseRun, is_sound
from fabricheck.judge.expectations import expect_from_topology
from fabricheck.judge.statistics import median_interval
from fabricheck.judge.system import SystemJudge
from fabricheck.records.finding import Finding
from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict
from fabricheck.units import format_size

# The paper's size of each; where it was not measured, the largest one that all node counts have.
PAPER_BYTES = {"alltoall": 2 << 20, "allreduce": 1 << 30}


@dataclass(frozen=True)
class ScalePoint:
    """One number of nodes: the median goodput in Gb/s with its 95% interval, and the model's (None: nobody knows)."""

    nodes: int
    ranks: int
    goodput_gbps: float
    interval: tuple[float, float]
    expected_gbps: float | None

    @property
    def efficiency(self) -> float | None:
        """Share of what the model expects at this number of nodes."""
        return self.goodput_gbps / self.expected_gbps if self.expected_gbps else None


@dataclass(frozen=True)
class Scaling:
    """One operation over growing numbers of nodes, the smallest first; at least two."""

    operation: str
    bytes: int
    label: str
    points: tuple[ScalePoint, ...]

    def parallel_efficiency(self, point: ScalePoint) -> float:
        """Goodput of a rank at `point` over that at the smallest number of nodes: 1 where growth costs nothing."""
        return point.goodput_gbps / self.points[0].goodput_gbps

    @property
    def message(self) -> str:
        """One line for the administrator."""
        points = "; ".join(self._say(point) for point in self.points)
        return f"{self.operation} {format_size(self.bytes)} ({self.label}) by nodes: {points}"

    def _say(self, point: ScalePoint) -> str:
        low, high = point.interval
        text = f"{point.nodes} nodes {point.goodput_gbps:.4g} Gb/s (95%: {low:.4g} to {high:.4g})"
        if point.efficiency is not None:
            text += f", {point.efficiency:.0%} of the model"
        if point is not self.points[0]:
            text += f", {self.parallel_efficiency(point):.0%} of {self.points[0].nodes} nodes"
        return text


def scalings(runs: Iterable[CaseRun], judge: SystemJudge) -> Iterator[Scaling]:
    """Of every collective that one test measured over several numbers of nodes, in the order of the runs.

    Raises UserError for devices and hosts that the topology does not have.
    """
    series: dict[tuple[str, ...], dict[int, dict[int, ScalePoint]]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        topology = judge.topology_of(run.partition)
        if topology is None or not run.is_evidence or not run.is_plain:
            continue
        nodes = len({rank.host for rank in run.run.ranks})
        expect = expect_from_topology(run.run, topology, judge.policy)
        for samples in run.run.samples:
            if samples.operation in PAPER_BYTES and len(samples.ranks) == len(run.run.ranks) and is_sound(samples):
                key = (samples.operation, run.test, run.partition, run.label)
                expected = expect(samples, "goodput").expected
                series[key][nodes].setdefault(samples.bytes, _point(samples, nodes, expected))
    for (operation, *_, label), by_nodes in series.items():
        common = set.intersection(*(set(by_size) for by_size in by_nodes.values()))
        if len(by_nodes) > 1 and common:
            size = PAPER_BYTES[operation] if PAPER_BYTES[operation] in common else max(common)
            yield Scaling(operation, size, label, tuple(by_nodes[nodes][size] for nodes in sorted(by_nodes)))


def find_scalings(runs: Iterable[CaseRun], judge: SystemJudge) -> Iterator[Finding]:
    """The scalings of a session, a line each; they say how things are, and fail nothing."""
    for scaling in scalings(runs, judge):
        yield Finding("scaling", Verdict.PASS, scaling.message)


def _point(samples: Samples, nodes: int, expected: float | None) -> ScalePoint:
    values = samples.goodput_gbps
    interval = median_interval(values, in_order=samples.in_order, rank_error=samples.rank_error)
    return ScalePoint(nodes, len(samples.ranks), float(np.median(values)), interval, expected)
