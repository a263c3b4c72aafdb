"""How the level of a metric goes on from session to session beneath noise of launches: one model for all commands.

A level stands, comes back to its centre, or goes about (Harvey, *Forecasting, Structural Time Series Models and the
Kalman Filter*, 1989, section 4.1). How probable each of the levels that are tried is, is told by restricted maximum
likelihood (Harville, JASA 72, 1977). `watch` follows the level of a metric by its steady filter (Muth, JASA 55, 1960):
what counts is the error of a prediction, which is independent of those before. `compare` takes out what neighbouring
sessions have in common.

Few sessions in a row do not show how far levels go: where neighbours are correlated, twenty sessions vary less than the
next hundred will. For references bounds are widened by what the sessions to come vary beyond those that were seen.
Where these have shown little of that, there are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from fabricheck.statistics.constants import CUT, ENOUGH, FEWEST, LEAST_SPREAD, PRIOR_METRICS, YEAR
from fabricheck.statistics.robust import centre_and_spread
from fabricheck.statistics.rows import by_rows, sample_of, shares_of

#: So many metrics tell between them what their levels do, by losses found in simulated histories of nodes
#: (tests/statistics/test_node_effects.py).
FEWEST_OF_LEVELS = 64
#: What keeps less of its distance than this stands, as most metrics do: it would explain 1 in 400 of the variance.
STANDS = 0.05
#: Only a level that comes back this surely is taken to: to follow costs less than to take for a loss what a level does;
#: one of few metrics is taken to go about only where that is as sure. Chosen.
SURE = 0.9
#: A level wanders where sessions to come vary by so many times the variance of those that were seen: measured by
#: `benchmarks.calibration --levels`.
WANDERS = 3.0
#: More than twelve independent metrics of twenty sessions show by chance (three standard errors): neighbouring sessions
#: are correlated.
CORRELATED = 0.2

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Autocorrelation:
    """What sessions have in common: the correlation of neighbouring levels (`of_levels`), and the share of a session's
    variance that is its level's; both (metrics,), or such that numpy makes them so."""

    of_levels: Floats
    share: Floats

    @classmethod
    def of_filter(cls, keep: Floats, gain: Floats) -> Autocorrelation:
        """That of levels to which `gain` of an error belongs, and that `keep` so much for the next session."""
        kept = (gain * keep) ** 2 / (1 - keep**2)  # what a level had before, over the variance of an error
        return cls(keep, (gain + kept) / (1 + kept))

    @property
    def of_sessions(self) -> Floats:
        """The correlation of neighbouring sessions."""
        return self.of_levels * self.share


# Levels that are tried: for how many sessions neighbours stay alike, up to a year, and what share of a session's error
# belongs to the level, which keeps of that what neighbours have in common. Before anything was measured one in two
# stands, and what lasts twice as long is half as common.
_TIMES = np.geomspace(0.5, YEAR, 15)
_GAINS = np.asarray([0.05, 0.1, 0.25, 0.5, 1.0])
_KEEP = np.append(np.repeat(np.exp(-1 / _TIMES), _GAINS.size), 0.0)
_GAIN = np.append(np.tile(_GAINS, _TIMES.size), 0.0)
_COMMON = np.append(np.repeat(0.5 / _TIMES / np.sum(1 / _TIMES) / _GAINS.size, _GAINS.size), 0.5)
TRIED = Autocorrelation.of_filter(_KEEP, _GAIN)
EVERY = np.arange(_KEEP.size)
# What outlasts a baseline goes about.
_GOES = np.exp(-1 / ENOUGH) < _KEEP


def whitened(
    columns: Sequence[Floats], there: npt.NDArray[np.bool_], common: Autocorrelation
) -> Iterator[tuple[list[Floats], Floats]]:
    """Session by session, what each of `columns`, shapes (..., sessions), has beyond what those before say of it, over
    the error of that; and the logarithm of the square of this error, in the variance of a session. Both are 0 where a
    session is not `there`."""
    means = [np.zeros(1)] * len(columns)
    share = variance = common.share
    for session in range(there.shape[-1]):
        step, here = common.of_levels, there[..., session]
        variance = share - step**2 * (share - variance)
        total = 1 - share + variance
        scale, moved = here / np.sqrt(total), here * variance / total
        variance = variance - moved * variance
        white = []
        for place, column in enumerate(columns):
            mean = step * means[place]
            error = column[..., session] - mean
            means[place] = mean + moved * error
            white.append(np.asarray(scale * error))
        yield white, np.asarray(here * np.log(total))


