"""What the pairs of a run say of the parts of the network, as problems of the session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from fabricheck.diagnosis.blame import SlowGroup
from fabricheck.diagnosis.network.cleared import find_cleared
from fabricheck.diagnosis.network.localize import Localization, locate
from fabricheck.diagnosis.network.results import OPERATION, OPERATIONS, pairs_of
from fabricheck.diagnosis.network.routes import Design, Ways, design
from fabricheck.errors import UserError
from fabricheck.judge.policy import Policy
from fabricheck.records.component import either
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import code_of_slow
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.topology.model import Topology
from fabricheck.topology.network import node_of
from fabricheck.units import plural

_FEWEST_NODES = 3


def judge_pairs(run: Run, topology: Topology, policy: Policy, again: Run | None = None) -> Iterator[Finding]:
    """Parts of the network that lose what other parts of their kind do not; nothing for runs without pairs of nodes.

    That needs no references: pairs are compared with each other. A loss counts above the policy's `smallest_loss`, or
    above its `smallest_loss_of_distance` where all pairs over more than one switch have it, and no others, or where a
    few faster pairs explain it as simply. Ranks on nodes that the network does not have are a problem, pairs too few to
    tell a fault from noise a finding, and so is a suspect that `again`, where its suspects were measured again with
    good partners, shows to be healthy.
    """
    network = topology.network
    if network is None:
        return
    operation = next((each for each in OPERATIONS if any(one.operation == each for one in run.samples)), None)
    if operation is None or run.footer is None or len({each.host for each in run.ranks}) < _FEWEST_NODES:
        return
    try:
        rounds = pairs_of(run, topology, operation=operation)
    except UserError as error:
        text = f"{run.path}: the pairs of nodes could not be analysed: {error}"
        yield Finding("cannot-be-judged", Verdict.INVALID, text)
        return
    ways, duplex = Ways(network), operation == OPERATION
    made = design(ways, [[pair for pair, _ in one] for one in rounds], duplex=duplex)
    try:
        located = locate(made, [goodput for one in rounds for _, goodput in one])
    except UserError as error:
        yield Finding(
            "pairs-do-not-tell", Verdict.PASS, f"{run.path}: the slow part of the network cannot be located: {error}"
        )
        return
    count = counted_suspects(located, made, policy)
    healthy: Mapping[SlowGroup, Finding] = {}
    if again is not None and again.footer is not None and not again.problems and located.suspects:
        with contextlib.suppress(UserError):  # then nobody is cleared
            rounds = pairs_of(again, topology, operation=operation)
            healthy = find_cleared(ways, located, rounds, duplex=duplex, least_loss=policy.smallest_loss_of_distance)
    for suspect in sorted(located.suspects, key=lambda fault: -fault.loss):
        if suspect in healthy:
            yield healthy[suspect]
        elif suspect in count:
            yield finding_of(suspect, located)


def finding_of(suspect: SlowGroup, located: Localization) -> Finding:
    """What a suspect is at fault of."""
    at_fault, pairs, p = suspect.at_fault, len(suspect.members), suspect.p or 0.0
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
    together = _pairs_over(made, *located.suspects) == far or as_fast_pairs(located, made)

    def smallest(suspect: SlowGroup) -> float:
        all_far = together or _pairs_over(made, suspect) == far
        return policy.smallest_loss_of_distance if all_far else policy.smallest_loss

    return tuple(each for each in located.suspects if each.low >= smallest(each))


def as_distance(located: Localization, made: Design) -> bool:
    """Whether the suspects together are on all pairs over more than one switch, and on no others."""
    return bool(located.suspects) and _pairs_over(made, *located.suspects) == _far(made)


def as_fast_pairs(located: Localization, made: Design) -> bool:
    """Whether fewer pairs of nodes are left healthy than there are suspects: that these are faster is simpler."""
    left = set(made.places) - _pairs_over(made, *located.suspects)
    return len({frozenset(map(node_of, pair)) for pair in left}) < len(located.suspects)


def _far(made: Design) -> set[tuple[str, str]]:
    network = made.ways.network
    return {pair for pair in made.places if network.distance(*map(node_of, pair)) != "same-switch"}


def _pairs_over(made: Design, *suspects: SlowGroup) -> set[tuple[str, str]]:
    return {made.places[number] for each in suspects for number in each.members}
