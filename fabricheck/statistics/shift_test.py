"""Whether metrics shifted between two sets of sessions: a test of all at once that knows how much each varies, how
similar neighbouring sessions are, and what tails the noise has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from fabricheck.errors import UserError
from fabricheck.statistics.constants import (
    CONFIDENCE,
    CUT_OF_SIDE,
    FALSE_ALARM,
    FEWEST_FOR_MIDDLE,
    LEAST_SPREAD,
    MOST_PEAKS,
    SETTLED_SESSIONS,
)
from fabricheck.statistics.levels import Fit, restricted, weights_of
from fabricheck.statistics.peaks import ParetoTail, upper_tail
from fabricheck.statistics.robust import median, sd_of_winsorised
from fabricheck.statistics.rows import by_rows, sample_of
from fabricheck.statistics.spread import moderate

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


def shift_test(values: Floats, side: Ints, options: CompareOptions, *, kind: Ints | None = None) -> Tested:
    """Test every metric for a shift from the sessions of the base to those of the candidate.

    `values`: logarithms with the sign that makes more worse, shape (metrics, sessions), NaN where a metric was not
    measured; sessions in the order of time. `side`, shape (sessions,): EARLIER, BASE or CANDIDATE. `kind`, (metrics,):
    those of one number vary together, as the pairs of a node; all do without it.

    The shift is fitted by generalised least squares for each of the levels that are tried (`levels`): sessions are more
    similar the nearer they are. What counts is the mean over these by how probable each is, by the sessions of the
    metric and by what is common among all (empirical Bayes), and so is its variance (Bayesian model averaging: Hoeting
    and others, Statistical Science 14, 1999); the more that differs between them, the fewer degrees of freedom it has
    (Satterthwaite, Biometrics Bulletin 2, 1946). The spread of a session is estimated from all sessions and from the
    other metrics of its kind (moderated t: Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004).
    A shift has to be improbable by Student's t and among all shifts between sessions of one side. Which shifts are real
    is decided over all metrics at once (`discoveries`), each direction by itself.
    """
    count = _counts(values, side)
    own = np.maximum(count - 1, 0).sum(axis=1).astype(np.float64)
    kind = np.zeros(len(values), dtype=np.int64) if kind is None else kind
    stretch = _stretches(side)
    middle = _middles(values, stretch)
    within = np.maximum(_counts(values, stretch) - 1, 0).sum(axis=1).astype(np.float64)
    rough = moderate(np.nansum((values - middle) ** 2, axis=1), within, kind)
    reach = np.nan_to_num(CUT_OF_SIDE * np.sqrt(rough.variance), nan=np.inf)[:, None]
    kept = np.clip(values, middle - reach, middle + reach)
    fitted = _fit(kept, side, own)
    # Of sessions without a level, in the variance of one: metrics of a kind may have unequal numbers of them.
    independent = (1 / np.maximum(count[:, [BASE, CANDIDATE]], 1)).sum(axis=1)
    known = moderate(fitted.squares / independent / sd_of_winsorised(CUT_OF_SIDE) ** 2, own, kind)
    both = (count[:, BASE] > 0) & (count[:, CANDIDATE] > 0) & (known.freedom > 0)
    error = np.where(both, np.sqrt(known.variance * independent + fitted.between), np.nan)
    freedom = np.where(both, 1 / (1 / np.where(both, known.freedom, 1.0) + fitted.unsure / 2), 0.0)
    scores = _scores(fitted.shift / np.where(both, error, np.inf), freedom)
    some = sample_of(np.flatnonzero(both), MOST_PEAKS)
    quiet = _shifts_without_change(values[some], kept[some], side, fitted.weights[some], reach[some])
    quiet = quiet / error[some, None]
    # As if it were no part of the spread that it is held against (externally studentised).
    left = freedom[some, None]
    quiet = _scores(quiet * np.sqrt(left / np.maximum(left - quiet**2, 1.0)), left)
    # What moved most metrics at once was a change, as an upgrade is.
    quiet = quiet[:, median(np.abs(quiet.T)) < CUT_OF_SIDE]
    tails = upper_tail(quiet), upper_tail(-quiet)
    p_worse, p_better = (
        np.where(both, _improbable(each, tail), 1.0) for each, tail in zip((scores, -scores), tails, strict=True)
    )
    enough = np.asarray((count[:, [BASE, CANDIDATE]] >= FEWEST_FOR_MIDDLE).all(axis=1))
    worse, threshold = discoveries(np.where(enough, p_worse, 1.0), options.false_discovery)
    better, _ = discoveries(np.where(enough, p_better, 1.0), options.false_discovery)
    base = np.where(both, median(kept[:, side == BASE]), np.nan)
    return Tested(
        base=base,
        candidate=base + fitted.shift,
        shift=fitted.shift,
        error=error,
        freedom=freedom,
        p_worse=p_worse,
        p_better=p_better,
        worse=worse,
        better=better,
        smallest=np.where(enough, _smallest_shift(error, freedom, threshold, options.power, tails[0]), np.inf),
    )


def _counts(values: Floats, group: Ints) -> Ints:
    """How many sessions of each group a metric was measured in, shape (metrics, groups)."""
    there = np.isfinite(values)
    return np.stack([there[:, group == number].sum(axis=1) for number in range(group.max() + 1)], axis=1)


def _stretches(side: Ints) -> Ints:
    """Numbers of stretches of neighbouring sessions of one side, SETTLED_SESSIONS or a few more; shape (sessions,)."""
    stretch = np.zeros_like(side)
    for number in SIDES:
        columns = np.flatnonzero(side == number)
        for part in np.array_split(columns, max(columns.size // SETTLED_SESSIONS, 1)):
            stretch[part] = stretch.max() + 1
    return np.asarray(stretch - stretch.min())


def _middles(values: Floats, stretch: Ints) -> Floats:
    """The median of the stretch of each session, shape (..., sessions): no level goes far in it."""
    middle = np.empty_like(values)
    for number in np.unique(stretch):
        columns = stretch == number
        middle[..., columns] = median(values[..., columns])[..., None]
    return middle


def discoveries(p: Floats, rate: float) -> tuple[npt.NDArray[np.bool_], float]:
    """Which of the p-values, shape (n,), are discoveries at a false discovery rate, and the largest p that would be one
    if it were one more (Benjamini and Hochberg, Journal of the Royal Statistical Society B 57, 1995)."""
    number = max(p.size, 1)
    below = np.flatnonzero(np.sort(p) <= rate * np.arange(1, p.size + 1) / number)
    count = int(below[-1]) + 1 if below.size else 0
    return p <= rate * count / number, rate * min(count + 1, number) / number


@dataclass(frozen=True, eq=False)
class _Fitted:
    """Shapes (metrics,): the shift from base to candidate, the sum of `squares` that its variance is told by, the
    variance `between` the shifts by each level that is tried, and that of their squares, relative (`unsure`).
    `weights`: how probable each level is, shape (metrics, levels)."""

    shift: Floats
    squares: Floats
    between: Floats
    unsure: Floats
    weights: Floats


def _fit(values: Floats, side: Ints, freedom: Floats) -> _Fitted:
    """The means over all levels that are tried, by how probable each is; of metrics that do not vary, as of the others.

    The last of the sides that are fitted is the candidate over what it has in common with the base.
    """
    centred = values - median(values)[:, None]
    indicators = [side == EARLIER, side != EARLIER, side == CANDIDATE]

    least = 1e-2 * LEAST_SPREAD**2

    def known(rows: slice) -> tuple[Floats, ...]:
        there = np.isfinite(centred[rows])
        sides = [np.where(there, each, 0.0) for each in indicators]
        fitted = restricted(np.nan_to_num(centred[rows]), sides, there)
        varies = (fitted.squares > least).any(axis=0) & (freedom[rows] > 0)
        logs = -0.5 * (freedom[rows] * np.log(np.maximum(fitted.squares, least)) + fitted.determinant)
        return np.where(varies, logs, 0.0).T, fitted.last.T, (fitted.squares * fitted.variance).T

    logs, shift, squares = cast("tuple[Floats, Floats, Floats]", by_rows(known, len(values)))
    weights = weights_of(logs)
    mean = (weights * shift).sum(axis=1)
    between = (weights * (shift - mean[:, None]) ** 2).sum(axis=1)
    of_all = (weights * squares).sum(axis=1)
    unsure = (weights * (squares - of_all[:, None]) ** 2).sum(axis=1) / np.maximum(of_all, least) ** 2
    return _Fitted(mean, of_all, between, unsure, weights)


def _scores(statistic: Floats, freedom: Floats) -> Floats:
    """The standard normal values that are as improbable as Student's statistics."""
    size = -ndtri(stdtr(np.maximum(freedom, 1e-9), -np.abs(statistic)))
    return np.asarray(np.sign(statistic) * np.minimum(size, 38.0))


