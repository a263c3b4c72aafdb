"""What the pairs of a run say of the parts of the network, as problems of the session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fabricheck.diagnosis.network.localize import Localization, SlowGroup, locate
from fabricheck.diagnosis.network.results import OPERATION, Rounds, operation_of, pairs_again, pairs_of
from fabricheck.diagnosis.network.routes import Design, FloatArray, Ways, design
from fabricheck.errors import UserError
from fabricheck.records.component import Component, either
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import code_of_slow
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.constants import FEWEST_FOR_MIDDLE, RESOLUTION
from fabricheck.topology.model import Topology
from fabricheck.topology.network import node_of
from fabricheck.units import plural
from fabricheck.yardsticks.policy import Policy


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
