"""Launches of test cases after their first in a session: how many it takes, what each came to, and which counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter

from fabricheck.jsonfile import STRICT, read_as
from fabricheck.records.component import Component
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict

#: In the folder of a session in which something was launched again.
LAUNCHES = "launches.json"
#: So many launches of a test at most, where nobody asks for another number.
MOST_LAUNCHES = 7
#: The share of healthy sessions, of however many metrics, in which chance alone makes anything DEGRADED in so many
#: launches that it counts. Another half of a per cent is left for what is not launched again, the network of a fleet.
FALSE_ALARMS = 0.005
#: The share of these in which chance makes anything so slow in one launch that it is `intermittent`; the rest is for
#: what is slow again.
OF_ONE_LAUNCH = FALSE_ALARMS / 10
# Where few things say so, healthy ones are taken to be slow in no fewer launches than this: of the noises of
# benchmarks.noise tenfold outliers make most slow, one metric in 500.
_RATE_OF_FEW = 1 / 500
# One launch is one draw, and never enough.
_FEWEST = 2
# What does not get to its end twice is not tried a third time.
_MOST_UNENDED = 2


@dataclass(frozen=True)
class Launched:
    """The launches of a test case, by its name: what is `said` of each in order, and the verdict that `counts`.

    `folder`: where ReFrame left the launch that counts, inside that of the session; empty for the first. `node`: the
    one of a fleet on which it was. `p`: of DEGRADED, the probability that chance makes anything of a healthy session so
    in as many launches; None where nothing was slow twice. `intermittent`: where PASS counts, what chance does not
    explain in a launch that does not. `outvoted`: PASS counts though no launch passed (`is_outvoted`).
    """

    case: str
    said: tuple[str, ...]
    counts: str
    folder: Annotated[str, Field(pattern=r"^[\w-]*$")] = ""
    node: str = ""
    p: float | None = None
    intermittent: tuple[Finding, ...] = ()
    outvoted: bool = False
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    @property
    def is_decided(self) -> bool:
        """Whether more launches than one say what counts."""
        return self.p is not None or self.counts != Verdict.DEGRADED.value

    @property
    def finding(self) -> Finding:
        """The finding that says how often the test was launched and why its verdict stands."""
        where = f" on {self.node}" if self.node else ""
        times = f"was launched {len(self.said)} times{where}"
        text = f"{self.case}: {times}: {', '.join(self.said)}; the result is {self.counts}"
        if self.outvoted:
            text += ": half of the launches were not slow, and noise explains the others"
        if self.p is not None:
            text += f" (p = {self.p:.1g}, corrected for all metrics of the session)"
            text += "; more launches would decide: --launches" if self.p > FALSE_ALARMS else ""
        return Finding("launched-again", Verdict.PASS, text)


@dataclass(frozen=True)
class Sign:
    """What is DEGRADED in a launch. `breadth`: so many measurements of it beside each other, such as pairs, are slow in
    one and the same question; `counted`: hardware counted errors where it is."""

    finding: Finding
    breadth: int = 1
    counted: bool = False


#: What can be slow in two launches: a part, a metric by its name, or what a code means.
Thing = Component | str


@dataclass(frozen=True)
class Launch:
    """What one launch came to; `slow`: the metrics and parts that are slow in it, `metrics`: how many of these are
    metrics, of so many that were `judged`; `signs`: what was found of them."""

    verdict: Verdict
    slow: frozenset[Thing] = frozenset()
    metrics: int = 1
    signs: tuple[Sign, ...] = ()
    judged: int = 1


@dataclass(frozen=True)
class Chance:
    """How often something healthy is DEGRADED in a launch of a session, by what the session itself shows.

    `metrics`: so many it judges. `refuted`: of what was DEGRADED in a first launch and was not in a later one, how many
    metrics each had; of a test that is DEGRADED in all, those metrics that were not. A session has as many things as
    broad as something slow as that goes into its metrics: 512 nodes with 56 metrics, or 28,672 of one. The share of
    these that was refuted is how often one is slow by chance. `things`: what was slow in each of these first launches.
    """

    metrics: int
    refuted: tuple[int, ...] = ()
    things: tuple[frozenset[Thing], ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, metrics: int, tried: Iterable[Sequence[Launch]]) -> Chance:
        """As the launches of all that were `tried` again tell it."""
        refuted = [(count, launches[0].slow) for launches in tried if (count := _refuted(launches)) > 0]
        return cls(metrics, tuple(count for count, _ in refuted), tuple(things for _, things in refuted))

    def p_value(self, launches: Sequence[Launch]) -> float:
        """The probability that anything as broad is slow by chance in as many of so many launches (Bonferroni)."""
        broad = _breadth(launches)
        parts = max(self.metrics / broad, 1.0)
        refuted = Counter(self.refuted)
        if refuted[own := _refuted(launches)]:  # what is slow in most of these is no evidence of its own chance
            refuted[own] -= 1
            refuted[launches[0].metrics - broad] += 1
        as_broad = sum(times for metrics, times in refuted.items() if metrics >= broad)
        rate = max(as_broad / parts, min(1 / parts, _RATE_OF_FEW))
        return _p_of_as_many(_most(launches)[1], launches, min(rate, 1.0), parts)

    def p_of_any(self, launches: Sequence[Launch]) -> float:
        """The probability that chance makes something slow, whatever that is each time, in as many launches of any test
        of so many metrics (Bonferroni): as often as it does in the session."""
        judged = launches[0].judged
        rate = 1 - (1 - min(sum(self.refuted) / max(self.metrics, 1), 1.0)) ** judged
        slow = sum(bool(each.slow) for each in launches)
        return _p_of_as_many(slow, launches, rate, max(self.metrics / judged, 1.0))

    def p_of_one(self, sign: Sign) -> float:
        """The probability that chance shows anything like that in one launch of a healthy session (Bonferroni).

        Of what hardware counts 0. Else by its own p, or that it is below a minimum; and, since single values have tails
        that no distribution knows, by how often a metric is slow by chance, for as many metrics at once. A launch in
        which the same part is slow tells nothing of chance.
        """
        if sign.counted:
            return 0.0
        p = 0.0 if sign.finding.verdict is Verdict.FAIL else sign.finding.p
        if p is None:
            return 1.0
        metrics = max(self.metrics, 1 / _RATE_OF_FEW)
        things = self.things or (frozenset[Thing](),) * len(self.refuted)
        seen = zip(self.refuted, things, strict=True)
        others = sum(count for count, slow in seen if slow.isdisjoint(sign.finding.components))
        rate = min(max(others / metrics, _RATE_OF_FEW), 1.0)
        return float(min(1.0, max(metrics * p, metrics / sign.breadth * rate**sign.breadth)))


def beyond_chance(launches: Sequence[Launch], chance: Chance) -> tuple[tuple[int, Sign], ...]:
    """Of launches of which PASS counts, what chance does not explain in one of the others, with the number of that."""
    if launches[deciding_launch(launches)].verdict is not Verdict.PASS and not is_outvoted(launches, chance):
        return ()
    every = [(number, sign) for number, each in enumerate(launches, start=1) for sign in each.signs]
    signs = [each for each in every if chance.p_of_one(each[1]) <= OF_ONE_LAUNCH]
    return tuple({sign.finding.components: (number, sign) for number, sign in reversed(signs)}.values())[::-1]


def deciding_launch(launches: Sequence[Launch]) -> int:
    """Which of several launches counts: one launch is one draw of what differs.

    FAIL and INVALID stand whatever the others say. Else DEGRADED stands where half of the launches or more have one and
    the same thing slow, or none passed; those that did not get to their end say nothing. The last of those that agree.
    """
    for stands in (Verdict.INVALID, Verdict.FAIL):
        if (launch := _last(launches, stands)) >= 0:
            return launch
    name, times = _most(launches)
    if 2 * times < _ended(launches) and (passed := _last(launches, Verdict.PASS)) >= 0:
        return passed
    return max((place for place, each in enumerate(launches) if name in each.slow), default=len(launches) - 1)


def is_outvoted(launches: Sequence[Launch], chance: Chance) -> bool:
    """Whether the launches pass though not one of them does: nothing is slow in half of them, and chance has something
    slow in as many of a test with so many metrics."""
    is_slow = launches[deciding_launch(launches)].verdict is Verdict.DEGRADED
    return is_slow and 2 * _most(launches)[1] < _ended(launches) and chance.p_of_any(launches) > FALSE_ALARMS


def is_open(launches: Sequence[Launch], most: int, chance: Chance) -> bool:
    """Whether it takes one more launch, of `most` in all: a sequential test, after each launch.

    It ends where most launches pass, and where the same thing is slow in so many that chance does that in fewer than
    FALSE_ALARMS of healthy sessions: two of two where all that was DEGRADED is so again, three or more where much of it
    is not. What is open after `most` launches stands by their majority.
    """
    times, ended = _most(launches)[1], _ended(launches)
    stand = any(each.verdict in (Verdict.INVALID, Verdict.FAIL) for each in launches)
    if stand or len(launches) >= most or len(launches) - ended >= _MOST_UNENDED:
        return False
    if 2 * times < ended and _last(launches, Verdict.PASS) >= 0:
        return False
    return 2 * times <= most and (times < _FEWEST or chance.p_value(launches) > FALSE_ALARMS - OF_ONE_LAUNCH)


def _p_of_as_many(slow: int, launches: Sequence[Launch], rate: float, tests: float) -> float:
    """The probability that one of so many `tests` is slow in as many of its launches, each at that `rate`."""
    from scipy.special import bdtrc  # that of scipy.stats.binom; takes longer than most commands

    return min(1.0, tests * float(bdtrc(slow - 1, _ended(launches), rate)))


def _ended(launches: Sequence[Launch]) -> int:
    """How many got to their end."""
    return sum(each.verdict in (Verdict.PASS, Verdict.DEGRADED) for each in launches)


def _most(launches: Sequence[Launch]) -> tuple[Thing, int]:
    """The thing that is slow in most launches, and in how many."""
    counts = Counter(thing for each in launches for thing in sorted(each.slow, key=str))
    return max(counts.items(), key=lambda one: one[1], default=("", 0))


def _breadth(launches: Sequence[Launch]) -> int:
    """How many metrics of the first launch are slow in as many launches as any."""
    times = _most(launches)[1]
    again = sum(sum(thing in each.slow for each in launches) == times for thing in launches[0].slow)
    return max(launches[0].metrics * again // max(len(launches[0].slow), 1), 1)


def _refuted(launches: Sequence[Launch]) -> int:
    """How many metrics that were DEGRADED in the first launch were not again: none of what all of them have slow."""
    return launches[0].metrics - (_breadth(launches) if _most(launches)[1] == _ended(launches) else 0)


def _last(launches: Sequence[Launch], verdict: Verdict) -> int:
    return max((place for place, each in enumerate(launches) if each.verdict is verdict), default=-1)


@lru_cache
def _adapter() -> TypeAdapter[tuple[Launched, ...]]:
    return TypeAdapter(tuple[Launched, ...])


def write_launched(folder: Path, launched: Iterable[Launched]) -> None:
    """Writes what was launched again in the session of `folder`. OSError where that cannot be."""
    (folder / LAUNCHES).write_bytes(_adapter().dump_json(tuple(launched), indent=1) + b"\n")


def read_launched(folder: Path) -> tuple[Launched, ...]:
    """What was launched again in the session of `folder`. Raises UserError where its file is damaged."""
    file = folder / LAUNCHES
    return read_as(file, _adapter()) if file.exists() else ()
