"""Parts that are slow now and then, or at first: the slowest iterations of what crosses them, beside their peers'.

A median does not show slowness for a twentieth of the time. So the 95th percentile of each series over its own
median is a metric of its own, which has its siblings as yardstick. Nor does it show slowness for a second only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fabricheck.judge.equal_metrics import Equals, Member
from fabricheck.judge.outliers import Outlier, outliers
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, either
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.units import FEW

# A tail that is longer by less costs nobody anything; and how much those of healthy equals differ at least.
_LEAST_EXCESS, _LEAST_SPREAD = 0.1, 0.02
# A series is slow at first where so many iterations, and so much of it, took so much longer than its median, and lost
# so much together. Of 26,668 recorded series of healthy machines (docs/results) 45 have the first three, 40 of these
# on the busy cores of an emulated cluster; they lost 42 ms at most.
_FIRST, _FIRST_SHARE, _SLOW_AT_FIRST, _LEAST_LOST_S = 2, 0.1, 1.5, 0.2


def find_slow_tails(equals: Equals, run: RunJudgement, error: float) -> Iterator[Finding]:
    """Parts that are slow now and then among peers, with the error of a healthy group: one line for each part.

    A single series tells of what happened once: of 131 recorded sessions of healthy H200 nodes (docs/results) four have
    one with a longer tail than its peers, and none has two that share a part.
    """
    members = [each for each in equals.members if each.tail is not None]
    for outlier in slow_tails(members, error):
        slow = [members[each] for each in outlier.members]
        text = _line(either(outlier.parts[:FEW]), equals, outlier, _times_over_median(slow, run))
        yield Finding("slow-now-and-then", Verdict.DEGRADED, text, outlier.parts)


def slow_tails(members: Sequence[Member], error: float) -> tuple[Outlier[Component], ...]:
    """Those of peers, which all have a tail, whose tails are longer, with the error of a healthy group."""
    if len(members) < 2:
        return ()
    values, inside = (np.array([getattr(each, name) for each in members]) for name in ("tail", "inside"))
    slow = outliers(values, inside, [each.parts for each in members], _LEAST_SPREAD, error)
    return tuple(one for one in slow if one.excess >= _LEAST_EXCESS and len(one.members) > 1)


def find_slow_starts(equals: Equals, run: RunJudgement) -> Iterator[Finding]:
    """What was slow at first, and then as fast as usual, where most of its peers were not: one line for a group.

    Where all are, it is how such a measurement begins.
    """
    starts = {each.number: _slow_iterations(run, each.number) for each in equals.members}
    slow = [each for each in equals.members if starts[each.number]]
    if not slow or 2 * len(slow) > len(equals.members):
        return
    shared = [name for name in slow[0].parts.all if all(name in each.parts.all for each in slow)]
    places = slow[0].places if len(slow) == 1 else tuple(shared or [part for each in slow for part in each.places])
    where = either(places[:FEW])
    times = run.judgements[slow[0].number].samples.times_ns
    count, middle = starts[slow[0].number], float(np.median(times))
    lost_s = float((times[:count] - middle).sum()) / 1e9
    text = (
        f"{where} was slow at first: {equals.what}: the first {count} of {times.size} iterations took "
        f"{np.median(times[:count]) / middle:.3g} x the median ({lost_s:.2g} s lost); "
        f"{len(equals.members) - len(slow)} peers were not slow; check links, clocks, and what ran before"
    )
    yield Finding("slow-at-first", Verdict.DEGRADED, text, places)


def _slow_iterations(run: RunJudgement, number: int) -> int:
    """With how many slow iterations a series begins; 0 where these are too few, or cost too little."""
    times = run.judgements[number].samples.times_ns
    middle = np.median(times)
    fast = np.flatnonzero(times <= _SLOW_AT_FIRST * middle)
    count = int(fast[0]) if fast.size else 0
    lost_s = float((times[:count] - middle).sum()) / 1e9
    enough = count >= max(_FIRST, _FIRST_SHARE * times.size) and lost_s >= _LEAST_LOST_S
    return count if enough else 0


def _times_over_median(members: Sequence[Member], run: RunJudgement) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    series = (run.judgements[each.number].samples.times_ns for each in members)
    return np.concatenate([times / np.median(times) for times in series])


def _line(
    where: str, equals: Equals, outlier: Outlier[Component], times: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> str:
    p95, p99 = np.percentile(times, [95, 99])
    return (
        f"{where} is slow now and then: {equals.what}: p95 {p95:.3g} x the median ({outlier.equals} peers "
        f"{np.exp(outlier.centre):.3g} x, p = {outlier.p:.1g}), p99 {p99:.3g} x, "
        f"{np.mean(times > 2):.1%} over 2 x; check error counters and processes"
    )
