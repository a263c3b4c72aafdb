"""What a burn-in shows beside its metrics: wrong products, drift, stragglers, and what its GPUs report under load.

That a GPU multiplies more slowly than its peers, alone or under load, is found as of any other metric (`siblings`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fabricheck.judge.evidence import Evidence, evidence_of_events, nodes_of
from fabricheck.judge.evidence_of_gpus import evidence_of_gpus
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.burn_in import BurnIn, Floats
from fabricheck.records.component import Component, Kind, short_host
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Yardstick
from fabricheck.records.metrics import Metric, metrics_of
from fabricheck.records.node_state import NodeState
from fabricheck.records.operations import LOADS
from fabricheck.records.run import Rank, Run
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.iterations import Ratio, RatioTest
from fabricheck.topology.model import Topology
from fabricheck.topology.placement import gpu_component, gpu_of_ranks
from fabricheck.units import plural
from fabricheck.yardsticks.policy import Policy

#: A load that drifts is slower in the last of so many parts than in the first. Chosen.
PARTS_OF_LOAD = 4


def first_windows(metric: Metric, run: Run, policy: Policy) -> Yardstick | None:
    """What a metric of a burn-in was in its first windows, which it may be below unless it surely falls; None for any
    other metric, of fewer windows than have a first part, and where products alone were measured."""
    if metric.samples.operation not in LOADS or metric.values.size < PARTS_OF_LOAD:
        return None
    if all(samples.schedule == "uncontended" for samples in run.samples):
        return None
    value = float(np.median(_head(metric.values)))
    loss = _margin(metric.samples.operation, run, policy)
    least, bound = (min, value * (1 - loss)) if metric.better == "higher" else (max, value / (1 - loss))
    if _fall(metric, run, policy) is None:
        bound = least(bound, metric.value)
    return Yardstick("siblings", value, bound, f"the first of {PARTS_OF_LOAD} parts of its own windows")


def _head(values: Floats) -> Floats:
    return values[: max(values.size // PARTS_OF_LOAD, 1)]


def _fall(metric: Metric, run: Run, policy: Policy) -> tuple[float, float] | None:
    """The medians of first and last windows where these are surely worse, by more than equal parts differ."""
    values = metric.values if metric.better == "higher" else 1 / metric.values
    first, last = _head(values), _head(values[::-1])
    loss = _margin(metric.samples.operation, run, policy)
    tests = sum(samples.operation in LOADS for samples in run.samples)
    if not RatioTest([first], [last], 1 / (1 - loss)).truth(tests):
        return None
    medians = float(np.median(first)), float(np.median(last))
    return medians if metric.better == "higher" else (1 / medians[0], 1 / medians[1])


def _margin(operation: str, run: Run, policy: Policy) -> float:
    """The loss that equal parts elsewhere are allowed, too."""
    return policy.part_margin if run.on_gpus and operation != "copies" else policy.part_margin_of_host_memory


def with_load(run: Run, topology: Topology | None, policy: Policy) -> Run:
    """The run with what its burn-in shows among its problems, which are stored with it; its windows are not."""
    if run.burn_in is None:
        return run
    load = _Load(run, run.burn_in, topology, policy)
    rules = load.arithmetic(), load.drift(), load.stragglers(), load.overlap()
    more = [finding for rule in rules for finding in rule]
    return replace(run, problems=tuple(dict.fromkeys([*run.problems, *more])))


def evidence_of_load(run: Run) -> list[Evidence]:
    """What the GPUs of a burn-in reported in its windows, by the rules for what they report before and after a run."""
    if run.burn_in is None:
        return []
    indexes = gpu_of_ranks(run)
    numbers = {
        (short_host(rank.host), rank.device.address): indexes[rank.rank]
        for rank in run.ranks
        if rank.device is not None
    }

    def numbered(states: Mapping[str, NodeState]) -> dict[str, NodeState]:
        known = {}
        for host, state in states.items():
            gpus = (replace(gpu, index=numbers.get((host, gpu.bus_id), gpu.index)) for gpu in state.gpus)
            known[host] = replace(state, gpus=tuple(gpus))
        return known

    states = run.burn_in.states
    nodes = nodes_of(replace(run, states=replace(states, before=numbered(states.before), after=numbered(states.after))))
    return [*evidence_of_gpus(nodes, None), *(event for node in nodes for event in evidence_of_events(node))]


def find_notes(judged: RunJudgement) -> Iterator[Finding]:
    """How much of the speed that products and traffic have alone they keep beside each other; and why GPUs multiply
    without a library."""
    load, kept = judged.run.burn_in, _kept(judged.run)
    if load is not None and load.why_no_library and judged.run.on_gpus:
        text = f"{judged.test or judged.run.path}: {load.why_no_library}: a kernel of our own multiplies, more slowly"
        yield Finding("library-remark", Verdict.PASS, text)
    if {"product", "traffic"} <= kept.keys():
        overlap = kept["product"].value + kept["traffic"].value - 1
        text = f"{judged.test or judged.run.path}: beside each other they keep of their speed alone: {_shares(kept)}; "
        text += f"overlap efficiency {overlap:.0%} (100%: neither slows the other; 0%: as one after the other)"
        yield Finding("slowdown", Verdict.PASS, text)


def _kept(run: Run) -> Mapping[str, Ratio]:
    """By what goes on in a burn-in, the share of its speed alone that it keeps beside the others, of all ranks."""
    values: dict[tuple[str, str], list[Floats]] = {}
    for metric in metrics_of(run):
        if metric.samples.operation in LOADS:
            rates = metric.values if metric.better == "higher" else 1 / metric.values
            values.setdefault((metric.samples.operation, metric.samples.schedule), []).append(rates)
    return {
        operation: RatioTest([np.concatenate(beside)], [np.concatenate(values[operation, "uncontended"])], 1).ratio
        for (operation, schedule), beside in values.items()
        if schedule == "contended" and (operation, "uncontended") in values
    }


def _shares(kept: Mapping[str, Ratio]) -> str:
    return ", ".join(f"{operation} {share.value:.0%}" for operation, share in kept.items())


@dataclass(frozen=True, eq=False)
class _Load:
    run: Run
    load: BurnIn
    topology: Topology | None
    policy: Policy

    @property
    def ranks(self) -> Sequence[Rank]:
        return self.run.ranks

    def part(self, rank: Rank) -> Component:
        """What a rank computes on: its GPU, else its node, where it is the only one there."""
        if rank.device is not None:
            return gpu_component(self.topology, self.indexes[rank.rank], rank.host, rank.device.address)
        alone = sum(other.host == rank.host for other in self.ranks) == 1
        return Component.of_node(rank.host) if alone else Component(Kind.DEVICE, f"rank{rank.rank}", rank.host)

    def places(self, ranks: Collection[int]) -> Iterator[tuple[Component, Sequence[int]]]:
        """The nodes of which these are all ranks, and the parts of the others, with their ranks."""
        own, all_ = Counter(self.ranks[rank].host for rank in ranks), Counter(rank.host for rank in self.ranks)
        parts: dict[Component, list[int]] = {}
        for rank in map(self.ranks.__getitem__, sorted(ranks)):
            whole = own[rank.host] == all_[rank.host] > 1
            parts.setdefault(Component.of_node(rank.host) if whole else self.part(rank), []).append(rank.rank)
        yield from parts.items()

    def arithmetic(self) -> Iterator[Finding]:
        for rank, wrong in zip(self.ranks, self.load.wrong, strict=True):
            if wrong:
                part = self.part(rank)
                text = f"{part}: {plural(wrong, 'wrong word')} in its matrix products (rank {rank.rank})"
                yield Finding("wrong-arithmetic", Verdict.FAIL, text, (part,), float(wrong), 0.0, "words")

    def drift(self) -> Iterator[Finding]:
        """What falls against its own first windows. Traffic and copies are told where no product explains them."""
        metrics = [
            metric
            for metric in metrics_of(self.run)
            if metric.samples.operation in LOADS and metric.samples.schedule == "contended"
        ]
        falls = [(metric, fall) for metric in metrics if (fall := _fall(metric, self.run, self.policy))]
        products = [(metric, fall) for metric, fall in falls if metric.samples.operation == "product"]
        alone = {
            metric.samples.ranks[0]: (metric, fall)
            for metric, fall in products or falls
            if len(metric.samples.ranks) == 1
        }
        for place, ranks in self.places(alone.keys() - self.throttled):
            yield self._drift(place, [alone[rank] for rank in ranks])
        if falls and not alone:
            yield self._drift(None, falls)

    def _drift(self, place: Component | None, falls: Sequence[tuple[Metric, tuple[float, float]]]) -> Finding:
        worst, (first, last) = max(falls, key=lambda fall: fall[1][0] / fall[1][1])
        unit, operation = worst.unit, worst.samples.operation
        if operation == "product" and self.run.product is not None:
            unit, factor = "Tflop/s", self.run.product.gbps_of_tflops
            first, last = first / factor, last / factor
        change = f"{operation} {last:.4g} {unit} at the end and {first:.4g} at first ({last / first - 1:+.1%})"
        names = tuple(metric.name for metric, _ in falls)
        places = (place,) if place is not None else ()
        return Finding(
            "drifts", Verdict.DEGRADED, f"{place or 'all ranks'}: {change}", places, last, first, unit, names
        )

    def stragglers(self) -> Iterator[Finding]:
        """Ranks that hold up the others by more than the alert limit of machines with GPUs, in most windows: processes
        without share their cores with what sends and copies."""
        models = {*self.models} - {""}
        rule = next((rule for rule in self.policy.stragglers if self.run.on_gpus and rule.matches(models)), None)
        if rule is None:
            return
        for rank, (kind, late_ms) in lateness(self.load).items():
            if late_ms > rule.alarm_ms:
                part = self.part(self.ranks[rank])
                text = f"{part}: holds up the others by {late_ms:.3g} ms in the {kind} (alert limit {rule.alarm_ms:g} "
                text += f"ms: {rule.source})"
                yield Finding("straggler", Verdict.DEGRADED, text, (part,), late_ms, rule.alarm_ms, "ms")

    def overlap(self) -> Iterator[Finding]:
        """What GPUs do at the same time more slowly than in turns: then the shares of their speeds alone that they keep
        add up to less than 1. Processes without GPUs share their cores, which costs more."""
        kept = _kept(self.run)
        if kept.keys() == {*LOADS} and self.run.on_gpus and sum(share.high for share in kept.values()) < 1:
            own = sum(share.value for share in kept.values())
            text = f"beside each other they keep of their speed alone: {_shares(kept)}: less than in turns"
            yield Finding("no-overlap", Verdict.DEGRADED, text, (), 100 * own, 100.0, "%")

    @cached_property
    def indexes(self) -> Mapping[int, int]:
        """The node-local index of the GPU of each rank."""
        return gpu_of_ranks(self.run)

    @cached_property
    def throttled(self) -> frozenset[int]:
        """The ranks whose GPU was throttled, which explains that it falls."""
        reports = evidence_of_load(self.run)
        parts = {
            (report.host, report.part)
            for report in reports
            if report.code == "gpu-throttled" and report.verdict is Verdict.DEGRADED
        }
        indexes = self.indexes
        return frozenset(
            rank.rank for rank in self.ranks if (short_host(rank.host), indexes.get(rank.rank, -1)) in parts
        )

    @cached_property
    def models(self) -> Sequence[str]:
        """Names of the devices by rank, empty for a processor."""
        return [rank.device.name if rank.device is not None else "" for rank in self.ranks]


def lateness(load: BurnIn) -> Mapping[int, tuple[str, float]]:
    """By rank, in which of ring and allreduce it held up the others longest, and by how many ms more than the median of
    the other ranks: the median of the windows. Empty with one rank."""
    worst: dict[int, tuple[str, float]] = {}
    for kind in ("ring", "allreduce"):
        late = load.medians[kind][load.together] / 1e6
        if not late.size or late.shape[1] < 2:
            continue
        typical = np.median(late, axis=0)
        for rank, own in enumerate(typical.tolist()):
            more = own - float(np.median(np.delete(typical, rank)))
            if more > worst.get(rank, ("", -np.inf))[1]:
                worst[rank] = kind, more
    return worst
