"""Which pairs are measured in which round, so that one job finds slow pairs.

A round is a set of pairs that send at the same time, no node twice. Two kinds: a screen of a few random
rounds, and rounds that measure suspects again with nodes that are known to be good.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from fabricheck.diagnosis.network.routes import IntArray, Ways
from fabricheck.errors import UserError
from fabricheck.statistics.constants import LOCAL_NODES, TRIES
from fabricheck.topology.network import fold, node_of


@dataclass(frozen=True, eq=False)
class RoundsPlan:
    """Rounds of pairs of ranks. `places`: node or port of each rank; `rounds`: arrays of ranks, shape (pairs, 2)."""

    places: tuple[str, ...]
    rounds: tuple[IntArray, ...]

    @property
    def pairs(self) -> list[list[tuple[str, str]]]:
        """The rounds in places instead of ranks."""
        return [[(self.places[a], self.places[b]) for a, b in each.tolist()] for each in self.rounds]


def write_rounds(plan: RoundsPlan) -> str:
    """The rounds as fabricbench's `--rounds FILE` takes them: one a line, `a-b` of two ranks with blanks between."""
    return "".join(" ".join(f"{a}-{b}" for a, b in each.tolist()) + "\n" for each in plan.rounds)


def screen(ways: Ways, places: Sequence[str], rounds: int, *, seed: int = 0) -> RoundsPlan:
    """`rounds` random rounds, in each of which every node has one partner.

    Each pair of leaves is measured about equally often. Which trunk a pair takes is unknown, so that all pairs of a
    leaf may meet on one: only as many leave it as the narrowest carries. In every second round two nodes of each leaf
    stay there, which tells a leaf from its trunks.

    `places`: node or port of each rank. Raises UserError for fewer than two nodes, unknown names and no round.
    """
    if rounds < 1:
        raise UserError(f"a screen has one round or more, not {rounds}")
    planner = _Planner(ways, places, seed)
    return RoundsPlan(tuple(places), tuple(planner.screen_round(turn) for turn in range(rounds)))


def retest(ways: Ways, places: Sequence[str], suspects: Collection[str], rounds: int, *, seed: int = 0) -> RoundsPlan:
    """Rounds in which the suspects are measured again with nodes on other leaves that are not suspected.

    `suspects`: components of the network. A node, its port or cable: the node gets another partner in each round. A
    leaf, trunk or switch: good nodes beside it get partners elsewhere, rather over it; of a leaf every other round also
    pairs of its own. All others get a partner on their own leaf: with what these give at the same time the suspects are
    compared. Raises UserError for unknown names, or where no good node is left.
    """
    if unknown := [name for name in suspects if name not in ways.position]:
        raise UserError(f"{unknown[0]!r} is not a part of the network")
    planner = _Planner(ways, places, seed)
    suspected = planner.suspected(set(suspects))
    return RoundsPlan(tuple(places), tuple(planner.retest_round(turn, suspected) for turn in range(rounds)))


@dataclass(frozen=True)
class _Suspected:
    """Nodes to measure again; groups of nodes whose traffic shows the leaves, trunks and switches `inner`."""

    nodes: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    inner: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class _Open:
    """A round that is being made: nodes without a partner by group, how many pairs may leave each, how many nodes stay
    there, and the pairs."""

    free: list[list[int]]
    limit: list[int]
    stay: list[int]
    pairs: list[tuple[int, int]]

    def left(self, group: int) -> int:
        """How many more nodes of a group may get a partner elsewhere."""
        return min(self.limit[group], len(self.free[group]) - self.stay[group])


