"""What the pairs of a run say of the parts of the network, as problems of the session.

Two cables that are not on the switches where the description has them change who is near to whom.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr

from fabricheck.diagnosis.network.localize import Localization, SlowGroup, locate
from fabricheck.diagnosis.network.results import OPERATION, Rounds, operation_of, pairs_again, pairs_of, places_of
from fabricheck.diagnosis.network.routes import Design, FloatArray, IntArray, Ways, design
from fabricheck.errors import UserError
from fabricheck.records.component import Component, either
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import code_of_slow
from fabricheck.records.metrics import SMALLEST_GOODPUT_BYTES
from fabricheck.records.operations import PAIRS
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.constants import FEWEST_FOR_MIDDLE, RESOLUTION
from fabricheck.topology.model import Topology
from fabricheck.topology.network import Network, node_of
from fabricheck.units import plural
from fabricheck.yardsticks.policy import Policy

#: Of the times of a pair: processors and other traffic add to them, and take nothing away.
QUANTILE = 25
#: All pairs of more ports would need gigabytes; a screen of so many measures few of each switch.
MOST_PORTS = 4096


def find_swapped(run: Run, topology: Topology, error: float) -> Iterator[Finding]:
    """Cables that two nodes have exchanged, by the smallest messages of a run over nodes: needs no reference.

    `error`: the probability of naming any where all are right. Nothing is found where more switches on the way cost no
    time that stands out from the noise, or a switch has too few ports.
    """
    network = topology.network
    if network is None or run.footer is None:
        return
    try:
        latencies, ports = _latencies(run, topology, network)
    except UserError:
        return  # hosts that the network does not have: the judge of pairs says so
    leaves = np.array([network.leaf_of(port) for port in ports])
    named: set[str] = set()
    for p, swapped, near, far in sorted(_swaps(latencies, leaves, error)):
        own = [ports[place] for place in swapped]
        if named.isdisjoint(own):
            named.update(own)
            text = (
                f"{own[0]} and {own[1]} seem to have each other's cables: {near:.3g} us to the switches of "
                f"topology.yaml, {far:.3g} us to each other's (p = {p:.1g}); compare with LLDP or ibnetdiscover"
            )
            yield Finding("cables-swapped", Verdict.DEGRADED, text, tuple(map(network.component, own)))


def _latencies(run: Run, topology: Topology, network: Network) -> tuple[FloatArray, Sequence[str]]:
    """Logarithms of the times between ports, shape (P, P), NaN where nothing was measured; and the P ports."""
    small = [one for one in run.samples if one.operation in PAIRS and one.bytes < SMALLEST_GOODPUT_BYTES]
    least = min((one.bytes for one in small), default=0)
    places = places_of(run, topology) if small else ()
    own = [network.ports_of(node_of(place)) for place in places]
    known = [
        place if place in ports else ports[0] if len(ports) == 1 else ""
        for place, ports in zip(places, own, strict=True)
    ]
    latencies: dict[tuple[str, str], list[float]] = defaultdict(list)
    for samples in small:
        pair = [known[rank] for rank in samples.ranks]
        if samples.bytes == least and len(pair) == 2 and all(pair) and len({*map(node_of, pair)}) == 2:
            latencies[min(pair), max(pair)].append(math.log(np.percentile(samples.latency_us, QUANTILE)))
    ports = sorted({port for pair in latencies for port in pair})
    if len(ports) > MOST_PORTS:
        return np.empty((0, 0)), ()
    number = {port: at for at, port in enumerate(ports)}
    values = np.full((len(ports), len(ports)), np.nan)
    for ends, times in latencies.items():
        a, b = (number[port] for port in ends)
        values[a, b] = values[b, a] = np.mean(times)
    return values, ports


def _swaps(
    values: FloatArray, leaves: npt.NDArray[np.str_], error: float
) -> Iterator[tuple[float, tuple[int, int], float, float]]:
    """Pairs of ports whose data take the way of the other: the probability of that by chance, corrected for all pairs
    of ports on two switches; the ports by number; the median of their times in us to other ports of the switches where
    the description has them, and of each other's to the same."""
    members = [np.flatnonzero(leaves == leaf) for leaf in dict.fromkeys(leaves.tolist())]
    tests = sum(a.size * b.size for a, b in itertools.combinations(members, 2))
    for ours, theirs in itertools.combinations(members, 2):
        # Candidates are nearer to the other's switch than to their own.
        candidates = itertools.product(_astray(values, ours, theirs), _astray(values, theirs, ours))
        for port, other in candidates:
            sides = _compared(values, port, ours, other), _compared(values, other, theirs, port)
            p = min(1.0, tests * _chance([near - far for near, far in sides]))
            if p < error:
                near, far = (float(np.exp(np.median(np.concatenate(each)))) for each in zip(*sides, strict=True))
                yield p, (port, other), near, far


