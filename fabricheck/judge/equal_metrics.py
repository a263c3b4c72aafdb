"""Which metrics of a run have to be equal: the same measurement on parts that the topology makes equal.

Equal is what nothing but the machine's parts can make different: the pairs and GPUs that a symmetry of the node's graph
maps onto each other, products of matrices on GPUs of one model, and pairs of nodes that are as far from each other over
links of the same rates; of a network without a description, the pairs between the same two nodes. Not equal are
measurements in which processors copy or share their memory, since the graph knows nothing of cores, caches and pages:
staging, pageable and managed memory, both directions to the host at once, and shared memory of a node.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from fabricheck.errors import UserError
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.limits.in_rounds import is_in_round, round_of
from fabricheck.records.component import Component, Kind
from fabricheck.records.judgement import Judgement
from fabricheck.records.operations import COLLECTIVES, ONE_WAY_MEMORY_PATHS, PAIRS, SYMMETRIC_PAIRS
from fabricheck.records.run import Rank, Run, Samples
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.constants import ENOUGH, OF_DEVIATION
from fabricheck.statistics.outliers import CrossedParts
from fabricheck.topology.graph import node_graph
from fabricheck.topology.model import Gpu, Topology
from fabricheck.topology.network import Network, node_of
from fabricheck.topology.nic import nic_of
from fabricheck.topology.orbits import orbit
from fabricheck.topology.placement import ends_of_ranks, gpu_of_ranks, nics_of_lone_ranks
from fabricheck.units import format_size
from fabricheck.yardsticks.policy import host_memory_of

#: Fewer iterations do not tell how much a series varies. Chosen.
FEWEST_ITERATIONS = 5

_Round = tuple[str, int, int]


@dataclass(frozen=True)
class Member:
    """A metric among its peers, by its number in the run.

    `worse`: logarithm of its value, more is slower; `inside`: relative standard deviation of its iterations, robust.
    `tail`: logarithm of its 95th percentile over its median, in time; None of fewer iterations than that needs.
    `parts`: what its data pass.
    """

    number: int
    worse: float
    inside: float
    parts: CrossedParts[Component]
    tail: float | None = None


@dataclass(frozen=True)
class Equals:
    """Metrics that have to be equal. `key` is the same for the same question in another run of the same test.

    `same_switch`: they are pairs of nodes on one switch each.
    """

    key: Hashable
    what: str
    kind: str
    members: tuple[Member, ...]
    network: bool
    devices: bool
    host_memory: bool
    same_switch: bool = False


def equals_of(judged: RunJudgement) -> tuple[Equals, ...]:
    """The groups of peers in a run, those of one member too; none where something else was measured, or on devices and
    hosts that the topology does not have."""
    run = judged.run
    plan = run.header.get("plan", {})
    invalid = any(each.verdict is Verdict.INVALID for each in run.problems)
    mixed = plan.get("buffers") not in (None, "host-host")
    where = Places.of(run, judged.topology)
    if not run.header or where.topology is None or invalid or plan.get("shared_devices") or mixed:
        return ()
    if run.header["transport"] == "staging":
        return ()
    members_of: dict[Hashable, list[Member]] = {}
    kinds: dict[Hashable, tuple[str, bool, bool, bool]] = {}
    for number, judgement in enumerate(judged.judgements):
        samples = judgement.samples
        sound = judgement.verdict is not Verdict.INVALID and samples.statistic == "iterations"
        if not sound or samples.wrong_bytes > 0 or samples.count < FEWEST_ITERATIONS:
            continue
        role = where.role(samples, host_memory_of(run, samples))
        # How near a GPU is to a NIC no topology says.
        if role is None or (run.header["transport"] == "fabric" and not where.across(samples)):
            continue
        expected = f"{judgement.expectation.expected:.6g}" if judgement.expectation.expected is not None else ""
        key = (
            *(run.header["transport"], samples.operation, samples.implementation, samples.schedule, samples.bytes),
            *(samples.placement, judgement.unit, len(samples.ranks), plan.get("access"), expected, role),
        )
        members_of.setdefault(key, []).append(_member(number, judgement, where))
        host_memory = host_memory_of(run, samples) is not None
        near = isinstance(role, tuple) and role[:2] == ("network", "same-switch")
        kinds[key] = (judgement.unit, where.across(samples), host_memory, near)
    return tuple(
        Equals(
            key,
            _what(run, judged.judgements[members[0].number]),
            unit,
            tuple(members),
            network,
            run.on_gpus,
            memory,
            near,
        )
        for key, members in members_of.items()
        for unit, network, memory, near in (kinds[key],)
    )


def _what(run: Run, judged: Judgement) -> str:
    samples = judged.samples
    schedule = " contended" if samples.schedule == "contended" else ""
    return f"{samples.operation}{schedule} {run.header['transport']} {format_size(samples.bytes)}"


def _member(number: int, judged: Judgement, where: Places) -> Member:
    higher = judged.better == "higher"
    values = judged.samples.goodput_gbps if higher else judged.samples.latency_us
    middle = float(np.median(values))
    inside = OF_DEVIATION * float(np.median(np.abs(values - middle))) / middle
    times = judged.samples.times_ns
    tail = float(np.log(np.percentile(times, 95) / np.median(times))) if times.size >= ENOUGH else None
    return Member(
        number, float(np.log(judged.value)) * (-1 if higher else 1), inside, where.parts(judged.samples), tail
    )


@dataclass(frozen=True)
class Places:
    """Where the ranks of a run are, and what their data cross. `topology`: None where there is none, or it does not
    have the devices and hosts of the run."""

    run: Run
    topology: Topology | None
    ranks: dict[int, Rank]
    indexes: dict[int, int]
    gpus: dict[int, Gpu] = field(default_factory=dict)
    ends: dict[int, str] = field(default_factory=dict)
    nics: dict[int, str] = field(default_factory=dict)
    crowds: Counter[tuple[_Round, Component]] = field(default_factory=Counter)

    @classmethod
    def of(cls, run: Run, topology: Topology | None) -> Places:
        """Read the places of a run."""
        ranks, indexes = {each.rank: each for each in run.ranks}, gpu_of_ranks(run)
        unknown = cls(run, None, ranks, indexes)
        if topology is None:
            return unknown
        try:
            gpus = {rank: topology.gpu(index) for rank, index in indexes.items()}
            ends, nics = ends_of_ranks(run, topology), nics_of_lone_ranks(run, topology)
        except UserError:  # the judge says so
            return unknown
        alone = cls(run, topology, ranks, indexes, gpus, ends, nics)
        known = (each for each in run.samples if is_in_round(each) and ranks.keys() >= {*each.ranks})
        return replace(alone, crowds=Counter((round_of(each), trunk) for each in known for trunk in alone.trunks(each)))

    @cached_property
    def ranks_of_hosts(self) -> Counter[str]:
        """How many ranks each host has."""
        return Counter(each.host for each in self.ranks.values())

    def across(self, samples: Samples) -> bool:
        """Whether the ranks of a measurement are on several nodes."""
        return len({self.ranks[rank].host for rank in samples.ranks}) > 1

    def role(self, samples: Samples, host_memory: str | None) -> Hashable:
        """What peers share besides operation and size; None for what has no peers."""
        assert self.topology is not None
        if samples.operation == "product":
            device = self.ranks[samples.ranks[0]].device
            return "computes", device.name if device is not None else ""
        if self.across(samples):
            return self._between_nodes(samples)
        if not all(rank in self.gpus for rank in samples.ranks) or samples.groups is not None:
            return None
        gpus = tuple(self.gpus[rank] for rank in samples.ranks)
        if samples.operation in ONE_WAY_MEMORY_PATHS:
            if len(gpus) > 1 or host_memory not in (None, "pinned"):
                return None
            return "alone", orbit(self.topology, gpus, hosts=host_memory is not None)
        if samples.operation not in (*PAIRS, *COLLECTIVES) or len(set(gpus)) < len(gpus):
            return None
        graph = node_graph(self.topology)
        if samples.schedule == "contended" and not (graph.fully_connected or graph.star):
            return None  # which other pairs share its links depends on the round
        return "node", orbit(self.topology, gpus)

    def _between_nodes(self, samples: Samples) -> Hashable:
        assert self.topology is not None
        if samples.operation in COLLECTIVES and samples.schedule == "contended":
            gpus = {self.gpus[rank] for rank in samples.ranks if rank in self.gpus}
            hosts_of_group = frozenset(self.ranks[rank].host for rank in samples.ranks)
            return "groups", hosts_of_group, frozenset(orbit(self.topology, (gpu,), nics=True) for gpu in gpus)
        if samples.operation not in PAIRS:
            return None
        own = [(self.gpus[rank],) if rank in self.gpus else () for rank in samples.ranks]
        roles = [orbit(self.topology, each, nics=True) for each in own]
        network = self.topology.network
        if network is not None and self.ends:
            source, destination = (self.ends[rank] for rank in samples.ranks)
            distance = network.distance(node_of(source), node_of(destination))
            return "network", distance, *roles, _route(network, source, destination)
        # Nothing is known of the network: equal are the pairs of two nodes over NICs of the same number, or not.
        nics = [nic_of(self.topology, each[0]) if each else None for each in own]
        hosts = tuple(sorted(self.ranks[rank].host for rank in samples.ranks))
        return "nodes", hosts, *roles, nics[0] == nics[1]

    def parts(self, samples: Samples) -> CrossedParts[Component]:
        """The parts that a measurement crosses."""
        hosts = list(dict.fromkeys(self.ranks[rank].host for rank in samples.ranks))
        ends = self.ends_of(samples)
        units = [*ends] if len(ends) == 2 or len(ends) < len(self.ranks) else []
        symmetric = samples.operation in SYMMETRIC_PAIRS
        others = [*_ways(ends[0], ends[1], symmetric=symmetric)] if len(ends) == 2 else []
        if len(self.ranks_of_hosts) > 1:
            units += map(Component.of_node, hosts)
            nics = self._nics(samples) if len(hosts) > 1 else ()
            units += nics
            if len(nics) == 2 and not symmetric:
                others += _directions(*nics)
            if len(hosts) == 2:
                others += _ways(*map(Component.of_node, hosts), symmetric=symmetric)
                others += self._trunks_and_load(samples)
        return CrossedParts(tuple(dict.fromkeys(units)), tuple(others))

    def ends_of(self, samples: Samples) -> tuple[Component, ...]:
        """The part that each known rank of a measurement is on."""
        computes = samples.operation == "product"
        return tuple(self.end(rank, computes=computes) for rank in samples.ranks if rank in self.ranks)

    def end(self, rank: int, *, computes: bool = False) -> Component:
        """The part that a rank is on: its GPU, else the one port that it sends by, else the node where it is alone."""
        host, device = self.ranks[rank].host, self.ranks[rank].device
        if device is not None:
            name = self.gpus[rank].name if rank in self.gpus else f"gpu{self.indexes[rank]}"
            return Component(Kind.GPU, name, host, address=device.address)
        # A port can be looked at; a rank is only what was on it.
        if rank in self.nics and not computes:
            return Component(Kind.NIC, self.nics[rank], host)
        if self.ranks_of_hosts[host] == 1:
            return Component.of_node(host)
        return Component(Kind.DEVICE, f"rank {rank}", host)

    def trunks(self, samples: Samples) -> Sequence[Component]:
        """The links between switches that a pair's data surely pass, each with its direction."""
        network = self.topology.network if self.topology is not None else None
        if network is None or not self.ends or len(samples.ranks) != 2:
            return ()
        ways = [
            [name for name in route.components if name in network.graph and ":" not in name]
            for route in network.routes(*(self.ends[rank] for rank in samples.ranks))
        ]
        surely = [ends for ends in itertools.pairwise(ways[0]) if all(ends in itertools.pairwise(way) for way in ways)]
        return [Component(Kind.LINK, first, far=second, direction="out") for first, second in surely]

    def _trunks_and_load(self, samples: Samples) -> Iterator[Component]:
        """A trunk that has lost a part of its rate is slow for as many pairs at once as do not fit any more."""
        for trunk in self.trunks(samples):
            yield trunk
            if (load := self.crowds[round_of(samples), trunk]) > 1:
                yield replace(trunk, condition=f"with {load} pairs at once")

    def _nics(self, samples: Samples) -> Sequence[Component]:
        assert self.topology is not None
        own = [(rank, nic_of(self.topology, self.gpus[rank])) for rank in samples.ranks if rank in self.gpus]
        return [Component(Kind.NIC, nic.name, self.ranks[rank].host) for rank, nic in own if nic is not None]


def _ways(source: Component, destination: Component, *, symmetric: bool) -> Iterator[Component]:
    """What two ends have in common with other pairs beside themselves: both together, and each in one direction."""
    yield Component.between(min(source, destination), max(source, destination))
    if not symmetric:
        yield from _directions(source, destination)


def _directions(source: Component, destination: Component) -> Iterator[Component]:
    yield replace(source, direction="sending")
    yield replace(destination, direction="receiving")


def _route(network: Network, source: str, destination: str) -> Hashable:
    """Technologies and rates of the links of the shortest ways, and how many ways there are."""
    routes = network.routes(source, destination)
    return len(routes), tuple(_links(network, routes[0].components)) if routes else ()


def _links(network: Network, components: Sequence[str]) -> Iterator[tuple[str, float]]:
    on_the_way = [name for name in components if name in network.graph]
    for ends in itertools.pairwise(on_the_way):
        link = network.graph.edges[ends]["link"]
        yield link.technology, link.total_gbps
