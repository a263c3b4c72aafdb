"""Clusters drawn at random with faults of random components, as tables of measurements for `explain`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from fabricheck.diagnosis.explain import Row
from fabricheck.records.component import Component, Kind

Generator = np.random.Generator
LIBRARIES = {"ccl": Component(Kind.LIBRARY, "NCCL"), "mpi": Component(Kind.MPI, "Open MPI")}
ALL = Component(Kind.SYSTEM, "all")
# How far a measurement has to lie from what it should be so that a judge calls it slow, in standard deviations.
BEYOND = 5.0


@dataclass(frozen=True)
class Cluster:
    """Nodes with GPUs, which have a NIC each or share one, on leaves below spines. `hashed`: which spine a message
    goes over is unknown. `drivers`: that of each node. `rounds`: so many partners each node is measured with."""

    nodes: int
    gpus: int
    nics: int
    leaves: int
    spines: int
    hashed: bool
    drivers: tuple[str, ...]
    rounds: int

    @classmethod
    def draw(cls, rng: Generator) -> Cluster:
        nodes = int(np.exp(rng.uniform(math.log(2), math.log(64.99))))
        gpus = int(rng.choice([1, 2, 4, 8]))
        leaves = int(rng.integers(1, max(2, nodes // 2 + 1)))
        versions = ["550"] * nodes if rng.random() < 0.7 else [str(rng.choice(["550", "560"])) for _ in range(nodes)]
        return cls(
            nodes,
            gpus,
            int(rng.choice([1, gpus])),
            leaves,
            int(rng.integers(1, 5)),
            bool(rng.random() < 0.3),
            tuple(versions),
            int(rng.integers(2, 7)),
        )

    def gpu(self, node: int, number: int) -> Component:
        return Component(Kind.GPU, f"gpu{number}", host(node))

    def nic(self, node: int, gpu: int) -> Component:
        return Component(Kind.NIC, f"nic{gpu % self.nics}", host(node))

    def leaf(self, node: int) -> int:
        return node % self.leaves

    def of_node(self, node: int) -> tuple[Component, ...]:
        return Component.of_node(host(node)), Component(Kind.DRIVER, f"driver {self.drivers[node]}")

    def in_node(self, node: int, ends: tuple[int, int]) -> dict[Component, float]:
        source, destination = (self.gpu(node, each) for each in ends)
        low, high = sorted(ends)
        link = Component(Kind.LINK, f"gpu{low}", host(node), f"gpu{high}", host(node))
        directed = Component(Kind.LINK, source.name, host(node), destination.name, host(node), "out")
        parts = (*self.of_node(node), *directions(source, destination), *both(source, destination), link, directed)
        return dict.fromkeys(parts, 1.0)

    def between(self, ends: tuple[int, int], gpu: int) -> dict[Component, float]:
        crossed = dict.fromkeys((part for node in ends for part in self.of_node(node)), 1.0)
        for part in (self.gpu, self.nic):
            source, destination = (part(node, gpu) for node in ends)
            crossed |= dict.fromkeys(directions(source, destination), 1.0)
        crossed |= dict.fromkeys(both(self.gpu(ends[0], gpu), self.gpu(ends[1], gpu)), 1.0)
        first, second = map(self.leaf, ends)
        crossed |= {Component(Kind.SWITCH, f"leaf{leaf}"): 1.0 for leaf in (first, second)}
        if first != second:
            ways = range(self.spines) if self.hashed else [(first + second) % self.spines]
            for spine in ways:
                crossed[Component(Kind.SWITCH, f"spine{spine}")] = 1 / len(ways)
                for leaf in (first, second):
                    crossed[Component(Kind.LINK, f"leaf{leaf}", far=f"spine{spine}")] = 1 / len(ways)
        return crossed


def host(node: int) -> str:
    return f"nid{node:03}"


def directions(source: Component, destination: Component) -> tuple[Component, ...]:
    sending, receiving = replace(source, direction="sending"), replace(destination, direction="receiving")
    return source, destination, sending, receiving


def both(source: Component, destination: Component) -> tuple[Component, ...]:
    first, second = sorted((source, destination))
    return Component.between(first, second), Component.between(source, destination, "out")


@dataclass(frozen=True)
class Measured:
    """What a session measured: `crosses` of each row, really (`taken`) and as far as is known."""

    question: tuple[str, ...]
    crosses: dict[Component, float]
    taken: frozenset[Component]
    own: Component
    efficiency: float = field(default=0.85)


def session(cluster: Cluster, rng: Generator) -> Iterator[Measured]:
    """Pairs in nodes by copies and a library, pairs between nodes by two libraries and below them, collectives."""

    def measured(question: tuple[str, ...], crosses: dict[Component, float], own: Component) -> Measured:
        library = LIBRARIES.get(question[0])
        crosses = {**crosses, **({library: 1.0} if library else {}), ALL: 1.0}
        spines = [each for each in crosses if each.name.startswith("spine")]
        gone = {f"spine{rng.integers(len(spines))}"} if spines and cluster.hashed else {each.name for each in spines}
        others = {each.name for each in spines} - gone
        taken = frozenset(each for each in crosses if each.name not in others and each.far not in others)
        return Measured(question, crosses, taken, own)

    for node in range(cluster.nodes):
        for transport, ends in itertools.product(("copy", "ccl"), itertools.permutations(range(cluster.gpus), 2)):
            own = both(*(cluster.gpu(node, each) for each in ends))[1]
            yield measured((transport, "pair", "node"), cluster.in_node(node, ends), own)
        if cluster.gpus > 1:
            parts = [*cluster.of_node(node), *(cluster.gpu(node, each) for each in range(cluster.gpus))]
            own = Component(Kind.CHECK, "allreduce", host(node))
            yield measured(("ccl", "allreduce", "node"), dict.fromkeys(parts, 1.0), own)
    for _ in range(cluster.rounds):
        order = rng.permutation(cluster.nodes).tolist()
        pairs = list(zip(order, order[1:] + order[:1], strict=True))
        for first, second in pairs:
            ways = dict.fromkeys(((first, second), (second, first)))
            for transport, ends, gpu in itertools.product(("ccl", "mpi", "fabric"), ways, range(cluster.gpus)):
                own = both(*(cluster.gpu(node, gpu) for node in ends))[1]
                near = "near" if cluster.leaf(first) == cluster.leaf(second) else "far"
                yield measured((transport, "pair", near), cluster.between(ends, gpu), own)


def draw_faults(rng: Generator, measured: list[Measured]) -> dict[Component, float]:
    """One to three components of different kinds or places that data cross, with the share that each costs."""
    by_kind: dict[tuple[Kind, str], list[Component]] = {}
    for component in dict.fromkeys(one for row in measured for one in row.crosses if one in row.taken):
        if component.kind not in (Kind.SYSTEM, Kind.CHECK):
            by_kind.setdefault((component.kind, component.direction and "directed"), []).append(component)
    kinds, faults = sorted(by_kind), dict[Component, float]()
    for _ in range(int(rng.choice([1, 1, 2, 3]))):
        of_kind = by_kind[kinds[rng.integers(len(kinds))]]
        faults[of_kind[rng.integers(len(of_kind))]] = float(np.exp(rng.uniform(math.log(0.05), math.log(0.6))))
    return faults


def heal(rng: Generator, faults: Iterable[Component], measured: list[Measured]) -> None:
    """One part in four heals, or gets slow, in the middle of the session: it is not among what its other rows took."""
    for fault in faults:
        change = int(rng.integers(len(measured) // 4, 3 * len(measured) // 4 + 1))
        healthy = [range(change), range(change, len(measured))][rng.integers(2)]
        if rng.random() < 0.25 and not fault.kind.is_software:
            for number in healthy:
                measured[number] = replace(measured[number], taken=measured[number].taken - {fault})


@dataclass(frozen=True)
class Drawn:
    """A table, the faults in it that are to be seen, and the rows that each alone makes slow."""

    rows: list[Row]
    faults: dict[Component, frozenset[int]]
    prior: dict[Component, float]


def draw(seed: int) -> Drawn:
    """The table of a seed. A row is slow where a judge can say so: beyond what its peers are, or a reference."""
    rng = np.random.default_rng(seed)
    cluster = Cluster.draw(rng)
    measured = list(session(cluster, rng))
    faults = draw_faults(rng, measured)
    noise = float(np.exp(rng.uniform(math.log(0.001), math.log(0.01))))
    heal(np.random.default_rng([seed, 1]), faults, measured)
    share = np.array([min((1 - faults[one] for one in row.taken & faults.keys()), default=1.0) for row in measured])
    efficiency = {row.question: float(rng.uniform(0.75, 0.95)) for row in measured}
    known = {question: rng.random() < 0.5 for question in efficiency}
    values = share * np.exp(noise * rng.standard_normal(share.size))
    peers: dict[tuple[str, ...], list[float]] = {}
    for row, value in zip(measured, values.tolist(), strict=True):
        peers.setdefault(row.question, []).append(value)
    rows: list[Row] = []
    for row, value in zip(measured, values.tolist(), strict=True):
        reach = efficiency[row.question]
        total = None if known[row.question] else -math.log(value * reach)
        middle = 1.0 if known[row.question] else float(np.median(peers[row.question]))
        loss = math.log(middle / value)
        slow = loss > BEYOND * noise
        if total is not None and total > 0.4:  # two thirds of what links carry
            slow, loss = True, max(loss, total + math.log(reach))
        rows.append(Row(row.question, "Gb/s", loss, noise, slow, row.crosses, (row.own,), total, when=len(rows)))
    seen = {
        fault: frozenset(
            number
            for number, row in enumerate(measured)
            if fault in row.taken and rows[number].slow and share[number] == 1 - loss
        )
        for fault, loss in faults.items()
    }
    counters = rng.random() < 0.5
    prior = {fault: 5.4 for fault in faults if counters and fault.kind in (Kind.NIC, Kind.GPU, Kind.LINK)}
    return Drawn(rows, {fault: numbers for fault, numbers in seen.items() if numbers}, prior)
