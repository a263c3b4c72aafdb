"""Which pairs are measured in which round, so that one job finds slow pairs.

A round is a set of pairs that send at the same time, no node twice. Two kinds: a screen of a few random
rounds, and rounds that measure suspects again with nodes that are known to be good.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, product

import numpy as np
import numpy.typing as npt

from fabricheck.diagnosis.network.routes import IntArray, Ways
from fabricheck.errors import UserError
from fabricheck.judge.constants import FREE_PAIRS, LOCAL_NODES, TRIES
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


def circle(count: int) -> Iterator[IntArray]:
    """Rounds in which each of `count` meets each other once, none twice a round: arrays of shape (count // 2, 2).

    The circle method: count - 1 rounds for an even count; for an odd one `count`, with another left out of each.
    """
    size = count + count % 2
    turning = np.arange(size - 1)
    for turn in range(size - 1 if count > 1 else 0):
        order = np.concatenate([[size - 1], np.roll(turning, turn)])
        pairs = np.stack([order[: size // 2], order[: size // 2 - 1 : -1]], axis=1)
        yield np.sort(pairs[(pairs < count).all(axis=1)], axis=1)


def screen(ways: Ways, places: Sequence[str], rounds: int, *, seed: int = 0, adaptive: bool = False) -> RoundsPlan:
    """`rounds` random rounds, in each of which every node has one partner, or none where it would share a full trunk.

    Leaves meet in turn (the circle method on leaves), so that each pair of leaves is measured about equally often. As
    many nodes have a partner on another leaf as the trunks carry without contention; where routes are known, pairs are
    chosen whose ways are free. With unknown routes all pairs of a
    leaf may meet on one trunk: then only as many leave it as the narrowest carries, unless the switches are `adaptive`
    and spread them. In every second round two nodes of each leaf stay there, which tells a leaf from its trunks.

    `places`: node or port of each rank. Raises UserError for fewer than two nodes, unknown names and no round.
    """
    if rounds < 1:
        raise UserError(f"a screen has one round or more, not {rounds}")
    return RoundsPlan(tuple(places), tuple(_Screen(ways, places, seed, adaptive=adaptive).rounds(rounds)))


def retest(
    ways: Ways,
    places: Sequence[str],
    suspects: Collection[str],
    rounds: int,
    *,
    seed: int = 0,
    adaptive: bool = False,
) -> RoundsPlan:
    """Rounds in which the suspects are measured again with nodes on other leaves that are not suspected.

    `suspects`: components of the network. A node, its port or cable: the node gets another partner in each round. A
    leaf, trunk or switch: good nodes beside it get partners elsewhere, over it where routes are known; of a leaf every
    other round also pairs of its own. All others get a partner on their own leaf: with what these give at the same time
    the suspects are compared. Not more pairs leave a leaf than its trunks carry. Raises UserError for unknown names, or
    where no good node is left.
    """
    if unknown := [name for name in suspects if name not in ways.position]:
        raise UserError(f"{unknown[0]!r} is not a part of the network")
    return RoundsPlan(
        tuple(places), tuple(_Screen(ways, places, seed, adaptive=adaptive).retest(set(suspects), rounds))
    )


class _Nodes:
    """The nodes of a list of places, and the ranks on each."""

    def __init__(self, places: Sequence[str]) -> None:
        ranks: dict[str, list[int]] = defaultdict(list)
        for rank, place in enumerate(places):
            ranks[node_of(place)].append(rank)
        if len(set(places)) < len(places):
            twice = next(place for place in places if places.count(place) > 1)
            raise UserError(f"{twice} is in the list twice: name each node, or each port, once")
        if len(ranks) < 2:
            raise UserError(f"a pair needs two nodes, and the list has {fold(ranks) or 'none'}")
        self.names, self.ranks = tuple(ranks), tuple(ranks.values())
        self.single = all(len(each) == 1 for each in self.ranks)
        self.first = np.array([each[0] for each in self.ranks])

    def ranks_of(self, pairs: IntArray, turn: int) -> IntArray:
        """Pairs of ranks for pairs of nodes. Of the node with more ranks others take part in each turn."""
        if self.single:
            return self.first[pairs]
        pairs_of_ranks = []
        for a, b in pairs.tolist():
            ours, theirs = (self._turned(each, turn) for each in (a, b))
            if len(self.ranks[a]) == len(self.ranks[b]):
                ours, theirs = self.ranks[a], self.ranks[b]
            pairs_of_ranks += list(zip(ours, theirs, strict=False))
        return np.array(pairs_of_ranks, dtype=np.int64).reshape(-1, 2)

    def _turned(self, node: int, turn: int) -> list[int]:
        ranks = self.ranks[node]
        start = turn % len(ranks)
        return ranks[start:] + ranks[:start]


@dataclass
class _Load:
    """Pairs on each component in this round, and in all rounds so far."""

    now: npt.NDArray[np.float64]
    total: npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Suspected:
    """Nodes to measure again; groups of nodes whose traffic shows the leaves, trunks and switches `inner`."""

    nodes: list[int]
    groups: list[int]
    inner: set[int]


@dataclass(frozen=True)
class _Open:
    """A round that is being made: nodes without a partner by group, how many pairs may leave each, and the pairs."""

    free: list[list[int]]
    limit: list[int]
    pairs: list[tuple[int, int]]


@dataclass
class _Screen:
    ways: Ways
    places: Sequence[str]
    seed: int
    adaptive: bool = field(kw_only=True)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.nodes = _Nodes(self.places)
        by_leaves: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for node, ranks in enumerate(self.nodes.ranks):
            ports = chain.from_iterable(self.ways.ports(self.places[rank]) for rank in ranks)
            by_leaves[tuple(dict.fromkeys(self.ways.network.leaf_of(port) for port in ports))].append(node)
        self.leaves, self.groups = tuple(by_leaves), tuple(by_leaves.values())
        self.group_of = {node: group for group, nodes in enumerate(self.groups) for node in nodes}
        self.limit = self._limits()
        size = len(self.ways.components)
        self.load = _Load(np.zeros(size), np.zeros(size))
        self.links: dict[tuple[int, int], list[int]] = {}
        self.met: set[tuple[int, int]] = set()
        self.meetings: dict[tuple[int, int], int] = defaultdict(int)

    def _limits(self) -> list[int]:
        """How many nodes of each group can have a partner elsewhere at once without contention, at least one."""
        network, wanted = self.ways.network, defaultdict[str, float](float)
        uplinks: dict[str, list[float]] = defaultdict(list)
        for link in network.links:
            if ":" not in link.ends[0]:
                uplinks[link.ends[0]].append(link.total_gbps)
                uplinks[link.ends[1]].append(link.total_gbps)
        for rank in chain.from_iterable(self.nodes.ranks):
            # A node with several ports and one rank sends by one of them: it counts on the leaf of each.
            for leaf, rate in dict(map(self._plug, self.ways.ports(self.places[rank]))).items():
                wanted[leaf] += rate
        together = self.adaptive or self.ways.routing is not None
        limits = []
        for leaves, nodes in zip(self.leaves, self.groups, strict=True):
            carried = [(sum if together else min)(uplinks[leaf] or [0.0]) / wanted[leaf] for leaf in leaves]
            limits.append(max(math.floor(len(nodes) * min(1.0, *carried) + 1e-9), 1))
        return limits

    def _plug(self, port: str) -> tuple[str, float]:
        leaf = self.ways.network.leaf_of(port)
        return leaf, float(self.ways.capacities[self.ways.position[f"{port}--{leaf}"]])

    def rounds(self, count: int) -> Iterator[IntArray]:
        """The rounds of a screen, as pairs of ranks."""
        turns = list(circle(len(self.groups))) or [np.zeros((0, 2), dtype=np.int64)]
        self.random.shuffle(turns)
        slot = 0
        for turn in range(count):
            self.load.now[:] = 0
            waiting = [self.random.permutation(nodes).tolist() for nodes in self.groups]
            limit = list(self.limit)
            local = LOCAL_NODES if turn % 2 else 0
            stay = [local if len(nodes) >= 2 * LOCAL_NODES else 0 for nodes in self.groups]
            pairs: list[tuple[int, int]] = []
            for _ in range(max(limit)):
                for group, other in self.random.permutation(turns[slot % len(turns)]).tolist():
                    if not all(limit[each] and len(waiting[each]) > stay[each] for each in (group, other)):
                        continue
                    # Rather a partner on the own leaf than contention.
                    if pair := self._free_pair(waiting[group], waiting[other]):
                        pairs.append(pair)
                        limit[group] -= 1
                        limit[other] -= 1
                slot += 1
            for nodes in waiting:
                while len(nodes) > 1:
                    pairs.append(self._pair(nodes, nodes))
            # One at most is left on each leaf; it rests where there is no room for another pair.
            rest = [nodes.pop() for nodes, room in zip(waiting, limit, strict=True) if nodes and room]
            while len(rest) > 1 and (pair := self._free_pair([rest.pop()], rest)):
                pairs.append(pair)
            yield self._ranks(pairs, turn)

    def _ranks(self, pairs: Sequence[tuple[int, int]], turn: int) -> IntArray:
        return self.nodes.ranks_of(np.sort(np.array(pairs, dtype=np.int64).reshape(-1, 2), axis=1), turn)

    def retest(self, suspects: set[str], count: int) -> Iterator[IntArray]:
        """The rounds of a second stage, as pairs of ranks."""
        suspected = self._suspected(suspects)
        good = [[node for node in nodes if node not in suspected.nodes] for nodes in self.groups]
        if sum(map(bool, good)) < min(2, len(self.groups)):
            raise UserError("no healthy node is left on another leaf: give more nodes, or fewer suspects")
        for turn in range(count):
            self.load.now[:] = 0
            free = [self.random.permutation(nodes).tolist() for nodes in good]
            now = _Open(free, list(self.limit), [])
            for node in self.random.permutation(suspected.nodes).tolist():
                self._meet(now, [node], self.group_of[node], suspected)
            for group in suspected.groups:
                while self._meet(now, free[group], group, suspected):
                    pass
            for group, nodes in enumerate(free):
                # Pairs that stay on a suspected leaf tell it from its trunks.
                while (turn % 2 or group not in suspected.groups) and len(nodes) > 1:
                    now.pairs.append(self._pair(nodes, nodes))
            yield self._ranks(now.pairs, turn)

    def _suspected(self, suspects: set[str]) -> _Suspected:
        kinds = {name: self.ways.kinds[self.ways.position[name]] for name in suspects}
        names = {node_of(name) for name in suspects if kinds[name] in ("node", "port", "cable")}
        inner = {name for name in suspects if kinds[name] in ("leaf", "switch", "trunk")}
        ends = [set(name.split("--")) for name in inner]
        leaves = set(chain.from_iterable(self.leaves))
        # What is beyond the leaves shows in the traffic of all of them.
        everywhere = any(leaves.isdisjoint(each) for each in ends)
        touched = [
            group for group, own in enumerate(self.leaves) if everywhere or any(each & set(own) for each in ends)
        ]
        nodes = [node for node, name in enumerate(self.nodes.names) if name in names]
        return _Suspected(nodes, touched, {self.ways.position[name] for name in inner})

    def _meet(self, now: _Open, nodes: list[int], group: int, suspected: _Suspected) -> bool:
        """Pair the last of `nodes` with a good node on another leaf, rather over what is suspected.

        False where there is none, or the trunks carry no more.
        """
        others = [each for each in range(len(now.free)) if each != group and now.free[each] and now.limit[each]]
        if len(self.groups) == 1 and len(now.free[group]) > (nodes is now.free[group]):
            others = [group]
        if not nodes or not others or not now.limit[group]:
            return False
        order = sorted(
            self.random.permutation(others).tolist(),
            key=lambda partner: (
                -self._over(group, partner, suspected),
                partner in suspected.groups,
                self.meetings[group, partner],
            ),
        )
        for other in order:
            if pair := self._free_pair(nodes, now.free[other]):
                now.pairs.append(pair)
                self.meetings[group, other] += 1
                for member in {group, other}:
                    now.limit[member] -= 1
                return True
        return False

    def _over(self, group: int, other: int, suspected: _Suspected) -> float:
        """Share of the ways from a group to another that go over something suspected beyond their own leaves."""
        own = {self.ways.position[leaf] for leaf in (*self.leaves[group], *self.leaves[other])}
        positions = suspected.inner - own
        if not positions:
            return 0.0
        ways = self.ways.between(self.leaves[group][0], self.leaves[other][0])
        return sum(not positions.isdisjoint(way) for way in ways) / len(ways)

    def _pair(self, nodes: list[int], others: list[int]) -> tuple[int, int]:
        """Take one node out of each list, if possible two that have not met."""
        node = nodes.pop()
        tried = range(len(others) - 1, max(-1, len(others) - 1 - TRIES), -1)
        best = next((each for each in tried if not self._met(node, others[each])), len(others) - 1)
        return self._take(node, others.pop(best))

    def _free_pair(self, nodes: list[int], others: list[int]) -> tuple[int, int] | None:
        """Take one node out of each list whose known way is free; None: there is none. Else as `_pair`."""
        if self.ways.routing is None:
            return self._pair(nodes, others)
        free: list[tuple[bool, float, int, int]] = []
        for node, other in product(reversed(nodes), reversed(others)):
            if node == other:
                continue
            links = self._known(node, other)
            capacities = self.ways.capacities[links]
            if ((self.load.now[links] + 1) * capacities.min(initial=np.inf) <= capacities * (1 + 1e-9)).all():
                free.append((self._met(node, other), float(self.load.total[links].sum()), node, other))
            if len(free) == FREE_PAIRS:
                break
        if not free:
            return None
        *_, node, other = min(free)
        nodes.remove(node)
        others.remove(other)
        return self._take(node, other)

    def _met(self, node: int, other: int) -> bool:
        return (min(node, other), max(node, other)) in self.met

    def _take(self, node: int, other: int) -> tuple[int, int]:
        self.met.add((min(node, other), max(node, other)))
        links = self._known(node, other)
        self.load.now[links] += 1
        self.load.total[links] += 1
        return node, other

    def _known(self, node: int, other: int) -> list[int]:
        """Links of the ways between two nodes, where the routing is known."""
        if self.ways.routing is None:
            return []
        if (node, other) not in self.links:
            pairs = self.nodes.ranks_of(np.array([[min(node, other), max(node, other)]]), 0).tolist()
            ways = [self.ways.routes(self.places[a], self.places[b]) for a, b in pairs]
            links = [each for way in ways if len(way) == 1 for each in way[0]]
            self.links[node, other] = [each for each in links if math.isfinite(self.ways.capacities[each])]
        return self.links[node, other]
