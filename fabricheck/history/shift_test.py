"""Whether metrics shifted between two sets of sessions: a test of all at once that knows how much each varies, how
similar neighbouring sessions are, and what tails the noise has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from fabricheck.errors import UserError
from fabricheck.history.levels import Autocorrelation, coloured, restricted, weights_of, whitened
from fabricheck.history.peaks import ParetoTail, upper_tail
from fabricheck.history.robust import median
from fabricheck.history.rows import by_rows
from fabricheck.history.waiting import steps
from fabricheck.judge.constants import (
    AT_ONCE,
    CONFIDENCE,
    CUT_OF_SIDE,
    ENOUGH,
    FALSE_ALARM,
    FEWEST_FOR_MIDDLE,
    LEAST_SPREAD,
)
from fabricheck.judge.spread import Moderated, Prior, moderate

#: Orders of the residuals that are drawn for all metrics together.
DRAWS = 20_000

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# The sides of a comparison, as `shift_test` takes them.
SIDES = EARLIER, BASE, CANDIDATE = range(3)


@dataclass(frozen=True)
class CompareOptions:
    """`false_discovery`: the share of metrics called regressed that are not, and likewise of those called improved.
    `margin`: a metric is the same where a loss of this share would have been seen and was not. `power`: how surely.
    `confidence` of the intervals of the changes, each by itself.
    """

    false_discovery: float = FALSE_ALARM
    margin: float = 0.05
    power: float = CONFIDENCE
    confidence: float = CONFIDENCE

    def __post_init__(self) -> None:
        for name in ("false_discovery", "margin", "power", "confidence"):
            if not 0 < getattr(self, name) < 1:
                raise UserError(f"{name.replace('_', ' ')} is a share between 0 and 1, not {getattr(self, name)}")


@dataclass(frozen=True)
class Tested:
    """The statistics of matched metrics, shapes (metrics,); logarithms, with more being worse."""

    base: Floats
    candidate: Floats
    shift: Floats
    error: Floats
    freedom: Floats
    p_worse: Floats
    p_better: Floats
    worse: npt.NDArray[np.bool_]
    better: npt.NDArray[np.bool_]
    smallest: Floats


@dataclass(frozen=True)
class _Sessions:
    """`values`, shape (metrics, sessions), NaN where a metric was not measured, and the `side` of each session."""

    values: Floats
    side: Ints

    @property
    def there(self) -> npt.NDArray[np.bool_]:
        return np.isfinite(self.values)

    @property
    def sides(self) -> list[Floats]:
        return [np.where(self.there, self.side == number, 0.0) for number in SIDES]

    def of(self, rows: Ints | slice) -> _Sessions:
        return _Sessions(self.values[rows], self.side)


@dataclass(frozen=True)
class _White:
    """Values and the indicators of the sides of each metric, with the correlation of neighbours taken out.

    `y`: (metrics, sessions), `x`: (metrics, sessions, 3), `inverse`: of X'X, (metrics, 3, 3).
    """

    y: Floats
    x: Floats
    inverse: Floats

    def fit(self, y: Floats) -> tuple[Floats, Floats]:
        """Level of each side, (metrics, 3), and sum of squares around them, (metrics,), of whitened values."""
        moment = np.einsum("msk,ms->mk", self.x, y)
        level = np.einsum("mkl,ml->mk", self.inverse, moment)
        return level, np.maximum(np.einsum("ms,ms->m", y, y) - np.einsum("mk,mk->m", level, moment), 0.0)


def shift_test(
    values: Floats, side: Ints, options: CompareOptions, *, kind: Ints | None = None, seed: int = 1
) -> Tested:
    """Test every metric for a shift from the sessions of the base to those of the candidate.

    `values`: logarithms with the sign that makes more worse, shape (metrics, sessions), NaN where a metric was not
    measured; sessions in the order of time. `side`, shape (sessions,): EARLIER, BASE or CANDIDATE. `kind`, (metrics,):
    those of one number vary together, as the pairs of a node; all do without it.

    The levels of the sides are fitted by generalised least squares: sessions are more similar the nearer they are,
    as `levels` tells it, each metric by its sessions and by what is common among all (empirical Bayes). The spread
    is estimated from all sessions and from the other metrics of its kind (moderated t: Smyth, Statistical
    Applications in Genetics and Molecular Biology 3, 2004). How improbable a statistic is, is the larger of what
    Student's t says and of how often it is so large when the residuals are put in another order, of all metrics
    together: noise has the tails that it has. Which shifts are real is decided over all metrics at once with the
    two-stage step-up procedure of Benjamini, Krieger and Yekutieli (Biometrika 93, 2006), each direction by itself.
    """
    sessions = _Sessions(values, side)
    count = np.stack([each.sum(axis=1) for each in sessions.sides], axis=1)
    freedom = np.maximum(count - 1, 0).sum(axis=1).astype(np.float64)
    kind = np.zeros(len(values), dtype=np.int64) if kind is None else kind
    independent = Autocorrelation(np.zeros(1), np.zeros(1))
    white = _whiten(sessions, independent)
    rough = moderate(white.fit(white.y)[1], freedom, kind)
    # Without a spread nothing can be told to be wild.
    reach = np.nan_to_num(CUT_OF_SIDE * np.sqrt(rough.variance), nan=np.inf)
    kept = _cut(sessions, reach)
    common = _autocorrelation(kept, freedom)
    white = _whiten(kept, common)
    level, squares = white.fit(white.y)
    known = moderate(squares, freedom, kind)
    shift = level[:, CANDIDATE] - level[:, BASE]
    both = (count[:, BASE] > 0) & (count[:, CANDIDATE] > 0) & (known.freedom > 0)
    error = np.where(both, np.sqrt(known.variance * _of_difference(white)), np.nan)
    total = known.freedom
    scores = _scores(shift / np.where(both, error, np.inf), total)
    drawn = _drawn(sessions, common, reach, known, seed)
    tails = upper_tail(drawn), upper_tail(-drawn)
    p_worse, p_better = (
        np.where(both, _improbable(each, tail), 1.0) for each, tail in zip((scores, -scores), tails, strict=True)
    )
    enough = np.asarray((count[:, [BASE, CANDIDATE]] >= FEWEST_FOR_MIDDLE).all(axis=1))
    worse, threshold = discoveries(np.where(enough, p_worse, 1.0), options.false_discovery)
    better, _ = discoveries(np.where(enough, p_better, 1.0), options.false_discovery)
    return Tested(
        base=level[:, BASE],
        candidate=level[:, CANDIDATE],
        shift=shift,
        error=error,
        freedom=np.where(both, total, 0.0),
        p_worse=p_worse,
        p_better=p_better,
        worse=worse,
        better=better,
        smallest=np.where(enough, _smallest_shift(error, total, threshold, options.power, tails[0]), np.inf),
    )


def discoveries(p: Floats, rate: float) -> tuple[npt.NDArray[np.bool_], float]:
    """Which of the p-values, shape (n,), are discoveries at a false discovery rate, and the largest p that would be one
    if it were one more: Benjamini and Hochberg (1995) in two stages (Benjamini, Krieger,
    Yekutieli, 2006, definition 6).
    """
    number = p.size
    if number == 0:
        return np.zeros(0, dtype=np.bool_), rate
    level = rate / (1 + rate)
    first = _step_up(p, level)
    null = number - first
    if first in (0, number):
        number_found = first
        slope = level / number
    else:
        slope = level / null
        number_found = _step_up(p, level * number / null)
    order = np.argsort(p, kind="stable")
    chosen = np.zeros(number, dtype=np.bool_)
    chosen[order[:number_found]] = True
    return chosen, min(slope * min(number_found + 1, number), 0.5)


def _step_up(p: Floats, level: float) -> int:
    ordered = np.sort(p)
    below = np.flatnonzero(ordered <= level * np.arange(1, p.size + 1) / p.size)
    return int(below[-1]) + 1 if below.size else 0


# Levels of the sides


def _cut(sessions: _Sessions, reach: Floats) -> _Sessions:
    """Values no further than `reach`, (metrics,), from the median of their side, that median taken from all of them."""
    values = sessions.values.copy()
    for number in np.unique(sessions.side):
        columns = sessions.side == number
        middle, away = median(values[:, columns])[:, None], reach[:, None]
        values[:, columns] = np.clip(values[:, columns], middle - away, middle + away)
    return _Sessions(values, sessions.side)


def _whiten(sessions: _Sessions, common: Autocorrelation) -> _White:
    """A session less what those before say of it, over the error of that: independent values of equal variance."""
    given = [np.nan_to_num(sessions.values), *sessions.sides]
    columns = [each for each, _ in whitened(given, sessions.there, common)]
    y, *x = np.moveaxis(np.asarray(columns), 0, -1)
    by_session = np.stack(x, axis=2)
    squares = np.einsum("msk,msl->mkl", by_session, by_session)
    # A side without sessions has no level: 0, and nothing follows from it.
    squares[:, SIDES, SIDES] += np.einsum("mkk->mk", squares) <= 0
    return _White(y, by_session, np.linalg.inv(squares))


def _autocorrelation(sessions: _Sessions, freedom: Floats) -> Autocorrelation:
    """What the sessions of each metric have in common: the mean of what they leave probable; of metrics that do not
    vary, it is what the others have."""
    centred = _Sessions(sessions.values - median(sessions.values)[:, None], sessions.side)

    def known(rows: slice) -> tuple[Floats, Floats]:
        part = centred.of(rows)
        squares, determinant = restricted(np.nan_to_num(part.values), part.sides, part.there)
        return squares.T, determinant.T

    squares, determinant = cast("tuple[Floats, Floats]", by_rows(known, len(sessions.values)))
    least = 1e-2 * LEAST_SPREAD**2
    varies = (squares > least).any(axis=1) & (freedom > 0)
    logs = -0.5 * (freedom[:, None] * np.log(np.maximum(squares, least)) + determinant)
    return Autocorrelation.of(weights_of(np.where(varies[:, None], logs, 0.0)))


def _of_difference(white: _White) -> Floats:
    """Variance of the difference of candidate and base over that of a session, (metrics,)."""
    inverse = white.inverse
    return np.asarray(
        inverse[:, CANDIDATE, CANDIDATE] + inverse[:, BASE, BASE] - 2 * inverse[:, CANDIDATE, BASE]
    )  # fmt: skip


# How improbable


def _scores(statistic: Floats, freedom: Floats) -> Floats:
    """The standard normal values that are as improbable as Student's statistics."""
    size = -ndtri(stdtr(np.maximum(freedom, 1e-9), -np.abs(statistic)))
    return np.asarray(np.sign(statistic) * np.minimum(size, 38.0))


