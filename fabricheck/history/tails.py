"""How far healthy runs stray from what others of their kind tell of them: the tails that metrics have in common.

One metric's dozen runs say nothing of what happens once in 100,000 values. A thousand metrics' runs say more: each run
is held against the others of its metric, and how often these deviations are how large, in spreads, is a tail that all
metrics share, with what a centre and a spread of so few runs are worth in it.

The tail is a power's, which never bends down, and not that of `peaks.py`: metrics of a session move together, so a few
hundred deviations of a dozen runs end sooner than those to come do, and a fit that believes them takes healthy sessions
for degraded ones many times as often (`benchmarks/calibration.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabricheck.history.robust import FEWEST, centre_and_spread, prediction_factor

Floats = npt.NDArray[np.float64]

#: So many deviations have a tail of their own.
FEWEST_DEVIATIONS = 300
# The tail are the largest of them, at least so many.
_SHARE, _FEWEST_OF_TAIL = 0.02, 20
# Index of the tail before it was looked at, with the weight of so many deviations: that of a t distribution with five
# degrees of freedom, between those of recorded goodputs (0.14 to 0.31) and latencies (0.15 to 0.21).
_PRIOR_INDEX, _PRIOR_WEIGHT = 0.2, 20
# Few runs may have missed what goes wrong rarely: the index is taken so many of its standard errors larger than found,
# which covers that of four systems in five.
_CAUTION = 0.84
# As many runs are needed as make bounds no wider, for that, than by this factor.
_WIDER = 1.25


@dataclass(frozen=True)
class Tail:
    """`deviations`, descending, in spreads, worse side positive."""

    deviations: Floats

    @property
    def known(self) -> bool:
        """Whether there are enough of them to extrapolate."""
        return self.deviations.size >= FEWEST_DEVIATIONS

    def factor(self, rate: float, runs: int) -> float:
        """How many spreads from the centre of `runs` runs one more lies on the worse side with probability `rate`.

        Beyond the tail's beginning, deviations become rarer by a power (Hill, Annals of Statistics 3, 1975; Weissman,
        JASA 73, 1978), by the upper bound of its index. Where the deviations are too few to tell, that is taken to be
        so, and never less than the prediction interval of a normal distribution.
        """
        if not self.known:
            begin = prediction_factor(runs, _SHARE)
            return max(begin * float((_SHARE / rate) ** _PRIOR_INDEX), prediction_factor(runs, rate))
        fit = self._fit()
        return fit.begin * float(max(1.0, fit.share / rate) ** (fit.index + _CAUTION * fit.error))

    def runs_needed(self, rate: float, runs: int) -> int:
        """How many runs of each metric make what they know of the tail good enough, by what `runs` of each told of it.

        Few metrics have a tail of their own from FEWEST_DEVIATIONS deviations on. Of more the bounds at `rate` are to
        be wider by no more than 25% for what the runs may have missed; the error falls with the square root of their
        number.
        """
        if not self.known:
            return max(FEWEST, math.ceil(runs * FEWEST_DEVIATIONS / max(self.deviations.size, 1)))
        fit = self._fit()
        wider = _CAUTION * fit.error * math.log(max(1.0, fit.share / rate))
        return max(FEWEST, math.ceil(runs * (wider / math.log(_WIDER)) ** 2))

    def _fit(self) -> _Power:
        size = self.deviations.size
        count = max(_FEWEST_OF_TAIL, int(_SHARE * size))
        begin = max(float(self.deviations[count]), 1.0)
        logs = np.log(np.maximum(self.deviations[:count], begin) / begin)
        weight = count + _PRIOR_WEIGHT
        index = (float(logs.sum()) + _PRIOR_INDEX * _PRIOR_WEIGHT) / weight
        # Logarithms in the tail of a power have the index as standard deviation; of another they tell their own.
        error = math.sqrt(count * float(logs.var()) + _PRIOR_WEIGHT * _PRIOR_INDEX**2) / weight
        return _Power(begin, count / size, index, error)


@dataclass(frozen=True)
class _Power:
    """A tail that `share` of all deviations lie in, beyond `begin`, with its index and the standard error of that."""

    begin: float
    share: float
    index: float
    error: float


def tail_of(metrics: Sequence[Floats], least: Sequence[float]) -> Tail:
    """The tail of several metrics: of each its runs, logarithms with more being worse, and its least spread."""
    found = [_deviations(runs, spread) for runs, spread in zip(metrics, least, strict=True) if runs.size > FEWEST - 1]
    joined = np.concatenate(found) if found else np.zeros(0)
    return Tail(np.sort(joined)[::-1])


def _deviations(runs: Floats, least: float) -> Floats:
    """Of each run from the centre of the others, in their spreads, shape (runs,)."""
    others = np.array([np.delete(runs, place) for place in range(runs.size)])
    estimate = centre_and_spread(others)
    return np.asarray((runs - estimate.centre) / np.maximum(estimate.spread, least))
