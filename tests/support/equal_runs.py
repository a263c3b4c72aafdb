"""Runs of one operation on parts that are equal, with noise of a given size, for what the judge says of equals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

import numpy as np

from fabricheck.judge.system import SystemJudge
from fabricheck.records.run import Run
from fabricheck.yardsticks.policy import load_policy
from tests.support.made_runs import GIB, made_run, made_samples
from tests.support.nodes import ROOT, system

POLICY = load_policy(ROOT / "config" / "policy.yaml")


def judge_of(name: str = "hgx-h200") -> SystemJudge:
    """The judge of a system without references of its own."""
    return SystemJudge(system(name), None, POLICY)


def run_of(
    hosts: Sequence[str],
    ways: Sequence[tuple[int, ...]],
    *,
    slower: Mapping[tuple[int, ...], float] | None = None,
    level: float = 3150.0,
    operation: str = "unidirectional",
    transport: str = "copy",
    seed: int = 0,
    bytes_: int = GIB,
    **plan: object,
) -> Run:
    """A run in which each of `ways` reaches `level` Gb/s, less the share of `slower`, at any `schedule` of the plan."""
    schedule = str(plan.pop("schedule", "uncontended"))
    round_ = -1 if schedule == "uncontended" else 0
    rng = np.random.default_rng(seed)
    samples = []
    for way in ways:
        rates = list(level * (1 - (slower or {}).get(way, 0.0)) * rng.normal(1, 0.001, 100))
        samples.append(made_samples(operation, way, bytes_, rates, schedule=schedule, round_=round_))
    series = [
        {"operation": operation, "schedule": schedule, "ranks": list(way), "bytes": [bytes_], "round": round_}
        for way in ways
    ]
    ranks = [{"rank": number} for number in range(len(hosts))]
    made = {"series": series, "access": "write", **plan}
    return made_run(hosts, samples, transport=transport, devices=True, plan=made, ranks=ranks)


def pairs(gpus: int, first: int = 0) -> list[tuple[int, ...]]:
    """All ordered pairs of so many ranks, from `first` on."""
    return list(permutations(range(first, first + gpus), 2))
