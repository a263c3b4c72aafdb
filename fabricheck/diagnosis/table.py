"""The table that a diagnosis is made from: measurements of a session, each with the components that its data cross."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from fabricheck.diagnosis.explain import Row
from fabricheck.judge.equal_metrics import Places
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.judgement import Judgement
from fabricheck.records.operations import PAIRS, SYMMETRIC_PAIRS
from fabricheck.records.run import Samples, list_ranks
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.constants import FEWEST_FOR_MIDDLE, LEAST_LOSS, MOST, OF_DEVIATION, RESOLUTION
from fabricheck.topology.components import components_of
from fabricheck.topology.graph import node_graph
from fabricheck.topology.model import Topology
from fabricheck.topology.network import Network

_SOFTWARE = {"ccl": Kind.LIBRARY, "mpi": Kind.MPI}
#: What all measurements of a session cross.
EVERYTHING = Component(Kind.SYSTEM, "all that was measured")
# Yardsticks that do not know what all peers lose.
_OF_PEERS = ("siblings", "achievable", "floor", "unjudged", "")


@dataclass(frozen=True)
class Measurement:
    """A metric of the run with this number, and what its data `crosses`, each with the probability that they do.

    `own`: what stands for this measurement alone; `when`: when its run began, the number of that, and its place
    there."""

    run: int
    judgement: Judgement
    question: Hashable
    crosses: dict[Component, float]
    own: tuple[Component, ...]
    when: tuple[str, int, int]

    @property
    def slow(self) -> bool:
        """Whether its verdict says that it is slow."""
        return self.judgement.verdict.is_slow

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that its data cross."""
        return frozenset().union(*(each.nodes for each in self.crosses))

    @property
    def wrong(self) -> bool:
        """Whether its data arrived wrong."""
        return self.slow and self.judgement.samples.wrong_bytes > 0

    @property
    def total(self) -> float | None:
        """The logarithm of its loss against what an ideal algorithm gets; None where that is unknown."""
        share = self.judgement.share_of_expected
        if not share or share < 0:
            return None
        return -math.log(share) if self.judgement.better == "higher" else math.log(share)


@dataclass(frozen=True)
class Group:
    """Rows of one question in one run."""

    run: int
    rows: tuple[Measurement, ...]

    @property
    def fast(self) -> tuple[Measurement, ...]:
        """Its measurements that passed."""
        return tuple(each for each in self.rows if each.judgement.verdict is Verdict.PASS)


def groups_of(number: int, judged: RunJudgement, *, network: bool = False) -> tuple[Group, ...]:
    """The groups of one run, in the order of its metrics. `network`: whether rows have parts of the network too, which
    takes the routes of all pairs."""
    places = Places.of(judged.run, judged.topology)
    library = software_of(judged)
    of_all = dict.fromkeys([EVERYTHING, *([library] if library is not None else [])], 1.0)
    plan, began = judged.run.header.get("plan", {}), str(judged.run.header.get("started_utc", ""))
    groups: dict[tuple[object, ...], list[Measurement]] = {}
    order = {id(samples): place for place, samples in enumerate(judged.run.samples)}
    for judgement in judged.judgements:
        of = judgement.samples
        question = (
            *(judged.run.header.get("transport"), library, of.operation, of.implementation, of.schedule, of.bytes),
            *(judgement.unit, len(of.ranks), of.placement, plan.get("buffers"), plan.get("access")),
        )
        crossed, when = _crossed(places, of, network=network), (began, number, order.get(id(of), 0))
        own = _own(places, of, crossed)
        row = Measurement(number, judgement, question, crossed | of_all, own, when)
        groups.setdefault(question, []).append(row)
    return tuple(Group(number, tuple(rows)) for rows in groups.values())


def shares_of_routes(network: Network, source: str, destination: str) -> dict[Component, float]:
    """Cables, switches and trunks, with the share of the shortest routes between two nodes or ports that cross them."""
    routes = network.routes(source, destination)
    shares: dict[Component, float] = {}
    for route in routes:
        for name in route.components:
            component = network.component(name)
            shares[component] = shares.get(component, 0.0) + 1 / len(routes)
    return {component: min(share, 1.0) for component, share in shares.items()}


def rows_of(measurements: Sequence[Measurement]) -> list[Row]:
    """Measurements as rows of a table for `explain`."""
    by_question: dict[Hashable, list[Measurement]] = {}
    for measurement in measurements:
        by_question.setdefault(measurement.question, []).append(measurement)
    levels = {question: _level(members) for question, members in by_question.items()}
    rows = [_row(each, levels[each.question]) for each in measurements]
    return in_order(rows, measurements)


def in_order(rows: Sequence[Row], measurements: Sequence[Measurement]) -> list[Row]:
    """Rows with the order in which they were measured."""
    places = {when: number for number, when in enumerate(sorted(each.when for each in measurements))}
    return [replace(row, when=places[each.when]) for row, each in zip(rows, measurements, strict=True)]


@dataclass(frozen=True)
class _Level:
    """Of the healthy rows of a question what they lose of what an ideal algorithm gets, what they lose by their
    yardsticks (`usual`), and the spread of that, all as logarithms."""

    total: float
    usual: float
    spread: float