def _astray(values: FloatArray, own: IntArray, others: IntArray) -> Iterator[int]:
    for port in own:
        near, far = values[port, own], values[port, others]
        if not (np.isnan(near).all() or np.isnan(far).all()) and np.nanmean(near) > np.nanmean(far):
            yield int(port)


def _compared(values: FloatArray, own: int, peers: IntArray, other: int) -> tuple[FloatArray, FloatArray]:
    """The times of a port to the others of its described switch, and those of the other switch's port to the same."""
    rest = peers[peers != own]
    near, far = values[own, rest], values[other, rest]
    both = ~(np.isnan(near) | np.isnan(far))
    return near[both], far[both]


def _chance(sides: Sequence[FloatArray]) -> float:
    """Probability of such differences where none are expected (Student's t test of the sum of two means, one-sided).

    A slow port is so to all others: what it adds to the mean of one side it takes from that of the other.
    """
    sizes = [each.size for each in sides]
    freedom = sum(sizes) - 2
    if min(sizes) < 1 or freedom < FEWEST_FOR_MIDDLE:
        return 1.0
    mean = sum(float(each.mean()) for each in sides)
    variance = sum(float(((each - each.mean()) ** 2).sum()) for each in sides) / freedom
    error = math.sqrt(variance * sum(1 / each for each in sizes)) + RESOLUTION
    return float(stdtr(freedom, -mean / error))


@dataclass(frozen=True)
class SlowParts:
    """What explains slow pairs: `suspects`, which lose more than the policy lets pass; `healthy`, which did so at first
    and no longer, each with the share of the healthy rate that it reached in the end and in how many pairs; and the fit
    that names both."""

    suspects: tuple[SlowGroup, ...]
    healthy: Mapping[SlowGroup, tuple[float, int]]
    located: Localization


def find_slow_parts(ways: Ways, rounds: Rounds, again: Rounds, policy: Policy, *, duplex: bool) -> SlowParts:
    """Find the parts of a network that explain what pairs gave in `rounds`, and in rounds over suspects `again`.

    One fit explains both. Fewer pairs at a time may by themselves give some per cent more: what no suspect touches has
    the same level in both. A part of a node is healthy again where the median of three pairs or more that surely go
    over it lost less than half of what it loses by the fit, and less than the policy lets pass. Trunks and switches may
    have lost capacity, which fewer pairs do not show. Raises UserError for fewer than eight usable pairs.
    """
    made, goodput = _readings(ways, rounds, duplex=duplex)
    located = locate(made, goodput)
    first = counted_suspects(located, made, policy)
    if not again or not first:
        return SlowParts(first, {}, located)
    made, goodput = _readings(ways, [*rounds, *again], duplex=duplex)
    is_again = made.rounds >= len(rounds)
    known = is_again & ~made.doubtful
    shares = goodput / made.expected_gbps / located.scale
    touched = [_weight(made, part) > 0 for suspect in located.suspects for part in suspect.components]
    beside = shares[known & ~np.any(touched, axis=0)]
    level = float(np.median(beside)) if beside.size >= FEWEST_FOR_MIDDLE else 1.0
    located = locate(made, np.where(is_again, goodput / level, goodput))
    shares = np.where(known, shares / level, np.nan)
    healthy = {}
    for suspect in first:
        again_healthy = _healthy_again(suspect, made, shares, policy)
        if again_healthy is not None:
            healthy[suspect] = again_healthy
    counted = counted_suspects(located, made, policy)
    suspects = tuple(each for each in counted if _healthy_again(each, made, shares, policy) is None)
    return SlowParts(suspects, healthy, located)


def _readings(ways: Ways, rounds: Rounds, *, duplex: bool) -> tuple[Design, FloatArray]:
    made = design(ways, [[pair for pair, _ in pairs] for pairs in rounds], duplex=duplex)
    return made, np.array([goodput for pairs in rounds for _, goodput in pairs])


def _weight(made: Design, part: Component) -> FloatArray:
    """The probability of each reading that it goes over a part."""
    ways = made.way[made.component == made.ways.position[part.text]]
    weight: FloatArray = np.bincount(made.reading[ways], made.probability[ways], len(made.places)).astype(float)
    return weight


