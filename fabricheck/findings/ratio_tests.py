"""Tests of ratios of medians: true, false, or inconclusive, by their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabricheck.judge.statistics import ratio_interval

CONFIDENCE = 0.95
# Less is no difference: two jobs that measure the same, one after the other, may differ by so much
# (interleaved.cross_check).
MARGIN = 0.03

# True, False, or None where the data are inconclusive.
Truth = bool | None


@dataclass(frozen=True)
class Ratio:
    """The ratio of medians, and its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True)
class RatioTest:
    """That the product of the medians of `numerators` over that of `denominators` is above `bound`.

    With `above` False, that it is not. Each is an array of values above 0, shape (iterations,).
    """

    numerators: Sequence[npt.NDArray[np.float64]]
    denominators: Sequence[npt.NDArray[np.float64]]
    bound: float
    above: bool = True

    @property
    def ratio(self) -> Ratio:
        """With the interval of this test alone, at 95%."""
        return self._ratio(1)

    def truth(self, among: int = 1) -> Truth:
        """By an interval at which as many tests as `among` hold together with 95% (Bonferroni).

        None where the bound lies in the interval.
        """
        ratio = self._ratio(among)
        if ratio.low <= self.bound < ratio.high:
            return None
        return (ratio.low > self.bound) == self.above

    def _ratio(self, among: int) -> Ratio:
        value = np.prod([np.median(each) for each in self.numerators]) / np.prod(
            [np.median(each) for each in self.denominators]
        )
        confidence = 1 - (1 - CONFIDENCE) / among
        return Ratio(float(value), *ratio_interval(self.numerators, self.denominators, confidence))


def faster(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> RatioTest:
    """That the first goodput is higher than the second by more than the margin."""
    return RatioTest([first], [second], 1 + MARGIN)


def no_faster(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> RatioTest:
    """That it is not."""
    return RatioTest([first], [second], 1 + MARGIN, above=False)


def all_of(tests: Sequence[RatioTest]) -> Truth:
    """True where every test is, by its own interval; False where one is, by an interval that allows for their number:
    among many that are true, chance alone makes one look false."""
    if tests and all(each.truth() is True for each in tests):
        return True
    return False if any(each.truth(len(tests)) is False for each in tests) else None


def any_of(tests: Sequence[RatioTest]) -> Truth:
    """True where one test is, by an interval that allows for their number; False where every one is, by its own."""
    if any(each.truth(len(tests)) is True for each in tests):
        return True
    return False if tests and all(each.truth() is False for each in tests) else None


def most_of(tests: Sequence[RatioTest]) -> Truth:
    """Whether more than half are true, each by its own interval; None where that hangs on the inconclusive ones."""
    truths = [each.truth() for each in tests]
    if 2 * truths.count(True) > len(truths):
        return True
    return False if truths and 2 * (truths.count(True) + truths.count(None)) <= len(truths) else None


def both(truths: Iterable[Truth]) -> Truth:
    """True where all are, False where one is."""
    truths = list(truths)
    return False if False in truths else None if None in truths or not truths else True


def count(tests: Iterable[RatioTest], yes: str, no: str) -> str:
    """How many of the tests are true, false and inconclusive, such as `3 faster, 1 not`."""
    truths = [each.truth() for each in tests]
    answers = ((True, yes), (False, no), (None, "inconclusive"))
    return ", ".join(f"{truths.count(truth)} {word}" for truth, word in answers if truth in truths)
