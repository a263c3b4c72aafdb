"""The table that a diagnosis is made from: measurements of a session, each with the components that its data pass."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fabricheck.errors import UserError
from fabricheck.judge.constants import MOST
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Judgement
from fabricheck.records.operations import PAIRS, SYMMETRIC_PAIRS
from fabricheck.records.run import Samples, list_ranks
from fabricheck.records.verdict import Verdict
from fabricheck.topology.components import components_of
from fabricheck.topology.graph import node_graph
from fabricheck.topology.placement import ends_of_ranks, gpu_component, gpu_of_ranks

_SOFTWARE = {"ccl": Kind.LIBRARY, "mpi": Kind.MPI}


@dataclass(frozen=True)
class Measurement:
    """A metric of the run with this number, and the `components` that its data surely pass; `ends`: the two
    of a pair, of a collective of two, or a part and the NIC by which its data come back to it; else the one part that
    it was measured on, or the collective itself."""

    run: int
    judgement: Judgement
    components: frozenset[Component]
    ends: tuple[Component, ...]

    @property
    def slow(self) -> bool:
        """Whether its verdict says that it is slow."""
        return self.judgement.verdict.is_slow

    @property
    def wrong(self) -> bool:
        """Whether its data arrived wrong."""
        return self.slow and self.judgement.samples.wrong_bytes > 0


@dataclass(frozen=True)
class Group:
    """Rows of one question: an operation of a run at one size, in one quantity. `pairs`: each is of two ranks."""

    run: int
    pairs: bool
    rows: tuple[Measurement, ...]

    @property
    def slow(self) -> tuple[Measurement, ...]:
        """Its slow measurements."""
        return tuple(each for each in self.rows if each.slow)

    @property
    def fast(self) -> tuple[Measurement, ...]:
        """Its measurements that passed."""
        return tuple(each for each in self.rows if each.judgement.verdict is Verdict.PASS)

    @property
    def mixed(self) -> bool:
        """Whether some are slow and others are not: only then its rows tell which component it is."""
        return bool(self.slow and self.fast)

    @property
    def whole(self) -> bool:
        """Whether all that was measured is slow, so that nothing healthy is left to compare with."""
        return bool(self.slow) and not self.fast


def groups_of(number: int, judged: RunJudgement, *, network: bool = False) -> tuple[Group, ...]:
    """The groups of one run, in the order of its metrics. `network`: whether rows have parts of the network too, which
    takes the routes of all pairs."""
    places = _Places.of(judged, network=network)
    groups: dict[tuple[object, ...], list[Measurement]] = {}
    for judgement in judged.judgements:
        of = judgement.samples
        key = (of.operation, of.implementation, of.schedule, of.bytes, judgement.better, judgement.unit)
        components, ends = places.crossed(judgement)
        groups.setdefault(key, []).append(Measurement(number, judgement, components, ends))
    return tuple(Group(number, str(key[0]) in PAIRS, tuple(rows)) for key, rows in groups.items())


def by_slow_nics(
    table: Sequence[Group], runs: Sequence[RunJudgement]
) -> Mapping[tuple[Component, ...], Sequence[Group]]:
    """The groups that are slow as a whole by the NICs that bring data back to the memory that they left; none where no
    other NIC brings any back as it should."""
    by_nics: dict[tuple[Component, ...], list[Group]] = {}
    for group in table:
        shared = frozenset.intersection(*(row.components for row in group.rows))
        nics = tuple(sorted(part for part in shared if part.kind is Kind.NIC))
        if nics and group.whole and not group.pairs:
            by_nics.setdefault(nics, []).append(group)
    fabric = [run for run in runs if run.run.header.get("transport") == "fabric"]
    fast = any(each.verdict is Verdict.PASS and each.better == "higher" for run in fabric for each in run.judgements)
    return by_nics if fast else {}


def pair_of(ends: Sequence[Component], rows: Sequence[Measurement]) -> Component:
    """The pair of two ends, in one direction where its rows are; a single end is itself."""
    if len(ends) == 1:
        return ends[0]
    ways = {row.ends for row in rows}
    if len(ways) > 1 or any(row.judgement.samples.operation != "unidirectional" for row in rows):
        return Component.between(ends[0], ends[1])
    source, destination = ways.pop()
    return Component.between(source, destination, "out")


def pair_of_nodes(rows: Sequence[Measurement]) -> Component | None:
    """The pair of ends on two nodes between which all was measured; None where there were others."""
    ends = {tuple(sorted(row.ends)) for row in rows}
    (only,) = ends if len(ends) == 1 else ((),)
    return pair_of(only, rows) if len({end.node for end in only}) == 2 else None


def is_alike(rows: Sequence[Measurement]) -> bool:
    """Whether all lost about as much."""
    shares = [share if (share := row.judgement.share_of_expected) is not None else row.judgement.value for row in rows]
    return min(shares) >= MOST * max(shares)


def slow_together(problems: Sequence[Finding], runs: Sequence[RunJudgement]) -> set[tuple[int, str]]:
    """The metrics, by the number of their run and their name, of groups that are slow as a whole by a finding."""
    return {
        (number, name)
        for each in problems
        for number, run in enumerate(runs)
        for name in each.metrics
        if each.code == "all-slow" and run.run.path in each.files
    }


def all_slow(group: Group, low: Collection[tuple[int, str]] = ()) -> tuple[Measurement, ...]:
    """The rows of a group in which nothing is as fast as it should be; none of another.

    `low`: metrics of which a finding tells it (`slow_together`), though each passed.
    """
    if any((row.run, row.judgement.name) not in low for row in group.fast):
        return ()
    # That all is equally slow is no reason to suspect all where single bytes go wrong.
    return tuple(row for row in (*group.slow, *group.fast) if not row.wrong) or group.slow


def slow_software(
    table: Sequence[Group], runs: Sequence[RunJudgement], low: Collection[tuple[int, str]]
) -> tuple[tuple[Component, ...], Sequence[tuple[Group, tuple[Measurement, ...]]]]:
    """The libraries by which alone everything is slow, and of each group the rows that are. `low` as for `all_slow`.

    None where nothing else moved data on the same nodes as fast as it should.
    """
    whole = [(group, rows) for group in table if (rows := all_slow(group, low))]
    lost = [(group, rows) for group, rows in whole if software_of(runs[group.run]) is not None]
    libraries = {library for group, _ in lost if (library := software_of(runs[group.run])) is not None}
    hosts = {runs[group.run].run.hosts for group, _ in lost}
    others = {
        number
        for number, run in enumerate(runs)
        if software_of(run) not in libraries and run.run.hosts in hosts and run.judgements
    }
    rates = [each for number in others for each in runs[number].judgements if each.better == "higher"]
    if not rates or any(group.run in others for group, _ in whole):
        return (), ()
    slow = [row.judgement for _, rows in lost for row in rows if row.judgement.better == "higher"]
    share = statistics.median(each.share_of_expected or 1.0 for each in slow) if slow else 1.0
    healthy = all(each.verdict is Verdict.PASS and _is_faster(each, share) for each in rates)
    return (tuple(sorted(libraries)), lost) if healthy else ((), ())


def _is_faster(judgement: Judgement, share: float) -> bool:
    """Whether a metric that passed lost nothing of what lost all but so much of what is expected. That it agrees with
    its peers, or is above the minimum, says that only where it is far from them."""
    if judgement.judged_by in ("floor", "siblings", ""):
        return share < MOST * (judgement.share_of_expected or 0.0)
    return True


def software_of(judged: RunJudgement) -> Component | None:
    """The library that moved the data of a run; None where it was none, as for copies."""
    header = judged.run.header
    transport = str(header.get("transport", ""))
    library = header.get("libraries", {}).get(transport)
    if transport not in _SOFTWARE or library is None:
        return None
    return Component(_SOFTWARE[transport], str(library["name"]), version=str(library.get("version", "")))


@dataclass(frozen=True)
class _Places:
    """Where the ranks of a run are; `ports`: of the network, where they are requested; `known`: whether
    the topology has their devices and hosts."""

    judged: RunJudgement
    parts: dict[int, Component]
    ports: dict[int, str]
    known: bool

    @classmethod
    def of(cls, judged: RunJudgement, *, network: bool) -> _Places:
        run, topology, indexes = judged.run, judged.topology, gpu_of_ranks(judged.run)
        parts = {each.rank: Component(Kind.DEVICE, f"rank {each.rank}", each.host) for each in run.ranks}
        for rank in run.ranks:
            if rank.device is not None:
                parts[rank.rank] = gpu_component(topology, indexes[rank.rank], rank.host, rank.device.address)
        known = topology is None or {*indexes.values()} <= {gpu.index for gpu in topology.gpus}
        try:
            ports = ends_of_ranks(run, topology) if network and known and topology is not None else {}
        except UserError:  # a host that the network does not have; the judge says so
            ports, known = {}, False
        return cls(judged, parts, ports, known)

    def crossed(self, judgement: Judgement) -> tuple[frozenset[Component], tuple[Component, ...]]:
        """What its data surely pass, and where they end. Of a pair the way between its ends and each end in its
        direction belong to that; the routes of collectives are unknown."""
        samples = judgement.samples
        ends = tuple(self.parts[rank] for rank in samples.ranks if rank in self.parts)
        if len(ends) == 1:
            nics = self._nics(samples)
            return frozenset((*ends, *nics)), (*ends, *nics) if len(nics) == 1 else ends
        if samples.operation not in PAIRS and len(ends) == 2:
            return frozenset(), ends
        if len(ends) != 2:
            what = f"{samples.operation} of ranks {list_ranks(samples.ranks)}"
            return frozenset(), (Component(Kind.CHECK, what),)
        if not self.known:
            return frozenset(), ends
        components = set(components_of(self.judged.run, samples, self.judged.topology))
        components.update(ends)
        components.add(Component.between(min(ends), max(ends)))
        if samples.operation == "unidirectional" or samples.schedule == "uncontended":
            for source, destination in (ends, ends[::-1]) if samples.operation in SYMMETRIC_PAIRS else (ends,):
                components.add(replace(source, direction="sending"))
                components.add(replace(destination, direction="receiving"))
            components.update(self._links(samples))
        components.update(self._of_network(samples.ranks))
        return frozenset(components), ends

    def _nics(self, samples: Samples) -> tuple[Component, ...]:
        """Those by which a rank's data come back to it."""
        if not self.known or self.judged.run.header.get("transport") != "fabric":
            return ()
        crossed = components_of(self.judged.run, samples, self.judged.topology)
        return tuple(part for part in crossed if part.kind is Kind.NIC)

    def _links(self, samples: Samples) -> Iterator[Component]:
        """The links between two GPUs of a node, in the directions of their data."""
        ranks = samples.ranks
        topology, hosts = self.judged.topology, {self.parts[rank].node for rank in ranks}
        if topology is not None and len(hosts) == 1 and all(self.parts[rank].kind is Kind.GPU for rank in ranks):
            gpus = {gpu.name: gpu for gpu in topology.gpus}
            (host,), (source, destination) = hosts, (gpus[self.parts[rank].name] for rank in ranks)
            there = node_graph(topology).widest_path(source, destination).edges
            back = node_graph(topology).widest_path(destination, source).edges
            for first, second in (*there, *(back if samples.operation in SYMMETRIC_PAIRS else ())):
                yield Component(Kind.LINK, first, host, second, host, "out")

    def _of_network(self, ranks: Sequence[int]) -> Iterator[Component]:
        """Cables, switches and trunks that all shortest routes between two nodes have in common."""
        topology = self.judged.topology
        network = topology.network if topology is not None else None
        if network is None or any(rank not in self.ports for rank in ranks):
            return
        routes = [frozenset(each.components) for each in network.routes(*(self.ports[one] for one in ranks))]
        for name in frozenset.intersection(*routes) if routes else ():
            yield network.component(name)
