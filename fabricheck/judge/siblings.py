"""Judges metrics by their peers of the same run, and of other nodes' runs of the same test in one session."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fabricheck.judge.equal_metrics import Equals, equals_of
from fabricheck.judge.run_rules import find_slow_starts, find_slow_tails
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.limits.achievable import between_hosts
from fabricheck.records.component import Component
from fabricheck.records.finding import Finding, with_files
from fabricheck.records.judgement import Judgement, Yardstick
from fabricheck.records.rehearsal import is_rehearsal
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.outliers import CrossedParts, Outlier, critical_value, outliers
from fabricheck.units import apart
from fabricheck.yardsticks.policy import Policy, Scope

# Yardsticks that siblings are stronger than, where all is well.
_WEAKER = ("", "unjudged", "achievable", "floor")


@dataclass(frozen=True)
class Compared:
    """Runs judged by siblings too, what is wrong with their parts, and what is only told."""

    runs: tuple[RunJudgement, ...]
    problems: tuple[Finding, ...]
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class _Group:
    run: int
    equals: Equals


def compare_siblings(runs: Sequence[RunJudgement], policy: Policy) -> Compared:
    """The runs of a session, each metric also judged by its peers.

    A metric with a reference keeps its verdict: that was measured on this very part. So does one with a worse verdict.
    What is slower than its peers and is so by no verdict, since it always was, is not a problem either.
    The error of the policy is divided among all metrics of the session, at least among `equals_metrics`. Runs that the
    topology does not fit have no peers; they are INVALID for that already.
    """
    groups = [_Group(number, each) for number, run in enumerate(runs) for each in equals_of(run)]
    metrics = max(policy.equals_metrics, sum(len(run.judgements) for run in runs))
    several = _by_key(runs, groups)
    # Half of it is for medians, half for tails.
    each_error = policy.equals_error / metrics / (4 if several else 2)
    verdicts = [list(run.judgements) for run in runs]
    for group in groups:
        slow = _judge_group(group, runs, verdicts[group.run], policy, each_error)
        _judge_by_links(group, slow, runs, verdicts[group.run], policy)
    for alike in several:
        _judge_nodes(alike, runs, verdicts, policy, each_error)
    judged = tuple(run.with_judgements(own) for run, own in zip(runs, verdicts, strict=True))
    problems: list[Finding] = []
    for own_group in groups if policy.tails_of_equals else ():
        error = each_error * len(own_group.equals.members)
        tails = (
            *find_slow_tails(own_group.equals, runs[own_group.run], error),
            *find_slow_starts(own_group.equals, runs[own_group.run]),
        )
        problems += with_files(tails, judged[own_group.run].run.path)
    return Compared(judged, tuple(problems))


def _by_key(runs: Sequence[RunJudgement], groups: Sequence[_Group]) -> list[list[_Group]]:
    """The same groups of runs of one test that were each on a node of its own, one a node."""
    nodes_of: dict[object, dict[str, _Group]] = {}
    for group in groups:
        run = runs[group.run]
        hosts = {rank.host for rank in run.run.ranks}
        if run.test and run.trusted and len(hosts) == 1:
            nodes_of.setdefault((run.test, group.equals.key), {}).setdefault(hosts.pop(), group)
    return [list(nodes.values()) for nodes in nodes_of.values() if len(nodes) > 1]


def _least_spread(equals: Equals, run: RunJudgement, policy: Policy, launches: str) -> float:
    quantity = "goodput" if equals.kind == "Gb/s" else "latency"
    scope: Scope = "network" if equals.network else "node"
    devices = equals.devices and not is_rehearsal(run.run)
    return policy.spread_of_equals(quantity, scope, devices, launches, host_memory=equals.host_memory)


def _judge_group(
    group: _Group, runs: Sequence[RunJudgement], judgements: list[Judgement], policy: Policy, each_error: float
) -> frozenset[int]:
    """Judge the members of a group by each other, and return the positions of those that are slower."""
    equals = group.equals
    members = equals.members
    spread = _least_spread(equals, runs[group.run], policy, "one")
    values, inside = (np.array([getattr(one, name) for one in members]) for name in ("worse", "inside"))
    error = each_error * len(members)
    slow: set[int] = set()
    for outlier in outliers(values, inside, [each.parts for each in members], spread, error):
        for number in (members[position].number for position in outlier.members):
            judgements[number] = _slower(judgements[number], outlier, equals.kind)
        slow.update(outlier.members)
    rest = [each for position, each in enumerate(members) if position not in slow]
    if len(rest) < 2:
        return frozenset(slow)
    reach = critical_value(len(rest), inside, spread, error)
    for member in rest:
        others = [one.worse for one in rest if one is not member]
        judgements[member.number] = _equal(judgements[member.number], float(np.median(others)), len(others), reach)
    return frozenset(slow)


def _judge_nodes(
    alike: Sequence[_Group],
    runs: Sequence[RunJudgement],
    verdicts: Sequence[list[Judgement]],
    policy: Policy,
    each_error: float,
) -> None:
    """Each node's run of a test against those of the others; a run counts as one, since its launch was one."""
    values = np.array([np.median([one.worse for one in each.equals.members]) for each in alike])
    inside = np.array([np.median([one.inside for one in each.equals.members]) for each in alike])
    hosts = [runs[each.run].run.ranks[0].host for each in alike]
    equals = alike[0].equals
    spread = _least_spread(equals, runs[alike[0].run], policy, "several")
    metrics = sum(len(each.equals.members) for each in alike)
    for outlier in outliers(
        values, inside, [CrossedParts((Component.of_node(host),)) for host in hosts], spread, each_error * metrics
    ):
        for position in outlier.members:
            group = alike[position]
            judgements = verdicts[group.run]
            # Of a node with a slow part those that are slow themselves.
            least = outlier.centre + outlier.excess / 2
            for member in group.equals.members:
                if member.worse > least:
                    judgements[member.number] = _slower(judgements[member.number], outlier, equals.kind, "node")


