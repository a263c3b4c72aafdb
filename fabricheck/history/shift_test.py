"""Whether metrics shifted between two sets of sessions: a test of all at once that knows how much each varies, how
similar neighbouring sessions are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtr, stdtrit

from fabricheck.errors import UserError
from fabricheck.history.levels import Autocorrelation, restricted, weights_of, whitened
from fabricheck.history.rows import by_rows
from fabricheck.judge.constants import (
    CONFIDENCE,
    CUT_OF_SIDE,
    FALSE_ALARM,
    FEWEST_FOR_MIDDLE,
    LEAST_SPREAD,
)
from fabricheck.judge.spread import moderate

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
    """The statistics of matched metrics, shapes (metrics,); logarithms, with more being worse.

    `correlation`: of neighbouring sessions, NaN where all of a side are equal. `enough`: whether both sides have
    FEWEST_FOR_MIDDLE.
    """

    base: Floats
    candidate: Floats
    shift: Floats
    error: Floats
    freedom: Floats
    spread: Floats
    correlation: Floats
    p_worse: Floats
    p_better: Floats
    enough: npt.NDArray[np.bool_]
    worse: npt.NDArray[np.bool_]
    better: npt.NDArray[np.bool_]
    smallest: Floats


@dataclass(frozen=True)
class _Packed:
    """The measured sessions of each metric, moved to the front of its row; shapes (metrics, most sessions).

    `gap`: sessions since the one before. `side` is that of the session, -1 behind the last.
    """

    values: Floats
    side: Ints
    gap: Floats

    @property
    def there(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.side >= 0)

    @property
    def sides(self) -> list[Floats]:
        return [(self.side == each).astype(np.float64) for each in SIDES]

    def of(self, rows: Ints | slice) -> _Packed:
        return _Packed(self.values[rows], self.side[rows], self.gap[rows])


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


def shift_test(values: Floats, side: Ints, when: Ints, options: CompareOptions, *, kind: Ints | None = None) -> Tested:
    """Test every metric for a shift from the sessions of the base to those of the candidate.

    `values`: logarithms with the sign that makes more worse, shape (metrics, sessions), NaN where a metric was not
    measured; sessions in the order of time. `side`, shape (sessions,): EARLIER, BASE or CANDIDATE. `when`, (sessions,):
    the number of each session among all, which tells how far apart they are. `kind`, (metrics,): those of one number
    vary together, as the pairs of a node; all do without it.

    The levels of the sides are fitted by generalised least squares: sessions are more similar the nearer they are,
    as `levels` tells it, each metric by its sessions and by what is common among all (empirical Bayes). The spread
    is estimated from all sessions and from the other metrics of its kind (moderated t: Smyth, Statistical
    Applications in Genetics and Molecular Biology 3, 2004). Which shifts are real is decided over all metrics at
    once (`discoveries`), each direction by itself.
    """
    packed = _pack(values, side, when)
    count = np.stack([each.sum(axis=1) for each in packed.sides], axis=1)
    freedom = np.maximum(count - 1, 0).sum(axis=1).astype(np.float64)
    kind = np.zeros(len(values), dtype=np.int64) if kind is None else kind
    independent = Autocorrelation(np.zeros(1), np.zeros(1))
    rough = moderate(_whiten(packed, independent).fit(packed.values)[1], freedom, kind)
    # Without a spread nothing can be told to be wild.
    reach = np.nan_to_num(CUT_OF_SIDE * np.sqrt(rough.variance), nan=np.inf)
    kept = _cut(packed, reach)
    common, varies = _autocorrelation(kept, freedom)
    white = _whiten(kept, common)
    level, squares = white.fit(white.y)
    known = moderate(squares, freedom, kind)
    shift = level[:, CANDIDATE] - level[:, BASE]
    both = (count[:, BASE] > 0) & (count[:, CANDIDATE] > 0) & (known.freedom > 0)
    error = np.where(both, np.sqrt(known.variance * _of_difference(white)), np.nan)
    total = np.minimum(known.freedom, _freedom_of_tails(_whiten(packed, common), level, known.variance, count))
    statistic = shift / np.where(both, error, np.inf)
    p_worse, p_better = (np.where(both, stdtr(np.maximum(total, 1e-9), each), 1.0) for each in (-statistic, statistic))
    enough = np.asarray((count[:, [BASE, CANDIDATE]] >= FEWEST_FOR_MIDDLE).all(axis=1))
    worse, threshold = discoveries(np.where(enough, p_worse, 1.0), options.false_discovery)
    better, _ = discoveries(np.where(enough, p_better, 1.0), options.false_discovery)
    return Tested(
        base=level[:, BASE],
        candidate=level[:, CANDIDATE],
        shift=shift,
        error=error,
        freedom=np.where(both, total, 0.0),
        spread=np.sqrt(known.variance),
        correlation=np.where(varies, common.of_sessions, np.nan),
        p_worse=p_worse,
        p_better=p_better,
        enough=enough,
        worse=worse,
        better=better,
        smallest=np.where(enough, _smallest_shift(error, total, threshold, options.power), np.inf),
    )


def discoveries(p: Floats, rate: float) -> tuple[npt.NDArray[np.bool_], float]:
    """Which of the p-values, shape (n,), are discoveries at a false discovery rate, and the largest p that would be one
    if it were one more: Benjamini and Hochberg (Journal of the Royal Statistical Society B 57, 1995).
    """
    number = max(p.size, 1)
    below = np.flatnonzero(np.sort(p) <= rate * np.arange(1, p.size + 1) / number)
    discovered = int(below[-1]) + 1 if below.size else 0
    return p <= rate * discovered / number, rate * min(discovered + 1, number) / number


# Levels of the sides


def _pack(values: Floats, side: Ints, when: Ints) -> _Packed:
    missing = ~np.isfinite(values)
    order = np.argsort(missing, axis=1, kind="stable")[:, : max(int((~missing).sum(axis=1).max(initial=0)), 1)]
    gone = np.take_along_axis(missing, order, axis=1)
    moment = when[order].astype(np.float64)
    gap = np.diff(moment, axis=1, prepend=moment[:, :1])
    packed = np.where(gone, 0.0, np.take_along_axis(values, order, axis=1))
    return _Packed(packed, np.where(gone, -1, side[order]), np.where(gone, 1.0, gap))


def _cut(packed: _Packed, reach: Floats) -> _Packed:
    """Values no further than `reach`, (metrics,), from the median of their side, that median taken from all of them."""
    values = packed.values.copy()
    for side in SIDES:
        columns = np.flatnonzero((packed.side == side).any(axis=0))
        if not columns.size:
            continue
        part = slice(int(columns[0]), int(columns[-1]) + 1)
        here, own = packed.side[:, part] == side, values[:, part]
        number = here.sum(axis=1)
        ordered = np.sort(np.where(here, own, np.inf), axis=1)
        ends = [np.maximum(number - 1, 0) // 2, number // 2]
        middle = np.mean([np.take_along_axis(ordered, end[:, None], axis=1) for end in ends], axis=0)
        middle = np.where(number[:, None] > 0, middle, 0.0)
        values[:, part] = np.where(here, np.clip(own, middle - reach[:, None], middle + reach[:, None]), own)
    return _Packed(values, packed.side, packed.gap)


def _whiten(packed: _Packed, common: Autocorrelation) -> _White:
    """A session less what those before say of it, over the error of that: independent values of equal variance."""
    columns = [each for each, _ in whitened([packed.values, *packed.sides], packed.there, packed.gap, common)]
    y, *x = np.moveaxis(np.asarray(columns), 0, -1)
    by_session = np.stack(x, axis=2)
    squares = np.einsum("msk,msl->mkl", by_session, by_session)
    # A side without sessions has no level: 0, and nothing follows from it.
    squares[:, SIDES, SIDES] += np.einsum("mkk->mk", squares) <= 0
    return _White(y, by_session, np.linalg.inv(squares))


def _autocorrelation(packed: _Packed, freedom: Floats) -> tuple[Autocorrelation, npt.NDArray[np.bool_]]:
    """What the sessions of each metric have in common: the mean of what they leave probable; and whether they vary,
    (metrics,): of those that do not, it is what the others have."""
    middle = _Packed(packed.values - packed.values[:, :1], packed.side, packed.gap)

    def known(rows: slice) -> tuple[Floats, Floats]:
        part = middle.of(rows)
        squares, determinant = restricted(part.values, part.sides, part.there, part.gap)
        return squares.T, determinant.T

    squares, determinant = cast("tuple[Floats, Floats]", by_rows(known, len(packed.values)))
    least = 1e-2 * LEAST_SPREAD**2
    varies = (squares > least).any(axis=1) & (freedom > 0)
    logs = -0.5 * (freedom[:, None] * np.log(np.maximum(squares, least)) + determinant)
    return Autocorrelation.of(weights_of(np.where(varies[:, None], logs, 0.0))), varies


def _of_difference(white: _White) -> Floats:
    """Variance of the difference of candidate and base over that of a session, (metrics,)."""
    inverse = white.inverse
    return np.asarray(
        inverse[:, CANDIDATE, CANDIDATE] + inverse[:, BASE, BASE] - 2 * inverse[:, CANDIDATE, BASE]
    )  # fmt: skip


def _freedom_of_tails(white: _White, level: Floats, variance: Floats, count: Ints) -> Floats:
    """Degrees of freedom of Student's distribution that has the kurtosis of a difference of means, (metrics,): few
    sessions of noise with tails have a mean with tails, however well its spread is known. All metrics together tell
    the kurtosis, by sessions that are not cut off."""
    known = np.isfinite(variance)
    rest = (white.y - np.einsum("msk,mk->ms", white.x, level))[known] / np.sqrt(variance[known, None])
    squares = rest[white.x[known].any(axis=2)] ** 2
    excess = float((squares**2).mean() / squares.mean() ** 2) - 3 if squares.any() else 0.0
    if excess <= 0:
        return np.full(len(variance), np.inf)
    ends = np.maximum(count[:, [BASE, CANDIDATE]], 1.0)
    return np.asarray(4 + 6 / excess * (1 / ends).sum(axis=1) ** 2 / (1 / ends**3).sum(axis=1))


def _smallest_shift(error: Floats, freedom: Floats, threshold: float, power: float) -> Floats:
    """The shift whose test statistic, noncentral t, is beyond the threshold with probability `power`; (metrics,).

    By the normal approximation of Abramowitz and Stegun, 26.7.10.
    """
    known = np.maximum(freedom, 1.0)
    critical = -stdtrit(known, threshold)
    shift = critical * (1 - 1 / (4 * known)) + ndtri(power) * np.sqrt(1 + critical**2 / (2 * known))
    return np.where((freedom >= 1) & np.isfinite(error), shift * error, np.inf)
