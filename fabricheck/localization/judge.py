"""What the pairs of a run say of the parts of the network, as problems of the session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from fabricheck.errors import UserError
from fabricheck.judge.policy import Policy
from fabricheck.localization.cleared import Cleared, find_cleared
from fabricheck.localization.localize import locate
from fabricheck.localization.results import OPERATION, OPERATIONS, pairs_of
from fabricheck.localization.routes import Ways, design
from fabricheck.localization.suspects import Localization, Suspect
from fabricheck.records.catalogue import code_of_slow
from fabricheck.records.finding import Finding
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.topology.model import Topology
from fabricheck.topology.network import Network, node_of

_FEWEST_NODES = 3


def judge_pairs(run: Run, topology: Topology, policy: Policy, again: Run | None = None) -> Iterator[Finding]:
    """Parts of the network that lose what other parts of their kind do not; nothing for runs without pairs of nodes.

    That needs no references: pairs are compared with each other. A loss counts above the policy's `smallest_loss`, or
    above its `smallest_loss_of_distance` where all pairs over more than one switch have it, and no others. Ranks on
    nodes that the network does not have are a problem, pairs too few to tell a fault from noise a finding, and so is a
    suspect that `again`, where its suspects were measured again with good partners, shows to be healthy.
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
        text = f"{run.path}: what the pairs of nodes say of the network is unknown: {error}"
        yield Finding("cannot-be-judged", Verdict.INVALID, text)
        return
    pairs = [[pair for pair, _ in one] for one in rounds]
    ways, duplex = Ways(network), operation == OPERATION
    made = design(ways, pairs, duplex=duplex)
    try:
        located = locate(made, [goodput for one in rounds for _, goodput in one])
    except UserError as error:
        yield Finding(
            "pairs-do-not-tell", Verdict.PASS, f"{run.path}: no part of the network can be named by its pairs: {error}"
        )
        return
    count = that_count(located, network, pairs, policy)
    healthy: tuple[Cleared, ...] = ()
    if again is not None and again.footer is not None and not again.problems and located.suspects:
        with contextlib.suppress(UserError):  # then nobody is cleared
            rounds = pairs_of(again, topology, operation=operation)
            healthy = find_cleared(ways, located, rounds, duplex=duplex, least_loss=policy.smallest_loss_of_distance)
    cleared = {each.suspect: each for each in healthy}
    for suspect in sorted(located.suspects, key=lambda each: -each.loss):
        if suspect in cleared:
            yield Finding("cleared", Verdict.PASS, cleared[suspect].message, suspect.at_fault)
        elif suspect in count:
            yield Finding(
                code_of_slow(suspect.at_fault),
                Verdict.DEGRADED,
                suspect.message,
                suspect.at_fault,
                measured=1 - suspect.loss,
                expected=1.0,
            )


def that_count(
    located: Localization, network: Network, pairs: Iterable[Iterable[tuple[str, str]]], policy: Policy
) -> tuple[Suspect, ...]:
    """The suspects whose loss is more than the policy lets pass, of those in `located`, found by rounds of `pairs`."""
    far = _far(network, pairs)
    together = _pairs_over(*located.suspects) == far

    def smallest(suspect: Suspect) -> float:
        all_far = together or _pairs_over(suspect) == far
        return policy.smallest_loss_of_distance if all_far else policy.smallest_loss

    return tuple(each for each in located.suspects if each.low >= smallest(each))


def as_distance(located: Localization, network: Network, pairs: Iterable[Iterable[tuple[str, str]]]) -> bool:
    """Whether the suspects together are on all pairs over more than one switch, and on no others."""
    return bool(located.suspects) and _pairs_over(*located.suspects) == _far(network, pairs)


def _far(network: Network, pairs: Iterable[Iterable[tuple[str, str]]]) -> set[tuple[str, str]]:
    return {pair for one in pairs for pair in one if network.distance(*map(node_of, pair)) != "same-switch"}


def _pairs_over(*suspects: Suspect) -> set[tuple[str, str]]:
    return {(each.source, each.destination) for suspect in suspects for each in suspect.evidence}
