"""A fleet of 512 nodes of which 26, others each night, are measured: what is slow, and no node that only was there."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fabricheck.history.compare import ChangeVerdict, compare
from fabricheck.history.watch import watch
from tests.support.histories import NOW, SYSTEM, Made, history

NODES, A_NIGHT, NIGHTS, SLOW = 512, 26, 60, 45
METRICS = ("goodput_0_1", "goodput_1_0")


def sampled(*, node: float = 0.0, stack: float = 0.0) -> pl.DataFrame:
    """Nodes differ by 0.5%, and so does each night. From night 45 on all lose `stack`, and node 31, which is measured
    in each of these nights, `node`."""
    rng = np.random.default_rng(7)
    own = rng.normal(0, 0.005, NODES)
    present = np.zeros((NODES, NIGHTS), dtype=bool)
    for night in range(NIGHTS):
        present[rng.choice(NODES, A_NIGHT, replace=False), night] = True
    present[31, SLOW:] = True
    loss = np.zeros((NODES, NIGHTS))
    loss[:, SLOW:] = stack
    loss[31, SLOW:] += node
    made = []
    for metric in METRICS:
        values = 400 * np.exp(own[:, None] + rng.normal(0, 0.005, (NODES, NIGHTS)) - loss)
        made += [
            Made(
                metric,
                [float(value) if there else None for value, there in zip(values[each], present[each], strict=True)],
                nodes=(f"n{each:03}",),
                components=(f"n{each:03}", f"n{each:03}:gpu0"),
            )
            for each in np.flatnonzero(present.any(axis=1)).tolist()
        ]
    frame = history(made, software={SLOW: {"nccl": "2.29.1"}} if stack else None)
    return frame.with_columns(run_id=pl.col("run_id") + pl.col("nodes").list.first())


def test_a_healthy_fleet_is_quiet() -> None:
    frame = sampled()
    assert watch(frame, SYSTEM, now=NOW).incidents == ()


def test_a_slow_node_is_named_and_is_no_slow_stack() -> None:
    frame = sampled(node=0.1)
    (incident,) = watch(frame, SYSTEM, now=NOW).incidents
    assert {each.node for each in incident.finding.components} == {"n031"}  # or its only GPU


def test_a_slow_stack_is_found_and_no_node_is_blamed_for_it() -> None:
    frame = sampled(stack=0.03)
    incidents = watch(frame, SYSTEM, now=NOW).incidents
    alerts = [alert for each in incidents for alert in each.alerts]
    assert {alert.key.metric for alert in alerts} == set(METRICS)
    assert {alert.software for alert in alerts} == {("nccl: 2.28.3 -> 2.29.1",)}
    assert all(alert.change == pytest.approx(-0.03, abs=0.006) for alert in alerts)
    assert not any(each.finding.components for each in incidents)


def test_compare_blames_no_node_of_many_either() -> None:
    found = compare(sampled(stack=0.03), SYSTEM, "..2026-02-14", "2026-02-15..", now=NOW)
    assert [each.verdict for each in found.metrics] == [ChangeVerdict.REGRESSED] * len(METRICS)
    assert found.findings == ()
