"""How much slower a victim is beside an aggressor than alone (De Sensi et al., SC24, section VI, figure 12)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fabricheck.diagnosis.case_runs import CaseRun
from fabricheck.errors import UserError
from fabricheck.records.finding import Finding
from fabricheck.records.operations import VICTIMS
from fabricheck.records.run import Run, Samples
from fabricheck.records.verdict import Verdict
from fabricheck.units import format_size


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
