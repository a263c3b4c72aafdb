"""What `fabricheck upgrade` answers, and whom its bisection names, at the noise of recorded launches.

    nice -n 19 python -m benchmarks.upgrades docs/results/upgrade-h100x2-2026-11-26/medians.json

The file has, for each session and transport, the medians (ns) of a metric in all launches of one and the same program.
Launches are drawn with repetition, relative to the mean of their session, for either side; the new one has a planted
loss or none. A bisection has so many packages that differ, of which one costs, two cost only together, or none costs.
`--only searches` draws the changes of a bisection from the normal distribution instead: many packages, and a loss of so
many standard errors.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.regression import share
from fabricheck.statistics.constants import FEWEST
from fabricheck.upgrade.bisection import BisectionOutcome, Exchange, bisect
from fabricheck.upgrade.decision import (
    LOOKS,
    Answer,
    Changes,
    Key,
    MetricGains,
    UpgradeChange,
    changes_of_gains,
    further_rounds,
    quantity_of,
)

Floats = npt.NDArray[np.float64]
Generator = np.random.Generator
#: Changes the times (launches, metrics) in ns of a transport: its name, its metrics as (operation, bytes), the times.
Plant = Callable[[str, Sequence[tuple[str, int]], Floats], Floats]

MARGIN, SMALLEST = 0.05, 0.02
LARGE = 65536
PACKAGES = 4
# How much 3 us are of an allreduce of NCCL there: the logarithm of its time with them over that without.
LOSS = 0.15


@dataclass(frozen=True)
class Pool:
    """Recorded launches of a transport: metrics as (operation, bytes), and times in ns, (launches, metrics)."""

    metrics: tuple[tuple[str, int], ...]
    times: Floats

    @classmethod
    def of(cls, sessions: Sequence[Mapping[str, Sequence[int]]]) -> Pool:
        """Of several sessions, each with the times of all launches by `operation bytes`: what a session has in common
        is not noise within a job."""
        names = list(sessions[0])
        logarithms = [np.log(np.array([session[name] for name in names])) for session in sessions]
        level = np.mean([own.mean(axis=1) for own in logarithms], axis=0)
        centred = [own - own.mean(axis=1, keepdims=True) + level[:, None] for own in logarithms]
        metrics = tuple((name.rpartition(" ")[0], int(name.rpartition(" ")[2])) for name in names)
        return cls(metrics, np.exp(np.concatenate(centred, axis=1).T))


def read_pools(file: Path) -> dict[str, Pool]:
    """The launches of each transport."""
    sessions: dict[str, dict[str, dict[str, list[int]]]] = json.loads(file.read_text(encoding="utf-8"))
    transports = sorted({name for session in sessions.values() for name in session})
    return {name: Pool.of([session[name] for session in sessions.values() if name in session]) for name in transports}


def nothing(_: str, __: Sequence[tuple[str, int]], times: Floats) -> Floats:
    """A stack like the old one."""
    return times


def delay(transport: str, metrics: Sequence[tuple[str, int]], times: Floats) -> Floats:
    """3 µs in each allreduce of NCCL."""
    slower: Floats = times + np.array([3000.0 * (transport == "ccl" and name == "allreduce") for name, _ in metrics])
    return slower


def loss(part: float, operations: Sequence[str] = (), *, large: bool = True) -> Plant:
    """A part of the goodput, or of the speed of small messages, of NCCL: of all operations or of some."""

    def plant(transport: str, metrics: Sequence[tuple[str, int]], times: Floats) -> Floats:
        lost = [
            transport == "ccl" and (size >= LARGE) == large and (not operations or name in operations)
            for name, size in metrics
        ]
        slower: Floats = times / np.where(lost, 1 - part, 1.0)
        return slower

    return plant


PLANTS: Mapping[str, Plant] = {
    "nothing": nothing,
    "3 us in allreduce": delay,
    "2% of large allreduces": loss(0.02, ["allreduce"]),
    "2% of all large": loss(0.02),
    "5% of all small": loss(0.05, large=False),
}


def drawn(rng: Generator, pools: Mapping[str, Pool], plant: Plant, rounds: int) -> dict[str, Floats]:
    """The logarithms of the times of each transport, (rounds, metrics)."""
    return {
        name: np.log(plant(name, pool.metrics, pool.times[rng.integers(0, len(pool.times), rounds)]))
        for name, pool in pools.items()
    }


def compared(
    pools: Mapping[str, Pool], old: Mapping[str, Floats], new: Mapping[str, Floats], rounds: int, looks: int
) -> Changes:
    """What changed in so many of the rounds."""
    metrics: dict[Key, MetricGains] = {}
    for transport, pool in pools.items():
        for column, (operation, size) in enumerate(pool.metrics):
            before, after = old[transport][:rounds, column], new[transport][:rounds, column]
            quantity = quantity_of(size)
            gains = MetricGains(operation, quantity, before - after, float(before.mean()))
            metrics[f"{transport} {quantity}", transport, f"{operation} {size}"] = gains
    return changes_of_gains(metrics, smallest_effect=SMALLEST, margin=MARGIN, looks=looks)


def answer(rng: Generator, pools: Mapping[str, Pool], plant: Plant, fitting: int) -> tuple[Answer, int]:
    """The answer of an upgrade where so many rounds fit into its time, and after how many rounds it is given."""
    old, new = (drawn(rng, pools, own, max(fitting, FEWEST)) for own in (nothing, plant))
    changes, rounds = compared(pools, old, new, FEWEST, LOOKS), FEWEST
    if changes.answer is Answer.CANNOT_SAY and (more := further_rounds(changes, MARGIN, fitting)):
        rounds += more
        changes = compared(pools, old, new, rounds, LOOKS)
    return changes.answer, rounds


def cause(rng: Generator, pools: Mapping[str, Pool], guilty: Exchange, rounds: int) -> tuple[BisectionOutcome, bool]:
    """What a bisection comes to where only the packages `guilty` together delay allreduce; whether it names others."""

    def measure(exchanges: Sequence[Exchange]) -> list[UpgradeChange]:
        old = drawn(rng, pools, nothing, rounds)
        planted = [delay if guilty and set(guilty) <= set(exchange) else nothing for exchange in exchanges]
        changes = [compared(pools, old, drawn(rng, pools, own, rounds), rounds, 1) for own in planted]
        return [
            next(each for each in of.operations if each.name == "allreduce" and each.quantity == "latency")
            for of in changes
        ]

    result = bisect(PACKAGES, measure, loss=LOSS, smallest_effect=SMALLEST)
    return result.outcome, not set(result.guilty) <= set(guilty)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="medians of recorded launches")
    parser.add_argument("--seed", type=int, default=20261126)
    parser.add_argument("--comparisons", type=int, default=200, help="of each cell; five times as many of nothing")
    parser.add_argument("--rounds", default="8,16,35,60", help="rounds that fit into the time, for each column")
    parser.add_argument("--transport", help="launches of one transport alone")
    parser.add_argument("--only", choices=("upgrades", "bisections", "searches"), help="one of the tables")
    given = parser.parse_args()
    if given.only == "searches":
        print_searches(given.seed, given.comparisons)
        return
    pools = {name: pool for name, pool in read_pools(given.file).items() if given.transport in (None, name)}
    columns = [int(text) for text in given.rounds.split(",")]
    if given.only != "bisections":
        print_upgrades(pools, columns, given.seed, given.comparisons)
    if given.only != "upgrades":
        print_bisections(pools, columns, given.seed, given.comparisons)


def searched(rng: Generator, packages: int, guilty: Exchange, errors: float, freedom: int) -> tuple[bool, bool]:
    """Whether a bisection names packages, and others than the guilty. The loss is so many standard errors of a change,
    which are estimated with so many degrees of freedom; exchanges of a job share the launches of the old stack."""
    error = LOSS / errors

    def measure(exchanges: Sequence[Exchange]) -> list[UpgradeChange]:
        old, new = rng.normal(0, error / math.sqrt(2)), rng.normal(0, error / math.sqrt(2), len(exchanges))
        lost = [LOSS * (bool(guilty) and set(guilty) <= set(exchange)) for exchange in exchanges]
        told = error * np.sqrt(rng.chisquare(freedom, len(exchanges)) / freedom)
        return [
            UpgradeChange(
                "", "", "", "latency", 1, math.exp(own - old - loss), (1, 1), own_error, freedom, (), Answer.SAME
            )
            for own, loss, own_error in zip(new, lost, told, strict=True)
        ]

    result = bisect(packages, measure, loss=LOSS, smallest_effect=SMALLEST)
    return bool(result.guilty), not set(result.guilty) <= set(guilty)


def print_searches(seed: int, searches: int) -> None:
    """The table of what searches among so many packages name, with a column for the loss in standard errors."""
    columns = (3, 6, 12)
    print(
        f"| packages; guilty | {' | '.join(f'{errors} errors' for errors in columns)} |\n|---{'|---' * len(columns)}|"
    )
    for number, (packages, guilty) in enumerate(
        (each, own) for own in ((1,), (0, 1), ()) for each in (2, 4, 6, 12, 30)
    ):
        cells = []
        for errors in columns:
            rng = np.random.default_rng([seed, 200 + number, errors])
            ended = [searched(rng, packages, guilty, errors, freedom) for freedom in (7, 40) for _ in range(searches)]
            named, wrong = (sum(of) for of in zip(*ended, strict=True))
            cells.append(f"named {share(named, len(ended))}, a wrong one {share(wrong, len(ended), digits=1)}")
        print(f"| {packages}; {len(guilty) or 'none'} | {' | '.join(cells)} |", flush=True)


def print_upgrades(pools: Mapping[str, Pool], columns: Sequence[int], seed: int, comparisons: int) -> None:
    """The table of answers, with a column for how many rounds fit into the time."""
    print(f"| planted | {' | '.join(f'{rounds} rounds fit' for rounds in columns)} |\n|---{'|---' * len(columns)}|")
    for number, (title, plant) in enumerate(PLANTS.items()):
        cells = []
        for fitting in columns:
            rng, count = np.random.default_rng([seed, number, fitting]), comparisons * (5 if plant is nothing else 1)
            ended = [answer(rng, pools, plant, fitting) for _ in range(count)]
            answers = Counter(of for of, _ in ended)
            rounds = math.fsum(after for _, after in ended) / count
            go = share(answers[Answer.SAME] + answers[Answer.BETTER], count)
            cells.append(f"worse {share(answers[Answer.WORSE], count, digits=1)}, GO {go}, {rounds:.0f} rounds")
        print(f"| {title} | {' | '.join(cells)} |", flush=True)


def print_bisections(pools: Mapping[str, Pool], columns: Sequence[int], seed: int, comparisons: int) -> None:
    """The table of whom a bisection names, with a column for how many rounds it has."""
    heads = " | ".join(f"{rounds} rounds" for rounds in columns)
    print(f"| {PACKAGES} packages; guilty | {heads} |\n|---{'|---' * len(columns)}|")
    for number, (title, guilty) in enumerate({"one": (1,), "two, only together": (1, 2), "none": ()}.items()):
        cells = []
        for rounds in columns:
            rng = np.random.default_rng([seed, 100 + number, rounds])
            ended = [cause(rng, pools, guilty, rounds) for _ in range(comparisons)]
            outcomes = ", ".join(f"{of.value} {count}" for of, count in Counter(of for of, _ in ended).items())
            wrong = share(sum(is_wrong for _, is_wrong in ended), len(ended), digits=1)
            cells.append(f"{outcomes}; a wrong one named {wrong}")
        print(f"| {title} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
