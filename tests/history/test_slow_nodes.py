"""Nodes that take turns: one that is slow is named, a hiccup is not, and what somebody accepted is not told again."""

from __future__ import annotations

from datetime import date

import numpy as np
import polars as pl

from fabricheck.history.accepted import Accepted
from fabricheck.history.text import to_json, watch_lines
from fabricheck.history.watch import WatchResult, watch
from tests.support.histories import NOW, SYSTEM, Made, history

NODES, NIGHTS, PAIRS = 20, 100, ((0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3))


def taking_turns(slow: dict[tuple[str, int], float], since: int = 0) -> pl.DataFrame:
    """A node a night, of which each metric is a pair of GPUs. Nodes and nights vary by 0.3%; by component and number of
    its visit, `slow` says what the metrics that cross it lose."""
    rng = np.random.default_rng(5)
    order = np.concatenate([rng.permutation(NODES) for _ in range(NIGHTS // NODES)])
    made = []
    for first, second in PAIRS:
        own = rng.normal(0, 0.003, NODES)
        for node in range(NODES):
            values: list[float | None] = [None] * NIGHTS
            crossed = (f"n{node}", f"n{node}:gpu{first}", f"n{node}:gpu{second}")
            for visit, night in enumerate(np.flatnonzero(order == node).tolist()):
                lost = sum(slow.get((each, visit), 0.0) for each in crossed)
                values[night] = 400 * float(np.exp(own[node] + rng.normal(0, 0.003) - lost))
            made.append(Made(f"p_{first}_{second}_1mib", values, nodes=(crossed[0],), components=crossed))
    frame = history(made)
    return frame.with_columns(run_id=pl.col("run_id") + pl.col("nodes").list.first())


def watched(frame: pl.DataFrame, *accepted: Accepted) -> WatchResult:
    return watch(frame, SYSTEM, accepted, now=NOW)


def named(found: WatchResult) -> list[list[str]]:
    return [[each.key for each in incident.finding.components] for incident in found.incidents]


def test_healthy_nodes_are_not_named() -> None:
    assert watched(taking_turns({})).incidents == ()


def test_a_node_that_was_always_slow_is_named() -> None:
    found = watched(taking_turns({("n7", visit): 0.05 for visit in range(5)}))
    assert named(found) == [["n7"]]
    (incident,) = found.incidents
    assert (incident.affected, incident.watched) == (len(PAIRS), len(PAIRS))
    assert (incident.finding.code, incident.open, found.exit_status) == ("slow-node", True, 1)
    assert {each.last_good for each in incident.alerts} == {None}
    assert all(-0.07 < each.change < -0.03 for each in incident.alerts)
    assert "n7" in "".join(watch_lines(found)) and "n7" in to_json(found)


def test_a_node_that_became_slow_is_named_since_then() -> None:
    (incident,) = watched(taking_turns({("n7", visit): 0.05 for visit in (3, 4)})).incidents
    (alert, *_) = incident.alerts
    assert alert.last_good is not None
    assert alert.last_good.session < "s060" <= alert.first_bad.session < "s080" <= incident.raised.session


def test_a_slow_gpu_is_named_and_not_its_node() -> None:
    assert named(watched(taking_turns({("n7:gpu1", visit): 0.05 for visit in range(5)}))) == [["n7:gpu1"]]


def test_one_slow_session_names_no_node() -> None:
    assert watched(taking_turns({("n7", 4): 0.08})).incidents == ()


def test_a_node_that_is_good_again_is_no_incident() -> None:
    assert watched(taking_turns({("n7", visit): 0.05 for visit in range(4)})).incidents == ()


def test_what_was_accepted_is_not_told_again() -> None:
    frame = taking_turns({("n7", visit): 0.05 for visit in range(5)} | {("n3", visit): 0.05 for visit in (3, 4)})
    assert named(watched(frame, Accepted(date(2026, 1, 1), "an older board", ("*",)))) == [["n3"]]


def test_fewer_nodes_are_not_enough() -> None:
    frame = taking_turns({("n7", visit): 0.05 for visit in range(5)})
    some = frame.filter(pl.col("nodes").list.first().is_in(["n5", "n6", "n7", "n8"]))
    assert watched(some).incidents == ()
