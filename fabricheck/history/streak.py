"""Three bad sessions in a row: how bad they have to be, by the metric's own sessions, whatever shape its noise has.

How probable three sessions are that are all worse than the j-th worst of n others is known without knowing their
distribution, where all of them are alike: j (j + 1) (j + 2) / ((n + 1) (n + 2) (n + 3)). Where neighbours are
correlated it is more, by as much as it is for a normal process of first order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import cast

import numpy as np
import numpy.typing as npt
from scipy.stats import multivariate_normal, norm, t

from fabricheck.history.hazard import CORRELATIONS
from fabricheck.history.noise import independent_share
from fabricheck.history.robust import FEWEST
from fabricheck.history.rows import Arrays, by_rows

Floats = npt.NDArray[np.float64]

LENGTH = 3
# False alarms a session of a metric; see the charts.
FALSE_ALARMS = 1 / 80_000
_SHARES = np.geomspace(1e-5, 0.3, 40)
_ALIKE = 0.8


@lru_cache(maxsize=1)
def _log_rates() -> Floats:
    """Logarithm of the probability that LENGTH neighbours are all among the worst share of sessions, shape
    (correlations, shares)."""
    found = np.empty((len(CORRELATIONS), _SHARES.size))
    lags = np.abs(np.subtract.outer(range(LENGTH), range(LENGTH)))
    for row, correlation in enumerate(CORRELATIONS):
        process = multivariate_normal(np.zeros(LENGTH), correlation**lags, seed=1)
        found[row] = [process.cdf(np.full(LENGTH, norm.ppf(share))) for share in _SHARES]
    return np.asarray(np.log(np.maximum(found, 1e-18)))


def least_of_streak(deviations: Floats, weights: Floats) -> Floats:
    """What every session of a streak has to be worse than, in spreads; infinite where too few sessions tell.

    `deviations`: sessions of the baseline in spreads, shape (metrics, sessions), NaN where there is none. `weights`:
    how probable each of KINDS of noise is for each metric, shape (metrics, kinds). Sessions that are very much alike
    are as few independent ones, of which none is rare enough: there the noise is taken to be normal.
    """

    def some(rows: slice) -> Arrays:
        return (_least_of_some(deviations[rows], weights[rows]),)

    (found,) = cast("tuple[Floats]", by_rows(some, len(deviations)))
    return found


def _least_of_some(deviations: Floats, weights: Floats) -> Floats:
    of_correlation = weights.reshape(len(weights), len(CORRELATIONS), -1).sum(axis=2)
    independent = independent_share(weights)[:, None]
    there = np.isfinite(deviations).sum(axis=1)[:, None]
    ordered = -np.sort(-deviations, axis=1)  # the worst first, NaN last
    # Among the worst is the session that is not rare enough any more.
    ordered = ordered[:, : max(int(_SHARES[-1] * ordered.shape[1]) + 2, FEWEST)]
    place = np.arange(1, ordered.shape[1] + 1)[None, :]
    rank, number = place * independent, there * independent
    share = ((rank / (number + 1)) * ((rank + 1) / (number + 2)) * ((rank + 2) / (number + 3))) ** (1 / LENGTH)
    rates = _log_rates_of(share, of_correlation)
    beyond = (rates > np.log(FALSE_ALARMS)) | (place > there) | (share >= _SHARES[-1])
    first = np.where(beyond.any(axis=1), beyond.argmax(axis=1), beyond.shape[1])
    rows, last = np.arange(len(ordered)), np.maximum(first - 1, 0)
    found = np.where(first > 0, ordered[rows, last], np.inf)
    # Between two sessions of the baseline the rate lies between theirs.
    after = np.minimum(first, ordered.shape[1] - 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        part = (np.log(FALSE_ALARMS) - rates[rows, last]) / (rates[rows, after] - rates[rows, last])
        between = found + np.clip(part, 0, 1) * (ordered[rows, after] - found)
    found = np.where(np.isfinite(between), between, found)
    alike = (of_correlation @ np.asarray(CORRELATIONS) > _ALIKE) & np.isinf(found)
    if alike.any():
        wanted = _log_rates_of(np.tile(_SHARES, (int(alike.sum()), 1)), of_correlation[alike])
        rare = _SHARES[np.maximum((wanted <= np.log(FALSE_ALARMS)).sum(axis=1) - 1, 0)]
        found[alike] = t.isf(rare, np.maximum(number[alike, 0] - 1, 4))
    return found


def _log_rates_of(share: Floats, of_correlation: Floats) -> Floats:
    """Logarithm of the rate of streaks by the share of bad sessions, shape (metrics, n), of metrics whose correlations
    are so probable, shape (metrics, correlations)."""
    place = np.log(np.clip(share, _SHARES[0], _SHARES[-1]))
    rates = np.zeros(share.shape)
    for row, each in enumerate(_log_rates()):
        rates += of_correlation[:, row, None] * np.exp(np.interp(place, np.log(_SHARES), each))
    return np.asarray(np.log(rates))
