"""How often a healthy session stays DEGRADED where each of its things is slow in a launch now and then, by chance.

    nice -n 19 python -m benchmarks.launches

The rule by which `fabricheck run` launches again (fabricheck.session.launches), with all launches that it may have and
with three, on sessions of which nothing is known but how many things they have, how many metrics each has, and in which
share of the launches a healthy one is slow: whatever shape of noise makes it so.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.noise import Generator
from benchmarks.regression import share
from benchmarks.sessions import launched_again
from fabricheck.records.verdict import Verdict
from fabricheck.session.launches import MOST_LAUNCHES, Launch

#: Things of a session, and how many metrics each has.
THINGS = {
    "18 nodes of 56 metrics": (18, 56),
    "1,008 metrics": (1008, 1),
    "512 nodes of 56 metrics": (512, 56),
    "2,048 GPUs of 14 metrics": (2048, 14),
    "28,672 metrics": (28_672, 1),
}
RATES = (1000, 500, 200, 100)


def degraded(rng: Generator, parts: int, metrics: int, rate: float, sessions: int, *, most: int = MOST_LAUNCHES) -> int:
    """How many of healthy sessions stay DEGRADED: of so many `things` of `metrics` each is slow with `rate`."""
    count = 0
    for _ in range(sessions):
        names = rng.choice(parts, rng.binomial(parts, rate), replace=False).tolist()
        first = {name: Launch(Verdict.DEGRADED, frozenset([str(name)]), metrics) for name in names}

        def again(left: Sequence[int], first: Mapping[int, Launch] = first) -> Mapping[int, Launch]:
            return {name: first[name] for name in left if rng.random() < rate}

        decided = launched_again(first, again, parts * metrics, most=most)
        count += any(each.verdict is Verdict.DEGRADED for each in decided.values())
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=20261125)
    parser.add_argument("--sessions", type=int, default=1000, help="of each cell")
    given = parser.parse_args()
    head = " | ".join(f"slow in 1 of {each:,} launches" for each in RATES)
    print(f"| healthy: DEGRADED | {head} |\n|---{'|---' * len(RATES)}|", flush=True)
    for (name, (parts, metrics)), most in itertools.product(THINGS.items(), (3, MOST_LAUNCHES)):
        cells = []
        for rate in RATES:
            rng = np.random.default_rng([given.seed, parts, rate, most])
            red = degraded(rng, parts, metrics, 1 / rate, given.sessions, most=most)
            cells.append(share(red, given.sessions, digits=1))
        print(f"| {name}, {most} launches at most | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