class _Planner:
    """The nodes of a list of places, by the leaves that they are plugged into, and who has met whom."""

    def __init__(self, ways: Ways, places: Sequence[str], seed: int) -> None:
        self.ways, self.places, self.random = ways, places, np.random.default_rng(seed)
        ranks: dict[str, list[int]] = defaultdict(list)
        for rank, place in enumerate(places):
            ranks[node_of(place)].append(rank)
        if len(set(places)) < len(places):
            twice = next(place for place in places if places.count(place) > 1)
            raise UserError(f"{twice} is in the list twice: name each node, or each port, once")
        if len(ranks) < 2:
            raise UserError(f"a pair needs two nodes, and the list has {fold(ranks) or 'none'}")
        self.names, self.ranks = tuple(ranks), tuple(ranks.values())
        by_leaves: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for node, own in enumerate(self.ranks):
            ports = chain.from_iterable(ways.ports(places[rank]) for rank in own)
            by_leaves[tuple(dict.fromkeys(map(ways.network.leaf_of, ports)))].append(node)
        self.leaves, self.groups = tuple(by_leaves), tuple(by_leaves.values())
        self.group_of = {node: group for group, nodes in enumerate(self.groups) for node in nodes}
        self.limit = self._limits()
        self.met: set[tuple[int, int]] = set()
        self.meetings: Counter[tuple[int, int]] = Counter()

    def _limits(self) -> list[int]:
        """How many nodes of each group can have a partner elsewhere at once without contention, at least one."""
        network, narrowest, wanted = self.ways.network, dict[str, float](), Counter[str]()
        for link in network.links:
            for leaf in link.ends if ":" not in link.ends[0] else ():
                narrowest[leaf] = min(narrowest.get(leaf, math.inf), link.total_gbps)
        for place in self.places:
            # A node with several ports and one rank sends by one of them: it counts on the leaf of each.
            cables = {network.leaf_of(port): port for port in self.ways.ports(place)}
            for leaf, port in cables.items():
                wanted[leaf] += self.ways.capacities[self.ways.position[f"{port}--{leaf}"]]
        limits = []
        for leaves, nodes in zip(self.leaves, self.groups, strict=True):
            carried = [narrowest.get(leaf, 0.0) / wanted[leaf] for leaf in leaves]
            limits.append(max(math.floor(len(nodes) * min(1.0, *carried) + 1e-9), 1))
        # On one switch all may meet.
        return limits if len(limits) > 1 else [len(self.ranks)]

    def screen_round(self, turn: int) -> IntArray:
        """The pairs of ranks of a round of a screen."""
        local = LOCAL_NODES if turn % 2 else 0
        stay = [local if len(nodes) >= 2 * LOCAL_NODES else 0 for nodes in self.groups]
        now = self._open(self.groups, stay)
        everywhere = _Suspected(groups=list(range(len(self.groups))))
        self._leave(now, everywhere)
        self._stay(now, everywhere.groups)
        # One at most is left on each leaf; it rests where there is no room for another pair.
        self._leave(now, everywhere)
        return self._ranks(now.pairs, turn)

    def retest_round(self, turn: int, suspected: _Suspected) -> IntArray:
        """The pairs of ranks of a round over suspects."""
        good = [[node for node in nodes if node not in suspected.nodes] for nodes in self.groups]
        if sum(map(bool, good)) < min(2, len(self.groups)):
            raise UserError("no healthy node is left on another leaf: give more nodes, or fewer suspects")
        now = self._open(good, [0] * len(good))
        for node in self.random.permutation(suspected.nodes).tolist():
            self._meet(now, [node], self.group_of[node], suspected)
        self._leave(now, suspected)
        # Pairs that stay on a suspected leaf tell it from its trunks.
        self._stay(now, [group for group in range(len(good)) if turn % 2 or group not in suspected.groups])
        return self._ranks(now.pairs, turn)

    def suspected(self, names: set[str]) -> _Suspected:
        """What is to be measured again for components of these names."""
        kinds = {name: self.ways.kinds[self.ways.position[name]] for name in names}
        nodes = {node_of(name) for name in names if kinds[name] in ("node", "port", "cable")}
        inner = {name for name in names if kinds[name] in ("leaf", "switch", "trunk")}
        ends = [set(name.split("--")) for name in inner]
        leaves = set(chain.from_iterable(self.leaves))
        # What is beyond the leaves shows in the traffic of all of them.
        everywhere = any(leaves.isdisjoint(each) for each in ends)
        touched = [
            group for group, own in enumerate(self.leaves) if everywhere or any(each & set(own) for each in ends)
        ]
        numbers = [node for node, name in enumerate(self.names) if name in nodes]
        return _Suspected(numbers, touched, {self.ways.position[name] for name in inner})

    def _open(self, groups: Sequence[list[int]], stay: list[int]) -> _Open:
        free = [self.random.permutation(np.array(nodes, dtype=np.int64)).tolist() for nodes in groups]
        return _Open(free, list(self.limit), stay, [])

    def _leave(self, now: _Open, suspected: _Suspected) -> None:
        """Gives nodes of the suspected groups partners elsewhere, for as long as trunks carry more."""
        groups = self.random.permutation(suspected.groups).tolist()
        while groups:
            group = max(groups, key=now.left)
            if now.left(group) < 1 or not self._meet(now, now.free[group], group, suspected):
                groups.remove(group)

    def _stay(self, now: _Open, groups: Sequence[int]) -> None:
        for group in groups:
            nodes = now.free[group]
            now.stay[group] = 0
            while len(nodes) > 1:
                now.pairs.append(self._pair(nodes, nodes))

    def _meet(self, now: _Open, nodes: list[int], group: int, suspected: _Suspected) -> bool:
        """Pair the last of `nodes` with one on another leaf, rather over what is suspected, and of leaves that have met
        least; False where there is none, or the trunks carry no more."""
        others = [other for other in range(len(now.free)) if other != group and now.left(other) > 0]
        if len(self.groups) == 1 and len(now.free[group]) > (nodes is now.free[group]):
            others = [group]
        if not others or not now.limit[group]:
            return False

        def rank(other: int) -> tuple[float, bool, int, int]:
            over = self._over(group, other, suspected)
            is_suspected = bool(suspected.inner) and other in suspected.groups
            return -over, is_suspected, self.meetings[min(group, other), max(group, other)], -now.left(other)

        other = min(self.random.permutation(others).tolist(), key=rank)
        now.pairs.append(self._pair(nodes, now.free[other]))
        self.meetings[min(group, other), max(group, other)] += 1
        for member in {group, other}:
            now.limit[member] -= 1
        return True

    def _over(self, group: int, other: int, suspected: _Suspected) -> float:
        """Share of the ways from a group to another that go over something suspected beyond their own leaves."""
        own = {self.ways.position[leaf] for leaf in (*self.leaves[group], *self.leaves[other])}
        positions = suspected.inner - own
        if not positions:
            return 0.0
        ends = (self.places[self.ranks[self.groups[each][0]][0]] for each in (group, other))
        ways = self.ways.routes(*ends)
        return sum(not positions.isdisjoint(way) for way in ways) / max(len(ways), 1)

    def _pair(self, nodes: list[int], others: list[int]) -> tuple[int, int]:
        """Take one node out of each list, if possible two that have not met."""
        node = nodes.pop()
        tried = range(len(others) - 1, max(-1, len(others) - 1 - TRIES), -1)
        new = (place for place in tried if (min(node, others[place]), max(node, others[place])) not in self.met)
        other = others.pop(next(new, len(others) - 1))
        self.met.add((min(node, other), max(node, other)))
        return node, other

    def _ranks(self, pairs: Sequence[tuple[int, int]], turn: int) -> IntArray:
        """Pairs of ranks for pairs of nodes. Of the node with more ranks others take part in each turn."""
        pairs_of_ranks: list[tuple[int, int]] = []
        for first, second in map(sorted, pairs):
            ours, theirs = self.ranks[first], self.ranks[second]
            if len(ours) != len(theirs):
                ours, theirs = (np.roll(own, -turn).tolist() for own in (ours, theirs))
            pairs_of_ranks += zip(ours, theirs, strict=False)
        return np.array(pairs_of_ranks, dtype=np.int64).reshape(-1, 2)
