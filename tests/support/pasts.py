"""What a store adds to a page, made up: a history with a planted change, and the comparison around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fabricheck.history.accepted import Accepted
from fabricheck.history.watch import Watched, watch_series
from fabricheck.report.past import Past
from tests.support.histories import NOW, SYSTEM, Made, history, normal

SESSIONS = 120
CHANGE = 100  # the session of the planted change, session s100 of 2026-04-11
BEFORE, AFTER = "2026-04-01..2026-04-10", "2026-04-11..2026-04-20"
UPGRADE = {CHANGE: {"nccl": "2.29.1"}}


def pair_metrics(
    *, sessions: int = SESSIONS, slow: int | None = 2, onset: int = CHANGE, drop: float = 0.1
) -> list[Made]:
    """Pairs of four nodes; those over the NIC of node `slow` lose a share `drop` from a session on."""
    return [
        Made(
            f"pingpong_uncontended_{a}_{b}_1gib_goodput",
            normal(10 * a + b, sessions, spread=0.01, drop=drop if slow in (a, b) else 0.0, onset=onset),
            components=[f"n{a}", f"n{a}:nic0", f"n{b}", f"n{b}:nic0"],
        )
        for a in range(4)
        for b in range(4)
        if a != b
    ]


def watched(metrics: Sequence[Made], *accepted: Accepted, **more: Any) -> Watched:
    return watch_series(history(metrics, **more), SYSTEM, accepted, now=NOW)


def past_with_everything(metrics: Sequence[Made] | None = None, **more: Any) -> Past:
    """An open incident about n2:nic0 since the session s100, in which NCCL changed, and ten sessions on either side."""
    made = pair_metrics() if metrics is None else metrics
    more = {"software": UPGRADE, **more}
    return Past(watched(made, **more), ("A note.",))