@dataclass(frozen=True, eq=False)
class Fit:
    """Values fitted by the means of sides, shapes (levels, metrics), each in the variance of a session: the sum of
    squares around them, the logarithm of the determinant of the restricted likelihood, and the mean of the last side
    with its variance."""

    squares: Floats
    determinant: Floats
    last: Floats
    variance: Floats


def restricted(
    values: Floats,
    sides: Sequence[Floats],
    there: npt.NDArray[np.bool_],
    levels: npt.NDArray[np.int64] = EVERY,
) -> Fit:
    """The fit of `values` by each of `levels`. Shapes (metrics, sessions), or such that numpy makes them so.

    `sides` are indicators, which may overlap.
    """
    number, logs = len(sides) + 1, np.zeros(1)
    tried = Autocorrelation(TRIED.of_levels[levels, None], TRIED.share[levels, None])
    products = [[np.zeros(1)] * number for _ in range(number)]
    for white, told in whitened((*sides, values), there, tried):
        logs = logs + told
        for row in range(number):
            for column in range(row, number):
                products[row][column] = products[column][row] = products[row][column] + white[row] * white[column]
    last, own = np.zeros(1), np.ones(1)
    # Metrics are eliminated side by side; one without sessions has no mean.
    for side in range(number - 1):
        own = np.where(products[side][side] > 0, products[side][side], 1.0)
        logs, last = logs + np.log(own), products[side][-1] / own
        for row in range(side + 1, number):
            for column in range(row, number):
                taken = products[side][row] * products[side][column] / own
                products[row][column] = products[column][row] = products[row][column] - taken
    return Fit(np.maximum(products[-1][-1], 0.0), logs, last, 1 / own)


def _scaled(rest: Floats, spread: Floats, least: float) -> tuple[Floats, Floats]:
    """Values around their centres, in spreads, and these, (metrics,); NaN for metrics that tell nothing: fewer than
    FEWEST sessions, or a spread that shows how a clock is rounded."""
    spread = np.where((spread > least) & (np.isfinite(rest).sum(axis=1) >= FEWEST), spread, np.nan)
    return np.clip(rest / spread[:, None], -CUT, CUT), spread


def _likelihoods(scaled: Floats, levels: npt.NDArray[np.int64] = EVERY) -> Floats:
    """Log likelihood of each of `levels` for each metric around its own mean, shape (metrics, levels)."""
    ones = np.ones((1, scaled.shape[1]))

    def known(rows: slice) -> tuple[Floats]:
        there = np.isfinite(scaled[rows])
        seen = there[:1] if there.all() else there
        fitted = restricted(np.nan_to_num(scaled[rows]), [ones], seen, levels)
        freedom = np.maximum(there.sum(axis=1) - 1, 0)
        squares = np.maximum(fitted.squares, np.finfo(float).tiny)
        return (-0.5 * (freedom * np.log(squares) + fitted.determinant).T,)

    return cast("Floats", by_rows(known, len(scaled))[0])


def errors_of(rest: Floats, reach: Floats, gains: Floats, keeps: Floats) -> Floats:
    """What is left of values, shape (metrics, sessions), when each is predicted from those before: by their mean, and
    by the level around it. A session moves that by what is within `reach`."""
    centre, level, seen = (np.zeros(len(rest)) for _ in range(3))
    back = keeps < 1
    errors = np.empty_like(rest)
    for session in range(rest.shape[1]):
        error = errors[:, session] = rest[:, session] - centre - level
        there = np.isfinite(error)
        seen += there
        moved = np.where(there, np.clip(error, -reach, reach), 0.0)
        # The fewer sessions there were, the more one tells of the centre, and the less of the level around it.
        first = 1 / (1 + np.maximum(seen - 1, 0) * np.where(back, 1 - keeps, 1.0))
        centre += np.where(back, first * moved, 0.0)
        level = keeps * (level + np.where(back, gains * (1 - first), np.maximum(gains, first)) * moved)
    return errors


def level_of(rest: Floats, reach: Floats, gains: Floats, keeps: Floats) -> Floats:
    """The level, a logarithm like the values, after values, shape (metrics, sessions), whose centre is 0:
    (metrics,)."""
    level = np.zeros(len(rest))
    for session in range(rest.shape[1]):
        error = np.nan_to_num(rest[:, session] - level)
        level = keeps * (level + gains * np.clip(error, -reach, reach))
    return level


