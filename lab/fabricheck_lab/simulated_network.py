"""Networks, faults in them, and what their pairs would give: readings for tests and benchmarks of localization."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fabricheck.diagnosis.network.localize import Localization, Locator, SlowGroup
from fabricheck.diagnosis.network.round_plan import RoundsPlan, retest, screen
from fabricheck.diagnosis.network.routes import Design, FloatArray, Ways, design, max_min_rates
from fabricheck.topology.network import Network, NetworkLink, NetworkSwitch, Route

KINDS = ("node", "port", "cable", "leaf", "trunk", "switch")
#: What healthy pairs give of what is expected.
SCALE = 0.96


def equivalents(locator: Locator) -> dict[str, frozenset[str]]:
    """For each component those that no data of the locator's readings can tell from it, itself included.

    They lie on the same pairs with the same probability; a node, its only port and its cable always do.
    """
    # A component has up to two hypotheses; the first of them is the one that every pair feels.
    names = locator.design.ways.components
    alike: dict[str, frozenset[str]] = {}
    for members in locator.members:
        together = frozenset(names[member] for member in members)
        for name in together:
            alike.setdefault(name, together)
    return alike


@dataclass(frozen=True)
class Fault:
    """A component that loses a share of what pairs get over it, or, with `capacity`, of its rate."""

    component: str
    loss: float
    capacity: bool = False


def fat_tree(nodes: int, leaves: int, spines: int, *, nics: int = 1, trunk_gbps: float = 200.0) -> Network:
    """Two levels, 100 Gb/s ports. The NICs of a node are on leaves of their own (rails): the first on one half, …"""
    names = tuple(f"nid{number:05d}" for number in range(nodes))
    part = leaves // nics
    ports = {
        f"{name}:hsn{nic}": f"leaf{nic * part + number * part // nodes}"
        for number, name in enumerate(names)
        for nic in range(nics)
    }
    inner = [(f"leaf{leaf}", f"spine{spine}") for leaf in range(leaves) for spine in range(spines)]
    links = (
        *(NetworkLink((port, leaf), "cable", 1, 100.0, "simulated") for port, leaf in ports.items()),
        *(NetworkLink(ends, "trunk", 1, trunk_gbps, "simulated") for ends in inner),
    )
    switches = dict.fromkeys([*ports.values(), *(end for ends in inner for end in ends)])
    return Network(names, tuple(ports), tuple(map(NetworkSwitch, switches)), links)


def hashed(source: str, destination: str, routes: Sequence[Route], *, salt: int = 0) -> Route:
    """Static routes that are known: which one is a hash of the ends."""
    return routes[zlib.crc32(f"{salt} {source} {destination}".encode()) % len(routes)]


class KnownWays(Ways):
    """The ways of a network in which it is known which of several equal routes a pair takes."""

    def __init__(self, network: Network, salt: int = 0) -> None:
        super().__init__(network)
        self.salt = salt

    def routes(self, source: str, destination: str) -> list[tuple[int, ...]]:
        routes = self.network.routes(source, destination)
        way = hashed(source, destination, routes, salt=self.salt) if routes else None
        return [tuple(self.position[name] for name in way.components)] if way is not None else []


def taken(design: Design, random: np.random.Generator) -> FloatArray:
    """1 for the way that each reading took, drawn by their probabilities, else 0; shape (W,)."""
    draw = np.log(design.probability) + random.gumbel(size=design.probability.size)
    best = np.full(len(design.places), -np.inf)
    np.maximum.at(best, design.reading, draw)
    took: FloatArray = (draw == best[design.reading]).astype(float)
    return took


def healthy_share(design: Design, faults: Sequence[Fault], took: FloatArray) -> FloatArray:
    """What each pair gets of what is expected, without noise, shape (R,).

    Computed apart from the locator's model: a lower rate by sharing the links again.
    """
    share = np.ones(len(design.places))
    on = took[design.way] > 0
    for fault in faults:
        if not fault.capacity:
            here = on & (design.component == design.ways.position[fault.component])
            np.minimum.at(share, design.reading[design.way[here]], 1 - fault.loss)
    if any(fault.capacity for fault in faults):
        capacities = design.ways.capacities.copy()
        for fault in faults:
            if fault.capacity:
                capacities[design.ways.position[fault.component]] *= 1 - fault.loss
        reading, component = design.reading[design.way[on]], design.component[on]
        for number in np.unique(design.rounds).tolist():
            here = design.rounds[reading] == number
            first = int(np.flatnonzero(design.rounds == number)[0])
            alone = np.full(int((design.rounds == number).sum()), np.inf)
            link = component[here]
            rates = max_min_rates(reading[here] - first, link, np.ones(link.size), capacities, alone)
            share[first : first + rates.size] *= rates / design.expected_gbps[first : first + rates.size]
    return share


def normal(random: np.random.Generator, number: int) -> FloatArray:
    return random.standard_normal(number)


def heavy_tailed(random: np.random.Generator, number: int) -> FloatArray:
    """t with three degrees of freedom, with a variance of 1."""
    return np.asarray(random.standard_t(3, number) / np.sqrt(3))


def outliers(random: np.random.Generator, number: int) -> FloatArray:
    """One reading in a hundred is ten times as far away."""
    values = random.standard_normal(number)
    return np.where(random.random(number) < 0.01, 10 * values, values)


def collapses(random: np.random.Generator, number: int) -> FloatArray:
    """One reading in a hundred lost between 5 and 75 standard deviations."""
    values = random.standard_normal(number)
    return np.where(random.random(number) < 0.01, -random.uniform(5, 75, number), values)


def skewed(random: np.random.Generator, number: int) -> FloatArray:
    """A lognormal distribution with a variance of 1, its tail on the slow side."""
    width = 0.8
    values = np.exp(width * random.standard_normal(number) - width**2 / 2) - 1
    return np.asarray(-values / np.sqrt(np.expm1(width**2)))


Noise = Callable[[np.random.Generator, int], FloatArray]
NOISES: dict[str, Noise] = {
    "normal": normal,
    "t3": heavy_tailed,
    "outliers": outliers,
    "collapses": collapses,
    "skewed": skewed,
}


def measure(
    design: Design, share: FloatArray, noise: float, random: np.random.Generator, kind: Noise = normal
) -> FloatArray:
    """Readings in Gb/s; `noise` is their relative standard deviation."""
    readings: FloatArray = design.expected_gbps * SCALE * share * np.exp(noise * kind(random, share.size))
    return readings


def names_of(suspect: SlowGroup) -> set[str]:
    """Its components, by the names that they have in routes."""
    return {each.text for each in suspect.components}


def is_right(localization: Localization, faults: Sequence[Fault], alike: Mapping[str, frozenset[str]]) -> bool:
    """One suspect for each fault, and in it nothing but what no reading can tell from that fault."""
    return are_right([names_of(each) for each in localization.suspects], faults, alike)


def are_right(
    suspects: Sequence[Collection[str]], faults: Sequence[Fault], alike: Mapping[str, frozenset[str]]
) -> bool:
    """The same for suspects given as the components that each can be."""
    if len(suspects) != len(faults):
        return False
    left = list(faults)
    for suspect in suspects:
        names = set(suspect)
        mine = next((one for one in left if one.component in names and names <= alike[one.component]), None)
        if mine is None:
            return False
        left.remove(mine)
    return True


def alike_beside(
    design: Design, faults: Sequence[Fault], took: FloatArray, alike: Mapping[str, frozenset[str]]
) -> dict[str, frozenset[str]]:
    """For the component of each fault those that no reading can tell from it beside the other faults.

    A node both of whose ports are measured is its one port where the leaf of the other loses as much.
    """
    names = design.ways.components
    here = took[design.way] > 0
    on = np.zeros((len(names), len(design.places)), dtype=bool)
    on[design.component[here], design.reading[design.way[here]]] = True
    whole, equal_parts = healthy_share(design, faults, took), {}
    for fault in faults:
        rest = healthy_share(design, [one for one in faults if one is not fault], took)
        same = (np.where(on, np.minimum(rest, 1 - fault.loss), rest) == whole).all(axis=1)
        others = (alike[names[each]] for each in np.flatnonzero(same & on.any(axis=1)).tolist())
        equal_parts[fault.component] = alike[fault.component].union(*others)
    return equal_parts


def visible(design: Design, faults: Sequence[Fault], took: FloatArray) -> list[Fault]:
    """The faults that make a difference to the readings: a slower leaf hides a node beside it."""
    whole = healthy_share(design, faults, took)
    visible_faults = list(faults)
    for fault in sorted(faults, key=lambda one: one.loss):
        rest = [one for one in visible_faults if one is not fault]
        if np.array_equal(healthy_share(design, rest, took), whole):
            visible_faults = rest
    return visible_faults


@dataclass(frozen=True)
class Case:
    """A network with a plan. `stages`: rounds of the screen and of each second stage, which follows what was found."""

    name: str
    network: Network
    places: tuple[str, ...]
    routes: str  # known, or unknown to the locator
    stages: tuple[int, ...] = (8,)
    kinds: tuple[str, ...] = KINDS

    @property
    def ways(self) -> Ways:
        return KnownWays(self.network, salt=7) if self.routes == "known" else Ways(self.network)


class Bench:
    """A case made ready."""

    def __init__(self, case: Case, noise: float, seed: int, kind: Noise = normal) -> None:
        self.case, self.noise, self.kind = case, noise, kind
        self.random = np.random.default_rng(seed)
        self.ways = case.ways
        self.plan: RoundsPlan = screen(self.ways, case.places, case.stages[0], seed=seed)
        self.design = design(self.ways, self.plan.pairs)
        self.locator = Locator(self.design)
        self.alike = equivalents(self.locator)

    def simulate(self, faults: Sequence[Fault]) -> tuple[FloatArray, list[Fault], Mapping[str, frozenset[str]]]:
        """Readings of the screen, the faults that show in them, and what nothing can tell from each."""
        took = taken(self.design, self.random)
        readings = measure(self.design, healthy_share(self.design, faults, took), self.noise, self.random, self.kind)
        seen = visible(self.design, faults, took)
        # What a pair may have gone over instead is part of `alike` where nobody knows the routes.
        known = len(seen) > 1 and self.case.routes == "known"
        return readings, seen, alike_beside(self.design, seen, took, self.alike) if known else self.alike

    def trial(self, faults: Sequence[Fault]) -> tuple[bool, Localization]:
        readings, seen, alike = self.simulate(faults)
        localization = self.locator.locate(readings)
        if len(self.case.stages) == 1:
            return is_right(localization, seen, alike), localization
        return self.again(faults, readings, localization)

    def again(self, faults: Sequence[Fault], readings: FloatArray, located: Localization) -> tuple[bool, Localization]:
        pairs, locator = list(self.plan.pairs), self.locator
        for number, rounds in enumerate(self.case.stages[1:]):
            suspects = set[str]().union(*map(names_of, located.suspects))
            if not suspects:
                break
            more = retest(self.ways, self.case.places, suspects, rounds, seed=number)
            stage = design(self.ways, more.pairs)
            share = healthy_share(stage, faults, taken(stage, self.random))
            readings = np.concatenate([readings, measure(stage, share, self.noise, self.random, self.kind)])
            pairs += more.pairs
            whole = design(self.ways, pairs)
            locator = Locator(whole)
            located = locator.locate(readings)
        return is_right(located, faults, equivalents(locator)), located

    def draw(self, kind: str, low: float, high: float) -> Fault:
        known = [name for name, one in zip(self.ways.components, self.ways.kinds, strict=True) if one == kind]
        return Fault(known[self.random.integers(len(known))], float(self.random.uniform(low, high)))
