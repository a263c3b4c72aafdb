"""All that a session tells beside the verdicts on its metrics: findings, and problems such as a slow part."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fabricheck.diagnosis.case_runs import CaseRun, is_sound
from fabricheck.diagnosis.causes import diagnose
from fabricheck.diagnosis.network.blocked import find_blocked
from fabricheck.diagnosis.network.pair_findings import find_swapped, judge_pairs
from fabricheck.diagnosis.network.results import RETEST, SCREEN
from fabricheck.diagnosis.ratios import find_crossovers, find_slowdowns
from fabricheck.errors import reason_of
from fabricheck.judge.expectations import expect_from_topology
from fabricheck.judge.node_state import findings_of
from fabricheck.judge.statistics import Summary, median_interval, summarize
from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import short_host
from fabricheck.records.finding import Finding, split
from fabricheck.records.metrics import SMALLEST_GOODPUT_BYTES, UNITS, Quantity
from fabricheck.records.operations import PAIRS
from fabricheck.records.run import Run, Samples
from fabricheck.records.verdict import Verdict
from fabricheck.topology.network import DISTANCES, Network, fold, unfold
from fabricheck.units import few, format_size, plural


def find_all(runs: Sequence[CaseRun], judge: SystemJudge) -> Iterator[Finding]:
    """What a session tells: first of each run by itself, then of its runs together.

    What cannot be looked at, such as a run on nodes that the topology does not have, is a problem and costs nothing
    else.
    """
    again = {Path(each.run.path).parent: each.run for each in runs if Path(each.run.path).name == RETEST}
    for run in runs:
        screened = Path(run.run.path)
        for findings in _of_one(run, judge, again.get(screened.parent) if screened.name == SCREEN else None):
            for finding in _or_why_not(run.run.path, findings):
                yield replace(finding, files=(run.run.path,))
    for findings in (
        find_unused_gpus(runs, judge),
        find_unmeasured_nodes(runs, judge),
        find_shortened(runs),
        findings_of((each.run, judge.topology_of(each.partition)) for each in runs),
        find_far_cores(runs),
        find_scalings(runs, judge),
        find_crossovers(runs),
    ):
        yield from _or_why_not("the runs of this session together", findings)


def with_session_findings(judged: RunJudgement, judge: SystemJudge, partition: str = "") -> RunJudgement:
    """A run judged alone with what its session would say of it: of its peers, and of slow parts of a network.

    By `partition` (`system:partition`) the topology is chosen. A run with problems of its own has enough of them.
    """
    compared = judge.compare((judged,))
    (judged,) = compared.runs
    if judged.run.footer is None or judged.run.problems:
        return judged
    run = replace(CaseRun.of_file(judged.run), partition=partition)
    findings = (each for part in _of_one(run, judge) for each in _or_why_not(judged.run.path, part))
    problems, _ = split([*compared.problems, *findings])
    return judged.with_problems(diagnose((judged,), problems).problems)


def _or_why_not(where: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except Exception as error:  # whatever it is, the others are looked at
        yield Finding("cannot-be-judged", Verdict.INVALID, f"{where}: could not be analysed: {reason_of(error)}")


def _of_one(run: CaseRun, judge: SystemJudge, again: Run | None = None) -> Iterator[Iterator[Finding]]:
    topology = judge.topology_of(run.partition)
    yield find_blocked(run.run.states, topology)
    # In what is over suspects alone there is nothing to compare them with.
    if topology is not None and topology.network is not None and Path(run.run.path).name != RETEST:
        yield judge_pairs(run.run, topology, judge.policy, again)
        yield find_swapped(run.run, topology, judge.policy.equals_error)
        yield find_distance_classes(run.run, topology.network)
    yield find_slowdowns(run)


def find_unused_gpus(runs: Sequence[CaseRun], judge: SystemJudge) -> Iterator[Finding]:
    """Partitions whose runs drove fewer GPUs of a node than its topology has: they pass without the others."""
    used: dict[str, int] = {}
    for run in runs:
        devices = {(rank.host, rank.device.uuid) for rank in run.run.ranks if rank.device is not None}
        of_a_node = Counter(host for host, _ in devices)
        if of_a_node:
            used[run.partition] = max(used.get(run.partition, 0), *of_a_node.values())
    for partition, number in used.items():
        topology = judge.topology_of(partition)
        if topology is not None and number < len(topology.gpus):
            where = partition or topology.system
            text = f"{where}: the runs used at most {number} of the {len(topology.gpus)} GPUs of a node"
            yield Finding("unused-gpus", Verdict.PASS, text)


def find_unmeasured_nodes(runs: Sequence[CaseRun], judge: SystemJudge) -> Iterator[Finding]:
    """Nodes of a network that none of the runs was on, of which some measured it: they pass without those."""
    measured: dict[Network, set[str]] = {}
    for run in runs:
        hosts = {rank.host for rank in run.run.ranks}
        topology = judge.topology_of(run.partition)
        network = topology.network if topology is not None else None
        if network is not None and len(hosts) > 1:
            measured.setdefault(network, set()).update(hosts, map(short_host, hosts))
    yield from _nodes_of_slurm(runs, judge)
    for network, nodes in measured.items():
        if others := [each for each in network.nodes if each not in nodes]:
            text = f"no run used {len(others)} of the {len(network.nodes)} nodes in topology.yaml"
            yield Finding("unused-nodes", Verdict.PASS, f"{text}: {fold(others)}")


def _nodes_of_slurm(runs: Sequence[CaseRun], judge: SystemJudge) -> Iterator[Finding]:
    """Nodes of a partition of Slurm that no description has: a job of all nodes takes as many as are described."""
    left: dict[str, set[str]] = {}
    for run in runs:
        if run.slurm_nodes:
            left.setdefault(run.partition, set(unfold(run.slurm_nodes)))
    for partition, names in left.items():
        topology = judge.topology_of(partition)
        described = set(topology.network.nodes) if topology is not None and topology.network is not None else set()
        measured = {short_host(rank.host) for each in runs if each.partition == partition for rank in each.run.ranks}
        if others := sorted(name for name in names - described if short_host(name) not in measured):
            text = f"{partition}: Slurm has {len(names)} nodes, more than topology.yaml: no run used {fold(others)}"
            yield Finding(
                "nodes-not-declared",
                Verdict.PASS,
                f"{text}; set `nodes` in the partition's extras, or in the network of topology.yaml",
            )


def find_shortened(runs: Sequence[CaseRun]) -> Iterator[Finding]:
    """Runs that measured less than their tests ask for, to end in time: they pass without the rest."""
    for run in runs:
        if run.shortened:
            yield Finding("shortened", Verdict.PASS, f"{run.test} ({run.label}): {run.shortened}")


def find_far_cores(runs: Sequence[CaseRun]) -> Iterator[Finding]:
    """Ranks whose cores are all on another NUMA node than their GPU, a line for each partition.

    Left out are ranks that may use cores of several NUMA nodes, and GPUs whose NUMA node the driver does not know (-1).
    """
    domains_by_host: dict[str, dict[tuple[str, int], str]] = {}
    for run in runs:
        for rank in run.run.ranks:
            if rank.device is None or min(rank.numa_node, rank.device.numa_node) < 0:
                continue
            if rank.numa_node != rank.device.numa_node:
                place = f"local rank {rank.local_rank} on {rank.host}, cores on {rank.numa_node} and GPU on "
                of_partition = domains_by_host.setdefault(run.partition, {})
                of_partition[rank.host, rank.local_rank] = f"{place}{rank.device.numa_node}"
    for partition, ranks in domains_by_host.items():
        named = few([ranks[key] for key in sorted(ranks)], between="; ")
        advice = "bind ranks to the cores next to their GPU (launcher_options of the environment, such as --cpu-bind)"
        yield Finding(
            "affinity",
            Verdict.PASS,
            f"{partition}: ranks ran on another NUMA node than their GPU: {named}: {advice}",
        )


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
            f"{what} ({plural(self.pairs, 'pair')}): median {summary.median:.4g} {unit} "
            f"(95%: {low:.4g} to {high:.4g}), min {summary.min:.4g}, p5 {summary.p5:.4g}, p25 {summary.p25:.4g}, "
            f"p75 {summary.p75:.4g}, p95 {summary.p95:.4g}, max {summary.max:.4g}, mean {summary.mean:.4g}"
        )


def distance_classes(run: Run, network: Network) -> Iterator[DistanceClass]:
    """The classes of every pair operation, schedule and size of a run over nodes; nothing for other runs.

    The interval takes iterations to be independent, though those of one pair are similar: it is too narrow where pairs
    differ. Raises UserError for a host that is not in the network.
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


# The paper's size of each; where it was not measured, the largest one that all node counts have.
PAPER_BYTES = {"alltoall": 2 << 20, "allreduce": 1 << 30}


@dataclass(frozen=True)
class ScalePoint:
    """One number of nodes: the median goodput in Gb/s with its 95% interval, and the model's (None: unknown)."""

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
