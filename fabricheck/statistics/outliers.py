"""Which of several peers are slower than the others by more than noise explains."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit  # those of scipy.stats.t, which takes half a second to import

from fabricheck.statistics.constants import CUT, MOST_FAULTS, MOST_FOR_TWO, MOST_PARTS, OF_DEVIATION, OF_MEDIAN

#: How well the spread of peers is known before they are looked at, in degrees of freedom. With 8 the tails are those of
#: recorded launches: of 3,000 goodputs of healthy H200 one lay 5 standard deviations from its peers.
PRIOR_FREEDOM = 8
#: The median of so many has lighter tails than each of them. Chosen.
FEWEST_FOR_NORMAL = 5
#: From so many peers on, as a node of four GPUs has pairs, wild ones do not count for the spread: from 8 on alone a GPU
#: that lost five spreads is found in 55% and not in 59%.
FEWEST_TO_CUT = 6

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True)
class CrossedParts(Generic[T]):
    """What a measurement crosses. `units` are those that can be pulled (GPU, NIC, node); `others` say more of the way:
    a direction, or both ends together."""

    units: tuple[T, ...] = ()
    others: tuple[T, ...] = ()

    @property
    def all(self) -> tuple[T, ...]:
        """Directions and pairs of ends first, then the units."""
        return (*self.others, *self.units)


@dataclass(frozen=True)
class Outlier:
    """Members, by number, that are slower than the other peers (`equals`): by `excess` (0.03: 3% more time) with the
    chance `p`, corrected for the splits that were looked at. `centre`: median logarithm of the others; `spread`:
    relative standard deviation of one equal.
    """

    members: tuple[int, ...]
    equals: int
    centre: float
    excess: float
    spread: float
    p: float


@dataclass(frozen=True, eq=False)
class _Splits:
    """Some against the rest, several times, shape (..., S): by how much some are slower, the `spread` of one equal,
    `statistic` with its degrees of `freedom`, what is `left` of each value, shape (..., S, n), and that together
    (`cost`)."""

    excess: Floats
    spread: Floats
    statistic: Floats
    freedom: Numbers
    left: Floats
    cost: Floats


def outliers(
    values: Floats, inside: Floats, parts: Sequence[CrossedParts[T]], least_spread: float, error: float
) -> tuple[Outlier, ...]:
    """The slow ones among peers. `values`, shape (n,): logarithms, more is slower; `inside`: the relative standard
    deviation of the iterations of each; `parts`: what each crosses.

    Single members, all members that cross one part, and all that cross one of two units are held against the rest:
    the difference of the medians over its standard error is nearly a t statistic. Its variance is what is left within
    the two sides, and before that of the larger of `least_spread` and the iterations' own spread, with the weight of 8
    peers (moderated t statistic, Smyth 2004): so it is right for two peers, and for iterations that depend on each
    other. Where a side has few members it has the tails of 12 degrees of freedom at most: levels of series have heavier
    tails than a normal distribution. A part also has to be that far from the other parts with as many members: GPUs
    differ by levels that last for a session. Of all splits that are beyond chance the one that leaves the least is
    taken, then the rest is looked at again. `error`: the probability with which healthy peers have any outlier.
    """
    left = list(range(len(values)))
    faults: list[Outlier] = []
    # Faults do not add to the noise of the healthy: the spread inside a series is that of the middle one.
    prior = max(least_spread, float(np.median(inside)))
    while len(left) > 1 and len(faults) < MOST_FAULTS:
        best = _best(values[left], inside[left], [parts[one] for one in left], prior, error)
        if best is None:
            break
        faults.append(replace(best, members=tuple(left[one] for one in best.members)))
        left = [one for one in left if one not in faults[-1].members]
    return tuple(faults)


def critical_value(count: int, inside: Floats, least_spread: float, error: float) -> float:
    """By how much, as a logarithm, one of `count` peers has to be slower than the others to be found for itself."""
    prior = max(least_spread, float(np.median(inside)))
    return _quantile(error / (2 * count), PRIOR_FREEDOM) * prior * float(np.sqrt(1 + _weight(np.asarray(count - 1))))


def _best(
    values: Floats, inside: Floats, parts: Sequence[CrossedParts[T]], prior: float, error: float
) -> Outlier | None:
    """The outlier that leaves the least; `prior`: the spread of peers, before they are looked at."""
    shared, count = _shared(parts), len(values)
    # Half of the error for single members: the slowest is the one that can be an outlier, or where its iterations say
    # little the slowest for its own. Half for parts.
    middle = float(np.median(values))
    alone = {int(np.argmax(values)), int(np.argmax((values - middle) / np.maximum(inside, prior)))}
    slowest = sorted(shared, key=lambda members: -_urgency(values, members, middle))[:MOST_PARTS]
    asked = [*(frozenset([one]) for one in alone), *(each for each in slowest if len(each) < count)]
    tests = np.array([count] * len(alone) + [len(shared)] * (len(asked) - len(alone)))
    masks = _masks(asked, count)
    splits = _split(values, inside, masks, prior)
    crossed = [shared.get(each, (frozenset[int](),)) for each in asked]
    among_parts, freedom = _among_parts(splits, masks, crossed)
    beyond_chance = splits.statistic > _bounds(error, tests, splits.freedom)
    beyond_chance &= among_parts > _bounds(error, tests, freedom)
    best = -1
    for split in np.flatnonzero(beyond_chance).tolist():
        if best < 0 or splits.cost[split] < splits.cost[best] * (1 - 1e-9):
            best = split
    if best < 0:
        return None
    # Of those that cross a slow part the ones that are slow themselves.
    excess = float(splits.excess[best])
    slow = masks[best] & (values > float(np.median(values[~masks[best]])) + excess / 2)
    p = max(
        2 * int(tests[best]) * float(stdtr(own_freedom[best], -statistic[best]))
        for statistic, own_freedom in ((splits.statistic, splits.freedom), (among_parts, freedom))
    )
    return Outlier(
        members=tuple(np.flatnonzero(slow).tolist()),
        equals=int((~slow).sum()),
        centre=float(np.median(values[~slow])),
        excess=excess,
        spread=float(splits.spread[best]),
        p=min(1.0, p),
    )


def _urgency(values: Floats, members: frozenset[int], middle: float) -> float:
    """How much slower members are than all, for their number: what is not among the first has no better split."""
    return float(np.sum(values[list(members)] - middle)) / math.sqrt(len(members))


def _shared(parts: Sequence[CrossedParts[T]]) -> Mapping[frozenset[int], tuple[frozenset[int], ...]]:
    """Several members that cross a part, or one of two units, with the members of each of these."""
    crossing: dict[T, set[int]] = {}
    for member, own in enumerate(parts):
        for name in own.all:
            crossing.setdefault(name, set()).add(member)
    crossings: dict[frozenset[int], tuple[frozenset[int], ...]] = {}
    for members in map(frozenset, crossing.values()):
        crossings[members] = (members,)
    units = dict.fromkeys(name for own in parts for name in own.units)
    for pair in itertools.combinations(units, 2) if len(units) <= MOST_FOR_TWO else ():
        first, second = (frozenset(crossing[unit]) for unit in pair)
        crossings.setdefault(first | second, (first, second))
    return {crossed: members for crossed, members in crossings.items() if len(crossed) > 1}


def _split(values: Floats, inside: Floats, masks: npt.NDArray[np.bool_], prior: float | Floats) -> _Splits:
    """Those that `masks`, shape (..., S, n), have against the rest, of `values` of shape (..., n)."""
    values, inside = values[..., None, :], inside[..., None, :]
    prior = np.asarray(prior)[..., None]
    count, size = masks.sum(axis=-1), masks.shape[-1]
    rest = size - count
    # One fast one among few others makes none slow.
    centre = np.where(
        rest >= FEWEST_FOR_NORMAL, _median(values, ~masks), np.where(~masks, values, -np.inf).max(axis=-1)
    )
    centre_of_slow = _median(values, masks)
    left = values - np.where(masks, centre_of_slow[..., None], centre[..., None])
    cost = np.abs(left).sum(axis=-1)
    freedom = max(size - 2, 0)
    left = _cut(left, prior)
    own = np.maximum(prior, _median(inside, masks))
    variance = (PRIOR_FREEDOM * own**2 + (left**2).sum(axis=-1)) / (PRIOR_FREEDOM + freedom)
    excess = centre_of_slow - centre
    statistic = excess / np.sqrt(variance * (_weight(count) + _weight(rest)))
    return _Splits(excess, np.sqrt(variance), statistic, _freedom(count, rest), left, cost)


def _cut(left: Floats, prior: float | Floats) -> Floats:
    """What is left of several along the last axis, wild ones cut off."""
    if left.shape[-1] < FEWEST_TO_CUT:
        return left
    reach = (CUT * np.maximum(OF_DEVIATION * np.median(np.abs(left), axis=-1), prior))[..., None]
    return np.clip(left, -reach, reach)


def _among_parts(
    splits: _Splits, masks: npt.NDArray[np.bool_], parts: Sequence[tuple[frozenset[int], ...]]
) -> tuple[Floats, Numbers]:
    """How far the parts of each split, whose members these are, lie from the other parts with as many, in standard
    errors, and the degrees of freedom of that, both (S,); endless where there is no other. Of two the nearer counts.

    What parts vary by is what the others do, and before that the noise of their members, with the weight of 8 parts.
    """
    size = np.array([len(each[0]) for each in parts])
    statistic, freedom = np.full(size.size, np.inf), np.full(size.size, PRIOR_FREEDOM)
    like = masks & np.array([len(each) == 1 for each in parts])[:, None]
    for split in np.flatnonzero(size > 1).tolist():
        left = splits.left[split]
        others = like[size == size[split]] & ~masks[split]
        others = others[others.any(axis=1)]
        if not len(others):
            continue
        noise = float(splits.spread[split] * np.sqrt(_weight(size[split])))
        levels = _cut(others @ left / others.sum(axis=1), noise)
        freedom[split] += levels.size
        variance = (PRIOR_FREEDOM * noise**2 + float((levels**2).sum())) / freedom[split]
        own = min(median(left[list(members)].tolist()) for members in parts[split])  # NumPy's takes 100 µs for a few
        statistic[split] = (splits.excess[split] + own) / np.sqrt(variance * (1 + 1 / levels.size))
    return statistic, freedom


def _median(values: Floats, masks: npt.NDArray[np.bool_]) -> Floats:
    """The median of those that each of `masks` has, shape (..., S)."""
    ordered, count = np.sort(np.where(masks, values, np.inf), axis=-1), masks.sum(axis=-1)
    around = np.stack([(count - 1) // 2, count // 2], axis=-1)
    return np.asarray(np.take_along_axis(ordered, around, axis=-1).mean(axis=-1))


def _masks(members: Iterable[Collection[int]], count: int) -> npt.NDArray[np.bool_]:
    """Which of `count` each has, shape (S, count); without what has all."""
    asked = [list(each) for each in members if len(each) < count]
    masks = np.zeros((len(asked), count), dtype=bool)
    for row, chosen in zip(masks, asked, strict=True):
        row[chosen] = True
    return masks


def _bounds(error: float, tests: Numbers, freedom: Numbers) -> Floats:
    """What statistics are beyond by chance with half of `error`, of so many tests each."""
    pairs = zip(tests.tolist(), freedom.tolist(), strict=True)
    return np.array([_quantile(error / (2 * number), one) for number, one in pairs])


@lru_cache(maxsize=4096)  # a session asks the same of many groups
def _quantile(error: float, freedom: int) -> float:
    return float(-stdtrit(freedom, error))


def _freedom(slow: Numbers, rest: Numbers) -> Numbers:
    """Degrees of freedom of what so many have against the rest."""
    together = np.maximum(slow + rest - 2, 0)
    few = np.minimum(slow, rest) < FEWEST_FOR_NORMAL
    return np.asarray(PRIOR_FREEDOM + np.where(few, np.minimum(together, FEWEST_FOR_NORMAL - 1), together))


def _weight(count: Numbers) -> Floats:
    """Variance of the median of `count` values, over that of one."""
    return np.where(count <= 2, 1.0, OF_MEDIAN) / count
