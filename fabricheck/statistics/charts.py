"""The CUSUM charts of a metric, and how high their thresholds have to be for the noise that the metric has.

A chart adds up, session by session, how far the metric was on its worse side, S = max(0, S + min(z, CLIP) - k), and
raises an alert where S > h (Page, Biometrika 41, 1954). For independent sessions of any distribution the rate of false
alarms falls as C exp(-r h), where r > 0 is the root of E[exp(r (min(z, CLIP) - k))] = 1 (Cramér and Lundberg; for CUSUM
charts Siegmund, *Sequential Analysis*, 1985, chapters 8 and 10). r comes from the sessions of the metric and of all
others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr

from fabricheck.statistics.constants import BEFORE, CLIP, EXPONENTS, STEP, TAIL_FREEDOM

#: How often a streak of healthy sessions is an alert; with CHARTS less than one in 30,000, a month of 1,000 metrics.
FALSE_ALARMS_OF_STREAK = 1 / 80_000
#: C of normal noise, noise with 0.2% to 15% of dips and with a second mode of 7% to 30% lies between 0.03 and 0.28, by
#: the chain of Brook and Evans (Biometrika 59, 1972; tests/statistics/test_charts.py).
MOST_OF_RATE = 0.28

Floats = npt.NDArray[np.float64]


_DEVIATIONS = np.linspace(-CLIP, CLIP, round(2 * CLIP / STEP) + 1)
_EDGES = (_DEVIATIONS[1:] + _DEVIATIONS[:-1]) / 2
_PRIOR = np.diff(stdtr(TAIL_FREEDOM, _EDGES * math.sqrt(TAIL_FREEDOM / (TAIL_FREEDOM - 2))), prepend=0.0, append=1.0)


@dataclass(frozen=True)
class Chart:
    """One CUSUM: `allowance` is k, in spreads; `false_alarms_per_session` is the rate of false alarms it may have.

    k is half the drop that the chart is quickest for (Moustakides, Annals of Statistics 14, 1986).
    """

    allowance: float
    false_alarms_per_session: float

    def thresholds(self, shares: Floats) -> Floats:
        """h of each metric, (metrics,), by the `shares_of_deviations`; infinite where healthy sums do not end."""
        exponents = 2 * self.allowance * np.arange(1, EXPONENTS + 1) / EXPONENTS
        growth = shares @ np.exp(np.outer(_DEVIATIONS - self.allowance, exponents))
        exponent = (exponents * (growth <= 1 + 1e-3)).max(axis=1)
        with np.errstate(divide="ignore"):
            limits = math.log(MOST_OF_RATE / self.false_alarms_per_session) / exponent
        # One session alone is never enough.
        return np.asarray(np.maximum(limits, CLIP - self.allowance))


# Together, with that of streaks, less than one in 30,000: a month of 1,000 metrics.
CHARTS = (Chart(1.4, 1 / 85_000), Chart(0.8, 1 / 500_000))


def shares_of_deviations(deviations: Floats) -> Floats:
    """How common each of _DEVIATIONS is for each metric, shape (metrics, deviations), by what all metrics do and by its
    own sessions: `deviations`, (metrics, sessions), in spreads, worse side positive, NaN where there is none."""
    row, session = np.nonzero(np.isfinite(deviations))
    place = np.searchsorted(_EDGES, deviations[row, session]) + row * _DEVIATIONS.size
    counts = np.bincount(place, minlength=len(deviations) * _DEVIATIONS.size).reshape(len(deviations), -1)
    of_all = counts.sum(axis=0) + BEFORE * _PRIOR
    shares = counts + BEFORE * of_all / of_all.sum()
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def least_of_streak(deviations: Floats) -> Floats:
    """What every session of a streak has to be worse than, in spreads; infinite where too few sessions tell.

    `deviations`: sessions of the baseline in spreads, shape (metrics, sessions), NaN where there is none.
    """
    number = np.isfinite(deviations).sum(axis=1)
    # (j + 1)³ is a little more than the product of the three. Between two sessions the rate lies between theirs.
    place = np.cbrt(FALSE_ALARMS_OF_STREAK * (number + 1) * (number + 2) * (number + 3)) - 1
    last = np.maximum(np.floor(place).astype(np.int64), 1)
    ordered = -np.sort(-deviations, axis=1)[:, : int(last.max()) + 1]  # the worst first, NaN last
    rows = np.arange(len(ordered))
    worse, better = ordered[rows, last - 1], ordered[rows, np.minimum(last, ordered.shape[1] - 1)]
    return np.asarray(np.where(place >= 1, worse + (place - last) * (better - worse), np.inf))
