"""How often a healthy fleet of 512 nodes has a node accused, and whether five bad parts of five kinds are all named.

    nice -n 19 python -m benchmarks.fleets

A simulation with the rules of the judge: each node has eight GPUs, whose 56 pairs are judged by their equals on the
node and, as a whole, by the other nodes; what is DEGRADED is launched again on that node, as often as a run does. A
screen of eight rounds measures pairs of nodes; its suspects are measured again in four rounds with good partners. Pairs
of GPUs differ by 0.25% from launch to launch and a node as a whole by 0.2%, as recorded (config/policy.yaml, `equals`);
readings of the network by 2%. The noise has the shape of a row, and everything is drawn anew for each fleet and launch.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from benchmarks.many_groups import may_be_outliers
from benchmarks.noise import SHAPES, Generator, Shape
from benchmarks.regression import share
from benchmarks.sessions import PAIRS, PARTS, launched_again
from fabricheck.diagnosis.network.localize import Locator
from fabricheck.diagnosis.network.pair_findings import counted_suspects, find_slow_parts
from fabricheck.diagnosis.network.results import Rounds
from fabricheck.diagnosis.network.round_plan import RoundsPlan, retest, screen
from fabricheck.diagnosis.network.routes import Design, design
from fabricheck.fleet.screen import ROUNDS, ROUNDS_AGAIN
from fabricheck.records.verdict import Verdict
from fabricheck.session.launches import Launch
from fabricheck.statistics.outliers import CrossedParts, outliers
from fabricheck.suite import suite_root
from fabricheck.topology.network import node_of
from fabricheck.yardsticks.policy import Policy, load_policy
from fabricheck_lab import simulated_network as simulated

Floats = npt.NDArray[np.float64]
NODES, LEAVES, SPINES = 512, 32, 8
OF_PAIR, OF_NODE, OF_READING = 0.0025, 0.002, 0.02
WANTED = ("Gaussian", "heavy tails (t3)", "skewed", "bimodal", "dips on 1%", "tenfold outliers on 1%")
#: What the five parts lose: of a GPU, a link between two, a node as a whole, a port and a trunk.
GPU, LINK, NODE, PORT, TRUNK = 0.05, 0.05, 0.05, 0.2, 0.2


@dataclass(frozen=True)
class Bad:
    """The bad parts of a fleet: `slow`, by node, what its pairs lose; `faults`: of the network; `named`: all."""

    slow: Mapping[int, Floats] = field(default_factory=dict)
    faults: tuple[simulated.Fault, ...] = ()
    named: frozenset[str] = frozenset()


class Fleet:
    """The network of all fleets, and the rules by which they are judged."""

    def __init__(self) -> None:
        self.policy: Policy = load_policy(suite_root() / "config" / "policy.yaml")
        self.network = simulated.fat_tree(NODES, LEAVES, SPINES, trunk_gbps=400.0)
        self.ways = simulated.KnownWays(self.network)
        self.plan = screen(self.ways, self.network.nodes, ROUNDS)
        self.design = design(self.ways, self.plan.pairs)
        self.locator = Locator(self.design)
        self.names = self.network.nodes

    def slow_nodes(self, values: Floats, of_all: Floats, nodes: Sequence[int]) -> dict[int, Launch]:
        """What is slow on each of `nodes`, by `values` of shape (nodes, pairs): parts, and pairs by number. `of_all`:
        the values of all nodes."""
        policy = self.policy
        error = policy.equals_error / max(policy.equals_metrics, NODES * len(PAIRS)) / 4
        parts: dict[int, set[str]] = {}
        slow: dict[int, set[int]] = {}
        least = policy.spread_of_equals("goodput", "node", True, "one", host_memory=False)
        may_be = may_be_outliers(values, np.zeros_like(values), PARTS, least, error * len(PAIRS))
        for place in np.flatnonzero(may_be).tolist():
            for outlier in outliers(values[place], np.zeros(len(PAIRS)), PARTS, least, error * len(PAIRS)):
                common = set[str].intersection(*({*PARTS[member].all} for member in outlier.members))
                parts.setdefault(nodes[place], set()).update(common, map(str, outlier.members))
                slow.setdefault(nodes[place], set()).update(outlier.members)
        least = policy.spread_of_equals("goodput", "node", True, "several", host_memory=False)
        levels = np.median(of_all, axis=1)
        levels[list(nodes)] = np.median(values, axis=1)
        hosts = [CrossedParts((name,)) for name in self.names]
        for outlier in outliers(levels, np.zeros(NODES), hosts, least, error * NODES * len(PAIRS)):
            for member in outlier.members:
                if member in nodes:
                    parts.setdefault(member, set()).add("the node")
                    slow[member] = set(range(len(PAIRS)))
        return {node: Launch(Verdict.DEGRADED, frozenset(each), len(slow[node])) for node, each in parts.items()}

    def accused_nodes(self, shape: Shape, rng: Generator, bad: Bad) -> tuple[set[str], set[str]]:
        """`NODE:PART` of what is DEGRADED by the first launch, and of what stays so."""

        def launch(nodes: Sequence[int]) -> Floats:
            count = len(nodes)
            of_pairs = shape.make(rng, count * len(PAIRS), 1).reshape(count, len(PAIRS))
            values = OF_PAIR * of_pairs + OF_NODE * shape.make(rng, count, 1)
            for place, node in enumerate(nodes):
                values[place] += bad.slow.get(node, 0.0)
            return np.asarray(values)

        everyone = list(range(NODES))
        values = launch(everyone)
        first = self.slow_nodes(values, values, everyone)

        def again(left: Sequence[int]) -> Mapping[int, Launch]:
            return self.slow_nodes(launch(left), values, left)

        decided = launched_again(first, again, NODES * len(PAIRS))
        return self._parts_of(first), self._parts_of(decided)

    def _parts_of(self, launches: Mapping[int, Launch]) -> set[str]:
        return {f"{self.names[node]}:{part}" for node, launch in launches.items() for part in launch.slow}

    def accused_network(self, kind: simulated.Noise, rng: Generator, bad: Bad) -> set[str]:
        """Places that the screen suspects and that measuring again does not clear."""

        def read(made: Design) -> Floats:
            took = simulated.taken(made, rng)
            return simulated.measure(made, simulated.healthy_share(made, bad.faults, took), OF_READING, rng, kind)

        readings = read(self.design)
        located = self.locator.locate(readings)
        counted = counted_suspects(located, self.design, self.policy)
        if not counted:
            return set()
        names = [name for suspect in counted for name in simulated.names_of(suspect)]
        plan = retest(self.ways, self.names, names, ROUNDS_AGAIN, seed=1)
        again = read(design(self.ways, plan.pairs))
        rounds, second = with_readings(self.plan, readings), with_readings(plan, again)
        parts = find_slow_parts(self.ways, rounds, second, self.policy, duplex=True)
        return {name for suspect in parts.suspects for name in simulated.names_of(suspect)}


def with_readings(plan: RoundsPlan, readings: Floats) -> Rounds:
    """The pairs of each round with what they gave."""
    values = iter(readings.tolist())
    return [[(pair, next(values)) for pair in pairs] for pairs in plan.pairs]


def draw_bad(fleet: Fleet, rng: Generator) -> Bad:
    """Five bad parts of five kinds, on different nodes."""
    gpu, link, whole, port = rng.choice(NODES, 4, replace=False).tolist()
    source, destination = sorted(int(each) for each in rng.choice(8, 2, replace=False))

    def losing(loss: float, is_slow: Sequence[bool]) -> Floats:
        return np.asarray(-np.log1p(-loss) * np.asarray(is_slow, dtype=float))

    slow = {
        gpu: losing(GPU, [source in pair for pair in PAIRS]),
        link: losing(LINK, [{source, destination} == set(pair) for pair in PAIRS]),
        whole: losing(NODE, [True] * len(PAIRS)),
    }
    kinds = zip(fleet.ways.components, fleet.ways.kinds, strict=True)
    trunk = str(rng.choice([name for name, kind in kinds if kind == "trunk"]))
    name = fleet.network.ports_of(fleet.names[port])[0]
    faults = (simulated.Fault(name, PORT), simulated.Fault(trunk, TRUNK))
    named = {
        f"{fleet.names[gpu]}:gpu{source}",
        f"{fleet.names[link]}:gpu{source}--gpu{destination}",
        f"{fleet.names[whole]}:the node",
    }
    return Bad(slow, faults, frozenset({*named, name, trunk}))


def judged(fleet: Fleet, shape: Shape, rng: Generator, bad: Bad) -> tuple[bool, bool, bool]:
    """Of one fleet: whether anything healthy is accused by one launch, and in the end; and whether all is named."""
    kinds = {"heavy tails (t3)": "t3", "tenfold outliers on 1%": "outliers", "dips on 1%": "collapses"}
    first, stay = fleet.accused_nodes(shape, rng, bad)
    network = fleet.accused_network(simulated.NOISES[kinds.get(shape.name, "normal")], rng, bad)
    places = {node_of(each.partition("--")[0]) if ":" in each else each for each in bad.named}
    false_first, false_stay = ({each for each in one if node_of(each) not in places} for one in (first, stay))
    # A port, its cable and its only node are the same thing to the readings; so is a trunk to nothing else.
    known = {each for each in network if node_of(each.partition("--")[0]) in places or each in bad.named}
    false_network = network - known
    return bool(false_first or false_network), bool(false_stay or false_network), bad.named <= network | stay


def rows(fleet: Fleet, healthy: int, faulty: int, seed: int, only: str = "") -> Iterator[str]:
    for shape in SHAPES:
        if shape.name not in WANTED or only not in shape.name:
            continue
        rng = np.random.default_rng([seed, len(shape.name)])
        good = [judged(fleet, shape, rng, Bad()) for _ in range(healthy)]
        bad = [judged(fleet, shape, rng, draw_bad(fleet, rng)) for _ in range(faulty)]
        cells = [
            *(share(sum(each[place] for each in good), healthy, digits=1) for place in (0, 1)),
            *(share(sum(each[place] for each in bad), faulty, digits=1) for place in (2, 1)),
        ]
        yield f"| {shape.name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=20261124)
    parser.add_argument("--healthy", type=int, default=1000, help="healthy fleets of each noise")
    parser.add_argument("--faulty", type=int, default=200, help="fleets with five bad parts of each noise")
    parser.add_argument("--only", default="", help="only the noise whose name holds this; it gives the same row")
    given = parser.parse_args()
    fleet = Fleet()
    head = "healthy fleets accused: one launch | launched again | five bad parts: all named | another accused"
    print(f"| noise | {head} |\n|---|---|---|---|---|", flush=True)
    for row in rows(fleet, given.healthy, given.faulty, given.seed, given.only):
        print(row, flush=True)


if __name__ == "__main__":
    main()
