"""How many times faster or slower two things are than each other, by size (De Sensi et al., SC24).

*CCL beside MPI over size and scale, and from which size on who is faster: section V-E. A victim beside an aggressor and
alone: section VI, figure 12.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fabricheck.diagnosis.case_runs import CaseRun, MeasuredGoodput, common_points, groups_of, match_partners
from fabricheck.errors import UserError
from fabricheck.judge.statistics import ratio_interval
from fabricheck.records.finding import Finding
from fabricheck.records.operations import VICTIMS
from fabricheck.records.run import Run, Samples
from fabricheck.records.verdict import Verdict
from fabricheck.units import format_size, plural

Faster = Literal["*CCL", "MPI", ""]

OPERATIONS = ("pingpong", "alltoall", "allreduce")


@dataclass(frozen=True)
class RatioAtSize:
    """Goodput of *CCL ÷ goodput of MPI at one size: the median over the pairs, and within what it lies for all of them.

    `interval` spans the 95% intervals of all pairs, or is that of the one group.
    """

    bytes: int
    ratio: float
    interval: tuple[float, float]

    @property
    def faster(self) -> Faster:
        """Who is certainly faster, between all pairs; "" where the intervals leave it open or pairs differ."""
        low, high = self.interval
        return "*CCL" if low > 1 else "MPI" if high < 1 else ""


@dataclass(frozen=True)
class Crossover:
    """From which size on who is faster, up to the largest size that was measured.

    `faster`: who is certainly faster at the largest size; "" where that is open, and then nothing is known of a
    crossover. It lies above `above` and at or below `at_most`, in bytes: at the first the other one is certainly
    faster. `above` is None where the other one is so nowhere, `at_most` where `faster` is so everywhere.
    """

    faster: Faster
    above: int | None = None
    at_most: int | None = None

    def __str__(self) -> str:
        if not self.faster:
            return "neither is certainly faster at the largest size"
        if self.at_most is None:
            never = ", *CCL never" if self.faster == "MPI" else ""
            return f"{self.faster} is always faster{never}"
        if self.above is None:
            return f"{self.faster} is faster from {format_size(self.at_most)} or less on, and never slower"
        between = f"{format_size(self.above)} and {format_size(self.at_most)}"
        return f"{self.faster} is faster for large sizes; the crossover is between {between}"


@dataclass(frozen=True)
class CclAgainstMpi:
    """One operation by *CCL and by MPI, on the same devices, in order of size.

    `pairs`: of devices, 0 for collectives. `as_transfers`: MPI moved it as a list of transfers, although it has an
    operation of its own for it.
    """

    operation: str
    nodes: int
    ranks: int
    pairs: int
    environment: str
    as_transfers: bool
    sizes: tuple[RatioAtSize, ...]

    @property
    def crossover(self) -> Crossover:
        """The size from which *CCL is faster than MPI; `crossover` says how it is found."""
        return crossover(self.sizes)

    @property
    def message(self) -> str:
        """One line for the administrator."""
        who = plural(self.pairs, "pair") if self.pairs else f"{self.ranks} ranks"
        by = f"MPI of {self.environment}" if self.environment else "MPI"
        how = " as a list of transfers" if self.as_transfers else ""
        ratios = ", ".join(f"{format_size(each.bytes)} {each.ratio:.3g}" for each in self.sizes)
        where = f"{who} on {plural(self.nodes, 'node')}"
        return f"{self.operation}, {where}, goodput of *CCL ÷ {by}{how}: {self.crossover}: {ratios}"


def crossover(sizes: Iterable[RatioAtSize]) -> Crossover:
    """The crossover of one or more sizes, in whatever order. Raises ValueError where there are none."""
    ordered = sorted(sizes, key=lambda each: each.bytes)
    if not ordered:
        raise ValueError("a crossover needs at least one size")
    winner = ordered[-1].faster
    rest = [number for number, each in enumerate(ordered) if each.faster != winner]
    if not winner or not rest:
        return Crossover(winner)
    lost = [each.bytes for each in ordered if each.faster not in (winner, "")]
    return Crossover(winner, max(lost, default=None), ordered[rest[-1] + 1].bytes)


def comparisons(runs: Iterable[CaseRun]) -> Iterator[CclAgainstMpi]:
    """Of every operation that *CCL and an MPI library measured between the same devices, in one test."""
    for mpi, ccl in match_partners(groups_of(runs), "mpi", "ccl"):
        pairs_by_test: dict[tuple[str, int, int, bool], dict[int, list[tuple[MeasuredGoodput, MeasuredGoodput]]]] = (
            defaultdict(lambda: defaultdict(list))
        )
        for point, (ccl_times, mpi_times) in common_points(ccl, mpi).items():
            if point.operation in OPERATIONS and point.schedule == "uncontended" and point.devices:
                as_transfers = point.operation != "pingpong" and mpi_times.implementation == "transfers"
                key = (point.operation, len(point.hosts), len(point.places), as_transfers)
                pairs_by_test[key][point.bytes].append((ccl_times, mpi_times))
        for (operation, nodes, ranks, as_transfers), by_size in pairs_by_test.items():
            pairs = max(map(len, by_size.values())) if operation == "pingpong" else 0
            sizes = tuple(_ratio(size, by_size[size]) for size in sorted(by_size))
            yield CclAgainstMpi(operation, nodes, ranks, pairs, mpi.environment, as_transfers, sizes)


def find_crossovers(runs: Iterable[CaseRun]) -> Iterator[Finding]:
    """The comparisons of a session, a line each; they say how things are, and fail nothing."""
    for comparison in comparisons(runs):
        yield Finding("crossover", Verdict.PASS, comparison.message)


def _ratio(size: int, measured: list[tuple[MeasuredGoodput, MeasuredGoodput]]) -> RatioAtSize:
    ratios = [float(np.median(one.gbps) / np.median(other.gbps)) for one, other in measured]
    bounds = [ratio_interval([one.gbps], [other.gbps]) for one, other in measured]
    interval = (min(low for low, _ in bounds), max(high for _, high in bounds))
    return RatioAtSize(size, float(np.median(ratios)), interval)


@dataclass(frozen=True)
class Slowdown:
    """Time beside the aggressor ÷ time alone, of the medians and of the 99th percentiles; 1: no slowdown."""

    alone: Samples
    beside: Samples
    median: float
    p99: float

    @property
    def who(self) -> str:
        """Size and ranks of the victim."""
        ranks = ", ".join(map(str, self.alone.ranks))
        return f"{format_size(self.alone.bytes)}, ranks {ranks}"


def slowdown(alone: Samples, beside: Samples) -> Slowdown:
    """Of two records of one victim that were measured interleaved. Raises UserError where they are not that."""
    same = ("operation", "ranks", "bytes")
    if [getattr(alone, name) for name in same] != [getattr(beside, name) for name in same] or (
        alone.schedule,
        beside.schedule,
    ) != ("uncontended", "contended"):
        raise UserError(f"a slowdown compares one victim alone and with aggressors, not {alone.operation} twice")
    median, p99 = (float(np.percentile(beside.times_ns, q)) / float(np.percentile(alone.times_ns, q)) for q in (50, 99))
    return Slowdown(alone, beside, median, p99)


def slowdowns(run: Run) -> Iterator[Slowdown]:
    """Of every victim of a run at every size, in the order of the run."""
    beside = {
        (each.operation, each.ranks, each.bytes): each
        for each in run.samples
        if each.operation in VICTIMS and each.schedule == "contended"
    }
    for samples in run.samples:
        if samples.operation in VICTIMS and samples.schedule == "uncontended":
            partner = beside.get((samples.operation, samples.ranks, samples.bytes))
            if partner is not None:
                yield slowdown(samples, partner)


def find_slowdowns(run: CaseRun) -> Iterator[Finding]:
    """For each victim pattern of a run the worst slowdown over victims and sizes, a line each; they fail nothing."""
    if not run.is_evidence:
        return
    by_pattern: dict[str, list[Slowdown]] = {}
    for slowdown in slowdowns(run.run):
        by_pattern.setdefault(slowdown.alone.operation, []).append(slowdown)
    for operation, all_ in by_pattern.items():
        median, tail = max(all_, key=lambda slowdown: slowdown.median), max(all_, key=lambda slowdown: slowdown.p99)
        at_tail = "" if tail is median else f" ({tail.who})"
        traffic = median.beside.aggressor
        beside = f" of {float(np.median(traffic.goodput_gbps)):.4g} Gb/s" if traffic is not None else ""
        text = (
            f"{operation} ({run.label}): under competing traffic{beside} the median time is up to "
            f"{median.median:.3g} x ({median.who}), the 99th percentile {tail.p99:.3g} x{at_tail}"
        )
        yield Finding("slowdown", Verdict.PASS, text)