def _improbable(scores: Floats, tail: ParetoTail | None) -> Floats:
    by_theory = ndtr(-scores)
    return np.asarray(by_theory if tail is None else np.maximum(by_theory, tail.probability(scores)))


def _shifts_without_change(values: Floats, kept: Floats, side: Ints, weights: Floats, reach: Floats) -> Floats:
    """The same shift between sessions of one side, shape (metrics, times): what metrics of this noise and these levels
    do while nothing changes. Where too few were before the candidate, of fewer sessions, as large in their errors; of
    so few `kept` values are cut off already."""
    base, candidate = (int((side == number).sum()) for number in (BASE, CANDIDATE))
    length = min(base + candidate, max(int((side != CANDIDATE).sum()) // 2, 2))
    first = min(max(round(length * base / (base + candidate)), 1), length - 1)
    pattern = _stretches(np.where(np.arange(length) < first, BASE, CANDIDATE))
    whole, part = _weighing(base, candidate), _weighing(first, length - first)
    shifts = [np.zeros((len(values), 0))]
    for columns in (side != CANDIDATE, side == CANDIDATE):
        sessions = (values if length == base + candidate else kept)[:, columns]
        if sessions.shape[1] >= length:
            windows = np.lib.stride_tricks.sliding_window_view(sessions, length, axis=1)
            middle = _middles(windows, pattern)
            cut = np.clip(windows, middle - reach[..., None], middle + reach[..., None])
            shifts.append(np.einsum("mts,ms->mt", cut, weights @ part.last))
    scale = np.sqrt((weights @ whole.variance) / (weights @ part.variance))
    return np.asarray(np.concatenate(shifts, axis=1) * scale)


def _weighing(base: int, candidate: int) -> Fit:
    """By how much each of so many sessions moves the shift, at each level that is tried: that of sessions of which one
    is 1, shape (levels, sessions); and its variance, (levels, 1)."""
    length = base + candidate
    indicators = [np.ones((1, length)), (np.arange(length)[None] >= base).astype(np.float64)]
    return restricted(np.eye(length), indicators, np.ones((1, length), dtype=np.bool_))


def _smallest_shift(error: Floats, freedom: Floats, threshold: float, power: float, tail: ParetoTail | None) -> Floats:
    """The shift whose test statistic, noncentral t, is beyond the threshold with probability `power`; (metrics,).

    By the normal approximation of Abramowitz and Stegun, 26.7.10.
    """
    known = np.maximum(freedom, 1.0)
    needed = max(-float(ndtri(threshold)), tail.quantile(threshold) if tail is not None else 0.0)
    critical = -stdtrit(known, ndtr(-needed))
    shift = critical * (1 - 1 / (4 * known)) + ndtri(power) * np.sqrt(1 + critical**2 / (2 * known))
    return np.where((freedom >= 1) & np.isfinite(error), shift * error, np.inf)
