"""Whether a second benchmark, run interleaved with fabricbench in one job, gives the same numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from fabricheck.records.metrics import LARGE_BYTES, SMALLEST_GOODPUT_BYTES
from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.constants import CONFIDENCE, MARGIN
from fabricheck.statistics.iterations import fewest_for_interval, median_interval
from fabricheck.units import format_size

#: Two right benchmarks agree over large messages, but where these take so short a time that the start of a transfer is
#: a part of it that counts: 16 MiB over 400 GB/s.
LEAST_US = 200.0

# What ours and the vendor tool gave in one turn of both, in the same unit.
_Round = tuple[float, float]


@dataclass(frozen=True)
class CrossCheckedSize:
    """Ours over theirs at one size. `ours`, `theirs` and `ratio` are medians over the rounds, `interval` that of ratio.

    `unit` is that of `ours` and `theirs`. The ratio is that of the rounds, not of the medians: what drifts from round
    to round is in both of a round, and cancels.
    """

    operation: str
    bytes: int
    unit: str
    ours: float
    theirs: float
    ratio: float
    interval: tuple[float, float]
    verdict: Verdict
    reason: str


def compare(
    operation: str,
    size: int,
    rounds: Sequence[_Round],
    *,
    unit: str,
    tool: str,
) -> CrossCheckedSize:
    """The comparison of `operation` at `size` bytes over rounds in which both ran.

    INVALID where a number is not a measurement; INCOMPLETE where there are too few rounds for an interval (6 at 95%).
    At sizes of LARGE_BYTES and more that take LEAST_US and more, DEGRADED where the ratio is outside 1 ± MARGIN, or its
    interval is wider than that on either side: then the agreement is not shown. Others are reported, and pass: there
    the two differ in what they put inside the clock (docs/vendor-tools.md).
    """
    what = f"{operation} of {format_size(size)}"
    values = np.array(rounds, dtype=np.float64).reshape(-1, 2)
    if not rounds or not (np.isfinite(values).all() and (values > 0).all()):
        reason = f"{what}: {'no round' if not rounds else 'an invalid value'} was measured by fabricbench and {tool}"
        verdict = Verdict.INCOMPLETE if not rounds else Verdict.INVALID
        none = math.nan
        return CrossCheckedSize(operation, size, unit, none, none, none, (none, none), verdict, reason)
    ours, theirs = np.median(values, axis=0).tolist()
    ratios = (values[:, 0] / values[:, 1]).tolist()
    ratio, interval = median(ratios), median_interval(ratios, CONFIDENCE)
    low, high = interval
    remarks = (
        f"{what}: fabricbench {ours:.4g} {unit}, {tool} {theirs:.4g} {unit}, ratio {ratio:.3f} "
        f"({CONFIDENCE:.0%} interval {low:.3f} to {high:.3f} of {len(rounds)} rounds)"
    )
    time_us = theirs if unit == "us" else 8e-3 * size / theirs
    verdict, reason = Verdict.PASS, f"{remarks}: they agree within ±{MARGIN:.0%}"
    if len(rounds) < fewest_for_interval(CONFIDENCE):
        verdict, reason = Verdict.INCOMPLETE, f"{remarks}: {fewest_for_interval(CONFIDENCE)} rounds are needed"
    elif size < LARGE_BYTES or time_us < LEAST_US:
        reason = f"{remarks}: not judged, because it is below {format_size(LARGE_BYTES)} or {LEAST_US:g} us"
    elif abs(ratio - 1) > MARGIN:
        verdict, reason = Verdict.DEGRADED, f"{remarks}: outside ±{MARGIN:.0%}, so one of the two is wrong"
    elif (high - low) / 2 > MARGIN:
        verdict, reason = Verdict.DEGRADED, f"{remarks}: too noisy to show agreement within ±{MARGIN:.0%}"
    return CrossCheckedSize(operation, size, unit, ours, theirs, ratio, interval, verdict, reason)


def one_way_us(samples: Samples, statistic: str = "iterations") -> float:
    """Time of one transfer in µs: the median of the iterations, or their mean where `statistic` is `mean`.

    A tool that prints only means is compared with fabricbench's mean: medians and means of one and the same run differ.
    """
    times = samples.latency_us
    return float(np.mean(times) if statistic == "mean" else np.median(times))


def compare_rounds(
    ours: Sequence[Iterable[Samples]], theirs: Sequence[Iterable[Samples]], tool: str
) -> tuple[CrossCheckedSize, ...]:
    """The comparison of each operation and size that the first round of fabricbench has, in that order.

    `ours` and `theirs` hold the samples of each round; a size that a round does not have on either side makes
    that round's comparison fall out, and too few rounds are INCOMPLETE. Goodput (Gb/s) from 64 KiB up, below that
    latency (µs).
    """
    mine = [{(each.operation, each.bytes): each for each in one} for one in ours]
    peers = [{(each.operation, each.bytes): each for each in one} for one in theirs]
    comparisons = []
    for key in mine[0] if mine else {}:
        operation, size = key
        goodput = size >= SMALLEST_GOODPUT_BYTES
        rounds: list[_Round] = []
        for a, b in zip(mine, peers, strict=True):
            if key not in a or key not in b:
                continue
            times = one_way_us(a[key], b[key].statistic), one_way_us(b[key], b[key].statistic)
            rounds.append((8e-3 * size / times[0], 8e-3 * size / times[1]) if goodput else times)
        unit = "Gb/s" if goodput else "us"
        comparisons.append(compare(operation, size, rounds, unit=unit, tool=tool))
    return tuple(comparisons)


def table(comparisons: Iterable[CrossCheckedSize]) -> str:
    """The comparisons as a Markdown table."""
    lines = [
        "| operation | bytes | fabricbench | suite | unit | ratio | 95% interval | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in comparisons:
        low, high = row.interval
        lines.append(
            f"| {row.operation} | {row.bytes} | {row.ours:.4g} | {row.theirs:.4g} | {row.unit} | {row.ratio:.3f} "
            f"| {low:.3f} to {high:.3f} | {row.verdict.value} |"
        )
    return "\n".join(lines) + "\n"
