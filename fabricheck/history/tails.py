"""How far healthy runs stray from what others of their kind tell of them: the tails that metrics have in common.

One metric's dozen runs say nothing of what happens once in 100,000 values. A thousand metrics' runs say more: each run
is held against the others of its metric, and how often these deviations are how large, in spreads, is a tail that all
metrics share, with what a centre and a spread of so few runs are worth in it.

The tail is a power's, which never bends down: metrics of a session move together, so a few hundred deviations of a
dozen runs end sooner than those to come do, and a fit that believes them takes healthy sessions for degraded ones many
times as often (`benchmarks/calibration.py`). Thousands of deviations can tell a light tail from a heavy one: then a
generalised Pareto distribution counts too, with an error that is that between sessions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabricheck.history.peaks import upper_tail
from fabricheck.history.robust import of_the_others, prediction_factor
from fabricheck.judge.constants import (
    BATCHES,
    CAUTION,
    CAUTION_OF_PEAKS,
    ENOUGH,
    FEWEST,
    FEWEST_FOR_TAIL,
    PEAKS,
    PRIOR_WEIGHT,
    SHARE,
    TAIL_INDEX,
    WIDER,
    YEAR,
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# A generalised Pareto distribution is fitted to a share of the deviations between these two that is nearest to
# FEWEST_FOR_TAIL of them; its index is drawn to the prior's.
_SHARES_OF_PEAKS = (0.01, 0.02)


@dataclass(frozen=True)
class Tail:
    """`deviations`, descending, in spreads, worse side positive; `runs`: the number of the run that each is of, where
    that is known. `prior`: index of the distribution of peaks before it was looked at, and its weight in peaks."""

    deviations: Floats
    runs: Ints | None = None
    prior: tuple[float, int] = (TAIL_INDEX, PRIOR_WEIGHT)

    @property
    def known(self) -> bool:
        """Whether there are enough of them to extrapolate."""
        return self.deviations.size >= FEWEST_FOR_TAIL

    def factor(self, rate: float, runs: int) -> float:
        """How many spreads from the centre of `runs` runs one more lies on the worse side with probability `rate`.

        Beyond the tail's beginning, deviations become rarer by a power (Hill, Annals of Statistics 3, 1975; Weissman,
        JASA 73, 1978), by the upper bound of its index. Where the deviations are too few to tell, that is taken to be
        so, and never less than the prediction interval of a normal distribution. Where they are many, the smaller of
        this and of what the peaks say (`_by_peaks`) is taken: both are bounds.
        """
        if not self.known:
            begin = prediction_factor(runs, SHARE)
            return max(begin * float((SHARE / rate) ** TAIL_INDEX), prediction_factor(runs, rate))
        return min(self._by_power(rate), self._by_peaks(rate)).factor

    def runs_needed(self, rate: float, runs: int) -> int:
        """How many runs of each metric make what they know of the tail good enough, by what `runs` of each told of it.

        Few metrics have a tail of their own from FEWEST_FOR_TAIL deviations on. Of more the bounds at `rate` are to
        be wider by no more than 25% for what the runs may have missed; the error falls with the square root of their
        number.
        """
        if not self.known:
            return max(FEWEST, math.ceil(runs * FEWEST_FOR_TAIL / max(self.deviations.size, 1)))
        wider = min(self._by_power(rate), self._by_peaks(rate)).wider
        return max(FEWEST, math.ceil(runs * (wider / math.log(WIDER)) ** 2))

    def runs_for(self, allowed: float, rate: float, runs: int) -> int | None:
        """How many runs of each metric bring `factor` down to what is `allowed`; None where a few hundred would not."""
        if not self.known:
            return next((more for more in range(runs, YEAR) if self.factor(rate, more) <= allowed), None)
        needed = []
        for reach in (self._by_power(rate), self._by_peaks(rate)):
            if math.isfinite(reach.factor) and (left := math.log(allowed / reach.factor) + reach.wider) > 0:
                needed.append(math.ceil(runs * (reach.wider / left) ** 2))  # the error falls with the root of the runs
        return min((runs for runs in needed if runs < YEAR), default=None)

    def _by_power(self, rate: float) -> _Reach:
        size = self.deviations.size
        count = max(ENOUGH, int(SHARE * size))
        begin = max(float(self.deviations[count]), 1.0)
        logs = np.log(np.maximum(self.deviations[:count], begin) / begin)
        weight = count + PRIOR_WEIGHT
        index = (float(logs.sum()) + TAIL_INDEX * PRIOR_WEIGHT) / weight
        # Logarithms in the tail of a power have the index as standard deviation; of another they tell their own.
        error = math.sqrt(count * float(logs.var()) + PRIOR_WEIGHT * TAIL_INDEX**2) / weight
        beyond = max(1.0, count / size / rate)
        wider = CAUTION * error * math.log(beyond)
        return _Reach(begin * float(beyond**index) * math.exp(wider), wider)

    def _by_peaks(self, rate: float) -> _Reach:
        """What a generalised Pareto distribution says, and its error when groups of runs are left out (jackknife:
        Miller, Biometrika 61, 1974), which knows that the metrics of a run move together; endless without runs."""
        endless = _Reach(math.inf, math.inf)
        if self.runs is None or self.deviations.size < FEWEST_FOR_TAIL / PEAKS:
            return endless
        number = int(self.runs.max()) + 1
        if number < BATCHES:
            return endless
        group = self.runs * BATCHES // number
        without = [_quantile_of_peaks(self.deviations[group != each], rate, self.prior) for each in range(BATCHES)]
        logs = np.log(np.maximum(without, 1.0))
        wider = CAUTION_OF_PEAKS * math.sqrt((BATCHES - 1) / BATCHES * float(((logs - logs.mean()) ** 2).sum()))
        return _Reach(_quantile_of_peaks(self.deviations, rate, self.prior) * math.exp(wider), wider)


@dataclass(frozen=True, order=True)
class _Reach:
    """How many spreads away something lies, and how much of that, as a logarithm, is for the error."""

    factor: float
    wider: float


def _quantile_of_peaks(deviations: Floats, rate: float, prior: tuple[float, int]) -> float:
    """What is exceeded at `rate`, by what lies beyond the beginning of the tail (`peaks`)."""
    least, most = (int(share * deviations.size) for share in _SHARES_OF_PEAKS)
    tail = upper_tail(deviations, min(max(least, FEWEST_FOR_TAIL), most), prior)
    return max(tail.quantile(rate), 1.0) if tail else math.inf


def joined_tail(deviations: Sequence[Floats], runs: Sequence[Ints]) -> Tail:
    """The tail of the deviations of several metrics, each with the numbers of its runs."""
    every = np.concatenate(deviations) if deviations else np.zeros(0)
    numbers = np.concatenate(runs) if runs else np.zeros(0, dtype=np.int64)
    order = np.argsort(-every, kind="stable")
    return Tail(every[order], numbers[order])


def deviations_of(runs: Floats, least: float) -> Floats:
    """Of each run from the centre of the others, in their spreads, at `least` that; shape (runs,)."""
    others = of_the_others(runs)
    return np.asarray((runs - others.centre) / np.maximum(others.spread, least))
