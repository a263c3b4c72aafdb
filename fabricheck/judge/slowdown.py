"""How much slower a victim is beside an aggressor than alone (De Sensi et al., SC24, section VI, figure 12)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fabricheck.errors import UserError
from fabricheck.results.fabricbench_format import VICTIMS
from fabricheck.results.records import Run, Samples


@dataclass(frozen=True)
class Slowdown:
    """Time beside the aggressor ÷ time alone, of the medians and of the 99th percentiles; 1 is no slowdown."""

    alone: Samples
    beside: Samples
    median: float
    p99: float


def slowdown(alone: Samples, beside: Samples) -> Slowdown:
    """Of two records of one victim that were measured by turns. Raises UserError where they are not that."""
    same = ("operation", "ranks", "bytes")
    if [getattr(alone, name) for name in same] != [getattr(beside, name) for name in same] or (
        alone.schedule,
        beside.schedule,
    ) != ("uncontended", "contended"):
        raise UserError(f"a slowdown is of one victim alone and beside others, not of {alone.operation} twice")
    median, p99 = (float(np.percentile(beside.times_ns, q)) / float(np.percentile(alone.times_ns, q)) for q in (50, 99))
    return Slowdown(alone, beside, median, p99)


def slowdowns(run: Run) -> Iterator[Slowdown]:
    """Of every victim of a run at every size, in the order of the run."""
    beside = {
        (each.operation, each.ranks, each.bytes): each
        for each in run.samples
        if each.operation in VICTIMS and each.schedule == "contended"
    }
    for each in run.samples:
        if each.operation in VICTIMS and each.schedule == "uncontended":
            partner = beside.get((each.operation, each.ranks, each.bytes))
            if partner is not None:
                yield slowdown(each, partner)