def levels_of(rest: Floats, spread: Floats, least: float) -> tuple[Floats, Floats]:
    """Gain and keep of the level of each metric, both (metrics,): by what its sessions leave probable, and by how
    common each level is among all (`shares_of`). `rest`: values around their centres, whose `spread` is at least
    `least` where it tells anything. Of what comes back the level moves the predictions of the next two sessions as all
    that is probable does."""
    scaled = _scaled(rest, spread, least)[0]
    some = sample_of(np.arange(len(rest)))
    logs = _likelihoods(scaled[some])
    if some.size < len(rest):  # what is rare among some of many metrics is not asked of all
        common = np.flatnonzero(weights_of(logs).mean(axis=0) > PRIOR_METRICS / some.size)
        logs = np.full((len(rest), EVERY.size), -np.inf)
        logs[:, common] = _likelihoods(scaled, common)
    weights = weights_of(logs)
    goes = weights[:, _GOES].sum(axis=1) > (1 - SURE if len(rest) >= FEWEST_OF_LEVELS else SURE)
    weights *= goes[:, None] == _GOES
    total, next_, second = (weights @ each for each in (np.ones(_KEEP.size), _GAIN * _KEEP, _GAIN * _KEEP**2))
    stands = next_ < STANDS * total
    gain = np.where(goes, weights @ _GAIN, next_**2 / second) / total
    return np.where(stands, 1.0, gain), np.where(stands, 0.0, np.where(goes, 1.0, second / next_))


def weights_of(logs: Floats) -> Floats:
    """How probable each level is for each metric, shape (metrics, levels), by log likelihoods and by how common it is
    among all that tell any."""
    known = np.exp(logs - logs.max(axis=1, keepdims=True))
    tells = np.isfinite(logs) & (logs != 0)
    known *= shares_of(known[sample_of(np.flatnonzero(tells.any(axis=1)))], _COMMON)
    return np.asarray(known / known.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class Persistence:
    """`correlation`: of neighbouring sessions. `widening`: by how much sessions to come stray more from the mean of
    the `sessions` that were seen than these did, over independent ones; as probably less as more. `spread`: that of
    the middle metric in these, relative."""

    correlation: float
    widening: float
    sessions: int
    spread: float

    @property
    def lasts(self) -> bool:
        """Whether neighbouring sessions are correlated, so that launches of one session are, too."""
        return self.correlation > CORRELATED

    @property
    def wanders(self) -> bool:
        """Whether these sessions tell too little of what the level does."""
        return self.widening**2 > WANDERS


def persistence_of(values: Floats) -> Persistence:
    """That of metrics of a kind, which together tell it: `values`, shape (metrics, sessions), are logarithms, NaN where
    a metric was not measured.

    What metrics have in common is told once: they count for as many as would have a mean that varies as theirs does
    (Kish, *Survey Sampling*, 1965, section 8.2).
    """
    values = values[:, -YEAR:]
    usual = centre_and_spread(values)
    scaled, spread = _scaled(values - usual.centre[:, None], usual.spread, LEAST_SPREAD)
    sessions, tells = scaled.shape[1], np.isfinite(spread)
    if not tells.any():
        return Persistence(0.0, 1.0, sessions, 0.0)
    scaled = scaled[tells]
    variance, of_all = np.nanvar(scaled), np.nanvar(_of_all(scaled))
    likelihood = _likelihoods(scaled).mean(axis=0) * variance / max(of_all, variance / len(scaled))
    weights = _COMMON * np.exp(likelihood - likelihood.max())
    weights /= weights.sum()
    wider = _widening(sessions)
    order = np.argsort(wider)
    middle = order[np.searchsorted(np.cumsum(weights[order]), 0.5)]
    return Persistence(float(weights @ TRIED.of_sessions), float(wider[middle]), sessions, float(np.nanmedian(spread)))


def _widening(sessions: int) -> Floats:
    """By how much the deviation of a session to come from the mean of `sessions` exceeds what their spread says, over
    independent sessions; (levels,)."""
    lags = np.arange(1, sessions)
    # The variance of the mean, in that of one session.
    mean = (1 + 2 * TRIED.share * (_KEEP[:, None] ** lags @ (1 - lags / sessions))) / sessions
    seen = (1 - mean) * sessions / (sessions - 1)
    return np.asarray(np.sqrt((1 + mean) / seen / (1 + 1 / sessions)))


def _of_all(values: Floats) -> Floats:
    """The mean of the metrics in each session; NaN where none was measured."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(axis=0) / known.sum(axis=0))
