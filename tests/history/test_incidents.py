"""Incidents are causes over time: a session's alerts join one only by its component or by their own explanation."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from fabricheck.history.watch import WatchResult, watch
from fabricheck.records.component import Kind
from tests.support.effort import effort
from tests.support.histories import NOW, SYSTEM, Made, history, normal

SESSIONS, GPUS = 156, 4
NAMED = "NVIDIA driver"


def node(
    rng: np.random.Generator, loss: dict[int, tuple[int, float]], accident: int | None, slow: set[str], onset: int
) -> list[Made]:
    """Pairs of a node's GPUs, goodput and latency, copies to the host, and a collective over all of them.

    `loss`: by GPU since when it loses which share. `accident`: the session since which the latency of the collective is
    up by half, which crosses the node alone. `slow`: metrics that lose 6% from session `onset` on.
    """
    metrics = []

    def add(name: str, parts: list[str], unit: str, lost: tuple[int, float], spread: float) -> None:
        since, drop = lost
        if f"{name} {unit}" in slow:
            drop, since = 0.06, onset
        goodput = normal(int(rng.integers(1 << 30)), SESSIONS, spread=spread, drop=drop, onset=since)
        better, values = ("higher", goodput) if unit == "Gb/s" else ("lower", [4000 / each for each in goodput])
        metrics.append(Made(f"{name}_{unit[0]}", values, better, unit, components=parts))

    for pair in permutations(range(GPUS), 2):
        ends = [f"n0:gpu{gpu}" for gpu in pair]
        low, high = sorted(pair)
        since, share = next((loss[gpu] for gpu in pair if gpu in loss), (SESSIONS, 0.0))
        for unit in ("Gb/s", "us"):
            name = f"pair_{pair[0]}_{pair[1]}"
            add(name, ["n0", *ends, f"n0:gpu{low}-gpu{high}"], unit, (since, share), 0.003)
    for gpu in range(GPUS):
        since, share = loss.get(gpu, (SESSIONS, 0.0))
        add(f"copy_{gpu}", ["n0", "n0:cpu0", f"n0:gpu{gpu}", f"n0:cpu0-gpu{gpu}"], "Gb/s", (since, share), 0.003)
    add("all", ["n0"], "us", (accident or SESSIONS, 0.3), 0.01)
    return metrics


def watched(metrics: list[Made], **more: object) -> WatchResult:
    return watch(history(metrics, **more), SYSTEM, (), now=NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
def test_a_loss_of_a_gpu_is_no_part_of_an_accident_the_night_before(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gpu, apart = int(rng.integers(GPUS)), int(rng.integers(1, 3))
    found = watched(node(rng, {gpu: (149 + apart, 0.03)}, 149, set(), SESSIONS))
    named = {each.finding.components[0].key for each in found.open_incidents if each.affected > 1}
    assert named == {f"n0:gpu{gpu}"}


@pytest.mark.parametrize("seed", range(effort(6, share=2)))
def test_a_late_metric_of_software_joins_its_incident(seed: int) -> None:
    """Half of what crosses the driver lost 6% with it; any of these is so noisy that it is seen nights later."""
    rng = np.random.default_rng(100 + seed)
    slow = {f"pair_{a}_{b} Gb/s" for a, b in permutations(range(GPUS), 2)} | {f"copy_{gpu} Gb/s" for gpu in range(GPUS)}
    metrics = node(rng, {}, None, slow, 140)
    late = int(rng.choice([number for number, each in enumerate(metrics) if each.metric.endswith("_G")]))
    values = normal(int(rng.integers(1 << 30)), SESSIONS, spread=0.04, drop=0.06, onset=140)
    metrics[late] = Made(metrics[late].metric, values, components=metrics[late].components)
    versions = {0: {"NVIDIA": "13.0", NAMED: "550"}, 140: {"NVIDIA": "13.0", NAMED: "560"}}
    found = watched(metrics, software=versions)
    incident, *others = found.open_incidents
    assert any(each.kind is Kind.DRIVER for each in incident.finding.components)
    assert others == []


def test_what_all_parts_of_a_node_lose_in_one_measurement_is_the_nodes() -> None:
    """The collective of the same test, over the same node, is as fast as before."""
    slow = {f"pair_{a}_{b} us" for a, b in permutations(range(GPUS), 2)}
    (incident,) = watched(node(np.random.default_rng(1), {}, None, slow, 140)).open_incidents
    assert [each.key for each in incident.finding.components] == ["n0"]
