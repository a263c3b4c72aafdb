"""The likelihood of readings for given faults, what one more would gain, and the fit of losses, scale and noise.

The noise of readings is normal in logarithms, with outliers that can be anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.special import stdtr, stdtrit

from fabricheck.diagnosis.network.routes import Design, FloatArray, IntArray
from fabricheck.judge.constants import (
    FEWEST_FOR_MIDDLE,
    LEAST_LOSS,
    LEAST_SPREAD,
    MOST_AT_ONCE,
    MOST_STEPS,
    OF_DEVIATION,
    RESOLUTION,
)

#: So many readings are anything at all, evenly over a range of logarithms.
OUTLIERS, RANGE = 0.05, 2.0

OUTLIER_DENSITY = OUTLIERS * math.sqrt(2 * math.pi) / RANGE


def density_of(residual: FloatArray, noise: float | FloatArray) -> FloatArray:
    """Density of residuals (logarithms). It is nowhere less than that of outliers, which bounds what one can prove
    (bounded influence: Maronna, Martin, Yohai, Robust Statistics, 2006, section 2.2)."""
    near = (1 - OUTLIERS) / noise * np.exp(-0.5 * (residual / noise) ** 2)
    density: FloatArray = near + OUTLIER_DENSITY
    return density


def least_noise(y: FloatArray) -> float:
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


@dataclass(frozen=True, eq=False)
class State:
    """Faults with their losses as -log(1 - loss), scale and noise, and what follows from them."""

    faults: tuple[int, ...]
    losses: tuple[float, ...]
    scale: float
    noise: float
    least: float  # the noise is no smaller
    likelihood: float = -math.inf


def without_fault(state: State, position: int) -> State:
    """The same without one of its faults."""
    return replace(
        state,
        faults=state.faults[:position] + state.faults[position + 1 :],
        losses=state.losses[:position] + state.losses[position + 1 :],
    )


# The losses that are tried are so far apart, relative; a fit in small noise is drawn in by these steps.
_BLUR = (0.1, 0.03, 0.01, 0.003)
# Losses that are tried, as -log(1 - loss): 1% to 95%.
_GRID: FloatArray = np.geomspace(0.01, 3.0, 20)
_AROUND: FloatArray = np.linspace(-1, 1, 9)


class Model:
    """A design as hypotheses of faults, and the likelihood of sets of them.

    `used`: the positions of the readings that count, shape (R,); y below is the logarithm of their share of what is
    expected of them. `entries`, `members`: see `hypotheses`.
    """

    def __init__(self, design: Design) -> None:
        used = ~design.doubtful
        self.used: IntArray = np.flatnonzero(used)
        renumbered = np.cumsum(used) - 1
        ways = np.flatnonzero(used[design.reading])
        way_number = np.full(design.reading.size, -1)
        way_number[ways] = np.arange(ways.size)
        self.reading: IntArray = renumbered[design.reading[ways]]
        self.probability: FloatArray = design.probability[ways]
        kept = way_number[design.way] >= 0
        self.entries, self.members = hypotheses(
            self.reading, design.component[kept], way_number[design.way[kept]], design.headroom[kept], float(_GRID[-1])
        )
        self._loose: IntArray = np.flatnonzero(self.entries.headroom > 0)
        self._reading_starts: IntArray = np.flatnonzero(np.diff(self.reading, prepend=-1))
        self._key_starts: IntArray = np.flatnonzero(np.diff(self.entries.key, prepend=-1))

    @property
    def mixed(self) -> bool:
        """Whether some pair has more than one way."""
        return self.reading.size > self.used.size

    @cached_property
    def classes(self) -> IntArray:
        """The class of each hypothesis: those of a class are on the same readings with the same probabilities."""
        entries = self.entries
        share = np.bincount(entries.key, self.probability[entries.way], entries.key_reading.size)
        room = np.bincount(entries.key, entries.headroom, entries.key_reading.size)
        number: dict[tuple[bytes, bytes, bytes], int] = {}
        classes = []
        for start, end in zip(entries.key_bounds[:-1], entries.key_bounds[1:], strict=True):
            part = slice(start, end)
            key = (entries.key_reading[part].tobytes(), share[part].round(9).tobytes(), room[part].round(9).tobytes())
            classes.append(number.setdefault(key, len(number)))
        return np.array(classes)

    # Likelihood

    def effect(self, faults: Sequence[int], losses: Sequence[float]) -> FloatArray:
        """The loss on each way, shape (W,): that of its worst component."""
        return self._worst(faults, losses)[0]

    def _worst(self, faults: Sequence[int], losses: Sequence[float]) -> tuple[FloatArray, IntArray, FloatArray]:
        """The loss on each way, the position of the fault that it comes from (-1: none), and its headroom there."""
        effect, room = np.zeros(self.reading.size), np.zeros(self.reading.size)
        cause = np.full(self.reading.size, -1)
        entries = self.entries
        for position, (fault, loss) in enumerate(zip(faults, losses, strict=True)):
            part = slice(entries.bounds[fault], entries.bounds[fault + 1])
            here = loss - entries.headroom[part]
            worse = here > effect[entries.way[part]]
            way = entries.way[part][worse]
            effect[way], cause[way], room[way] = here[worse], position, entries.headroom[part][worse]
        return effect, cause, room

    def _near(self, y: FloatArray, scale: float, noise: float, effect: FloatArray) -> tuple[FloatArray, float]:
        """The probability that a pair took a way and its reading is not an outlier, shape (W,), and the log
        likelihood."""
        density = self.probability * density_of(y[self.reading] - scale + effect, noise)
        whole = np.bincount(self.reading, density, y.size) + 1e-300
        near: FloatArray = (density - self.probability * OUTLIER_DENSITY) / whole[self.reading]
        return near, float(np.log(whole).sum())

    def likelihood(self, y: FloatArray, state: State) -> float:
        """The logarithm of the likelihood of a state as it is, but for a constant."""
        return self._near(y, state.scale, state.noise, self.effect(state.faults, state.losses))[1]

    def _gains(
        self, y: FloatArray, state: State, hypotheses: slice, grid: FloatArray, *, blur: float = 0.0
    ) -> FloatArray:
        """Gain in log likelihood by one more fault, shape (hypotheses in `hypotheses`, losses in `grid`).

        `blur`: readings are taken for no more exact than this share of a loss.
        """
        entries = self.entries
        part = slice(entries.bounds[hypotheses.start], entries.bounds[hypotheses.stop])
        keys = slice(entries.key_bounds[hypotheses.start], entries.key_bounds[hypotheses.stop])
        loose = self._loose[slice(*np.searchsorted(self._loose, [part.start, part.stop]))] - part.start
        way, headroom = entries.way[part], entries.headroom[part][loose]
        key_starts = self._key_starts[keys] - part.start
        starts = entries.key_bounds[hypotheses] - keys.start
        effect = self.effect(state.faults, state.losses)
        residual = y[self.reading] - state.scale
        gains = np.empty((starts.size, grid.size))
        chunk = max(MOST_AT_ONCE // max(way.size, self.reading.size), 1)
        for first in range(0, grid.size, chunk):
            loss = grid[first : first + chunk, np.newaxis]
            noise = np.maximum(state.noise, blur * loss)
            before = density_of(residual + effect, noise)
            whole = np.add.reduceat(self.probability * before, self._reading_starts, axis=1) + 1e-300
            share = self.probability / whole[:, self.reading]
            # Most entries have no headroom: what becomes of their ways is calculated once for each way.
            step = (share * (density_of(residual + np.maximum(effect, loss), noise) - before))[:, way]
            if loose.size:
                on = way[loose]
                after = density_of(residual[on] + np.maximum(effect[on], loss - headroom), noise)
                step[:, loose] = share[:, on] * (after - before[:, on])
            if key_starts.size < way.size:
                step = np.add.reduceat(step, key_starts, axis=1)
            gain = np.log(np.maximum(1 + step, 1e-12))
            gains[:, first : first + chunk] = np.add.reduceat(gain, starts, axis=1).T
        return gains

    def scan(self, y: FloatArray, state: State) -> tuple[FloatArray, FloatArray]:
        """The highest gain of each hypothesis as one more fault, and the loss where it is: the top of the parabola
        through the best of the losses that are tried and those beside it."""
        gains = self._gains(y, state, slice(0, len(self.members)), _GRID, blur=_BLUR[0])
        fault, best = np.arange(gains.shape[0]), gains.argmax(axis=1)
        top = gains[fault, best]
        lower, upper = gains[fault, np.maximum(best - 1, 0)], gains[fault, np.minimum(best + 1, _GRID.size - 1)]
        bend = lower - 2 * top + upper
        inside = (best > 0) & (best < _GRID.size - 1) & (bend < 0)
        offset = np.divide(0.5 * (lower - upper), bend, out=np.zeros(best.size), where=inside)
        return top - 0.25 * (lower - upper) * offset, _GRID[best] * (_GRID[1] / _GRID[0]) ** offset

    def profile(self, y: FloatArray, state: State, fault: int, grid: FloatArray, *, blur: float = 0.0) -> FloatArray:
        """Gain of one hypothesis over `grid`; `blur` as in _gains."""
        gains: FloatArray = self._gains(y, state, slice(fault, fault + 1), grid, blur=blur)[0]
        return gains

    def sharpen(self, y: FloatArray, state: State, fault: int, loss: float) -> float:
        """The loss (logarithm) of one more fault near `loss`, which is only as exact as the grid."""
        for blur, finer in pairwise(_BLUR):
            if blur * loss <= state.noise:
                break
            grid = loss * (1 + 1.5 * blur * _AROUND)
            loss = float(grid[self.profile(y, state, fault, grid, blur=finer).argmax()])
        return loss

    # Fit

    def null(self, y: FloatArray) -> State:
        """No fault."""
        middle = float(np.median(y))
        least = least_noise(y)
        noise = max(OF_DEVIATION * float(np.median(np.abs(y - middle))), least)
        return self.fit(y, State((), (), middle, noise, least))

    def fit(self, y: FloatArray, state: State) -> State:
        """Losses, scale and noise for the faults of `state`, from where it is, by expectation maximisation.

        Where it is known which fault each way suffers from, a loss is a difference of two weighted means. What another
        loss changes in that is looked at again in each turn, so that a turn can lose likelihood: the best one counts.
        """
        best, now, idle = replace(state, likelihood=-math.inf), state, 0
        for _ in range(MOST_STEPS):
            effect, cause, room = self._worst(now.faults, now.losses)
            weight, likelihood = self._near(y, now.scale, now.noise, effect)
            idle = 0 if likelihood > best.likelihood + 1e-2 else idle + 1
            if likelihood > best.likelihood:
                best = replace(now, likelihood=likelihood)
            if idle == FEWEST_FOR_MIDDLE or not weight.any():
                break
            now = self._step(y, now, weight, cause, room)
        return best

    def _step(self, y: FloatArray, state: State, weight: FloatArray, cause: IntArray, room: FloatArray) -> State:
        """One turn of the fit. A fault that is nowhere the worst keeps its loss, and so does the scale without healthy
        ways."""
        count = len(state.faults) + 1
        total = np.bincount(cause + 1, weight, count)
        mean = np.bincount(cause + 1, weight * (y[self.reading] - room), count) / (total + 1e-300)
        scale = float(mean[0]) if total[0] > 1e-6 else state.scale
        losses = tuple(
            max(scale - float(mean[1 + each]), LEAST_SPREAD) if total[1 + each] > 1e-6 else loss
            for each, loss in enumerate(state.losses)
        )
        left = y[self.reading] + self.effect(state.faults, losses)
        near = float(weight.sum())
        scale = float(weight @ left) / near
        square = float(weight @ (left - scale) ** 2) / near
        return State(state.faults, losses, scale, max(math.sqrt(square), state.least), state.least)


@dataclass(frozen=True, eq=False)
class Entries:
    """Where hypotheses lie: on way `way` with `headroom`, sorted by hypothesis; `key` counts (hypothesis, reading)."""

    way: IntArray
    headroom: FloatArray
    hypothesis: IntArray
    key: IntArray
    key_hypothesis: IntArray
    key_reading: IntArray
    bounds: IntArray
    key_bounds: IntArray


def hypotheses(
    reading: IntArray, component: IntArray, way: IntArray, headroom: FloatArray, most: float
) -> tuple[Entries, tuple[tuple[int, ...], ...]]:
    """The hypotheses of components on ways, and the components of each.

    Components on the same ways are one; those with headroom are one more, for a loss of capacity. `reading`: of each
    way. `component`, `way`, `headroom`: shape (N,), which component is on which way. `most`: the largest loss tried.
    """
    order = np.lexsort((way, component))
    way, component, headroom = way[order], component[order], headroom[order]
    starts = np.flatnonzero(np.diff(component, prepend=-1))
    columns: dict[tuple[bytes, bytes], list[int]] = {}
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), component.size], strict=True):
        own, room = way[start:end], headroom[start:end]
        columns.setdefault((own.tobytes(), b""), []).append(int(component[start]))
        # So much room is left that no loss on the grid shows: nothing to try.
        if room.any() and (room < most).any():
            columns.setdefault((own.tobytes(), room.tobytes()), []).append(int(component[start]))
    all_ways = [np.frombuffer(one, dtype=np.int64) for one, _ in columns]
    rooms = [
        np.frombuffer(room, dtype=np.float64) if room else np.zeros(each.size)
        for (_, room), each in zip(columns, all_ways, strict=True)
    ]
    hypothesis = np.repeat(np.arange(len(all_ways)), [each.size for each in all_ways])
    ways = np.concatenate(all_ways)
    readings = int(reading.max()) + 1
    keys, key = np.unique(hypothesis * readings + reading[ways], return_inverse=True)
    entries = Entries(
        way=ways,
        headroom=np.concatenate(rooms),
        hypothesis=hypothesis,
        key=key,
        key_hypothesis=keys // readings,
        key_reading=keys % readings,
        bounds=np.searchsorted(hypothesis, np.arange(len(all_ways) + 1)),
        key_bounds=np.searchsorted(keys // readings, np.arange(len(all_ways) + 1)),
    )
    return entries, tuple(tuple(each) for each in columns.values())