def _healthy_again(suspect: SlowGroup, made: Design, shares: FloatArray, policy: Policy) -> tuple[float, int] | None:
    """The median of what surely goes over the worst part of a suspect, and of how many pairs, where that is healthy;
    else None. `shares`: NaN for what was not measured again."""
    medians = []
    for part in suspect.components:
        over = shares[(_weight(made, part) > 1 - RESOLUTION) & ~np.isnan(shares)]
        if not part.nodes or over.size < FEWEST_FOR_MIDDLE:
            return None
        medians.append((float(np.median(over)), over.size))
    share, pairs = min(medians, key=lambda median: median[0])
    return (share, pairs) if 1 - share < min(suspect.loss / 2, policy.smallest_loss) else None


def judge_pairs(run: Run, topology: Topology, policy: Policy, again: Run | None = None) -> Iterator[Finding]:
    """Parts of the network that lose what other parts of their kind do not; nothing for runs without pairs of nodes.

    That needs no references: pairs are compared with each other. A loss counts above the policy's `smallest_loss`, or
    above its `smallest_loss_of_distance` where all pairs over more than one switch have it, and no others, or where a
    few faster pairs explain it as simply. Ranks on nodes that the network does not have are a problem, pairs too few to
    tell a fault from noise a finding, and so is what `again`, the suspects measured again, shows to be healthy.
    """
    network, operation = topology.network, operation_of(run)
    few_hosts = len({rank.host for rank in run.ranks}) < FEWEST_FOR_MIDDLE
    if network is None or not operation or run.footer is None or few_hosts:
        return
    try:
        rounds = pairs_of(run, topology, operation=operation)
    except UserError as error:
        text = f"{run.path}: the pairs of nodes could not be analysed: {error}"
        yield Finding("cannot-be-judged", Verdict.INVALID, text)
        return
    try:
        second = pairs_again(again, topology, operation)
        parts = find_slow_parts(Ways(network), rounds, second, policy, duplex=operation == OPERATION)
    except UserError as error:
        yield Finding(
            "pairs-do-not-tell", Verdict.PASS, f"{run.path}: the slow part of the network cannot be located: {error}"
        )
        return
    for suspect in sorted((*parts.suspects, *parts.healthy), key=lambda suspect: -suspect.loss):
        if suspect in parts.healthy:
            share, pairs = parts.healthy[suspect]
            text = (
                f"{either(suspect.at_fault)} is healthy: it lost {suspect.loss:.0%} in the first test, but {pairs} "
                f"pairs with good partners reached {share:.0%} of the rate of healthy pairs"
            )
            yield Finding("cleared", Verdict.PASS, text, suspect.at_fault)
        else:
            yield finding_of(suspect, parts.located)


def finding_of(suspect: SlowGroup, located: Localization) -> Finding:
    """What a suspect is at fault of."""
    at_fault, pairs, p = suspect.at_fault, len(suspect.members), suspect.p
    # A double has no number between 0 and 5e-324.
    chance = f"p = {p:.1g}" if p > 0 else "p < 1e-300"
    text = (
        f"{either(at_fault)} loses {suspect.loss:.0%} ({suspect.low:.0%} to {suspect.high:.0%}) in "
        f"{plural(pairs, 'pair')} ({chance}, corrected for {located.hypotheses} possible faults); "
        "check link state, error counters and cables there"
    )
    return Finding(
        code_of_slow(at_fault), Verdict.DEGRADED, text, at_fault, measured=1 - suspect.loss, expected=1.0, p=suspect.p
    )


def counted_suspects(located: Localization, made: Design, policy: Policy) -> tuple[SlowGroup, ...]:
    """The suspects whose loss is more than the policy lets pass, of those in `located`, found by a design."""
    far = _far(made)
    together = _pairs_over(made, *located.suspects) == far or _as_fast_pairs(located, made)

    def smallest(suspect: SlowGroup) -> float:
        all_far = together or _pairs_over(made, suspect) == far
        return policy.smallest_loss_of_distance if all_far else policy.smallest_loss

    return tuple(each for each in located.suspects if each.low >= smallest(each))


def _as_fast_pairs(located: Localization, made: Design) -> bool:
    """Whether fewer pairs of nodes are left healthy than there are suspects: that these are faster is simpler."""
    left = set(made.places) - _pairs_over(made, *located.suspects)
    return len({frozenset(map(node_of, pair)) for pair in left}) < len(located.suspects)


def _far(made: Design) -> set[tuple[str, str]]:
    network = made.ways.network
    return {pair for pair in made.places if network.distance(*map(node_of, pair)) != "same-switch"}


def _pairs_over(made: Design, *suspects: SlowGroup) -> set[tuple[str, str]]:
    return {made.places[number] for each in suspects for number in each.members}
