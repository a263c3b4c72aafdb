"""How often localization names the right component: simulated faults, and a Markdown table of the shares.

    nice python -m benchmarks.localization --trials 400 --healthy 2000

The faults are drawn by kind, since most components are nodes and those are the easy ones. Right is only: as many
suspects as faults that show at all, and each suspect a component at fault or, at most, those that lie on exactly the
same readings with the same probability (a node, its only port and its cable; the trunks of a leaf, where nobody knows
which one a pair took) or, where routes are known, give the same readings beside the other faults. A larger set is
wrong, and so is one suspect too many.

With `--oracle` the same readings are given to an oracle that knows all but the faults (benchmarks/oracle.py), scored
by the same rule: once it knows the number of faults as well, once 0, 1, 2 and 3 are equally probable to it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial

import numpy as np
from scipy.stats import binomtest

from benchmarks.oracle import DENSITIES, MOST, Oracle
from fabricheck_lab.simulated_network import KINDS, NOISES, SCALE, Bench, Case, Fault, are_right, fat_tree

Draw = Callable[[], "Sequence[Fault]"]


def share_of_oracle(bench: Bench, oracle: Oracle, trials: int, draw: Draw, number: int) -> tuple[str, str]:
    """The same where the oracle names the faults: one that knows their number, and one that does not."""
    drawn = [bench.simulate(draw()) for _ in range(trials)]
    readings = np.array([each for each, *_ in drawn])
    weights = np.eye(MOST + 1)[number].tolist(), [1 / (MOST + 1)] * (MOST + 1)
    shares = []
    for named in oracle.name(readings, *weights):
        right = sum(are_right(one, seen, alike) for one, (_, seen, alike) in zip(named, drawn, strict=True))
        shares.append(_share(right, trials))
    return shares[0], shares[1]


def _share(right: int, trials: int) -> str:
    low, high = binomtest(right, trials).proportion_ci(0.95, method="exact")
    return f"{right / trials:.1%} ({low:.1%} to {high:.1%})"


def cases() -> dict[str, Case]:
    narrow = fat_tree(64, 8, 4)
    small = fat_tree(64, 8, 4, trunk_gbps=800.0)
    wide = fat_tree(64, 4, 2, trunk_gbps=1600.0)
    rails = fat_tree(64, 8, 4, nics=2, trunk_gbps=1600.0)
    chosen = []
    for label, network, places in (
        ("8 leaves, 4 spines, 1 NIC", small, small.nodes),
        ("4 leaves, 2 spines, 1 NIC", wide, wide.nodes),
        ("8 leaves, 4 spines, 2 NICs", rails, rails.ports),
    ):
        chosen += [Case(f"{label}, {routes}", network, places, routes) for routes in ("known", "unknown")]
    label = "8 leaves, 4 spines, 1 NIC"
    chosen.append(Case(f"{label}, unknown, narrow", narrow, narrow.nodes, "unknown"))
    for routes, network, stages, places, kinds in (
        ("known", rails, (8, 4), rails.ports, ("port",)),
        ("unknown", small, (8, 8, 8), small.nodes, ("trunk", "switch")),
        ("unknown, narrow", narrow, (8, 24, 24), narrow.nodes, ("trunk", "switch")),
    ):
        label = "8 leaves, 4 spines, " + ("2 NICs" if network is rails else "1 NIC")
        more = " + ".join(map(str, stages[1:]))
        name = f"{label}, {routes}, then {more} rounds"
        chosen.append(Case(name, network, places, routes.partition(",")[0], stages, kinds))
    return {case.name: case for case in chosen}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200, help="simulated runs for each kind of fault")
    parser.add_argument("--healthy", type=int, default=1000, help="simulated runs without a fault")
    parser.add_argument("--noise", type=float, default=0.02, help="relative standard deviation of a reading")
    parser.add_argument("--noise-kind", choices=NOISES, default="normal", help="of the readings")
    parser.add_argument("--loss", type=float, default=0.05, help="of the faults; two faults lose up to 20%%")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only the cases whose name holds this")
    parser.add_argument(
        "--oracle", action="store_true", help="beside it, where routes are known: the best there can be"
    )
    arguments = parser.parse_args()
    if arguments.oracle and arguments.noise_kind not in DENSITIES:
        parser.error(f"the oracle knows the noise {', '.join(DENSITIES)}")
    print("| network and routes | fault | right (95% interval) | oracle, number known | oracle | ms each |")
    print("|---|---|---|---|---|---|")
    for name, case in cases().items():
        if arguments.only in name:
            _run(case, arguments)


def _run(case: Case, arguments: argparse.Namespace) -> None:
    bench = Bench(case, arguments.noise, arguments.seed, NOISES[arguments.noise_kind])
    low, trials = arguments.loss, arguments.trials
    oracle = None
    if arguments.oracle and case.routes == "known" and len(case.stages) == 1:
        oracle = Oracle(bench.design, arguments.noise, arguments.noise_kind, low, SCALE)
    # What, how often, how it is drawn, and how many faults of a loss that an oracle knows.
    rows: list[tuple[str, int, Draw, int | None]] = [
        ("none (right: nothing named)", arguments.healthy, list, 0),
        *((f"one {kind}, {low:.0%}", trials, partial(_one, bench, kind, low), 1) for kind in case.kinds),
        *(
            (f"one {kind}, {2 * low:.0%}", trials, partial(_one, bench, kind, 2 * low), None)
            for kind in ("trunk", "switch")
            if case.routes != "known"
        ),
        (f"two, {low:.0%} each", trials, partial(_several, bench, 2, low, low), 2),
        (f"two, {low:.0%} to 20%", trials, partial(_several, bench, 2, low, 0.2), None),
        (f"three, {low:.0%} each", trials, partial(_several, bench, 3, low, low), 3),
    ]
    for what, count, draw, number in rows:
        start, before = time.perf_counter(), deepcopy(bench.random)
        right = sum(bench.trial(draw())[0] for _ in range(count))
        mean_ms = (time.perf_counter() - start) / count * 1e3
        best: tuple[str, str] = ("-", "-")
        if oracle is not None and number is not None:
            after, bench.random = bench.random, before
            best = share_of_oracle(bench, oracle, min(count, trials), draw, number)
            bench.random = after
        print(f"| {case.name} | {what} | {_share(right, count)} | {best[0]} | {best[1]} | {mean_ms:.0f} |", flush=True)


def _one(bench: Bench, kind: str, low: float) -> list[Fault]:
    return [bench.draw(kind, low, low)]


def _several(bench: Bench, number: int, low: float, high: float) -> list[Fault]:
    """Faults of any kind that readings can tell from each other."""
    faults: list[Fault] = []
    while len(faults) < number:
        another = bench.draw(str(bench.random.choice(KINDS)), low, high)
        if all(each.component not in bench.alike[another.component] for each in faults):
            faults.append(another)
    return faults


if __name__ == "__main__":
    main()
