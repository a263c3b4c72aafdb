"""Which of the differences between two stacks costs what the new one loses: some of them at a time are exchanged in the
old stack, and measured beside it.

First each alone, or groups of them, which are divided until single ones are left. Where those that surely cost alone do
not explain half of what all together cost, each is left out of all: those without which the loss is gone are guilty if
they have it together (delta debugging; Zeller and Hildebrandt, IEEE Transactions on Software Engineering 28, 2002).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from fabricheck.statistics.constants import MOST_BESIDE
from fabricheck.upgrade.decision import Answer, UpgradeChange, answer_among

_NO_LOSS = (Answer.SAME, Answer.BETTER)

#: Numbers of the differences that are exchanged together.
Exchange = tuple[int, ...]
#: What exchanges change, measured in one job; None for one that cannot be exchanged so.
#: It may raise SearchEnded.
Measure = Callable[[Sequence[Exchange]], Sequence[UpgradeChange | None]]


class BisectionOutcome(str, Enum):
    """What came of a bisection."""

    FOUND = "found"
    TOGETHER = "together"
    CANNOT_SAY = "cannot say"
    ELSEWHERE = "elsewhere"
    NO_TIME = "no time"
    INTERRUPTED = "interrupted"


class SearchEnded(Exception):
    """No further exchanges are measured, for the reason `outcome`: no time is left, or a signal ended them."""

    def __init__(self, outcome: BisectionOutcome) -> None:
        super().__init__(outcome.value)
        self.outcome = outcome


@dataclass(frozen=True)
class Step:
    """What the exchange of some differences changed: same where less than half of the loss is surely there."""

    exchanged: Exchange
    change: UpgradeChange | None
    answer: Answer


@dataclass(frozen=True)
class Bisection:
    """Which differences are `guilty`: each costs (found), or only all of them together do.

    Elsewhere: all of them exchanged do not cost, so that something else does. No time, interrupted: it ended before
    that was known, and the guilty are among those `to_try`.
    """

    outcome: BisectionOutcome
    guilty: Exchange
    steps: tuple[Step, ...]
    to_try: Exchange = ()


def bisect(differences: int, measure: Measure, *, loss: float, smallest_effect: float) -> Bisection:
    """Exchanges so many differences, until single ones are named or nothing can be said.

    `loss`: the logarithm of how many times as slow the new stack was found to be.
    """
    steps: list[Step] = []
    pool: Exchange = ()

    def measured(exchanges: Sequence[Exchange]) -> Sequence[UpgradeChange | None]:
        nonlocal pool
        pool = exchanges[0]
        return measure(exchanges)

    try:
        outcome, guilty = _search(differences, measured, loss, smallest_effect, steps)
    except SearchEnded as ended:
        return Bisection(ended.outcome, (), tuple(steps), pool)
    return Bisection(outcome, guilty, tuple(steps))


def _search(
    differences: int, measure: Measure, loss: float, smallest_effect: float, steps: list[Step]
) -> tuple[BisectionOutcome, Exchange]:
    """The outcome of a bisection and the guilty, with each step added to `steps`."""

    def exchanged(pool: Exchange, exchanges: Sequence[Exchange]) -> list[Step]:
        """Of the pool as a whole, whose loss is the yardstick of the others, and of each exchange."""
        asked = list(dict.fromkeys((pool, *exchanges)))
        changes = dict(zip(asked, measure(asked), strict=True))
        whole = changes[pool]
        lost = loss if whole is None else max(-math.log(whole.gain), smallest_effect)
        own = {
            exchange: Step(
                exchange,
                change,
                answer_among(change, len(asked), smallest_effect, (loss if exchange == pool else lost) / 2),
            )
            for exchange, change in changes.items()
        }
        steps.extend(own.values())
        return [own[exchange] for exchange in (pool, *exchanges)]

    pool, groups = tuple(range(differences)), MOST_BESIDE
    while True:
        parts = _parts(pool, groups)
        whole, *alone = exchanged(pool, parts)
        if whole.change is None:  # those that cannot be exchanged alone are left out
            left = tuple(number for step in alone if step.change is not None for number in step.exchanged)
            if not left or left == pool:
                return BisectionOutcome.CANNOT_SAY, ()
            pool = left
            continue
        if whole.answer is not Answer.WORSE:
            elsewhere = whole.answer in _NO_LOSS and len(pool) == differences
            return BisectionOutcome.ELSEWHERE if elsewhere else BisectionOutcome.CANNOT_SAY, ()
        worse = [step for step in alone if step.answer is Answer.WORSE]
        if sum(map(_loss, worse)) < _loss(whole) / 2:  # the rest of the loss is not theirs alone
            break
        costly = tuple(number for step in worse for number in step.exchanged)
        if len(parts) == len(pool):
            return BisectionOutcome.FOUND, costly
        groups = MOST_BESIDE if len(costly) < len(pool) else 2 * groups
        pool = costly
    needed, groups = pool, MOST_BESIDE
    while True:
        parts = _parts(needed, groups)
        whole, *without = exchanged(pool, [tuple(number for number in pool if number not in part) for part in parts])
        kept = [part for part, step in zip(parts, without, strict=True) if step.answer in _NO_LOSS]
        if not kept:
            return BisectionOutcome.CANNOT_SAY, ()
        groups = MOST_BESIDE if len(kept) < len(parts) else 2 * groups
        needed = tuple(number for part in kept for number in part)
        if len(needed) == len(kept):
            break
    if needed != pool:
        needed_alone = exchanged(needed, ())[0]
        if needed_alone.answer is not Answer.WORSE or _loss(needed_alone) < _loss(whole) / 2:
            return BisectionOutcome.CANNOT_SAY, ()
    return BisectionOutcome.TOGETHER if len(needed) > 1 else BisectionOutcome.FOUND, needed


def _loss(step: Step) -> float:
    """The logarithm of how many times as slow an exchange is; 0 where that is not known."""
    return -math.log(step.change.gain) if step.change is not None else 0.0


def _parts(numbers: Exchange, most: int) -> list[Exchange]:
    """Numbers in so many groups of one size at most."""
    size = math.ceil(len(numbers) / most)
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]
