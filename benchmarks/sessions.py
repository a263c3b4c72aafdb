"""How often a healthy session is DEGRADED, and one with a slow part: by references of twenty runs, and by equals.

    nice -n 19 python -m benchmarks.sessions

A session has nodes of eight GPUs with 56 pairs each, a metric a pair, all on one level that varies from launch to
launch by a shape of `benchmarks.noise`. References are those of `calibrate`; equals are judged as the judge does. *Of
three*: what the first launch shows is launched again, as `fabricheck run` does, and two of three decide. The oracle
knows the noise and looks for each GPU, link and direction, at one false alarm in a hundred sessions.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from benchmarks.calibration import bounds
from benchmarks.noise import SHAPES, Floats, Generator, Shape
from benchmarks.regression import share
from fabricheck.judge.outliers import Parts, outliers
from fabricheck.judge.policy import load_policy
from fabricheck.suite import suite_root

GPUS, LAUNCHES, RUNS = 8, 3, 20
PAIRS = tuple(itertools.permutations(range(GPUS), 2))
PARTS = [Parts((f"gpu{a}", f"gpu{b}"), (f"gpu{min(a, b)}--gpu{max(a, b)}",)) for a, b in PAIRS]
FALSE_ALARMS = 0.01
_MANY = 2000
Flags = npt.NDArray[np.bool_]
#: What is slow, and which pairs have it.
FAULTS = {
    "a GPU, in its 14 pairs": [place for place, pair in enumerate(PAIRS) if 0 in pair],
    "a link, both ways": [place for place, pair in enumerate(PAIRS) if set(pair) == {0, 1}],
    "a link, one way": [PAIRS.index((0, 1))],
}


@dataclass(frozen=True)
class Made:
    """What a session is made of; `slow`: the metrics that lose `loss`."""

    shape: Shape
    metrics: int
    spread: float
    loss: float = 0.0
    slow: tuple[int, ...] = ()


def red_by_references(made: Made, values: Floats) -> Iterator[Flags]:
    """By session whether a bound says DEGRADED, of metrics that are slow where some are: the first launch, and two of
    three; `values` has shape (metrics, RUNS + sessions * LAUNCHES)."""
    kinds = np.arange(made.metrics) // len(PAIRS)
    centre, reach = bounds(values[:, :RUNS], kinds, np.zeros(made.metrics), FALSE_ALARMS)
    with np.errstate(invalid="ignore"):
        out = values[:, RUNS:].reshape(made.metrics, -1, LAUNCHES) > (centre + reach)[:, None, None]
    out = out[list(made.slow)] if made.slow else out
    yield out[..., 0].any(axis=0)
    yield (out[..., 0] & (out.sum(axis=-1) > LAUNCHES // 2)).any(axis=0)


def red_by_equals(made: Made, values: Floats) -> Iterator[Flags]:
    """The same by equals."""
    policy = load_policy(suite_root() / "config" / "policy.yaml")
    least = policy.spread_of_equals("goodput", "node", True, "one", host_memory=False)
    error = policy.equals_error / max(policy.equals_metrics, made.metrics) / 2 * len(PAIRS)

    def slow_in(node: int, launch: int) -> set[int]:
        rows = slice(node * len(PAIRS), (node + 1) * len(PAIRS))
        found = outliers(values[rows, RUNS + launch], np.zeros(len(PAIRS)), PARTS, least, error)
        members = {member for each in found for member in each.members}
        return members & set(made.slow) if made.slow else members

    sessions = (values.shape[1] - RUNS) // LAUNCHES
    first, most = np.zeros(sessions, dtype=bool), np.zeros(sessions, dtype=bool)
    for session, node in itertools.product(range(sessions), range(1 if made.slow else made.metrics // len(PAIRS))):
        if found := slow_in(node, session * LAUNCHES):
            first[session] = True
            again = [slow_in(node, session * LAUNCHES + launch) for launch in range(1, LAUNCHES)]
            most[session] |= any(any(member in each for each in again) for member in found)
    yield first
    yield most


def measured(made: Made, rng: Generator, systems: int, sessions: int) -> list[str]:
    found = []
    for _ in range(systems):
        values = made.spread * made.shape.make(rng, made.metrics, RUNS + sessions * LAUNCHES)
        values[list(made.slow), RUNS:] += made.loss
        found.append([*red_by_references(made, values), *red_by_equals(made, values)])
    number = systems * sessions
    return [share(int(np.concatenate(each).sum()), number, digits=1) for each in zip(*found, strict=True)]


def oracle(metrics: int, members: int, ratio: float) -> float:
    """The power of a test that knows the spread: of a mean over `members` metrics, whose loss is `ratio` spreads."""
    nodes = metrics // len(PAIRS)
    parts = nodes * (GPUS + GPUS * (GPUS - 1) // 2 + len(PAIRS))
    return float(norm.sf(norm.isf(FALSE_ALARMS / parts) - ratio * np.sqrt(members)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=20261123)
    parser.add_argument("--systems", type=int, default=5, help="that are calibrated, for each row")
    parser.add_argument("--sessions", type=int, default=40, help="of each system")
    parser.add_argument("--sizes", type=int, nargs="+", default=[280, 1008], help="metrics of a session")
    given = parser.parse_args()
    head = "references | of three | equals | of three"
    print(f"| healthy, noise | metrics | {head} |\n|---|---|---|---|---|---|")
    for shape, metrics in itertools.product(SHAPES, given.sizes):
        sessions = given.sessions if metrics < _MANY else given.sessions // 5
        cells = measured(
            Made(shape, metrics, 0.02), np.random.default_rng([given.seed, metrics]), given.systems, sessions
        )
        print(f"| {shape.name} | {metrics:,} | {' | '.join(cells)} |", flush=True)
    print(f"\n| slow, 1,008 metrics, Gaussian | loss at spread | {head} | oracle |\n|---|---|---|---|---|---|---|")
    for (what, slow), (loss, spread) in itertools.product(FAULTS.items(), ((0.05, 0.02), (0.03, 0.005))):
        rng = np.random.default_rng([given.seed, len(slow), int(1e4 * loss)])
        cells = measured(Made(SHAPES[0], 1008, spread, loss, tuple(slow)), rng, given.systems, given.sessions)
        known = f"{oracle(1008, len(slow), loss / spread):.1%}"
        print(f"| {what} | {loss:.0%} at {spread:.1%} | {' | '.join(cells)} | {known} |", flush=True)


if __name__ == "__main__":
    main()
