"""Which part of the network explains what pairs gave: the most probable node, port, cable, leaf, switch or trunk.

The model. A pair gives what is expected of it times (1 - loss) of the worst component on its way, and noise. A loss is
either one that every pair over the component has (`flow`: frames sent again, a slow node), or one of its capacity
(`capacity`: a lower rate), which shows only as far as the component is in use. Where a pair has several ways of equal
cost and it is unknown which it took, its likelihood is the mixture over them.

In logarithms the noise is normal, and now and then (1 in 20) a reading is anything at all: what a single one can prove
is bounded, however far out it lies. The width of the noise and a factor common to all pairs (protocols take a few per
cent) are estimated with the faults, by expectation maximisation.

The search looks for the set of faults with the highest likelihood less a price for each of them. It adds, takes out and
exchanges faults one at a time, from no fault and from the best set of parts that many pairs go over: two spines slow
down most pairs, and neither alone explains anything. Where routes are unknown it also exchanges one fault for two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from fabricheck.diagnosis.network.likelihood import Model, State, gain_of, p_value, without_fault
from fabricheck.diagnosis.network.routes import Design, FloatArray, IntArray
from fabricheck.errors import UserError
from fabricheck.judge.constants import CONFIDENCE, DOUBT, FEWEST, MOST_AT_ONCE, MOST_STEPS, OF_DEVIATION, ONE_IN_100
from fabricheck.records.component import Component

#: Of the probability of a false alarm, what the first fault of a network gets: tails that are heavier than the model's
#: (t with three degrees of freedom) make false alarms several times as frequent. The second gets twice FURTHER of it,
#: the third three times: what counts is the share of false ones among the faults that are named (Benjamini and
#: Hochberg, 1995).
FIRST_FAULT, FURTHER = 0.1, 0.2
#: What one measurement can add to a log likelihood: a single one, however wild, is not to decide. And what the fit of
#: a move may add to what it gains before: where more is missing, it is not tried. Chosen.
MOST_OF_ONE = 4.0
#: Parts that more of the readings cross are tried together. Chosen.
WIDE = 0.1
#: The best moves of a fit that are tried. Chosen.
CANDIDATES = 4
#: The best further moves that are tried beside each. Chosen.
SECOND_MOVES = 2

# Half of the 95% quantile of chi-squared with one degree of freedom.
_INTERVAL = float(ndtri((1 + CONFIDENCE) / 2)) ** 2 / 2


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
    many faults the readings can tell apart. `closest`: components that explain best what is left, proven or not, then
    those of the suspects: what to measure again.
    """

    suspects: tuple[SlowGroup, ...]
    noise: float
    scale: float
    hypotheses: int
    closest: tuple[str, ...]


def locate(design: Design, measured_gbps: npt.ArrayLike) -> Localization:
    """What explains the readings of a design; `measured_gbps`: shape (R,), as its readings.

    Raises UserError for values that are not above zero, or fewer than eight usable readings.
    """
    return Locator(design).locate(measured_gbps)