def _level(members: Sequence[Measurement]) -> _Level:
    healthy = [each for each in members if not each.slow]
    totals = [total for each in healthy if (total := each.total) is not None]
    total = statistics.median(totals) if totals else 0.0
    losses = [_loss(each, total) for each in healthy]
    if len(losses) < FEWEST_FOR_MIDDLE:
        return _Level(total, 0.0, LEAST_LOSS)
    usual = statistics.median(losses)
    spread = OF_DEVIATION * statistics.median(abs(loss - usual) for loss in losses)
    return _Level(total, usual, max(spread, RESOLUTION))


def _loss(measurement: Measurement, level: float) -> float:
    """The logarithm of the loss by its yardstick, or where that is a minimum by healthy peers."""
    judgement, yardstick = measurement.judgement, measurement.judgement.yardstick
    if yardstick is not None and yardstick.kind != "floor" and yardstick.value > 0 and judgement.value > 0:
        ratio = yardstick.value / judgement.value
        return math.log(ratio if judgement.better == "higher" else 1 / ratio)
    return measurement.total - level if measurement.total is not None else 0.0


def _row(measurement: Measurement, level: _Level) -> Row:
    loss, slow = _loss(measurement, level.total) - level.usual, measurement.slow
    of_peers = measurement.judgement.judged_by in _OF_PEERS
    # A minimum does not say what a row should be.
    is_unknown = measurement.judgement.judged_by in ("floor", "unjudged", "") and measurement.total is None
    return Row(
        measurement.question,
        measurement.judgement.unit,
        max(loss, LEAST_LOSS) if slow else loss,
        math.inf if is_unknown and not slow else level.spread,
        slow,
        measurement.crosses,
        measurement.own,
        measurement.total if of_peers else None,
        measurement.judgement.p is not None,
    )


def is_alike(rows: Sequence[Measurement]) -> bool:
    """Whether all lost about as much."""
    shares = [share if (share := row.judgement.share_of_expected) is not None else row.judgement.value for row in rows]
    return min(shares) >= MOST * max(shares)


def software_of(judged: RunJudgement) -> Component | None:
    """The library that moved the data of a run; None where it was none, as for copies."""
    header = judged.run.header
    transport = str(header.get("transport", ""))
    library = header.get("libraries", {}).get(transport)
    if transport not in _SOFTWARE or library is None:
        return None
    return Component(_SOFTWARE[transport], str(library["name"]), version=str(library.get("version", "")))


def _crossed(places: Places, samples: Samples, *, network: bool) -> dict[Component, float]:
    """What the data of a measurement cross."""
    ends, topology = places.ends_of(samples), places.topology
    if topology is None or len(ends) < len(samples.ranks):
        parts = dict.fromkeys([*ends, *(Component.of_node(end.node) for end in ends)], 1.0)
    else:
        of_pair = samples.operation in PAIRS
        known = components_of(places.run, samples, topology)
        # The routes of collectives are unknown.
        crossed = [*places.parts(samples).all, *(each for each in known if of_pair or each.kind is not Kind.LINK)]
        parts = dict.fromkeys([*crossed, *ends], 1.0)
        if of_pair:
            parts |= dict.fromkeys(_links(places, topology, samples), 1.0)
        if of_pair and network and topology.network is not None and all(rank in places.ends for rank in samples.ranks):
            parts |= shares_of_routes(topology.network, *(places.ends[rank] for rank in samples.ranks))
    if len(ends) == 2:
        parts[Component.between(min(ends), max(ends))] = 1.0
    return parts


def _own(places: Places, samples: Samples, parts: Collection[Component]) -> tuple[Component, ...]:
    """What stands for a measurement alone."""
    ends = places.ends_of(samples)
    if len(ends) == 1:
        nics = [each for each in parts if each.kind is Kind.NIC]
        return (Component.between(ends[0], nics[0]),) if len(nics) == 1 else ends
    if len(ends) == 2:
        one_way = samples.operation in PAIRS and samples.operation not in SYMMETRIC_PAIRS
        return (Component.between(ends[0], ends[1], "out" if one_way else ""),)
    if places.topology is not None and len(ends) < len(places.ranks):
        hosts = {end.node for end in ends}
        host = min(hosts)
        whole = len(hosts) == 1 and len(ends) == places.ranks_of_hosts[host]
        return (Component.of_node(host),) if whole else ends
    return (Component(Kind.CHECK, f"{samples.operation} of ranks {list_ranks(samples.ranks)}"),)


def _links(places: Places, topology: Topology, samples: Samples) -> Iterator[Component]:
    """The links between two GPUs of a node, in the directions of their data."""
    gpus = [places.gpus[rank] for rank in samples.ranks if rank in places.gpus]
    if places.across(samples) or len(gpus) < 2 or gpus[0] == gpus[1]:
        return
    host = places.ranks[samples.ranks[0]].host
    ways = [gpus, gpus[::-1]] if samples.operation in SYMMETRIC_PAIRS else [gpus]
    for source, destination in ways:
        for first, second in node_graph(topology).widest_path(source, destination).edges:
            yield Component(Kind.LINK, first, host, second, host, "out")
