"""Three bad sessions in a row: how bad they have to be, by the metric's own sessions, whatever shape its noise has.

How probable three sessions are that are all worse than the j-th worst of n others is known without knowing their
distribution, where all of them are alike: j (j + 1) (j + 2) / ((n + 1) (n + 2) (n + 3)).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LENGTH = 3
# False alarms a session of a metric; see the charts.
FALSE_ALARMS = 1 / 80_000


def least_of_streak(deviations: Floats) -> Floats:
    """What every session of a streak has to be worse than, in spreads; infinite where too few sessions tell.

    `deviations`: sessions of the baseline in spreads, shape (metrics, sessions), NaN where there is none.
    """
    number = np.isfinite(deviations).sum(axis=1)
    # (j + 1)³ is a little more than the product of the three. Between two sessions the rate lies between theirs.
    place = np.cbrt(FALSE_ALARMS * (number + 1) * (number + 2) * (number + 3)) - 1
    last = np.maximum(np.floor(place).astype(np.int64), 1)
    ordered = -np.sort(-deviations, axis=1)[:, : int(last.max()) + 1]  # the worst first, NaN last
    rows = np.arange(len(ordered))
    worse, better = ordered[rows, last - 1], ordered[rows, np.minimum(last, ordered.shape[1] - 1)]
    return np.asarray(np.where(place >= 1, worse + (place - last) * (better - worse), np.inf))
