"""What no locator can beat: faults named by an oracle that knows all but the faults themselves.

Known to it: the route of each pair, the factor common to all pairs, the distribution and the width of the noise, that a
fault loses a share that is known too, and how faults are drawn (by kind, see `Bench.draw`). It names the set of at most
three faults that is most probable, of all of them: sets that slow down the same readings are one answer. That is
exhaustive, since where all faults lose as much a pair is slow or not, whatever the number of faults on its way: the
likelihoods of all sets are a matrix of zeros and ones times a vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.stats import norm, t

from fabricheck.diagnosis.network.routes import Design, FloatArray, IntArray

MOST = 3
_CHUNK = 20_000


def _outliers(z: FloatArray) -> FloatArray:
    return np.asarray(np.logaddexp(math.log(0.99) + norm.logpdf(z), math.log(0.01) + norm.logpdf(z, scale=10)))


#: The logarithm of the density of the noises of benchmarks.localization, of standard deviation 1.
DENSITIES = {
    "normal": lambda z: np.asarray(norm.logpdf(z)),
    "t3": lambda z: np.asarray(t.logpdf(z, 3, scale=1 / math.sqrt(3))),
    "outliers": _outliers,
}


class Oracle:
    """The most probable sets of faults for readings of a design with known routes.

    `noise`: relative standard deviation of a reading; `kind`: of DENSITIES; `loss`: of each fault; `scale`: what
    healthy pairs give of expected. Raises ValueError where a pair has more than one way.
    """

    def __init__(self, design: Design, noise: float, kind: str, loss: float, scale: float) -> None:
        if design.reading.size != len(design.places):
            raise ValueError("the oracle has to know the route of each pair")
        self.design, self.noise, self.density = design, noise, DENSITIES[kind]
        self.loss, self.scale = -math.log1p(-loss), math.log(scale)
        kinds = design.ways.kinds
        on = np.zeros((len(kinds), len(design.places)), dtype=bool)
        on[design.component, design.reading[design.way]] = True
        classes: dict[bytes, list[int]] = {}
        for component in np.flatnonzero(on.any(axis=1)).tolist():
            classes.setdefault(on[component].tobytes(), []).append(component)
        self.members = list(classes.values())
        # The last row is no fault, to fill up sets of less than three.
        self.on = np.vstack([on[[each[0] for each in self.members]], np.zeros((1, len(design.places)), dtype=bool)])
        drawn = [sum(1 / kinds.count(kinds[one]) for one in each) / len(set(kinds)) for each in self.members]
        self.sets, self.prior = self._answers(np.array([*drawn, 1.0]))

    def _answers(self, drawn: FloatArray) -> tuple[IntArray, FloatArray]:
        """Of the sets that slow down the same readings the smallest, and of these the one that is drawn most often,
        shape (S, 3), and the probability to draw any of them as so many faults, shape (4, S)."""
        none = len(self.members)
        sets = np.full((sum(math.comb(none, size) for size in range(MOST + 1)), MOST), none)
        row = 0
        for size in range(MOST + 1):
            some = np.array(list(combinations(range(none), size)), dtype=np.int64).reshape(math.comb(none, size), size)
            sets[row : row + len(some), :size] = some
            row += len(some)
        chance, sizes = drawn[sets].prod(axis=1), (sets < none).sum(axis=1)
        order = np.lexsort((-chance, sizes))
        sets, chance, sizes = sets[order], chance[order], sizes[order]
        # Sums of whole numbers below 2^53 are exact: readings that are the same have the same two.
        marks = np.random.default_rng(0).integers(1, 2**43, (self.on.shape[1], 2)).astype(float)
        parts = [self._slow(sets[i : i + _CHUNK]).astype(np.float64) @ marks for i in range(0, len(sets), _CHUNK)]
        sums = np.concatenate(parts)
        _, first, number = np.unique(sums.view(np.complex128), return_index=True, return_inverse=True)
        prior = np.zeros((MOST + 1, first.size))
        for size in range(MOST + 1):
            weights = np.bincount(number.ravel(), chance * (sizes == size), first.size)
            prior[size] = weights / weights.sum()
        return sets[first], prior

    def _slow(self, sets: IntArray) -> npt.NDArray[np.bool_]:
        slow: npt.NDArray[np.bool_] = self.on[sets[:, 0]]
        for element in sets.T[1:]:
            slow = slow | self.on[element]
        return slow

    def name(self, readings: FloatArray, *weights: Sequence[float]) -> list[list[list[frozenset[str]]]]:
        """The components that can be each of the most probable faults, for each of `weights` and each set of readings.

        `readings`: Gb/s, shape (T, R). Each of `weights`: the probability of 0, 1, 2 and 3 faults.
        """
        z = (np.log(readings / self.design.expected_gbps) - self.scale) / self.noise
        gain = np.asarray(self.density(z + self.loss / self.noise) - self.density(z), dtype=np.float32).T
        with np.errstate(divide="ignore"):
            prior = np.log(np.asarray(weights) @ self.prior).astype(np.float32)
        best = np.full((len(weights), len(readings)), -np.inf)
        answer = np.zeros(best.shape, dtype=np.int64)
        for start in range(0, len(self.sets), _CHUNK):
            part = slice(start, start + _CHUNK)
            gained = self._slow(self.sets[part]).astype(np.float32) @ gain
            for row, probable in enumerate(prior[:, part]):
                likely = gained + probable[:, np.newaxis]
                here = likely.argmax(axis=0)
                value = likely[here, np.arange(here.size)]
                better = value > best[row]
                best[row, better], answer[row, better] = value[better], here[better] + start
        return [[self._names(self.sets[each]) for each in row] for row in answer.tolist()]

    def _names(self, faults: IntArray) -> list[frozenset[str]]:
        """For each fault all components that slow down the same readings beside the other faults."""
        names, none = self.design.ways.components, len(self.members)
        slow, answers = self.on[faults].any(axis=0), []
        for fault in faults[faults < none]:
            rest = self.on[faults[faults != fault]].any(axis=0)
            same = np.flatnonzero(((self.on[:none] | rest) == slow).all(axis=1))
            answers.append(frozenset(names[one] for each in same for one in self.members[each]))
        return answers
