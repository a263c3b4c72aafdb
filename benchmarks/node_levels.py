"""What references with levels of nodes say of metrics between two nodes, others each session.

    python -m benchmarks.node_levels

Twelve metrics of a system are calibrated on pairs of ten nodes that differ by 2%, with a noise of 0.2%. Then healthy
pairs are judged of whose nodes both, one and none was seen before, and known ones that lost 3%. A pair is as fast as
the sum of what its nodes differ by, as calibrate takes it to be, or as the slower one of the two. A run is beyond its
bound where its median is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import numpy as np
import polars as pl

from fabricheck.history.calibrate import Calibrated, calibrate
from fabricheck.records.judgement import Reference
from fabricheck.yardsticks.node_levels import level_on

METRICS, NODES, DIFFER, NOISE, LOSS = 12, 10, 0.02, 0.002, 0.03
START = datetime(2026, 1, 1, 2, tzinfo=timezone.utc)
PAIRS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "the sum of both": lambda own: own.sum(axis=-1),
    "the slower one": lambda own: own.min(axis=-1),
}
CASES = ("both", "one", "none", "both, 3% lost")


@dataclass(frozen=True)
class _System:
    """`own`: by how much each node differs, shape (metrics, nodes), the last two of which were never seen."""

    own: np.ndarray
    pair: Callable[[np.ndarray], np.ndarray]

    def run(self, metric: int, nodes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Values, shape (n,), between `nodes`, shape (n, 2)."""
        level = self.pair(self.own[metric][nodes])
        return np.asarray(400 * np.exp(level + NOISE * rng.standard_normal(len(nodes))))


def history_of(system: _System, runs: int, rng: np.random.Generator) -> pl.DataFrame:
    """As the store gives it: one run a session, between two of the nodes."""
    nodes = np.array([rng.choice(NODES, 2, replace=False) for _ in range(runs)])
    names = [[f"n{one}" for one in pair] for pair in nodes]
    frames = [
        pl.DataFrame({"value": system.run(metric, nodes, rng), "nodes": names, "components": names}).with_columns(
            session=pl.format("s{}", pl.int_range(pl.len())),
            run_id=pl.format("r{}", pl.int_range(pl.len())),
            started=pl.Series([START + timedelta(days=day) for day in range(runs)]),
            metric=pl.lit(f"pingpong_uncontended_{metric}_{metric + 1}_1gib_goodput"),
        )
        for metric in range(METRICS)
    ]
    alike = {"system": "made", "partition": "gpu", "environment": "e", "test": "PingPong", "unit": "Gb/s"}
    alike |= {"better": "higher", "verdict": "PASS", "software": "{}", "tuning": "{}"}
    return (
        pl.concat(frames)
        .with_columns(**{name: pl.lit(text) for name, text in alike.items()}, low="value", high="value")
        .with_columns(count=pl.lit(100), deviation=0.005 * pl.col("value"), rehearsal=pl.lit(False))
        .with_columns(tags=pl.Series([[""]] * METRICS * runs))
        .sort("started", maintain_order=True)
    )


def as_judged(calibrated: Calibrated) -> Reference:
    levels = calibrated.nodes
    nodes = (
        {name: Reference(value, levels.lower, levels.upper, calibrated.unit, "") for name, value in levels.values}
        if levels is not None
        else {}
    )
    return Reference(calibrated.value, calibrated.lower, calibrated.upper, calibrated.unit, "", nodes)


def beyond(
    system: _System, metrics: Sequence[Calibrated], case: str, pairs: int, rng: np.random.Generator
) -> list[bool]:
    """Whether runs of each metric, between so many pairs, are beyond the bound."""
    red = []
    for metric in metrics:
        number, reference = int(metric.key.metric.split("_")[2]), as_judged(metric)
        seen = CASES.index(case) if case in CASES[:3] else 0
        new = NODES + rng.permutation(2)[:seen]
        nodes = np.array([[*rng.choice(NODES, 2 - seen, replace=False), *new] for _ in range(pairs)])
        values = system.run(number, nodes, rng) * (1 - LOSS if case == CASES[3] else 1)
        for pair, value in zip(nodes.tolist(), values, strict=True):
            level = level_on(reference, frozenset(f"n{one}" for one in pair))
            assert level.lower is not None
            red.append(bool(value < level.value * (1 + level.lower)))
    return red


def line(name: str, runs: int, levels: bool, systems: int, pairs: int) -> str:
    red: dict[str, list[bool]] = {case: [] for case in CASES}
    bounds, references = [], 0
    for seed in range(systems):
        rng = np.random.default_rng([seed, runs])
        system = _System(DIFFER * rng.standard_normal((METRICS, NODES + 2)), PAIRS[name])
        history = history_of(system, runs, rng)
        if not levels:  # as if nothing said where
            history = history.with_columns(nodes=pl.lit(["n"]), components=pl.lit(["n"]))
        calibrated = calibrate(history, "made").references
        references += len(calibrated)
        bounds += [each.lower if each.nodes is None else each.nodes.lower for each in calibrated]
        for case in CASES:
            red[case] += beyond(system, calibrated, case, pairs, rng)
    cells = [f"{np.mean(each):.2%} of {len(each):,}" for each in red.values()]
    return (
        f"| {name} | {runs} | {'with' if levels else 'without'} | {references / systems / METRICS:.0%} | "
        f"{-np.median(bounds):.1%} | {' | '.join(cells)} |"
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=int, default=10, help="that are calibrated")
    parser.add_argument("--pairs", type=int, default=50, help="of each metric that are judged")
    given = parser.parse_args(arguments)
    heads = (
        "a pair is",
        "runs",
        "levels",
        "references",
        "bound of known nodes",
        *(f"DEGRADED: {each}" for each in CASES),
    )
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for name in PAIRS:
        for runs in (30, 60, 120):
            for levels in (False, True):
                print(line(name, runs, levels, given.systems, given.pairs), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
