"""What a store adds to a page, made up: histories with planted changes, and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fabricheck.regression.compare import Comparison, compare
from fabricheck.regression.watch import Accepted, Watched, watch_series
from fabricheck.report.past import Past
from tests.unit.regression.histories import NOW, SYSTEM, Made, history, normal

NIGHTS = 120
CHANGE = 100  # the night of the planted change, session s100
UPGRADE = {CHANGE: {"nccl": "2.29.1"}}


def pair_metrics(
    *, nights: int = NIGHTS, slow: int | None = 2, onset: int = CHANGE, drop: float = 0.1, spread: float = 0.01
) -> list[Made]:
    """Pairs of four nodes; those over the NIC of node `slow` lose a share `drop` from a night on."""
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    return [
        Made(
            f"pingpong_uncontended_{a}_{b}_1gib_goodput",
            normal(10 * a + b, nights, spread=spread, drop=drop if slow in (a, b) else 0.0, onset=onset),
            components=[f"n{a}", f"n{a}:nic0", f"n{b}", f"n{b}:nic0"],
        )
        for a, b in pairs
    ]


def watched(metrics: Sequence[Made], *accepted: Accepted, **more: Any) -> Watched:
    return watch_series(history(metrics, **more), SYSTEM, accepted, now=NOW)


def compared(metrics: Sequence[Made], base: str = "..2026-01-05", candidate: str = "2026-01-06..", **more: Any) -> Comparison:
    return compare(history(metrics, **more), SYSTEM, base, candidate, now=NOW)


def past_with_everything(**more: Any) -> Past:
    """An open page about n2:nic0 since session s100, where NCCL changed, and the comparison of ten nights around it."""
    metrics = pair_metrics(**more)
    made = history(metrics, software=UPGRADE)
    comparison = compare(made, SYSTEM, "2026-04-01..2026-04-10", "2026-04-11..2026-04-20", now=NOW)
    return Past(watch_series(made, SYSTEM, now=NOW), comparison)