class Locator:
    """A design made ready, to locate faults in many sets of readings of it.

    `false_alarm`: the probability of naming anything in a healthy network, all components together. `most`: so many
    faults are looked for.
    """

    def __init__(self, design: Design, *, false_alarm: float = 0.01, most: int = 4) -> None:
        self.design, self.false_alarm, self.most = design, false_alarm, most
        readings = int((~design.doubtful).sum())
        if readings < FEWEST:
            raise UserError(f"{readings} usable readings are too few to tell a fault from noise: {FEWEST} are needed")
        self.model = Model(design)
        levels = [false_alarm * share for share in (FIRST_FAULT, *(FURTHER * number for number in range(2, most + 1)))]
        # What each fault has to gain in log likelihood, the first, the second, ...
        self._prices = [gain_of(level, readings, self._distinct) for level in levels]

    def _kind(self, hypothesis: int) -> str:
        return self.design.ways.kinds[self.model.members[hypothesis][0]]

    @property
    def _distinct(self) -> int:
        """How many faults the readings can tell apart."""
        return int(self.model.classes.max()) + 1

    def _p_value(self, gain: float) -> float:
        return p_value(gain, self.model.used.size, self._distinct)

    def locate(self, measured_gbps: npt.ArrayLike) -> Localization:
        """See `locate`, also for what it raises."""
        measured = np.asarray(measured_gbps, dtype=np.float64)
        if measured.shape != self.design.expected_gbps.shape:
            raise ValueError(f"{measured.shape} values were given for {self.design.expected_gbps.shape} readings")
        if not (np.isfinite(measured).all() and (measured > 0).all()):
            raise UserError("a reading is not a positive number: judge the run first (fabricheck judge)")
        used = self.model.used
        y = np.log(measured[used] / self.design.expected_gbps[used])
        null = self.model.null(y)
        best = self._search(y, null)
        seed = max(self._seeds(y, null), key=self._worth, default=null)
        if self._worth(seed) > self._worth(best):
            best = self._search(y, seed)
        return self._report(y, self._beyond_chance(y, best))

    # Search

    def _worth(self, state: State) -> float:
        return state.likelihood - sum(self._prices[: len(state.faults)])

    def _search(self, y: FloatArray, state: State) -> State:
        """The best fit that single moves reach from `state`."""
        for _ in range(MOST_STEPS):
            best = max(self._moves(y, state), key=self._worth, default=state)
            if self._worth(best) < self._worth(state) + 1e-3:
                break
            state = best
        return state

    def _moves(self, y: FloatArray, state: State) -> Iterator[State]:
        """Fits with one fault more, one less, and one for another."""
        if len(state.faults) < self.most:
            for move in self._further(y, state, CANDIDATES, self._prices[len(state.faults)] - MOST_OF_ONE):
                yield self.model.fit(y, move)
            if self.model.mixed:
                # A fault that all pairs may go over shows in nothing but the shape of the noise.
                sharp = replace(state, scale=state.scale + 0.6 * state.noise, noise=0.7 * state.noise)
                for move in self._further(y, sharp, 1):
                    yield self.model.fit(y, move)
        for position in range(len(state.faults)):
            rest = without_fault(state, position)
            left = self.model.fit(y, rest)
            yield left
            for move in self._further(
                y, rest, SECOND_MOVES, state.likelihood - self.model.likelihood(y, rest) - MOST_OF_ONE
            ):
                yield self.model.fit(y, move)
            if self.model.mixed and len(state.faults) < self.most:
                # One fault of which any pair may have had a share may lie between two.
                for move in self._further(y, left, SECOND_MOVES):
                    if move.faults[-1] != state.faults[position]:
                        other = self.model.fit(y, move)
                        for two in self._further(y, other, 1, self._prices[len(other.faults)] - MOST_OF_ONE):
                            yield self.model.fit(y, two)

    def _further(self, y: FloatArray, state: State, count: int, least: float = 0.0) -> list[State]:
        """The `count` hypotheses that gain most as one more fault, and the best of each kind, as starts of a fit.

        None that gains less than `least` before the fit.
        """
        gains, losses = self.model.scan(y, state)
        seen: set[tuple[int, float]] = set()
        kinds: set[str] = set()
        states: list[State] = []
        for fault in np.argsort(-gains, kind="stable").tolist():
            if gains[fault] <= max(least, 0.0):
                break
            # Ways that nobody can tell apart give the same gain: one of them is enough.
            mark = (int(self.model.classes[fault]), round(float(gains[fault]), 6))
            kind = self._kind(fault)
            if mark not in seen and fault not in state.faults and (len(states) < count or kind not in kinds):
                loss = self.model.sharpen(y, state, fault, float(losses[fault]))
                states.append(replace(state, faults=(*state.faults, fault), losses=(*state.losses, loss)))
                kinds.add(kind)
            seen.add(mark)
        return states

    def _seeds(self, y: FloatArray, null: State) -> Iterator[State]:
        """The best sets of one, two and three wide parts, by least squares with one loss for all of them, as fits."""
        middle = float(np.median(y))
        clipped = np.clip(y, middle - 4 * null.noise, middle + 4 * null.noise)
        for faults, unions in self._unions:
            fit = unions @ (clipped - clipped.mean())
            best = faults[int(np.argmin(fit))].tolist()
            slow = self.model.effect(best, [1.0] * len(best))
            share = np.bincount(self.model.reading, self.model.probability * slow, y.size)
            beside, over = y[share == 0], y[share > 0]
            if fit.min() < 0 and beside.size:
                scale = float(np.median(beside))
                loss = max(scale - float(np.median(over)), null.noise) / float(share[share > 0].mean())
                noise = max(OF_DEVIATION * float(np.median(np.abs(beside - scale))), null.noise / 4, null.least)
                start = replace(null, faults=tuple(best), losses=(loss,) * len(best), scale=scale, noise=noise)
                yield self.model.fit(y, start)

    @cached_property
    def _unions(self) -> list[tuple[IntArray, FloatArray]]:
        """Sets of one, two and three wide parts, shape (S, size), and the share of each reading's ways that goes over
        them, shape (S, R), with a mean of 0 and a length of 1."""
        model = self.model
        readings, entries = model.used.size, model.entries
        over = np.bincount(entries.hypothesis, model.probability[entries.way], len(model.members))
        full = np.bincount(entries.hypothesis, entries.headroom, len(model.members)) == 0
        wide = np.flatnonzero(full & (over >= WIDE * readings))
        wide = wide[np.argsort(-over[wide], kind="stable")]
        while wide.size > 3 and math.comb(wide.size, 3) * readings > MOST_AT_ONCE:
            wide = wide[:-1]
        slow = [model.effect([each], [1.0]) > 0 for each in wide.tolist()]
        on = np.array(slow, dtype=np.bool_).reshape(wide.size, model.probability.size)
        unions = []
        for size in (1, 2, 3):
            sets = np.array(list(combinations(range(wide.size), size)), dtype=np.int64).reshape(-1, size)
            if not sets.size:
                break
            hit = on[sets].any(axis=1) * model.probability
            share = np.zeros((len(sets), readings))
            for row, own_hit in zip(share, hit, strict=True):
                row[:] = np.bincount(model.reading, own_hit, readings)
            share -= share.mean(axis=1, keepdims=True)
            length = np.linalg.norm(share, axis=1, keepdims=True)
            unions.append((wide[sets], np.divide(share, length, out=np.zeros_like(share), where=length > 1e-6)))
        return unions

    # Chance

    def _beyond_chance(self, y: FloatArray, state: State) -> State:
        """The same without the faults that noise of this shape shows as well, the least certain first."""
        left = [without_fault(state, position) for position in range(len(state.faults))]
        # Beside several faults, what none of them slows may be too little to fit a scale to.
        left = [each if each.faults else self.model.null(y) for each in left]
        gains = [self.model.scan(y, others)[0] for others in left]
        own = [of_all[fault] for of_all, fault in zip(gains, state.faults, strict=True)]
        # What most pairs may go over shows in the shape of the noise, which no shuffling changes: that is not asked.
        somewhere = np.bincount(self.model.entries.key_hypothesis, minlength=len(self.model.members)) < y.size / 2
        for position in np.argsort(own, kind="stable").tolist():
            gain = gains[position][somewhere].max(initial=-np.inf)
            if somewhere[state.faults[position]] and self._is_chance(y, left[position], somewhere, gain):
                return self._beyond_chance(y, self.model.fit(y, left[position]))
        return state

    def _is_chance(self, y: FloatArray, others: State, faults: npt.NDArray[np.bool_], gain: float) -> bool:
        """Whether one more of the `faults` gains as much where the readings are shuffled among pairs that the other
        faults slow equally: a permutation test, which is exact whatever the shape of the noise (Pitman, 1937), of the
        largest gain of all faults (Westfall and Young, 1993), that ends with the first (Besag and Clifford, Biometrika
        78, 1991)."""
        slow = self.model.effect(others.faults, others.losses)
        share = np.bincount(self.model.reading, self.model.probability * (slow > 0), y.size)
        loss = np.bincount(self.model.reading, self.model.probability * slow, y.size)
        alike = np.unique(np.stack([share, loss]).round(6), axis=1, return_inverse=True)[1].ravel()
        order, random = np.argsort(alike, kind="stable"), np.random.default_rng(y.size)
        for _ in range(round(1 / self.false_alarm) - 1):
            shuffled = np.empty_like(y)
            shuffled[order] = y[np.lexsort((random.random(y.size), alike))]
            if self.model.scan(shuffled, others)[0][faults].max() >= gain:
                return True
        return False

    # What was found

    def _report(self, y: FloatArray, state: State) -> Localization:
        suspects = tuple(self._suspect(y, state, position) for position in range(len(state.faults)))
        next_ = [each.faults[-1] for each in self._further(y, state, CANDIDATES)][:CANDIDATES]
        closest = [
            *(name for each in next_ for name in self._alike([each])),
            *(each.text for group in suspects for each in group.at_fault),
        ]
        noise, scale = state.noise, math.exp(state.scale)
        return Localization(suspects, noise, scale, self._distinct, tuple(dict.fromkeys(closest)))

    def _suspect(self, y: FloatArray, state: State, position: int) -> SlowGroup:
        fault, loss = state.faults[position], state.losses[position]
        others = without_fault(state, position)
        grid = np.linspace(max(loss - 10 * state.noise, 1e-4), loss + 10 * state.noise, 401)
        profile = self.model.profile(y, others, fault, grid)
        inside = grid[profile >= profile.max() - _INTERVAL]
        low, high = -np.expm1(-inside[[0, -1]])
        gains, losses = self.model.scan(y, others)
        # The grid of the scan is coarse: who may come near is looked at more closely.
        for candidate in np.flatnonzero(gains >= 0.9 * profile.max() - 2 * DOUBT).tolist():
            best = self.model.sharpen(y, others, candidate, float(losses[candidate]))
            near = best + np.linspace(-1, 1, 13) * min(0.15 * best, 3 * state.noise)
            near_gains = self.model.profile(y, others, candidate, near)
            gains[candidate], losses[candidate] = near_gains.max(), near[near_gains.argmax()]
        gains[fault], losses[fault] = profile.max(), grid[profile.argmax()]
        near_best = [
            each
            for each in np.flatnonzero(gains >= gains.max() - DOUBT).tolist()
            if gains[each] >= gains.max() - self._margin(others, int(gains.argmax()), each, losses)
        ]
        left = self.model.fit(y, others)
        return SlowGroup(
            members=self._over(near_best),
            components=frozenset(map(self.design.ways.network.component, self._alike(near_best))),
            loss=-math.expm1(-loss),
            low=float(low),
            high=float(high),
            p=self._p_value(state.likelihood - left.likelihood),
        )

    def _margin(self, others: State, best: int, other: int, losses: FloatArray) -> float:
        """How far `other` may be behind `best` if it is at fault, in 99 of 100 cases.

        They differ by d standard deviations of what they predict, so that it falls behind by 2.326 d - d²/2 at most:
        the further apart, the less. Mixtures over unknown routes are not normal: there it is the most for any d.
        """
        model = self.model
        if model.mixed:
            return DOUBT
        effect, two = (
            model.effect((*others.faults, each), (*others.losses, float(losses[each]))) for each in (best, other)
        )
        apart = float(np.linalg.norm(effect - two)) / others.noise
        return ONE_IN_100 * max(apart, ONE_IN_100) - 0.5 * max(apart, ONE_IN_100) ** 2

    def _alike(self, hypotheses: Sequence[int]) -> tuple[str, ...]:
        """The components of hypotheses and of those of their classes.

        Which of several symmetric components a fault was put on is arbitrary: all that are symmetric belong together.
        """
        alike = np.flatnonzero(np.isin(self.model.classes, self.model.classes[list(hypotheses)])).tolist()
        members = sorted({each for one in alike for each in self.model.members[one]})
        return tuple(self.design.ways.components[each] for each in members)

    def _over(self, hypotheses: Sequence[int]) -> tuple[int, ...]:
        """The readings that go over any of them, or may."""
        keys = self.model.entries
        over = np.unique(keys.key_reading[np.isin(keys.key_hypothesis, hypotheses)])
        return tuple(self.model.used[over].tolist())
