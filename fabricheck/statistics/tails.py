"""How far healthy runs stray from what others of their kind tell of them: the tails that metrics have in common.

One metric's dozen runs say nothing of what happens once in 100,000 values. A thousand metrics' runs say more: each run
is held against the others of its metric, and how often these deviations are how large, in spreads, is a tail that all
metrics share, with what a centre and a spread of so few runs are worth in it.

What is launched again and voted on needs no rate so rare: some of a session's metrics may be beyond their bounds, as
long as votes tell them from losses. How many are is counted session by session, so that metrics that move
together, as those of a launch that dips, are what they are: one session.

What is launched once does. Its tail is a power's, which never bends down: metrics of a session move together, so a few
hundred deviations of a dozen runs end sooner than those to come do, and a fit that believes them takes healthy sessions
for degraded ones many times as often (`benchmarks/calibration.py`). Thousands of deviations can tell a light tail from
a heavy one: then a generalised Pareto distribution counts too, with an error that is that between sessions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fabricheck.statistics.constants import (
    BATCHES,
    ENOUGH,
    FEWEST_FOR_TAIL,
    PEAKS,
    PRIOR_WEIGHT,
    SHARE,
    TAIL_FREEDOM,
    VOTED,
)
from fabricheck.statistics.peaks import upper_tail
from fabricheck.statistics.robust import LOST_FREEDOM, of_the_others, prediction_factor
from fabricheck.statistics.spread import Prior

TAIL_INDEX = 1 / TAIL_FREEDOM
#: Few runs may have missed what goes wrong rarely: the index is taken so many of its standard errors larger than found,
#: which covers that of four systems in five, Φ⁻¹(0.8); a bound by peaks so many of its own. Chosen.
CAUTION, CAUTION_OF_PEAKS = 0.84, 2.5

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# A generalised Pareto distribution is fitted to a share of the deviations between these two that is nearest to
# FEWEST_FOR_TAIL of them.
_SHARES_OF_PEAKS = (0.01, 0.02)


@dataclass(frozen=True)
class Tail:
    """`deviations`, descending, in spreads, worse side positive; `runs`: the number of the session that each is of."""

    deviations: Floats
    runs: Ints

    @cached_property
    def by_session(self) -> tuple[Floats, ...]:
        """The deviations of each session, descending."""
        order = np.argsort(self.runs, kind="stable")
        first = np.flatnonzero(np.diff(self.runs[order], prepend=-1))
        return tuple(np.split(self.deviations[order], first)[1:])

    def factor_of_voted(
        self, rate: float, sessions: float, runs: npt.ArrayLike, freedom: Floats | None = None
    ) -> Floats:
        """How many spreads from the centre of `runs` runs the bound of what is launched again and voted on lies;
        `freedom`: of these spreads, all shapes (metrics,).

        More than VOTED of a session's metrics lie beyond it in no more than this share of the `sessions`, if the next
        one is as those seen were (conformal prediction: Vovk, Gammerman and Shafer, *Algorithmic Learning in a Random
        World*, 2005; that some may be, and not none: Lehmann and Romano, Annals of Statistics 33, 2005). What all
        launches of a session share is not voted away: normal noise is beyond the bound with probability `rate`, and,
        where as many sessions had any metric so far out, so is noise with the usual tail.
        """
        # Of few metrics each would be beyond its bound more often than votes can bear.
        share = min(sessions, VOTED * self.deviations.size / max(len(self.by_session), 1))
        usual = np.minimum(self._of_sessions(0.0, share), _usual_factor(rate, runs, freedom))
        least = prediction_factor(runs, rate, freedom)
        return np.asarray(np.maximum(np.maximum(self._of_sessions(VOTED, share), usual), least))

    def _of_sessions(self, metrics: float, sessions: float) -> float:
        """What more than this share of the metrics is beyond in this share of the sessions; 0 without any."""
        worst = sorted((float(own[int(metrics * own.size)]) for own in self.by_session), reverse=True)
        return worst[max(int(sessions * (len(worst) + 1)), 1) - 1] if worst else 0.0

    def factor(self, rate: float, runs: npt.ArrayLike, freedom: Floats | None = None) -> Floats:
        """How many spreads, of such `freedom`, from the centre of `runs` runs one more lies on the worse side with
        probability `rate`; all shapes (metrics,).

        Beyond the tail's beginning, deviations become rarer by a power (Hill, Annals of Statistics 3, 1975; Weissman,
        JASA 73, 1978), by the upper bound of its index. Where the deviations are too few to tell, that is taken to be
        so, and never less than the prediction interval of a normal distribution. Where they are many, the smaller of
        this and of what the peaks say (`_by_peaks`) is taken: both are bounds.
        """
        if self.deviations.size < FEWEST_FOR_TAIL:
            return np.asarray(np.maximum(_usual_factor(rate, runs, freedom), prediction_factor(runs, rate, freedom)))
        return np.full(np.shape(runs), min(self._by_power(rate), self._by_peaks(rate)))

    def _by_power(self, rate: float) -> float:
        size = self.deviations.size
        count = max(ENOUGH, int(SHARE * size))
        begin = max(float(self.deviations[count]), 1.0)
        logs = np.log(np.maximum(self.deviations[:count], begin) / begin)
        weight = count + PRIOR_WEIGHT
        index = (float(logs.sum()) + TAIL_INDEX * PRIOR_WEIGHT) / weight
        # Logarithms in the tail of a power have the index as standard deviation; of another they tell their own.
        error = math.sqrt(count * float(logs.var()) + PRIOR_WEIGHT * TAIL_INDEX**2) / weight
        return begin * float(max(1.0, count / size / rate) ** (index + CAUTION * error))

    def _by_peaks(self, rate: float) -> float:
        """What a generalised Pareto distribution says, and its error when groups of runs are left out (jackknife:
        Miller, Biometrika 61, 1974), which knows that the metrics of a run move together."""
        number = int(self.runs.max()) + 1
        if self.deviations.size < FEWEST_FOR_TAIL / PEAKS or number < BATCHES:
            return math.inf
        group = self.runs * BATCHES // number
        without = [_quantile_of_peaks(self.deviations[group != each], rate) for each in range(BATCHES)]
        logs = np.log(np.maximum(without, 1.0))
        wider = CAUTION_OF_PEAKS * math.sqrt((BATCHES - 1) / BATCHES * float(((logs - logs.mean()) ** 2).sum()))
        return _quantile_of_peaks(self.deviations, rate) * math.exp(wider)


def _usual_factor(rate: float, runs: npt.ArrayLike, freedom: Floats | None) -> Floats:
    """That of the tail that launches usually have."""
    return np.asarray(prediction_factor(runs, SHARE, freedom) * (SHARE / rate) ** TAIL_INDEX)


def _quantile_of_peaks(deviations: Floats, rate: float) -> float:
    """What is exceeded at `rate`, by what lies beyond the beginning of the tail (`peaks`)."""
    least, most = (int(share * deviations.size) for share in _SHARES_OF_PEAKS)
    tail = upper_tail(deviations, min(max(least, FEWEST_FOR_TAIL), most), (TAIL_INDEX, PRIOR_WEIGHT))
    return max(tail.quantile(rate), 1.0) if tail else math.inf


def joined_tail(deviations: Sequence[Floats], runs: Sequence[Ints]) -> Tail:
    """The tail of the deviations of several metrics, each with the numbers of its runs."""
    every = np.concatenate(deviations) if deviations else np.zeros(0)
    numbers = np.concatenate(runs) if runs else np.zeros(0, dtype=np.int64)
    order = np.argsort(-every, kind="stable")
    return Tail(every[order], numbers[order])


def deviations_of(runs: Floats, prior: Prior, metric: int) -> Floats:
    """Of each run of a metric from the centre of the others, in their spreads with its `prior`; shape (runs,)."""
    others = of_the_others(runs)
    freedom = np.asarray(others.count - LOST_FREEDOM, dtype=np.float64)
    variance = Prior(prior.variance[metric], prior.freedom[metric]).moderate(freedom * others.spread**2, freedom)
    return np.asarray((runs - others.centre) / np.sqrt(variance))
