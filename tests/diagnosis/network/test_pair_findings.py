"""Two cables swapped between leaves are named by the latencies of all pairs; nothing else is, by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from fabricheck.diagnosis.network.pair_findings import find_swapped
from fabricheck.records.finding import Finding
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from tests.support.effort import effort
from tests.support.made_runs import made_run, made_samples
from tests.support.nodes import system

EMULATED = system("emulated")
LEAF = {number: number // 4 for number in range(8)}
# Under one switch, and over two (De Sensi et al., SC24, section V-B, figure 8), in us.
NEAR, FAR = 3.7, 5.7


def run_of(leaf: Mapping[int, int], *, noise: float, seed: int, far: float = FAR, slow: int | None = None) -> Run:
    """8 B between all pairs of eight nodes with a rank each; `leaf`: where their cables really are."""
    rng = np.random.default_rng(seed)
    samples = []
    for one, other in combinations(range(8), 2):
        level = (NEAR if leaf[one] == leaf[other] else far) * (3.0 if slow in (one, other) else 1.0)
        times = level * rng.lognormal(0, noise) * (1 + rng.exponential(0.2, 50))
        samples.append(made_samples("unidirectional", (one, other), 8, list(8 * 8 / times / 1e3), schedule="contended"))
    hosts = [f"nid{number + 1:03}" for number in range(8)]
    sent = {host: {"hsn0": 1 << 30} for host in hosts}
    return replace(made_run(hosts, samples), footer={"proof": {"interfaces": sent}})


def found(run: Run) -> list[Finding]:
    return list(find_swapped(run, EMULATED, 0.001))


@pytest.mark.parametrize("slow", [None, 2, 1])
def test_swapped_cables_are_named(slow: int | None) -> None:
    (problem,) = found(run_of(LEAF | {1: 1, 6: 0}, noise=0.03, seed=1, slow=slow))
    assert (problem.verdict, problem.place) == (Verdict.DEGRADED, "nid002:hsn0 or nid007:hsn0")
    assert "nid002:hsn0 and nid007:hsn0 seem to have each other's cables" in problem.message


def test_what_is_wired_as_described_or_takes_as_long_names_nothing() -> None:
    for seed in range(effort(200)):
        assert found(run_of(LEAF, noise=0.05, seed=seed)) == []
        assert found(run_of(LEAF | {1: 1, 6: 0}, noise=0.2, seed=seed, far=NEAR)) == []
        assert found(run_of(LEAF, noise=0.05, seed=seed, slow=seed % 8)) == []
