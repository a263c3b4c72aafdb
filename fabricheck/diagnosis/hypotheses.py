"""What a session's runs say of the hypotheses behind the eight observations (fabricheck.diagnosis.observations).

One function for each observation. It yields an answer for each MPI library or transport that was measured, and none
where the measurement is missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fabricheck.diagnosis.case_runs import (
    CaseGroup,
    CaseRun,
    Floats,
    SizePoint,
    common_points,
    groups_of,
    match_partners,
)
from fabricheck.diagnosis.ratios import Slowdown, slowdowns
from fabricheck.judge.constants import MARGIN, MARGINAL_GOODPUT, MARGINAL_LATENCY, UNDERUSED
from fabricheck.judge.expectations import expect_from_topology
from fabricheck.judge.statistics import RatioTest, Truth, all_of, all_true, any_of, count, faster, most_of, no_faster
from fabricheck.judge.system import SystemJudge
from fabricheck.records.metrics import SMALLEST_GOODPUT_BYTES
from fabricheck.records.operations import ONE_AT_A_TIME, PAIRS, VICTIMS
from fabricheck.topology.network import DISTANCES
from fabricheck.units import format_size

COLLECTIVES = ("alltoall", "allreduce", "allgather", "reduce_scatter", "broadcast", "reduce")
SERVICE_LEVELS = frozenset({"NCCL_IB_SL", "UCX_IB_SL"})


@dataclass(frozen=True)
class SessionData:
    """What was measured: everything that the hypotheses are tested on."""

    runs: tuple[CaseRun, ...]
    groups: tuple[CaseGroup, ...]
    judge: SystemJudge

    @classmethod
    def of(cls, runs: Iterable[CaseRun], judge: SystemJudge) -> SessionData:
        """The runs that a conclusion may rest on."""
        runs = tuple(each for each in runs if each.is_evidence)
        return cls(runs, groups_of(runs), judge)


@dataclass(frozen=True)
class Found:
    """An answer with what it rests on. `where`: the environment or transport that it is about."""

    truth: Truth
    numbers: str
    where: str = ""


def _found(truth: Truth, numbers: str, where: str = "") -> Found:
    return Found(truth, f"too noisy to tell: {numbers}" if truth is None else numbers, where)


# 1. Tuning ---------------------------------------------------------------------------------------------------------


def tuning_helps(evidence: SessionData) -> Iterator[Found]:
    """Goodput with more variables set over goodput with fewer."""
    wanted = {*PAIRS, *COLLECTIVES}
    comparisons = [
        (faster(one.gbps, other.gbps), point, more, less)
        for more, less in _settings_apart(evidence.groups, lambda names: not names & SERVICE_LEVELS)
        for point, (one, other) in common_points(more, less).items()
        if point.operation in wanted
    ]
    if not comparisons:
        return
    tests = [test for test, *_ in comparisons]
    best, point, more, less = max(comparisons, key=lambda each: each[0].ratio.low)
    names = ", ".join(sorted(f"{name}={value}" for name, value in more.settings - less.settings))
    most = f"most {_what(point)} over {more.transport} with {names}: {best.ratio} times"
    yield _found(any_of(tests), f"{count(tests, 'faster', 'not')} of {len(tests)}; {most}")


def _settings_apart(
    groups: Sequence[CaseGroup], wanted: Callable[[frozenset[str]], bool]
) -> Iterator[tuple[CaseGroup, CaseGroup]]:
    """Groups of one transport and environment of which the first has all settings of the second, and others."""
    for more in groups:
        for less in groups:
            same = all(getattr(more, name) == getattr(less, name) for name in ("partition", "environment", "transport"))
            apart = frozenset(name for name, _ in more.settings - less.settings)
            if same and less.settings < more.settings and wanted(apart):
                yield more, less


# 2. and 3. Point to point inside a node ----------------------------------------------------------------------------


def mpi_is_highest(evidence: SessionData) -> Iterator[Found]:
    """Goodput of each other way over that of MPI, at the largest size that both have, pair by pair."""
    for mpi in (each for each in evidence.groups if each.transport == "mpi"):
        ways = [
            other
            for way in ("ccl", "copy", "staging")
            for one, other in match_partners(evidence.groups, "mpi", way)
            if one is mpi
        ]
        points = {way: _largest(set(_pairs_in_node(mpi)) & set(way.points)) for way in ways}
        if not any(points[way] for way in ways if way.transport != "staging"):
            continue
        tests = {
            way: [no_faster(way.points[point].gbps, mpi.points[point].gbps) for point in points[way]]
            for way in ways
            if points[way]
        }
        summary = "; ".join(
            f"{way.transport} ÷ MPI at most {max((test.ratio for test in each), key=lambda ratio: ratio.value)} "
            f"over {len(each)} pairs at {format_size(points[way][0].bytes)}"
            for way, each in tests.items()
        )
        truth = all_of([test for each in tests.values() for test in each])
        yield _found(truth, summary + _latencies([mpi, *ways]), mpi.environment)


def _latencies(ways: Sequence[CaseGroup]) -> str:
    """Of the smallest ping-pong that all ways have, the quickest way first."""
    common = set(_pairs_in_node(ways[0])).intersection(*(each.points for each in ways))
    size = min((point.bytes for point in common), default=SMALLEST_GOODPUT_BYTES)
    if size >= SMALLEST_GOODPUT_BYTES:
        return ""
    points = [point for point in common if point.bytes == size]
    latency = {
        each.transport: 8e-3 * size / float(np.median([np.median(each.points[point].gbps) for point in points]))
        for each in ways
    }
    listed = ", ".join(f"{way} {latency[way]:.3g} us" for way in sorted(latency, key=lambda way: latency[way]))
    return f"; latency at {format_size(size)}: {listed}"


def ccl_underuses_links(evidence: SessionData) -> Iterator[Found]:
    """Goodput of *CCL over the better of peer copy and MPI, at the largest size, pair by pair."""
    for ccl in (each for each in evidence.groups if each.transport == "ccl"):
        others = [
            each
            for each in evidence.groups
            if each.transport in ("copy", "mpi") and (each.test, each.partition) == (ccl.test, ccl.partition)
        ]
        best: dict[SizePoint, Floats] = {}
        for point in _pairs_in_node(ccl):
            measured = [each.points[point].gbps for each in others if point in each.points]
            if measured:
                best[point] = max(measured, key=lambda values: float(np.median(values)))
        tests = {
            point: RatioTest([ccl.points[point].gbps], [best[point]], UNDERUSED, above=False)
            for point in _largest(best)
        }
        if tests:
            point = min(tests, key=lambda each: tests[each].ratio.value)
            numbers = f"*CCL ÷ the better of the others is {tests[point].ratio} at least over {len(tests)} pairs"
            yield _found(any_of(list(tests.values())), f"{numbers} at {format_size(point.bytes)}", ccl.environment)


def _pairs_in_node(group: CaseGroup) -> list[SizePoint]:
    return [
        point
        for point in group.points
        if (point.operation, point.schedule) == ("pingpong", "uncontended") and point.devices and len(point.hosts) == 1
    ]


def _largest(points: Iterable[SizePoint]) -> list[SizePoint]:
    """Of each pair the largest size, where that is large enough for a goodput."""
    points_by_key: dict[tuple[str, ...], SizePoint] = {}
    for point in points:
        largest = points_by_key.get(point.places)
        if point.bytes >= SMALLEST_GOODPUT_BYTES and (largest is None or largest.bytes < point.bytes):
            points_by_key[point.places] = point
    return list(points_by_key.values())


# 4. and 7. Collectives ---------------------------------------------------------------------------------------------


def ccl_wins_in_node(evidence: SessionData) -> Iterator[Found]:
    """Goodput of *CCL over that of MPI for every collective and size over the GPUs of one node."""
    for mpi, ccl in match_partners(evidence.groups, "mpi", "ccl"):
        tests = {
            point: faster(ccl.points[point].gbps, mpi.points[point].gbps)
            for point in _collectives(ccl, mpi)
            if len(point.hosts) == 1
        }
        if not tests:
            continue
        ordered = sorted(tests, key=lambda point: tests[point].ratio.value)
        least, most = (f"{tests[point].ratio} ({_what(point)})" for point in (ordered[0], ordered[-1]))
        numbers = (
            f"of {len(tests)} operations and sizes {count(tests.values(), 'faster', 'not')}; *CCL ÷ MPI from {least} "
            f"to {most}{_room(evidence, ccl, ordered)}"
        )
        yield _found(most_of(list(tests.values())), numbers, mpi.environment)


def _collectives(ccl: CaseGroup, mpi: CaseGroup) -> list[SizePoint]:
    """Collectives of GPUs for which MPI used its own."""
    return [
        point
        for point, (_, other) in common_points(ccl, mpi).items()
        if point.operation in COLLECTIVES and point.devices and other.implementation == "library"
    ]


def _room(evidence: SessionData, ccl: CaseGroup, points: Iterable[SizePoint]) -> str:
    """Share of the model's goodput that *CCL's largest allreduce reaches."""
    size = max((point.bytes for point in points if point.operation == "allreduce"), default=0)
    for run in evidence.runs:
        topology = evidence.judge.topology_of(run.partition)
        if topology is None or (run.transport, run.test, run.environment) != ("ccl", ccl.test, ccl.environment):
            continue
        expect = expect_from_topology(run.run, topology, evidence.judge.policy)
        for samples in run.run.samples:
            if (samples.operation, samples.bytes) == ("allreduce", size):
                expected = expect(samples, "goodput").expected
                if expected:
                    share = float(np.median(samples.goodput_gbps)) / expected
                    return f"; its allreduce of {format_size(size)} reaches {share:.0%} of the model"
    return ""


def ccl_leads_at_few_nodes(evidence: SessionData) -> Iterator[Found]:
    """Three tests for each operation: *CCL is faster at the fewest nodes with large transfers, and its lead is larger
    there than at the most nodes, and than with small transfers."""
    by_environment: dict[tuple[str, str], dict[_Place, tuple[Floats, Floats]]] = defaultdict(dict)
    for mpi, ccl in match_partners(evidence.groups, "mpi", "ccl"):
        for point in _collectives(ccl, mpi):
            if point.operation in ("alltoall", "allreduce"):
                place = _Place(point.operation, len(point.hosts), point.bytes)
                measured = (ccl.points[point].gbps, mpi.points[point].gbps)
                by_environment[mpi.partition, mpi.environment].setdefault(place, measured)
    for (_, environment), places in by_environment.items():
        tests = {
            text: test
            for operation in dict.fromkeys(place.operation for place in places)
            for text, test in _tests_of_scale(operation, places)
        }
        if tests:
            numbers = "; ".join(f"{text} {test.ratio}" for text, test in tests.items())
            yield _found(all_of(list(tests.values())), numbers, environment)


@dataclass(frozen=True)
class _Place:
    operation: str
    nodes: int
    bytes: int


def _tests_of_scale(operation: str, times: Mapping[_Place, tuple[Floats, Floats]]) -> Iterator[tuple[str, RatioTest]]:
    """None for an operation that was measured over one number of nodes only."""
    mine = [place for place in times if place.operation == operation]
    few, many = min(place.nodes for place in mine), max(place.nodes for place in mine)
    sizes = {nodes: {place.bytes for place in mine if place.nodes == nodes} for nodes in (few, many)}
    common = sizes[few] & sizes[many]
    if few == many or not common:
        return
    large, small = max(common), min(sizes[few])
    ccl, mpi = times[_Place(operation, few, large)]
    what = f"{operation} of {format_size(large)} on {few} {'node' if few == 1 else 'nodes'}: *CCL ÷ MPI"
    yield what, faster(ccl, mpi)
    other_ccl, other_mpi = times[_Place(operation, many, large)]
    yield f"that over the one on {many} nodes", RatioTest([ccl, other_mpi], [mpi, other_ccl], 1 + MARGIN)
    if small < large:
        other_ccl, other_mpi = times[_Place(operation, few, small)]
        yield f"and over the one of {format_size(small)}", RatioTest([ccl, other_mpi], [mpi, other_ccl], 1 + MARGIN)


# 5. and 6. Point to point between nodes ----------------------------------------------------------------------------


def mpi_wins_between_nodes(evidence: SessionData) -> Iterator[Found]:
    """Goodput of MPI over that of *CCL between GPUs of different nodes, at the smallest and the largest size."""
    for mpi, ccl in match_partners(evidence.groups, "mpi", "ccl"):
        points = [point for point in common_points(mpi, ccl) if _is_between_nodes(point) and point.devices]
        sizes = {point.bytes for point in points}
        small, large = min(sizes, default=SMALLEST_GOODPUT_BYTES), max(sizes, default=0)
        if small >= SMALLEST_GOODPUT_BYTES or large < SMALLEST_GOODPUT_BYTES:
            continue
        truths, numbers = [], []
        for size in (small, large):
            tests = [faster(mpi.points[point].gbps, ccl.points[point].gbps) for point in points if point.bytes == size]
            truths.append(most_of(tests))
            best = max((test.ratio for test in tests), key=lambda ratio: ratio.value)
            counts = count(tests, "faster", "not")
            numbers.append(f"at {format_size(size)} of {len(tests)} pairs {counts}, MPI ÷ *CCL at most {best}")
        yield _found(all_true(truths), "; ".join(numbers), mpi.environment)


def location_is_marginal(evidence: SessionData) -> Iterator[Found]:
    """The nearest distance class against the farthest, by the medians of their pairs.

    So a pair counts once, however often it was measured, and pairs that differ make the interval wide.
    """
    for group in evidence.groups:
        topology = evidence.judge.topology_of(group.partition)
        if topology is None or topology.network is None:
            continue
        classes: dict[tuple[str, str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for point, measured in group.points.items():
            if _is_between_nodes(point):
                distance = topology.network.distance(*map(topology.network.node_of_host, point.hosts))
                median = float(np.median(measured.gbps))
                classes[point.operation, point.schedule, point.bytes][distance].append(median)
        tests = dict(_test_of_distance(*key, found) for key, found in classes.items() if len(found) > 1)
        if tests:
            label = ", ".join(filter(None, (group.transport, group.environment)))
            numbers = "; ".join(f"{text} {test.ratio}" for text, test in tests.items())
            yield _found(all_of(list(tests.values())), numbers, label)


def _test_of_distance(
    operation: str, schedule: str, size: int, classes: Mapping[str, Sequence[float]]
) -> tuple[str, RatioTest]:
    order = [each for each in DISTANCES if each in classes]
    near, far = (np.array(classes[each]) for each in (order[0], order[-1]))
    pairs = f"{len(far)} pairs {order[-1]} ÷ {len(near)} {order[0]}"
    what = f"{operation} {schedule} of {format_size(size)}"
    if size < SMALLEST_GOODPUT_BYTES:
        # Of one size, so times are as the inverse of goodputs.
        return f"{what}: time of {pairs}", RatioTest([near], [far], MARGINAL_LATENCY, above=False)
    return f"{what}: goodput of {pairs}", RatioTest([far], [near], MARGINAL_GOODPUT)


def _is_between_nodes(point: SizePoint) -> bool:
    return point.operation in ONE_AT_A_TIME and len(point.hosts) == 2


# 8. Noise ----------------------------------------------------------------------------------------------------------


def noise_slows_collectives(evidence: SessionData) -> Iterator[Found]:
    """Goodput without noise over goodput with it: alone and beside an aggressor, by another service level and by the
    default one."""
    victims = [
        (faster(one.alone.goodput_gbps, one.beside.goodput_gbps), f"{one.alone.operation} ({run.label}), {one.who}")
        for run in evidence.runs
        for one in _victims_between_nodes(run)
    ] + [
        (faster(one.gbps, noisy.gbps), f"{_what(point)} ({other.transport}) by another service level")
        for other, default in _settings_apart(evidence.groups, lambda names: names <= SERVICE_LEVELS)
        for point, (one, noisy) in common_points(other, default).items()
        if point.operation in ("alltoall", "allreduce") and len(point.hosts) > 1
    ]
    if victims:
        tests = [test for test, _ in victims]
        worst, what = max(victims, key=lambda each: each[0].ratio.value)
        counts = count(tests, "lose", "do not")
        yield _found(any_of(tests), f"of {len(tests)} {counts}; without noise ÷ with it {worst.ratio} at most: {what}")


def _victims_between_nodes(run: CaseRun) -> Iterator[Slowdown]:
    hosts = {each.rank: each.host for each in run.run.ranks}
    for slowdown in slowdowns(run.run):
        across = len({hosts[rank] for rank in slowdown.alone.ranks}) > 1
        right = slowdown.alone.wrong_bytes == 0 and slowdown.beside.wrong_bytes == 0
        if VICTIMS[slowdown.alone.operation] == "alltoall" and across and right:
            yield slowdown


def _what(point: SizePoint) -> str:
    return f"{point.operation} of {format_size(point.bytes)}"
