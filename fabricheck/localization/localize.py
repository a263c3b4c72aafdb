"""Which part of the network explains what pairs gave: the most probable node, port, cable, leaf, switch or trunk.

The model. A pair gives what is expected of it times (1 - loss) of the worst component on its way, and noise. A loss is
either one that every pair over the component has (`flow`: frames sent again, a slow node), or one of its capacity
(`capacity`: a lower rate), which shows only as far as the component is in use. Where a pair has several ways of equal
cost and nobody knows which it took, its likelihood is the mixture over them.

In logarithms the noise is normal, and now and then (1 in 20) a reading is anything at all: what a single one can prove
is bounded, however far out it lies. The width of the noise and a factor common to all pairs (protocols take a few per
cent) are estimated with the faults, by expectation maximisation. Faults are added as long as the gain in likelihood is
significant; the first two are searched together, so that two faults do not pass for one that lies between them. Where
the fastest readings stand apart the search starts from them too: most pairs may go over faults.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from fabricheck.errors import UserError
from fabricheck.localization.hypotheses import hypotheses
from fabricheck.localization.noise import OUTLIER_DENSITY, State, density_of, least_noise, p_value, without
from fabricheck.localization.routes import Design, FloatArray, IntArray
from fabricheck.localization.suspects import Evidence, Localization, Suspect

# The losses that are tried are so far apart, relative; a fit in small noise is drawn in by these steps.
_BLUR = (0.1, 0.03, 0.01, 0.003)
# Losses that are tried, as -log(1 - loss): 1% to 95%.
_GRID: FloatArray = np.geomspace(0.01, 3.0, 32)
# A component that is really at fault falls behind another by more than this in 1 of 100 cases at most: the difference
# of two log likelihoods is normal (d²/2, d²), and the probability of less than -m is largest at d² = 2 m.
_AMBIGUOUS = 2.71
# Half of the 95% quantile of chi-squared with one degree of freedom.
_INTERVAL = 1.92
_CANDIDATES, _SECONDS = 4, 2
_FEWEST_READINGS = 8
# Of the readings, where faults are to have slowed most of them.
_EXPLAINED = 0.9
_MOST_TURNS = 30
_AROUND: FloatArray = np.linspace(-1, 1, 9)


def locate(design: Design, measured_gbps: npt.ArrayLike, *, false_alarm: float = 0.01, most: int = 4) -> Localization:
    """What explains the readings of a design; `measured_gbps`: shape (R,), as its readings.

    `false_alarm`: the probability of naming anything in a healthy network, all components together. `most`: so many
    faults are looked for. Raises UserError for values that are not above zero, or fewer than eight usable readings.
    """
    return Locator(design, false_alarm=false_alarm, most=most).locate(measured_gbps)


class Locator:
    """A design made ready, to locate faults in many sets of readings of it."""

    def __init__(self, design: Design, *, false_alarm: float = 0.01, most: int = 4) -> None:
        self.design, self.false_alarm, self.most = design, false_alarm, most
        used = ~design.doubtful
        self._used: IntArray = np.flatnonzero(used)
        if self._used.size < _FEWEST_READINGS:
            raise UserError(
                f"{self._used.size} usable readings cannot tell noise from a fault: {_FEWEST_READINGS} are the fewest"
            )
        renumbered = np.cumsum(used) - 1
        ways = np.flatnonzero(used[design.reading])
        way_number = np.full(design.reading.size, -1)
        way_number[ways] = np.arange(ways.size)
        self._reading: IntArray = renumbered[design.reading[ways]]
        self._probability: FloatArray = design.probability[ways]
        kept = way_number[design.way] >= 0
        self._way: IntArray = way_number[design.way[kept]]
        self.entries, self.members = hypotheses(
            self._reading, design.component[kept], self._way, design.headroom[kept], float(_GRID[-1])
        )

    # What can be told apart

    @cached_property
    def _classes(self) -> IntArray:
        """The class of each hypothesis: those of a class are on the same readings with the same probabilities."""
        entries = self.entries
        share = np.bincount(entries.key, self._probability[entries.way], entries.key_reading.size)
        room = np.bincount(entries.key, entries.headroom, entries.key_reading.size)
        number: dict[tuple[bytes, bytes, bytes], int] = {}
        found = []
        for start, end in zip(entries.key_bounds[:-1], entries.key_bounds[1:], strict=True):
            part = slice(start, end)
            key = (entries.key_reading[part].tobytes(), share[part].round(9).tobytes(), room[part].round(9).tobytes())
            found.append(number.setdefault(key, len(number)))
        return np.array(found)

    @property
    def equivalents(self) -> dict[str, frozenset[str]]:
        """For each component those that no data of these readings can tell from it, itself included.

        They lie on the same pairs with the same probability; a node, its only port and its cable always do.
        """
        # A component has up to two hypotheses; the first of them is the one that every pair feels.
        names = self.design.ways.components
        first: dict[int, int] = {}
        for hypothesis, members in enumerate(self.members):
            for each in members:
                first.setdefault(each, int(self._classes[hypothesis]))
        together: dict[int, set[str]] = {}
        for each, class_ in first.items():
            together.setdefault(class_, set()).add(names[each])
        return {names[each]: frozenset(together[class_]) for each, class_ in first.items()}

    # Likelihood

    def _noise_free(self, state: State) -> FloatArray:
        """The loss on each way, shape (W,): that of its worst component."""
        effect = np.zeros(self._reading.size)
        entries = self.entries
        for fault, loss in zip(state.faults, state.losses, strict=True):
            part = slice(entries.bounds[fault], entries.bounds[fault + 1])
            np.maximum.at(effect, entries.way[part], loss - entries.headroom[part])
        return effect

    def _near(self, y: FloatArray, state: State, effect: FloatArray) -> FloatArray:
        """The probability that a pair took a way and its reading is no outlier, shape (W,)."""
        density = self._probability * density_of(y[self._reading] - state.scale + effect, state.noise)
        near = density - self._probability * OUTLIER_DENSITY
        found: FloatArray = near / (np.bincount(self._reading, density, y.size) + 1e-300)[self._reading]
        return found

    def _likelihood(self, y: FloatArray, state: State) -> float:
        density = density_of(y[self._reading] - state.scale + self._noise_free(state), state.noise)
        return float(np.log(np.bincount(self._reading, self._probability * density, y.size) + 1e-300).sum())

    def _gains(
        self, y: FloatArray, state: State, part: slice, keys: slice, grid: FloatArray, *, blur: float = 0.0
    ) -> FloatArray:
        """Gain in log likelihood by one more fault, shape (hypotheses in `part`, losses in `grid`).

        `blur`: readings are taken for no more exact than this share of a loss.
        """
        entries = self.entries
        effect = self._noise_free(state)
        residual = y[self._reading] - state.scale
        density = density_of(residual + effect, state.noise)
        whole = np.bincount(self._reading, self._probability * density, y.size) + 1e-300
        way, headroom = entries.way[part], entries.headroom[part]
        key = entries.key[part] - keys.start
        reading, hypothesis = entries.key_reading[keys], entries.key_hypothesis[keys]
        first = int(hypothesis[0])
        hypothesis = hypothesis - first
        probability, before = self._probability[way], density[way]
        found = np.empty((int(hypothesis[-1]) + 1, grid.size))
        for column, loss in enumerate(grid):
            noise = max(state.noise, blur * float(loss))
            if noise > state.noise:
                density = density_of(residual + effect, noise)
                whole = np.bincount(self._reading, self._probability * density, y.size) + 1e-300
                before = density[way]
            after = density_of(residual[way] + np.maximum(effect[way], loss - headroom), noise)
            change = np.bincount(key, probability * (after - before), reading.size)
            gain = np.log(np.maximum(1 + change / whole[reading], 1e-12))
            found[:, column] = np.bincount(hypothesis, gain, found.shape[0])
        return found

    def _scan(self, y: FloatArray, state: State) -> tuple[FloatArray, FloatArray]:
        """The highest gain of each hypothesis as one more fault, and the loss where it is."""
        everything = slice(0, self.entries.way.size), slice(0, self.entries.key_reading.size)
        gains = self._gains(y, state, *everything, _GRID, blur=_BLUR[0])
        best = gains.argmax(axis=1)
        return gains[np.arange(best.size), best], _GRID[best]

    def _profile(self, y: FloatArray, state: State, fault: int, grid: FloatArray, *, blur: float = 0.0) -> FloatArray:
        """Gain of one hypothesis over `grid`; `blur` as in _gains."""
        bounds, keys = self.entries.bounds, self.entries.key_bounds
        part, key_part = slice(bounds[fault], bounds[fault + 1]), slice(int(keys[fault]), int(keys[fault + 1]))
        found: FloatArray = self._gains(y, state, part, key_part, grid, blur=blur)[0]
        return found

    def _sharpen(self, y: FloatArray, state: State, fault: int, loss: float) -> float:
        """The loss of one more fault near `loss`, which is only as exact as the grid."""
        for blur, finer in pairwise(_BLUR):
            if blur * loss <= state.noise:
                break
            grid = loss * (1 + 1.5 * blur * _AROUND)
            loss = float(grid[self._profile(y, state, fault, grid, blur=finer).argmax()])
        return loss

    # Fit

    def _settle(self, y: FloatArray, state: State, rounds: int) -> State:
        """Scale and noise for given faults, by expectation maximisation."""
        effect = self._noise_free(state)
        scale, noise = state.scale, state.noise
        for _ in range(rounds):
            weight = self._near(y, replace(state, scale=scale, noise=noise), effect)
            if not weight.any():
                break  # no reading is near: all count as outliers
            scale = float((weight * (y[self._reading] + effect)).sum() / weight.sum())
            square = float((weight * (y[self._reading] - scale + effect) ** 2).sum() / weight.sum())
            noise = max(math.sqrt(square), state.least)
        return replace(state, scale=scale, noise=noise)

    def _fit(self, y: FloatArray, state: State) -> State:
        """Losses, scale and noise for the faults of `state`, from where it is."""
        step, likelihood = 1.0, -math.inf
        for _ in range(_MOST_TURNS):
            moved = False
            for position, fault in enumerate(state.faults):
                loss = state.losses[position]
                grid = np.maximum(loss + step * max(0.5 * state.noise, 0.1 * loss) * _AROUND, 1e-4)
                best = int(self._profile(y, without(state, position), fault, grid).argmax())
                moved |= best != _AROUND.size // 2
                losses = (*state.losses[:position], float(grid[best]), *state.losses[position + 1 :])
                state = replace(state, losses=losses)
            state = self._settle(y, state, 5)
            before, likelihood = likelihood, self._likelihood(y, state)
            if not moved:
                step /= 4
            if likelihood - before < 1e-3 and step < 0.1:
                break
        return replace(state, likelihood=likelihood)

    def _null(self, y: FloatArray) -> State:
        middle = float(np.median(y))
        least = least_noise(y)
        noise = max(1.4826 * float(np.median(np.abs(y - middle))), least)
        state = self._settle(y, State((), (), middle, noise, least), 20)
        return replace(state, likelihood=self._likelihood(y, state))

    def _with_one_more(self, y: FloatArray, state: State, count: int) -> list[State]:
        """The `count` best fits with one more fault, best first."""
        starts = self._starts(y, state, count)
        # What many pairs may go over passes for noise and a lower common factor until these are estimated with it.
        sharp = replace(state, scale=state.scale + 0.6 * state.noise, noise=0.7 * state.noise)
        starts += self._starts(y, sharp, 0, among=self._wide)
        return sorted((self._fit(y, start) for start in starts), key=lambda one: -one.likelihood)

    def _starts(
        self, y: FloatArray, state: State, count: int, among: npt.NDArray[np.bool_] | None = None
    ) -> list[State]:
        """The `count` hypotheses that gain most as one more fault, and the best of each kind, as starts of a fit."""
        gains, losses = self._scan(y, state)
        if among is not None:
            gains = np.where(among, gains, -np.inf)
        seen: set[tuple[int, float]] = set()
        kinds: set[str] = set()
        found: list[State] = []
        for each in np.argsort(-gains, kind="stable").tolist():
            if gains[each] <= (0 if among is None else -np.inf):
                break
            # Ways that nobody can tell apart give the same gain: one of them is enough.
            mark = (int(self._classes[each]), round(float(gains[each]), 6))
            kind = self._kind(each)
            if mark not in seen and each not in state.faults and (len(found) < count or kind not in kinds):
                loss = self._sharpen(y, state, each, float(losses[each]))
                faults, with_it = (*state.faults, each), (*state.losses, loss)
                found.append(replace(state, faults=faults, losses=with_it))
                kinds.add(kind)
            seen.add(mark)
        return found

    @cached_property
    def _wide(self) -> npt.NDArray[np.bool_]:
        """Hypotheses that a tenth of the readings goes over on average."""
        readings = np.bincount(self.entries.hypothesis, self._probability[self.entries.way], len(self.members))
        wide: npt.NDArray[np.bool_] = readings >= 0.1 * self._used.size
        return wide

    def _kind(self, hypothesis: int) -> str:
        return self.design.ways.kinds[self.members[hypothesis][0]]

    @property
    def _distinct(self) -> int:
        """How many faults the readings can tell apart."""
        return int(self._classes.max()) + 1

    def _p_value(self, gain: float) -> float:
        return p_value(gain, self._used.size, self._distinct)

    def locate(self, measured_gbps: npt.ArrayLike) -> Localization:
        """See `locate`."""
        measured = np.asarray(measured_gbps, dtype=np.float64)
        if measured.shape != self.design.expected_gbps.shape:
            raise ValueError(f"{measured.shape} values for {self.design.expected_gbps.shape} readings")
        if not (np.isfinite(measured).all() and (measured > 0).all()):
            raise UserError("a reading is not a positive number: judge the run first (fabricheck judge)")
        y = np.log(measured[self._used] / self.design.expected_gbps[self._used])
        null = self._null(y)
        best, more = self._search(y, null)
        fast = self._fastest(y, null)
        if fast.scale - null.scale > 3 * fast.noise:
            other, others = self._search(y, fast, patient=True)
            explained = float(self._near(y, other, self._noise_free(other)).sum()) / y.size
            # Else a distance that costs something takes all far pairs for faulty, of which a few trunks explain some.
            if explained > _EXPLAINED and self._is_better(other, best):
                best, more = other, others
        return self._report(y, best, more)

    def _fastest(self, y: FloatArray, null: State) -> State:
        """No fault, and the scale of the fastest pairs: where most go over faults, the middle one is not healthy."""
        top = np.sort(y)[-max(_FEWEST_READINGS // 2, y.size // 5) :]
        middle = float(np.median(top))
        noise = max(1.4826 * float(np.median(np.abs(top - middle))), null.least)
        # More rounds would take in the slow ones, too.
        state = self._settle(y, replace(null, scale=middle, noise=noise), 2)
        return replace(state, likelihood=self._likelihood(y, state))

    def _is_better(self, state: State, than: State) -> bool:
        """Whether noise alone does not explain what `state` gains with its further faults.

        The whole search is one family: the test of each further fault has its share.
        """
        further = max(len(state.faults) - len(than.faults), 1)
        gain = state.likelihood - than.likelihood - (further - 1) * math.log(self._distinct)
        return self._p_value(gain) <= self.false_alarm / (self.most + 1)

    def _search(self, y: FloatArray, best: State, *, patient: bool = False) -> tuple[State, list[State]]:
        """The best fit with more faults than `best`, and what was tried last.

        `patient`: what is better than the fit that it came from goes on, though another be better still.
        """
        beam, more = [best], list[State]()
        while len(beam[0].faults) < self.most:
            found = [
                (one, each)
                for one in beam
                for each in self._with_one_more(y, one, _SECONDS if one.faults else _CANDIDATES)
            ]
            more = [each for _, each in found]
            likely = [each for one, each in found if self._is_better(each, one if patient else best)]
            if not likely:
                break
            # The best of each kind goes on: two trunks of a leaf, each with the other, explain more than the leaf.
            of_kind: dict[str, State] = {}
            for one in sorted(likely, key=lambda one: -one.likelihood):
                of_kind.setdefault(self._kind(one.faults[-1]), one)
            beam = list(of_kind.values())
            if self._is_better(beam[0], best):
                best = beam[0]
        return best, more

    def _report(self, y: FloatArray, state: State, more: Sequence[State]) -> Localization:
        next_ = [each.faults[-1] for each in sorted(more, key=lambda one: -one.likelihood)[:_CANDIDATES]]
        suspects = tuple(self._suspect(y, state, position) for position in range(len(state.faults)))
        closest = [
            *(name for each in next_ for name in self._alike([each])),
            *(n for s in suspects for n in s.components),
        ]
        design, names = self.design, self.design.ways.components
        seen = {each for members in self.members for each in members}
        return Localization(
            suspects=suspects,
            noise=state.noise,
            scale=math.exp(state.scale),
            readings=y.size,
            doubtful=int(design.doubtful.sum()),
            closest=tuple(dict.fromkeys(closest)),
            unseen=tuple(name for position, name in enumerate(names) if position not in seen),
            detectable=self._detectable(state.noise),
        )

    def _suspect(self, y: FloatArray, state: State, position: int) -> Suspect:
        fault, loss = state.faults[position], state.losses[position]
        others = without(state, position)
        grid = np.linspace(max(loss - 10 * state.noise, 1e-4), loss + 10 * state.noise, 401)
        profile = self._profile(y, others, fault, grid)
        inside = grid[profile >= profile.max() - _INTERVAL]
        low, high = -np.expm1(-inside[[0, -1]])
        gains, losses = self._scan(y, others)
        # The grid of the scan is coarse: who may come near is looked at more closely.
        for each in np.flatnonzero(gains >= 0.9 * profile.max() - 2 * _AMBIGUOUS).tolist():
            best = self._sharpen(y, others, each, float(losses[each]))
            near = best + np.linspace(-1, 1, 13) * min(0.15 * best, 3 * state.noise)
            gains[each] = self._profile(y, others, each, near).max()
        gains[fault] = profile.max()
        near_best = np.flatnonzero(gains >= gains.max() - _AMBIGUOUS).tolist()
        names = self._alike(near_best)
        kinds = {self.design.ways.kinds[self.design.ways.position[each]] for each in names}
        first = kinds.pop() if len(kinds) == 1 else "several"
        left = self._fit(y, others)
        return Suspect(
            components=names,
            kind=first,
            loss=-math.expm1(-loss),
            low=float(low),
            high=float(high),
            p_value=self._p_value(state.likelihood - left.likelihood),
            hypotheses=self._distinct,
            evidence=self._evidence(y, state, near_best),
        )

    def _alike(self, hypotheses: Sequence[int]) -> tuple[str, ...]:
        """The components of hypotheses and of those of their classes.

        Which of several symmetric components a fault was put on is arbitrary: all that are alike belong together.
        """
        alike = np.flatnonzero(np.isin(self._classes, self._classes[list(hypotheses)])).tolist()
        members = sorted({each for one in alike for each in self.members[one]})
        return tuple(self.design.ways.components[each] for each in members)

    def _evidence(self, y: FloatArray, state: State, hypotheses: Sequence[int]) -> tuple[Evidence, ...]:
        keys = self.entries
        over = np.unique(keys.key_reading[np.isin(keys.key_hypothesis, hypotheses)])
        numbers = self._used[over]
        shares = np.exp(y[over] - state.scale)
        return tuple(
            Evidence(source, destination, int(self.design.rounds[number]), share)
            for number, share in zip(numbers.tolist(), shares.tolist(), strict=True)
            for source, destination in (self.design.places[number],)
        )

    def _detectable(self, noise: float) -> dict[str, float]:
        """By component, the loss of every pair over it that is found in nine of ten cases (known faults: none).

        The information of readings that go over it with probability p is p² each, to first order.
        """
        share = np.bincount(self.entries.key, self._probability[self.entries.way], self.entries.key_reading.size)
        information = np.bincount(self.entries.key_hypothesis, share**2, len(self.members))
        needed = -float(stdtrit(self._used.size - 2, [self.false_alarm / self._distinct, 0.1]).sum())
        losses = -np.expm1(-noise * needed / np.sqrt(information))
        found: dict[str, float] = {}
        for members, loss in zip(self.members, losses.tolist(), strict=True):
            for each in members:
                found.setdefault(self.design.ways.components[each], loss)
        return found
