"""Interleaved rounds of fabricbench and a vendor tool, as numbers that can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fabricheck.interleaved.cross_check import Comparison, Round, compare
from fabricheck.records.metrics import SMALLEST_GOODPUT_BYTES
from fabricheck.records.run import Samples


def one_way_us(samples: Samples, statistic: str = "iterations") -> float:
    """Time of one transfer in µs: the median of the iterations, or their mean where `statistic` is `mean`.

    A tool that prints only means is compared with fabricbench's mean: medians and means of one and the same run differ.
    """
    times = samples.latency_us
    return float(np.mean(times) if statistic == "mean" else np.median(times))


def compare_rounds(
    ours: Sequence[Iterable[Samples]], theirs: Sequence[Iterable[Samples]], tool: str
) -> tuple[Comparison, ...]:
    """The comparison of each operation and size that the first round of fabricbench has, in that order.

    `ours` and `theirs` hold the samples of each round; a size that a round does not have on either side makes
    that round's comparison fall out, and too few rounds are INCOMPLETE. Goodput (Gb/s) from 64 KiB up, below that
    latency (µs).
    """
    mine = [{(each.operation, each.bytes): each for each in one} for one in ours]
    peers = [{(each.operation, each.bytes): each for each in one} for one in theirs]
    found = []
    for key in mine[0] if mine else {}:
        operation, size = key
        goodput = size >= SMALLEST_GOODPUT_BYTES
        rounds = []
        for a, b in zip(mine, peers, strict=True):
            if key not in a or key not in b:
                continue
            times = one_way_us(a[key], b[key].statistic), one_way_us(b[key], b[key].statistic)
            rounds.append(Round(*(8e-3 * size / time if goodput else time for time in times)))
        unit = "Gb/s" if goodput else "us"
        found.append(compare(operation, size, rounds, unit=unit, tool=tool))
    return tuple(found)


def table(comparisons: Iterable[Comparison]) -> str:
    """The comparisons as a Markdown table."""
    lines = [
        "| operation | bytes | fabricbench | suite | unit | ratio | 95% interval | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in comparisons:
        low, high = each.interval
        lines.append(
            f"| {each.operation} | {each.bytes} | {each.ours:.4g} | {each.theirs:.4g} | {each.unit} | {each.ratio:.3f} "
            f"| {low:.3f} to {high:.3f} | {each.verdict.value} |"
        )
    return "\n".join(lines) + "\n"