def _improbable(scores: Floats, tail: ParetoTail | None) -> Floats:
    by_theory = ndtr(-scores)
    return np.asarray(by_theory if tail is None else np.maximum(by_theory, tail.probability(scores)))


def _drawn(sessions: _Sessions, common: Autocorrelation, reach: Floats, known: Moderated, seed: int) -> Floats:
    """Scores of healthy metrics with this noise, shape (draws,): residuals put in another order and tested again.

    The residuals are whitened before and coloured after that, and are not cut off: noise has the tails that it has.
    """
    rng, prior = np.random.default_rng(seed), known.prior
    freedom = known.freedom - prior.freedom
    rows = np.flatnonzero(freedom > 0.5)
    if not rows.size:
        return np.zeros(0)
    white = _whiten(sessions.of(rows), common.rows(rows))
    there = sessions.there[rows]
    level, _ = white.fit(white.y)
    # What the fit took of their size is given back.
    residual = white.y - np.einsum("msk,mk->ms", white.x, level)
    residual *= np.sqrt(there.sum(axis=1) / freedom[rows])[:, None]
    wanted, batch = max(DRAWS // rows.size, ENOUGH) * rows.size, max(AT_ONCE // rows.size, 1)
    many = np.tile(np.arange(rows.size), batch)
    own, residual, there = rows[many], residual[many], there[many]
    alike, own_prior = common.rows(own), Prior(prior.variance[own], prior.freedom[own])
    again, scores = _whiten(sessions.of(own), alike), []
    places = np.argsort(~there, axis=1, kind="stable")
    draws = math.ceil(wanted / own.size)
    for _ in steps(range(draws), draws, "draws"):
        # Sessions that are not there have the largest keys and stay behind the others.
        order = np.argsort(np.where(there, rng.random(there.shape), 2.0), axis=1)
        shuffled = np.empty_like(residual)
        np.put_along_axis(shuffled, places, np.take_along_axis(residual, order, axis=1), axis=1)
        values = np.where(there, coloured(shuffled, there, alike), np.nan)
        drawn = np.nan_to_num(_cut(_Sessions(values, sessions.side), reach[own]).values)
        white_again = [each for (each,), _ in whitened([drawn], there, alike)]
        fitted, squares = again.fit(np.stack(white_again, axis=1))
        with np.errstate(invalid="ignore", divide="ignore"):
            error = np.sqrt(own_prior.moderate(squares, freedom[own]) * _of_difference(again))
            statistic = (fitted[:, CANDIDATE] - fitted[:, BASE]) / error
        scores.append(_scores(np.nan_to_num(statistic), freedom[own] + prior.freedom[own]))
    return np.concatenate(scores)


def _smallest_shift(error: Floats, freedom: Floats, threshold: float, power: float, tail: ParetoTail | None) -> Floats:
    """The shift whose test statistic, noncentral t, is beyond the threshold with probability `power`; (metrics,).

    By the normal approximation of Abramowitz and Stegun, 26.7.10.
    """
    known = np.maximum(freedom, 1.0)
    needed = max(-float(ndtri(threshold)), tail.quantile(threshold) if tail is not None else 0.0)
    critical = -stdtrit(known, ndtr(-needed))
    shift = critical * (1 - 1 / (4 * known)) + ndtri(power) * np.sqrt(1 + critical**2 / (2 * known))
    return np.where((freedom >= 1) & np.isfinite(error), shift * error, np.inf)
