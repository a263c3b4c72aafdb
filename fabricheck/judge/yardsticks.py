"""The ladder of yardsticks: which of those that a metric has is the strongest, and where its bound lies.

Siblings are compared after all metrics have values (`fabricheck.judge.siblings`), and a floor is below them all.
"""

from __future__ import annotations

from collections.abc import Iterable

from fabricheck.judge.policy import Policy
from fabricheck.records.judgement import LADDER, Expectation, Reference, Yardstick
from fabricheck.records.metrics import Metric
from fabricheck.records.operations import COLLECTIVES


def strongest(yardsticks: Iterable[Yardstick]) -> Yardstick | None:
    """The first of `yardsticks` in the order of LADDER; of two of one kind, the one that was given first."""
    return min(yardsticks, key=lambda each: LADDER.index(each.kind), default=None)


def strongest_level(
    metric: Metric,
    expectation: Expectation,
    reference: Reference | None,
    known: Iterable[Yardstick],
    policy: Policy,
) -> Yardstick | None:
    """The strongest yardstick that says how fast a metric has to be; None where there is a floor at best."""
    found = list(known)
    if reference is not None:
        found.append(of_reference(metric, reference))
    if expectation.achievable is not None and metric.quantity == "goodput":
        found.append(_achievable(metric, expectation, expectation.achievable, policy))
    levels = [each for each in found if not each.alarm]
    return _with_alarms(metric, _closest(metric, levels), levels, [each for each in found if each.alarm])


def _with_alarms(
    metric: Metric, level: Yardstick | None, levels: Iterable[Yardstick], alarms: Iterable[Yardstick]
) -> Yardstick | None:
    """The strictest of what owners require, where that is stricter than the level's bound; else the level.

    Owners differ, by platform: what the same was measured to give below an alarm, here or elsewhere, contradicts it.
    """
    sign = 1 if metric.better == "higher" else -1
    measured = [each.value for each in levels if each.kind != "achievable"]
    kept = [one for one in alarms if all(sign * one.bound <= sign * value for value in measured)]
    strictest = max(kept, key=lambda one: sign * one.bound, default=None)
    if strictest is None or (level is not None and sign * level.bound > sign * strictest.bound):
        return level
    return strictest


def _closest(metric: Metric, found: Iterable[Yardstick]) -> Yardstick | None:
    """The strongest; in place of its bound a tighter one of a weaker yardstick, which all that was measured keeps.

    Who knows more must not be told less: a reference of few runs, or a part of which one machine is known, has a wide
    bound. A system, or a part, that is known to give less has a value out of the other's bound, which is not for it
    then. What links could carry says nothing beside what this very system was measured to give.
    """
    found = list(found)
    level = strongest(found)
    if level is None:
        return level
    sign = 1 if metric.better == "higher" else -1
    weaker = ("part",) if level.kind == "reference" else ("published", "achievable")
    measured = [level.value] if level.kind == "reference" else [one.value for one in found if one.kind != "achievable"]
    others = (strongest(each for each in found if each.kind == kind) for kind in weaker)
    tighter = [
        each
        for each in others
        if each is not None
        and sign * level.bound < sign * each.bound
        and all(sign * each.bound <= sign * value for value in measured)
    ]
    return max(tighter, key=lambda each: sign * each.bound, default=level)


def of_reference(metric: Metric, reference: Reference) -> Yardstick:
    """A reference as a yardstick. It has a bound on the side that is worse, or was refused before."""
    worse, gain = reference.lower, reference.upper
    if metric.better == "lower":
        worse, gain = gain, worse
    assert worse is not None
    bound = reference.value * (1 + worse)
    better = reference.value * (1 + gain) if gain is not None else None
    return Yardstick("reference", reference.value, bound, reference.provenance, better)


def _achievable(metric: Metric, expectation: Expectation, value: float, policy: Policy) -> Yardstick:
    collective = metric.samples.operation in COLLECTIVES
    usual = policy.achievable_margin_of_collectives if collective else policy.achievable_margin
    margin = usual if expectation.achievable_margin is None else expectation.achievable_margin
    source = f"{expectation.achievable_source}; {expectation.source}; margin {margin:.0%}"
    return Yardstick("achievable", value, value * (1 - margin), source)
