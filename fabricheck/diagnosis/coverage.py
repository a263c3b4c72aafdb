"""Which components the measurements of a session crossed, and which loss of each would have been red."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

from fabricheck.diagnosis.network.results import places_of
from fabricheck.diagnosis.table import shares_of_routes
from fabricheck.errors import UserError
from fabricheck.judge.equal_metrics import Places
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.coverage import Coverage, Seen
from fabricheck.records.judgement import Judgement
from fabricheck.records.operations import COLLECTIVES, MEMORY_PATHS, PAIRS
from fabricheck.records.run import Rank, Run, Samples
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.constants import RESOLUTION
from fabricheck.topology.components import components_of
from fabricheck.topology.model import Topology
from fabricheck.topology.network import Network, node_of

# What was measured otherwise than was asked for, or not at all, shows nothing.
_LOST = (Verdict.INVALID, Verdict.INCOMPLETE)


def coverage_of(runs: Iterable[RunJudgement]) -> Coverage:
    """Of all runs of a session together."""
    runs = tuple(runs)
    tally = _Tally()
    for run in runs:
        if run.trusted and not any(each.verdict in _LOST for each in run.problems):
            tally.add(run)
    nodes = max((max(each.nodes, each.topology.nodes if each.topology else 0) for each in runs), default=0)
    return Coverage(nodes, tuple(tally.seen(nodes)))


@dataclass
class _Tally:
    """What the runs so far crossed. `peers`: with what a component was measured as a pair, of network parts pairs of
    nodes. `topologies`: by node. `losses`: the smallest that would have been red."""

    inside: set[Component] = field(default_factory=set)
    between: set[Component] = field(default_factory=set)
    peers: dict[Component, set[object]] = field(default_factory=lambda: defaultdict(set))
    losses: dict[Component, float] = field(default_factory=dict)
    topologies: dict[str, Topology | None] = field(default_factory=dict)

    def add(self, judged: RunJudgement) -> None:
        measured: dict[tuple[str, tuple[int, ...]], list[Judgement]] = {}
        for metric in judged.judgements:
            if metric.verdict not in _LOST:
                measured.setdefault((metric.samples.operation, metric.samples.ranks), []).append(metric)
        crossing = _Crossing.of(judged)
        for metrics in measured.values():
            self._add_metrics(crossing, metrics)

    def _add_metrics(self, crossing: _Crossing, metrics: Sequence[Judgement]) -> None:
        samples = metrics[0].samples
        hosts = crossing.hosts(samples)
        self.topologies.update(dict.fromkeys(hosts, crossing.places.topology))
        parts = crossing.parts(samples)
        (self.between if len(hosts) > 1 else self.inside).update(parts)
        is_pair = samples.operation in PAIRS and len(samples.ranks) == 2
        if not is_pair and samples.operation not in MEMORY_PATHS:
            return
        ends = [each for each in parts if each.kind is Kind.GPU] if len(hosts) == 1 else list(hosts)
        for part in parts if is_pair else ():
            if part.kind is Kind.GPU and len(hosts) == 1:
                self.peers[part].update(each for each in ends if each != part)
            elif part.kind in (Kind.NODE, Kind.NIC):
                self.peers[part].update(host for host in hosts if host != part.node)
            elif len(hosts) > 1:
                self.peers[part].add(frozenset(hosts))
        for metric in metrics:
            if metric.better == "higher" and metric.yardstick is not None and metric.value > 0:
                for part, times in crossing.headrooms(samples, parts).items():
                    loss = 1 - metric.yardstick.bound / (metric.value * times)
                    self.losses[part] = min(self.losses.get(part, 1.0), max(loss, 0.0))

    def seen(self, nodes: int) -> Iterator[Seen]:
        """Every component of the network, and those of each node that took part."""
        known: dict[Component, int] = {}
        for network in {each.network for each in self.topologies.values() if each is not None}:
            for part in network.all_components if network is not None else ():
                known[part] = nodes - 1 if part.kind in (Kind.NODE, Kind.NIC) else 0
        for host, topology in self.topologies.items():
            known[Component.of_node(host)] = max(nodes - 1, 0)
            if topology is None:
                continue
            for gpu in topology.gpus:
                known[Component(Kind.GPU, gpu.name, host)] = len(topology.gpus) - 1
            for link in topology.links:
                first, second = sorted(link.ends)
                known[Component(Kind.LINK, first, host, second, host)] = 0
            for nic in topology.nics:
                known.setdefault(Component(Kind.NIC, nic.name, host), max(nodes - 1, 0))
        for part, others in known.items():
            yield Seen(
                part,
                part in self.inside,
                part in self.between,
                len(self.peers.get(part, ())),
                others,
                self.losses.get(part),
            )


@dataclass
class _Crossing:
    """What the data of a run surely crossed. `ports`: of each rank its place in the network; empty where that is
    unknown."""

    run: Run
    places: Places
    ports: tuple[str, ...] = ()

    @classmethod
    def of(cls, judged: RunJudgement) -> _Crossing:
        places = Places.of(judged.run, judged.topology)
        if places.topology is not None and places.topology.network is not None:
            with contextlib.suppress(UserError):  # a host that the network does not have; the judge says so
                return cls(judged.run, places, places_of(judged.run, places.topology))
        return cls(judged.run, places)

    @property
    def network(self) -> Network | None:
        topology = self.places.topology
        return topology.network if topology is not None and self.ports else None

    def hosts(self, samples: Samples) -> tuple[str, ...]:
        """The nodes of its ranks."""
        return tuple(dict.fromkeys(each.host for each in self._members(samples)))

    def _members(self, samples: Samples) -> list[Rank]:
        return [self.places.ranks[number] for number in samples.ranks if number in self.places.ranks]

    def parts(self, samples: Samples) -> set[Component]:
        """The components that are surely on its way."""
        ranks, topology, network = tuple(self._members(samples)), self.places.topology, self.network
        if samples.operation not in (*PAIRS, *COLLECTIVES, *MEMORY_PATHS):
            return {Component.of_node(each.host) for each in ranks}  # who takes part is a matter of the pattern
        is_between = len({each.host for each in ranks}) > 1
        run = replace(self.run, ranks=ranks)
        parts = {replace(part, address="") for part in components_of(run, samples, topology)}
        if samples.operation in COLLECTIVES and samples.operation != "alltoall":
            parts = _without_choices(parts)
        if topology is None or not is_between:
            return parts
        # Which of several NICs a node used, only its place in the network says for sure.
        known = {part for part in parts if part.kind is not Kind.NIC or len(topology.nics) == 1}
        if network is None:
            return known
        places = {_port(network, self.ports[rank]) for rank in samples.ranks}
        ports = sorted(place for place in places if ":" in place)
        by_leaf = {}
        for port in ports:
            leaf = network.leaf_of(port)
            by_leaf[leaf] = port
            known.update(network.component(name) for name in (port, f"{port}--{leaf}", leaf))
        # Of alltoall one port for each leaf: the others cross the same trunks.
        ends = by_leaf.values() if samples.operation == "alltoall" else places if samples.operation in PAIRS else ()
        for first, second in combinations(sorted(ends), 2):
            crossed = shares_of_routes(network, first, second)
            known.update(part for part, share in crossed.items() if share > 1 - RESOLUTION and not part.nodes)
        return known

    def headrooms(self, samples: Samples, parts: Iterable[Component]) -> Mapping[Component, float]:
        """How many times what they can get its parts carry: a cable or trunk has to lose more before a pair is slow."""
        times = dict.fromkeys(parts, 1.0)
        if self.network is not None and len(self.hosts(samples)) == 2:
            routes = self.network.routes(*(self.ports[rank] for rank in samples.ranks))
            rate = max(route.rate_gbps for route in routes)
            times |= {part: self._rates[part] / rate for part in times.keys() & self._rates.keys()}
        return times

    @cached_property
    def _rates(self) -> Mapping[Component, float]:
        assert self.network is not None
        return {self.network.component(link.name): link.total_gbps for link in self.network.links}


def _without_choices(parts: set[Component]) -> set[Component]:
    """Without the links that a ring or tree may leave out: those between parts that have others."""
    links = [part for part in parts if part.kind is Kind.LINK]
    times = Counter(end for link in links for end in link.ends)
    return {part for part in parts if part.kind is not Kind.LINK or min(times[end] for end in part.ends) == 1}


def _port(network: Network, place: str) -> str:
    """The port of a place that has only one."""
    ports = network.ports_of(node_of(place))
    return ports[0] if len(ports) == 1 else place
