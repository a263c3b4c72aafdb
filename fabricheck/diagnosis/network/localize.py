"""Which part of the network explains what pairs gave: the most probable node, port, cable, leaf, switch or trunk.

A row is what a pair gave, a column a component that some pairs cross, with the probability that they do where it is
unknown which of several ways of equal cost they took. A pair gives what is expected of it times (1 - loss) of the worst
component on its way, and noise. A loss is either one that every pair over the component has (frames sent again, a slow
node), or one of its capacity (a lower rate), which shows only as far as the component is in use: two columns.

In logarithms the noise is normal, and now and then (1 in 20) a reading is anything at all: what a single one can prove
is bounded, however far out it lies. The width of the noise and a factor common to all pairs (protocols take a few per
cent) are estimated with the faults, by expectation maximisation. `explain.best_reached` is the search: the set of
faults with the highest likelihood less a price for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtr, stdtrit

from fabricheck.diagnosis.explain import MOST_FOR_ONE, best_reached
from fabricheck.diagnosis.network.columns import Columns
from fabricheck.diagnosis.network.routes import Design, FloatArray, IntArray
from fabricheck.errors import UserError
from fabricheck.records.component import Component
from fabricheck.statistics.constants import (
    CONFIDENCE,
    DOUBT,
    FALSE_ALARM,
    FEWEST,
    FEWEST_FOR_MIDDLE,
    LEAST_LOSS,
    LEAST_SPREAD,
    MOST_STEPS,
    OF_DEVIATION,
    RESOLUTION,
)

#: So many faults are looked for.
MOST = 4
#: Of the probability of a false alarm, what the first fault of a network gets: tails that are heavier than the model's
#: (t with three degrees of freedom) make false alarms several times as frequent. The second gets twice FURTHER of it,
#: the third three times: what counts is the share of false ones among the faults that are named (Benjamini and
#: Hochberg, 1995).
FIRST_FAULT, FURTHER = 0.1, 0.2
#: What a fit may add to what a move gains before: where more is missing, it is not tried. Chosen.
MOST_OF_FIT = 4.0
#: Of readings that are mostly slow, so many are slower than the middle of the healthy ones. Chosen.
FAST = 0.9
#: So many readings are anything at all, evenly over a range of logarithms.
OUTLIERS, RANGE = 0.05, 2.0

_OUTLIER_DENSITY = OUTLIERS * math.sqrt(2 * math.pi) / RANGE
# Losses that are tried, as -log(1 - loss): 1% to 95%; then those around the best, so far apart, relative.
_GRID: FloatArray = np.geomspace(0.01, 3.0, 20)
_AROUND: FloatArray = np.linspace(-1.5, 1.5, 9)
_STEPS = (0.1, 0.03, 0.01, 0.003)


@dataclass(frozen=True)
class SlowGroup:
    """Measurements, by index, that got slow and share what is in `components`; that may be nothing.

    `loss`: the share that is lost, `low` to `high` with 95%; `p`: the probability of such data where nothing is at
    fault, corrected for all that could be.
    """

    members: tuple[int, ...]
    components: frozenset[Component]
    loss: float
    low: float
    high: float
    p: float

    @property
    def at_fault(self) -> tuple[Component, ...]:
        """Its components in the order of their names."""
        return tuple(sorted(self.components, key=lambda component: component.text))


@dataclass(frozen=True)
class Localization:
    """What was found. `suspects`: the faults, each with its readings, by index of the design, and what may be at fault.

    `noise`: relative standard deviation of a reading; `scale`: what healthy pairs give of expected. `hypotheses`: how
    many faults the readings can tell apart.
    """

    suspects: tuple[SlowGroup, ...]
    noise: float
    scale: float
    hypotheses: int


def locate(design: Design, measured_gbps: npt.ArrayLike) -> Localization:
    """What explains the readings of a design; `measured_gbps`: shape (R,), as its readings.

    Raises UserError for values that are not above zero, or fewer than eight usable readings.
    """
    return Locator(design).locate(measured_gbps)


@dataclass(frozen=True)
class _State:
    """Faults, which are columns, with their losses as -log(1 - loss), scale and noise, which is `least` or more."""

    faults: tuple[int, ...]
    losses: tuple[float, ...]
    scale: float
    noise: float
    least: float
    likelihood: float = -math.inf

    def with_fault(self, fault: int, loss: float) -> _State:
        """The same with one fault more."""
        return replace(self, faults=(*self.faults, fault), losses=(*self.losses, loss))

    def without(self, position: int) -> _State:
        """The same without one of its faults."""
        faults, losses = list(self.faults), list(self.losses)
        del faults[position], losses[position]
        return replace(self, faults=tuple(faults), losses=tuple(losses))


class Locator:
    """A design made ready, to locate faults in many sets of readings of it.

    `used`: the positions of the readings that count; y below is the logarithm of their share of what is expected of
    them. `members`: by hypothesis the components, by position, that cannot be told apart.
    """

    def __init__(self, design: Design) -> None:
        self.design = design
        self.used: IntArray = np.flatnonzero(~design.doubtful)
        readings = self.used.size
        if readings < FEWEST:
            raise UserError(f"{readings} usable readings are too few to tell a fault from noise: {FEWEST} are needed")
        self._columns = columns = Columns.of(design, self.used, _GRID[-1])
        self.members = columns.members
        # What most pairs may go over shows in the shape of the noise, which no shuffling changes.
        sizes, surely = columns.sizes, np.minimum.reduceat(columns.share, columns.bounds[:-1]) == 1
        self._narrow = sizes < readings / 2
        self._leaves_fast = sizes < np.where(surely, FAST, 0.5) * readings
        shares = FIRST_FAULT, *(FURTHER * number for number in range(2, MOST + 1))
        # What each fault has to gain in log likelihood, the first, the second, ...
        self._prices = [gain_of(FALSE_ALARM * share, readings, len(self.members)) for share in shares]

    def locate(self, measured_gbps: npt.ArrayLike) -> Localization:
        """See `locate`, also for what it raises."""
        measured = np.asarray(measured_gbps, dtype=np.float64)
        if not (np.isfinite(measured).all() and (measured > 0).all()):
            raise UserError("a reading is not a positive number: judge the run first (fabricheck judge)")
        y = np.log(measured[self.used] / self.design.expected_gbps[self.used])
        null = self._null(y)
        masks = self._narrow, self._leaves_fast
        # Mostly one and the same state, from which one search is enough.
        starts = {null, *(max(self._below_the_fast(y, null, mask), key=self._worth, default=null) for mask in masks)}
        reached = [best_reached(start, lambda state: self._moves(y, state), self._worth) for start in starts]
        state = self._beyond_chance(y, max(reached, key=self._worth))
        suspects = tuple(self._suspect(y, state, position) for position in range(len(state.faults)))
        return Localization(suspects, state.noise, math.exp(state.scale), len(self.members))

    def _lost(self, state: _State) -> tuple[FloatArray, FloatArray]:
        """The probability that nothing, or each of the faults, is the worst on the way of a reading, and what it costs
        there; both of shape (faults + 1, R)."""
        probability = np.zeros((len(state.faults) + 1, self.used.size))
        loss = np.zeros_like(probability)
        for row, (fault, lost) in enumerate(zip(state.faults, state.losses, strict=True), 1):
            own = self._columns.entries(fault)
            reading, left = self._columns.reading[own], lost - self._columns.room[own]
            loss[row, reading] = np.maximum(left, 0.0)
            probability[row, reading] = np.where(left > 0, self._columns.share[own], 0.0)
        left = np.ones(self.used.size)
        for row in np.argsort(-loss[1:], axis=0, kind="stable") + 1:
            worst = row, np.arange(self.used.size)
            share = probability[worst]
            probability[worst] = left * share
            left = left * (1 - share)
        probability[0] = left
        return probability, loss

    def _weights(self, y: FloatArray, state: _State) -> tuple[FloatArray, FloatArray, float]:
        """The probability that a reading is not an outlier and has the loss of each row of `_lost`, that loss, and the
        log likelihood."""
        probability, loss = self._lost(state)
        density = probability * _density(y - state.scale + loss, state.noise)
        whole = density.sum(axis=0) + 1e-300
        return (density - probability * _OUTLIER_DENSITY) / whole, loss, float(np.log(whole).sum())

    def _null(self, y: FloatArray) -> _State:
        """No fault."""
        least, middle = _least_noise(y), float(np.median(y))
        noise = OF_DEVIATION * float(np.median(np.abs(y - middle)))
        return self._fit(y, _State((), (), middle, max(noise, least), least))

    def _below_the_fast(self, y: FloatArray, null: _State, mask: npt.NDArray[np.bool_]) -> Iterator[_State]:
        """Fits of one fault, two and more that gain most where the fast readings are the healthy ones, as where most
        pairs are slow; the noise is a part of what all readings vary by. `mask`: the columns that may be faults."""
        state = replace(null, scale=float(np.quantile(y, FAST)), noise=max(null.noise / 2, null.least))
        for price in self._prices:
            gains, losses = self._gains(y, state)
            gains[[*state.faults, *np.flatnonzero(~mask)]] = -np.inf
            column = int(gains.argmax())
            if gains[column] < price:
                return
            state = state.with_fault(column, float(losses[column]))
            yield self._fit(y, state)

    def _fit(self, y: FloatArray, state: _State) -> _State:
        """Losses, scale and noise for the faults of `state`, from where it is, by expectation maximisation: where it is
        known what each reading suffers from, a loss is a difference of two weighted means. A turn can lose likelihood,
        since another loss changes which fault is the worst: the best turn counts."""
        best, idle = replace(state, likelihood=-math.inf), 0
        for _ in range(MOST_STEPS):
            weight, loss, likelihood = self._weights(y, state)
            idle = 0 if likelihood > best.likelihood + 1e-2 else idle + 1
            if likelihood > best.likelihood:
                best = replace(state, likelihood=likelihood)
            total = weight.sum(axis=1)
            if idle == FEWEST_FOR_MIDDLE or not total.any():
                break
            # A fault that is nowhere the worst keeps its loss, and so does the scale without healthy readings.
            scale = float(weight[0] @ y / total[0]) if total[0] > 1e-6 else state.scale
            losses = list(state.losses)
            for row, lost in enumerate(state.losses, 1):
                if total[row] > 1e-6:
                    room = np.where(loss[row] > 0, lost - loss[row], 0.0)
                    losses[row - 1] = max(scale - float(weight[row] @ (y - room) / total[row]), LEAST_SPREAD)
            state = replace(state, losses=tuple(losses))
            left = y + self._lost(state)[1]
            scale = float((weight * left).sum() / total.sum())
            noise = math.sqrt(float((weight * (left - scale) ** 2).sum() / total.sum()))
            state = replace(state, scale=scale, noise=max(noise, state.least))
        return best

    def _gains(self, y: FloatArray, state: _State, *, fine: bool = False) -> tuple[FloatArray, FloatArray]:
        """What each column gains at most as one more fault, in log likelihood, and the loss with which it does.

        A reading is taken to be as inexact as the losses that are tried are far apart; `fine`: these get as near as the
        noise lets them."""
        columns, sizes = self._columns, self._columns.sizes
        probability, lost = self._lost(state)
        least = np.where(probability > 1 - RESOLUTION, lost, 0.0).max(axis=0)[columns.reading]
        residual = y[columns.reading] - state.scale
        gains, losses = np.full(sizes.size, -np.inf), np.full(sizes.size, _GRID[0])

        def try_losses(loss: FloatArray, blur: float) -> None:
            noise = np.maximum(state.noise, blur * loss)
            of_entry, own_noise = np.repeat(loss, sizes), np.repeat(noise, sizes)
            before = np.zeros(of_entry.size)
            for share, of_row in zip(probability[:, columns.reading], lost[:, columns.reading], strict=True):
                before += share * _density(residual + of_row, own_noise)
            after = _density(residual + np.maximum(least, of_entry - columns.room), own_noise)
            ratio = 1 + columns.share * (after / (before + 1e-300) - 1)
            gain = np.add.reduceat(np.log(np.maximum(ratio, 1e-12)), columns.bounds[:-1])
            better = gain > gains
            gains[better], losses[better] = gain[better], loss[better]

        for loss in _GRID:
            try_losses(np.full(sizes.size, loss), _STEPS[0])
        for step, finer in zip(_STEPS, (*_STEPS[1:], 0.0), strict=True) if fine else ():
            middle = losses.copy()
            gains[:] = -np.inf
            for away in _AROUND:
                try_losses(middle * (1 + step * away), finer)
        return gains, losses

    # Search

    def _worth(self, state: _State) -> float:
        return state.likelihood - sum(self._prices[: len(state.faults)])

    def _moves(self, y: FloatArray, state: _State) -> Iterator[_State]:
        """Fits with one fault more, one less, and up to MOST_FOR_ONE for another."""
        yield from self._further(y, state)
        # A fault that all pairs may go over shows in nothing but the shape of the noise.
        sharp = replace(state, scale=state.scale + 0.6 * state.noise, noise=0.7 * state.noise)
        yield from self._further(y, sharp, kinds=1)
        for position, fault in enumerate(state.faults):
            rest = state.without(position)
            yield self._fit(y, rest)
            for other in self._further(y, rest, without=fault):
                yield other
                # One fault, of which any pair may have had a share, may lie between several.
                several = other
                for _ in range(MOST_FOR_ONE - 1):
                    further = self._further(y, several, kinds=1, without=fault)
                    several = max(further, key=self._worth, default=several)
                yield several

    def _further(
        self, y: FloatArray, state: _State, *, kinds: int | None = None, without: int | None = None
    ) -> Iterator[_State]:
        """Fits of one fault more, `without` that one: the best of each kind, of all or so many."""
        if len(state.faults) == MOST:
            return
        gains, losses = self._gains(y, state)
        gains[[*state.faults, *([without] if without is not None else [])]] = -np.inf
        tried: set[str] = set()
        for column in np.argsort(-gains, kind="stable").tolist():
            kind = self.design.ways.kinds[self.members[column][0]]
            if len(tried) == kinds or gains[column] < self._prices[len(state.faults)] - MOST_OF_FIT:
                break
            if kind not in tried:
                tried.add(kind)
                loss = float(losses[column])
                # The losses that were tried are no nearer to the true one than that.
                noise = max(state.noise, _STEPS[0] * loss)
                yield self._fit(y, replace(state.with_fault(column, loss), noise=noise))

    # Chance

    def _beyond_chance(self, y: FloatArray, state: _State) -> _State:
        """The same without the faults that noise of this shape shows as well, the least certain first."""
        left = [state.without(position) for position in range(len(state.faults))]
        if len(left) == 1:  # beside several, what none of them slows may be too little to fit a scale to
            left = [self._null(y)]
        gains = [self._gains(y, others)[0] for others in left]
        own = [of_all[fault] for of_all, fault in zip(gains, state.faults, strict=True)]
        for position in np.argsort(own, kind="stable").tolist():
            if self._narrow[state.faults[position]] and self._is_chance(y, left[position], gains[position]):
                return self._beyond_chance(y, self._fit(y, left[position]))
        return state

    def _is_chance(self, y: FloatArray, others: _State, gains: FloatArray) -> bool:
        """Whether one more fault gains as much where the readings are shuffled among pairs that the other faults slow
        equally: a permutation test, which is exact whatever the shape of the noise (Pitman, 1937), of the largest gain
        of all faults (Westfall and Young, 1993), that ends with the first (Besag and Clifford, Biometrika 78, 1991)."""
        probability, loss = self._lost(others)
        slowed = np.stack([probability[0], (probability * loss).sum(axis=0)]).round(6)
        alike = np.unique(slowed, axis=1, return_inverse=True)[1].ravel()
        order, random = np.argsort(alike, kind="stable"), np.random.default_rng(y.size)
        for _ in range(round(1 / FALSE_ALARM) - 1):
            shuffled = np.empty_like(y)
            shuffled[order] = y[np.lexsort((random.random(y.size), alike))]
            if self._gains(shuffled, others)[0][self._narrow].max() >= gains[self._narrow].max():
                return True
        return False

    # What was found

    def _suspect(self, y: FloatArray, state: _State, position: int) -> SlowGroup:
        others, loss = state.without(position), state.losses[position]
        gains = self._gains(y, others, fine=True)[0]
        near = np.flatnonzero(gains >= gains.max() - DOUBT).tolist()
        names = {self.design.ways.components[one] for column in near for one in self.members[column]}
        crossing = [self._columns.reading[self._columns.entries(column)] for column in near]
        # The loss is a mean of as many readings as are its own.
        readings = max(float(self._weights(y, state)[0][position + 1].sum()), 1.0)
        reach = float(ndtri((1 + CONFIDENCE) / 2)) * state.noise / math.sqrt(readings)
        gain = state.likelihood - self._fit(y, others).likelihood
        return SlowGroup(
            members=tuple(self.used[np.unique(np.concatenate(crossing))].tolist()),
            components=frozenset(map(self.design.ways.network.component, names)),
            loss=-math.expm1(-loss),
            low=-math.expm1(reach - loss),
            high=-math.expm1(-reach - loss),
            p=p_value(gain, self.used.size, len(self.members)),
        )


def _density(residual: FloatArray, noise: float | FloatArray) -> FloatArray:
    """Density of residuals (logarithms). It is nowhere less than that of outliers, which bounds what one can prove
    (bounded influence: Maronna, Martin, Yohai, Robust Statistics, 2006, section 2.2)."""
    return np.asarray((1 - OUTLIERS) / noise * np.exp(-0.5 * (residual / noise) ** 2) + _OUTLIER_DENSITY)


def _least_noise(y: FloatArray) -> float:
    """The noise that readings (logarithms, shape (R,)) have at least: what they were rounded to, where many are equal,
    and a tenth of a per cent. Equal readings further apart than a per cent are faults and not rounded."""
    values = np.unique(y.round(9))
    if values.size > y.size / 2 or values.size < 2:
        return RESOLUTION
    step = float(np.diff(values).min())
    return max(RESOLUTION, step) if step <= LEAST_LOSS + RESOLUTION else RESOLUTION


def p_value(gain: float, readings: int, hypotheses: int) -> float:
    """Probability that noise alone gains so much log likelihood somewhere, over all hypotheses (Bonferroni).

    For known routes a fault is a shift of the mean of some readings of normal noise whose width is unknown: twice
    the gain is the monotonic image of a squared Student's t. For unknown routes that is an approximation, which
    the benchmark checks.
    """
    freedom = readings - 2
    squared = freedom * math.expm1(min(2 * max(gain, 0.0) / readings, 700.0))
    return min(1.0, hypotheses * float(stdtr(freedom, -math.sqrt(squared))))


def gain_of(p: float, readings: int, hypotheses: int) -> float:
    """The gain in log likelihood that has the p-value `p`: the inverse of `p_value`."""
    freedom = readings - 2
    return 0.5 * readings * math.log1p(float(stdtrit(freedom, p / hypotheses)) ** 2 / freedom)