def _peers(count: int, what: str = "") -> str:
    """Such as `3 peer GPUs`."""
    return f"{count} {f'peer {what}' if what else 'peer'}{'' if count == 1 else 's'}"


def _slower(judged: Judgement, outlier: Outlier, unit: str, what: str = "") -> Judgement:
    centre = _value(outlier.centre, unit)
    equals = _peers(outlier.equals, what)
    reason = (
        f"{judged.value:.4g} {unit}: {apart(judged.value, centre)} its {equals} ({centre:.4g} {unit}; "
        f"p = {outlier.p:.1g}, standard deviation of peers {outlier.spread:.2%})"
    )
    if judged.judged_by == "reference" or judged.verdict not in (Verdict.PASS, Verdict.DEGRADED, Verdict.INCOMPLETE):
        return judged
    if judged.verdict is Verdict.DEGRADED:  # by a yardstick that is stronger, or says the same
        return replace(judged, reason=f"{judged.reason}; and {reason}", p=outlier.p)
    yardstick = Yardstick("siblings", centre, centre, f"median of {equals} of the same session")
    return replace(judged, verdict=Verdict.DEGRADED, reason=reason, yardstick=yardstick, p=outlier.p)


def _equal(judged: Judgement, centre: float, count: int, reach: float) -> Judgement:
    """A metric that agrees with its peers is judged by them where it has nothing stronger."""
    if judged.verdict not in (Verdict.PASS, Verdict.INCOMPLETE) or judged.judged_by not in _WEAKER:
        return judged
    value = _value(centre, judged.unit)
    bound = _value(centre + reach, judged.unit)
    source = f"median of {_peers(count)} of the same session"
    own = f"{judged.value:.4g} {judged.unit}"
    side = "" if judged.verdict is Verdict.INCOMPLETE else f"; {judged.reason.removeprefix(f'{own}: ')}"
    reason = f"{own}: agrees with its {_peers(count)} ({value:.4g} {judged.unit}){side}"
    yardstick = Yardstick("siblings", value, bound, source)
    return replace(judged, verdict=Verdict.PASS, reason=reason, yardstick=yardstick)


def _value(worse: float, unit: str) -> float:
    return math.exp(-worse if unit == "Gb/s" else worse)


def _judge_by_links(
    group: _Group, slow: frozenset[int], runs: Sequence[RunJudgement], judgements: list[Judgement], policy: Policy
) -> None:
    """Judge peers on hosts without GPUs, of which none is slower than the others, by what the links carry: as a group,
    since the processors of a pair are at work too."""
    members = [each.number for position, each in enumerate(group.equals.members) if position not in slow]
    achievable = _achievable(group, runs[group.run])
    if achievable is None or len(group.equals.members) < 2:
        return
    values = [judgements[number].value for number in members]
    best, bound = (achievable * (1 - each) for each in (policy.achievable_margin_of_best, policy.achievable_margin))
    if max(values) < best:
        bound = best
    elif np.median(values) >= bound:
        return
    yardstick = Yardstick("achievable", achievable, bound, "payload rate of the links")
    for number in members:
        judged = judgements[number]
        if judged.verdict is Verdict.PASS and judged.judged_by in (*_WEAKER, "siblings") and judged.value < bound:
            reason = (
                f"{judged.value:.4g} Gb/s: {apart(judged.value, achievable)} what the links carry "
                f"({achievable:.4g} Gb/s), as all {len(members)} peers"
            )
            judgements[number] = replace(judged, verdict=Verdict.DEGRADED, reason=reason, yardstick=yardstick)


def _achievable(group: _Group, run: RunJudgement) -> float | None:
    """What links carry of data between hosts, in Gb/s; None where that is unknown, of latencies and of GPUs."""
    judgement, equals = run.judgements[group.equals.members[0].number], group.equals
    if equals.kind != "Gb/s" or equals.devices:
        return None
    if not equals.same_switch or run.topology is None:
        return judgement.expectation.achievable
    return between_hosts(run.topology, judgement.expectation.expected, judgement.samples.bytes)
