"""Which of several equals are slower than the others by more than noise explains, and what these have in common."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit  # those of scipy.stats.t, which takes half a second to import

Floats = npt.NDArray[np.float64]

# How well the spread of equals is known before they are looked at, in degrees of freedom. With 8 the tails are those of
# recorded launches: of 3,000 goodputs of healthy H200 one lay 5 standard deviations from its equals.
_PRIOR_FREEDOM = 8
# A normal distribution's standard deviation over its median absolute deviation; variance of a median over a mean's.
_NORMAL, _OF_MEDIAN = 1.4826, 1.57
# The median of so many has lighter tails than each of them; those of fewer are no lighter than with so many degrees of
# freedom more than the prior's, however many equals there are.
_FEWEST_FOR_NORMAL = 5
_MOST_OF_FEW = 4
# From so many equals on a few wild ones do not count for the spread, beyond so many robust standard deviations.
_FEWEST_TO_CUT, _CUT = 6, 3.0
# Faults of two units at once are looked for among so many.
_MOST_FOR_TWO = 16
_MOST_FAULTS = 8
# Of a large system, the parts whose members are slowest are looked at more closely.
_MOST_PARTS = 64


@dataclass(frozen=True)
class Parts:
    """Names of what a measurement crosses, where the same name is the same thing. `units` are those that can be pulled
    (GPU, NIC, node); `others` say more of the way: a direction, or both ends together."""

    units: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.others, *self.units)


@dataclass(frozen=True)
class Outlier:
    """Members, by number, that are slower than the other `equals`: by `excess` (0.03: 3% more time) with the chance
    `p`, corrected for the splits that were looked at. `parts`: what they, and none of the others, have in common.
    `centre`: median logarithm of the others; `spread`: relative standard deviation of one equal.
    """

    members: tuple[int, ...]
    parts: tuple[str, ...]
    equals: int
    centre: float
    excess: float
    spread: float
    p: float


@dataclass(frozen=True)
class _Given:
    """What `outliers` was asked; `prior`: the spread of equals, before they are looked at."""

    values: Floats
    inside: Floats
    prior: float
    error: float


@dataclass(frozen=True)
class _Split:
    """Some against the rest; `cost`: what is left within the two sides. `tests`: how many splits were looked at."""

    members: frozenset[int]
    excess: float
    spread: float
    statistic: float
    freedom: int
    cost: float
    parts: tuple[str, ...] = ()
    tests: int = 1


def outliers(
    values: Floats, inside: Floats, parts: Sequence[Parts], least_spread: float, error: float
) -> tuple[Outlier, ...]:
    """The slow ones among equals. `values`, shape (n,): logarithms, more is slower; `inside`: the relative standard
    deviation of the iterations of each; `parts`: what each crosses.

    Single members, all members that cross one part, and all that cross one of two units are held against the rest:
    the difference of the medians over its standard error is nearly a t statistic. Its variance is what is left within
    the two sides, and before that of the larger of `least_spread` and the iterations' own spread, with the weight of 8
    equals (moderated t statistic, Smyth 2004): so it is right for two equals, and for iterations that depend on each
    other. Where a side has few members it has the tails of 12 degrees of freedom at most: levels of series have heavier
    tails than a normal distribution. Of all splits that are beyond chance the one that leaves the least is taken, then
    the rest is looked at again. `error`: the probability with which healthy equals have any outlier.
    """
    left = list(range(len(values)))
    found: list[Outlier] = []
    # Faults do not add to the noise of the healthy: the spread inside a series is that of the middle one.
    given = _Given(values, inside, max(least_spread, float(np.median(inside))), error)
    while len(left) > 1 and len(found) < _MOST_FAULTS:
        best = _best(given, parts, left)
        if best is None:
            break
        rest = [one for one in left if one not in best.members]
        centre = float(np.median(values[rest]))
        members = tuple(sorted(best.members))
        p = min(1.0, best.tests * float(stdtr(best.freedom, -best.statistic)))
        found.append(Outlier(members, best.parts, len(rest), centre, best.excess, best.spread, p))
        left = rest
    return tuple(found)


def critical_value(count: int, inside: Floats, least_spread: float, error: float) -> float:
    """By how much, as a logarithm, one of `count` equals has to be slower than the others to be found for itself."""
    prior = max(least_spread, float(np.median(inside)))
    return _quantile(error / (2 * count), _PRIOR_FREEDOM) * prior * float(np.sqrt(1 + _weight(count - 1)))


def _best(given: _Given, parts: Sequence[Parts], left: Sequence[int]) -> _Split | None:
    everyone = frozenset(left)
    shared = {members: names for members, names in _by_part(parts, left).items() if len(members) > 1}
    # Half of the error for single members, of which the worst is the one that can be an outlier; half for parts.
    worst = max(left, key=lambda one: float(given.values[one]))
    asked: list[tuple[frozenset[int], tuple[str, ...], int]] = [(frozenset([worst]), (), len(left))]
    middle = float(np.median(given.values[list(left)]))
    slowest = sorted(shared, key=lambda members: -_urgency(given.values, members, middle))
    asked += [(members, shared[members], len(shared)) for members in slowest[:_MOST_PARTS]]
    if float(np.ptp(given.values[list(left)])) < _least_range(given, len(left), max(len(shared), len(left))):
        return None
    best: _Split | None = None
    for members, names, number in asked:
        if members == everyone:
            continue
        one = _split(given, members, everyone - members)
        beyond_chance = one.statistic > _quantile(given.error / (2 * number), one.freedom)
        if beyond_chance and (best is None or one.cost < best.cost * (1 - 1e-9)):
            best = replace(one, parts=names, tests=2 * number)
    if best is None:
        return None
    # Of those that cross a slow part the ones that are slow themselves.
    between = float(np.median(given.values[sorted(everyone - best.members)])) + best.excess / 2
    return replace(best, members=frozenset(one for one in best.members if given.values[one] > between))


def _urgency(values: Floats, members: frozenset[int], middle: float) -> float:
    """How much slower members are than all, for their number: what is not among the first has no better split."""
    return float(np.sum(values[list(members)] - middle)) / float(np.sqrt(len(members)))


def _least_range(given: _Given, count: int, tests: int) -> float:
    """Equals that differ by less have no outlier, however they are split: the smallest variance that a split can have,
    between halves."""
    freedom = _PRIOR_FREEDOM + max(count - 2, 0)
    variance = given.prior**2 * _PRIOR_FREEDOM / freedom * 4 / count
    return _quantile(given.error / (2 * max(tests, 1)), freedom) * float(np.sqrt(variance)) * (count > 3)


def _by_part(parts: Sequence[Parts], left: Sequence[int]) -> Mapping[frozenset[int], tuple[str, ...]]:
    """Members that cross a part, or one of two, by the names of the parts that they cross."""
    crossing: dict[str, set[int]] = {}
    for one in left:
        for name in parts[one].all:
            crossing.setdefault(name, set()).add(one)
    found: dict[frozenset[int], tuple[str, ...]] = {}
    for name, members in crossing.items():
        key = frozenset(members)
        found[key] = (*found.get(key, ()), name)
    units = dict.fromkeys(name for one in left for name in parts[one].units)
    for first, second in itertools.combinations(units, 2) if len(units) <= _MOST_FOR_TWO else ():
        found.setdefault(frozenset(crossing[first] | crossing[second]), (f"{first} and {second}",))
    return found


def _split(given: _Given, members: frozenset[int], rest: frozenset[int]) -> _Split:
    slow, others = given.values[sorted(members)], given.values[sorted(rest)]
    # One fast one among few others makes none slow.
    centre = _median(others) if others.size >= _FEWEST_FOR_NORMAL else float(np.max(others))
    centres = _median(slow), centre
    left = np.concatenate([slow - centres[0], others - centres[1]])
    cost = float(np.abs(left).sum())
    freedom = max(left.size - 2, 0)
    if left.size >= _FEWEST_TO_CUT:
        reach = _CUT * max(_NORMAL * _median(np.abs(left)), given.prior)
        left = np.clip(left, -reach, reach)
    own = max(given.prior, _median(given.inside[sorted(members)]))
    variance = (_PRIOR_FREEDOM * own**2 + float((left**2).sum())) / (_PRIOR_FREEDOM + freedom)
    excess = centres[0] - centres[1]
    statistic = excess / float(np.sqrt(variance * (_weight(slow.size) + _weight(others.size))))
    tails = freedom if min(slow.size, others.size) >= _FEWEST_FOR_NORMAL else min(freedom, _MOST_OF_FEW)
    return _Split(members, excess, float(np.sqrt(variance)), statistic, _PRIOR_FREEDOM + tails, cost)


def _median(values: Floats) -> float:
    """That of numpy, whose own takes twenty times as long for a handful of values."""
    ordered, half = np.sort(values), values.size // 2
    return float(ordered[half] if values.size % 2 else (ordered[half - 1] + ordered[half]) / 2)


@lru_cache(maxsize=4096)  # a session asks the same of many groups
def _quantile(error: float, freedom: int) -> float:
    return float(-stdtrit(freedom, error))


def _weight(count: int) -> float:
    """Variance of the median of `count` values, over that of one."""
    return (1.0 if count <= 2 else _OF_MEDIAN) / count
