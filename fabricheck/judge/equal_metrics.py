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
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fabricheck.judge.constants import ENOUGH, FEWEST_ITERATIONS, OF_DEVIATION
from fabricheck.judge.outliers import CrossedParts
from fabricheck.judge.policy import host_memory_of
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.judgement import Judgement
from fabricheck.records.operations import COLLECTIVES, ONE_WAY_MEMORY_PATHS, PAIRS, SYMMETRIC_PAIRS
from fabricheck.records.run import Rank, Run, Samples
from fabricheck.records.verdict import Verdict
from fabricheck.topology.graph import node_graph
from fabricheck.topology.in_rounds import is_in_round, round_of
from fabricheck.topology.model import Gpu, Topology
from fabricheck.topology.network import Network, node_of
from fabricheck.topology.nic import nic_of
from fabricheck.topology.orbits import orbit
from fabricheck.topology.placement import ends_of_ranks, gpu_of_ranks, nics_of_lone_ranks
from fabricheck.units import format_size

_Round = tuple[str, int, int]


@dataclass(frozen=True)
class Member:
    """A metric among its peers, by its number in the run.

    `worse`: logarithm of its value, more is slower; `inside`: relative standard deviation of its iterations, robust.
    `tail`: logarithm of its 95th percentile over its median, in time; None of fewer iterations than that needs.
    `places`: where it was measured, of a group of ranks any of these; `parts`: what its data pass.
    """

    number: int
    worse: float
    inside: float
    places: tuple[Component, ...]
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
    """The groups of peers in a run, those of one member too; none where something else was measured.

    Raises UserError for devices and hosts that the topology does not have.
    """
    run, topology = judged.run, judged.topology
    plan = run.header.get("plan", {})
    invalid = any(each.verdict is Verdict.INVALID for each in run.problems)
    mixed = plan.get("buffers") not in (None, "host-host")
    if not run.header or topology is None or invalid or plan.get("shared_devices") or mixed:
        return ()
    if run.header["transport"] == "staging":
        return ()
    where = Places.of(run, topology)
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
    places, parts = where.places(judged.samples)
    times = judged.samples.times_ns
    tail = float(np.log(np.percentile(times, 95) / np.median(times))) if times.size >= ENOUGH else None
    return Member(number, float(np.log(judged.value)) * (-1 if higher else 1), inside, places, parts, tail)


@dataclass(frozen=True)
class Places:
    """Where the ranks of a run are, and what their data cross."""

    topology: Topology
    ranks: dict[int, Rank]
    gpus: dict[int, Gpu]
    ends: dict[int, str]
    nics: dict[int, str]
    several_hosts: bool
    crowds: Counter[tuple[_Round, Component]]

    @classmethod
    def of(cls, run: Run, topology: Topology) -> Places:
        """Read the places of a run. Raises UserError for devices and hosts that the topology does not have."""
        gpus = {rank: topology.gpu(index) for rank, index in gpu_of_ranks(run).items()}
        ranks = {each.rank: each for each in run.ranks}
        hosts = {each.host for each in run.ranks}
        ends = ends_of_ranks(run, topology)
        alone = cls(topology, ranks, gpus, ends, nics_of_lone_ranks(run, topology), len(hosts) > 1, Counter())
        known = (each for each in run.samples if is_in_round(each) and ranks.keys() >= {*each.ranks})
        crowds = Counter((round_of(each), trunk) for each in known for trunk in alone.trunks(each))
        return replace(alone, crowds=crowds)

    @cached_property
    def ranks_of_hosts(self) -> Counter[str]:
        """How many ranks each host has."""
        return Counter(each.host for each in self.ranks.values())

    def across(self, samples: Samples) -> bool:
        """Whether the ranks of a measurement are on several nodes."""
        return len({self.ranks[rank].host for rank in samples.ranks}) > 1

    def role(self, samples: Samples, host_memory: str | None) -> Hashable:
        """What peers share besides operation and size; None for what has no peers."""
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

    def places(self, samples: Samples) -> tuple[tuple[Component, ...], CrossedParts[Component]]:
        """Where a measurement was made, and the parts that it crosses."""
        members = [self.ranks[rank] for rank in samples.ranks]
        hosts = list(dict.fromkeys(each.host for each in members))
        ends = [self.end(rank, computes=samples.operation == "product") for rank in samples.ranks]
        places = tuple(ends)
        units = ends if len(ends) < len(self.ranks) else []
        symmetric = samples.operation in SYMMETRIC_PAIRS
        others: list[Component] = []
        if len(ends) == 2:
            units = ends
            others += _ways(ends[0], ends[1], symmetric=symmetric)
            places = (Component.between(ends[0], ends[1], "" if symmetric else "out"),)
        elif len(hosts) == 1 and len(ends) == self.ranks_of_hosts[hosts[0]] > 1:
            places = (Component.of_node(hosts[0]),)
        if self.several_hosts:
            units = [*units, *map(Component.of_node, hosts)]
            if len(hosts) > 1:
                units += self._nics(samples)
            if len(hosts) == 2:
                others += _ways(*map(Component.of_node, hosts), symmetric=symmetric)
                others += self._trunks_and_load(samples)
        return places, CrossedParts(tuple(dict.fromkeys(units)), tuple(others))

    def end(self, rank: int, *, computes: bool = False) -> Component:
        """The part that a rank is on: its GPU, else the one port that it sends by, else the node where it is alone."""
        host = self.ranks[rank].host
        if rank in self.gpus:
            device = self.ranks[rank].device
            return Component(Kind.GPU, self.gpus[rank].name, host, address=device.address if device else "")
        # A port can be looked at; a rank is only what was on it.
        if rank in self.nics and not computes:
            return Component(Kind.NIC, self.nics[rank], host)
        if self.ranks_of_hosts[host] == 1:
            return Component.of_node(host)
        return Component(Kind.DEVICE, f"rank {rank}", host)

    def trunks(self, samples: Samples) -> Sequence[Component]:
        """The links between switches that a pair's data surely pass, each with its direction."""
        network = self.topology.network
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
        own = [(rank, nic_of(self.topology, self.gpus[rank])) for rank in samples.ranks if rank in self.gpus]
        return [Component(Kind.NIC, nic.name, self.ranks[rank].host) for rank, nic in own if nic is not None]


def _ways(source: Component, destination: Component, *, symmetric: bool) -> Iterator[Component]:
    """What two ends have in common with other pairs beside themselves: both together, and each in one direction."""
    yield Component.between(min(source, destination), max(source, destination))
    if symmetric:
        return
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
