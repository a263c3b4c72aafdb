"""Which component explains what got slow: plain functions over what measurements cross.

A measurement crosses components: parts of machines, and the software that its data pass. A component explains the slow
ones that cross it, and is contradicted by those that cross it and are as fast as usual.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabricheck.judge.constants import DOUBT, MOST_OF_ONE
from fabricheck.records.component import Component, Kind

Floats = npt.NDArray[np.float64]

#: By component, the log likelihood of measurements that are not among the slow ones: that all those which cross it lost
#: as much as these, over that they lost nothing.
LogLikelihoods = Mapping[Component, float]


@dataclass(frozen=True)
class SlowGroup:
    """Measurements, by index, that got slow and share what is in `components`; that may be nothing.

    Where it was fitted: the share that is lost, `low` to `high` with 95%, and the probability `p` of such data where
    nothing is at fault, corrected for all that could be.
    """

    members: tuple[int, ...]
    components: frozenset[Component]
    loss: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float | None = None

    @property
    def at_fault(self) -> tuple[Component, ...]:
        """Its components in the order of their names."""
        return tuple(sorted(self.components, key=lambda component: component.text))


def count_crossing(paths: Iterable[Iterable[Component]]) -> dict[Component, int]:
    """How many of the paths, each the components of a measurement, cross each component."""
    crossing: dict[Component, int] = {}
    for path in paths:
        for component in set(path):
            crossing[component] = crossing.get(component, 0) + 1
    return crossing


def loss_evidence(
    shift: Floats, error: Floats, loss: float, paths: Iterable[Iterable[Component]]
) -> dict[Component, float]:
    """By component, what measurements that cross it say: the sum of the log likelihood (natural logarithm) of each that
    it lost `loss`, over that it lost nothing; 0 where nothing is known.

    `shift`: by how much they got worse, with its standard `error`, both relative, as is `loss`; `paths`: what they
    cross.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gains = np.asarray((shift * loss - loss**2 / 2) / np.square(error))
    gains = np.clip(np.where(np.isnan(gains), 0.0, gains), -MOST_OF_ONE, MOST_OF_ONE)
    evidence: dict[Component, list[float]] = {}
    for gain, path in zip(gains.tolist(), paths, strict=True):
        for component in path:
            evidence.setdefault(component, []).append(gain)
    return {each: math.fsum(values) for each, values in evidence.items()}


def group_slow(
    slow: Mapping[int, Iterable[Component]], crossing: Mapping[Component, int], evidence: LogLikelihoods | None = None
) -> list[SlowGroup]:
    """What got slow, by index with what it crosses, in groups of one cause: what explains most of it first.

    A group is what shares the component that explains most of the rest: slow ones that cross it count for it, and the
    `evidence` of others for or against it. Of equal ones it is that which the fewest others cross.
    """
    rest = {index: frozenset(path) for index, path in slow.items()}
    blames = []
    while rest:
        affected = count_crossing(rest.values())
        explained = {each: MOST_OF_ONE * count + (evidence or {}).get(each, 0.0) for each, count in affected.items()}
        best = next(iter(_likeliest(affected, [explained], crossing)), None)
        members = tuple(index for index, path in rest.items() if best in path) if best is not None else (min(rest),)
        blames.append(SlowGroup(members, frozenset.intersection(*(rest.pop(index) for index in members))))
    return blames


def blame_best(
    components: Collection[Component],
    crossing: Mapping[Component, int],
    evidence: Iterable[LogLikelihoods] = (),
    changed: Collection[Component] = (),
) -> tuple[Component, ...]:
    """Those of the components that slow measurements share which explain them best, the likeliest first.

    Several cannot be told apart; none where there are none. `evidence`: that of measurements which would have lost as
    much as the slow ones if they crossed what is at fault, such as those of the same test; then that of others, such as
    what moves the data by another library. Each is asked only as far as those before leave several. Where it tells
    nothing, what the fewest others cross explains best that only these got slow.

    `changed`: software that got another version when they became slow. Of what the measurements do not tell apart, it
    goes before everything else, and hardware before software that is what it was. As not all that crosses software has
    to suffer of a fault in it, it is named, too, where only measurements by other means speak against it.
    """
    kept, asked = list(components), []
    alike = kept
    for item in evidence:
        asked.append(item)
        kept = _near_best(kept, item)
        alike = kept if len(asked) == 1 else alike
        if len(kept) < 2:
            break
    kept = _likeliest(kept, asked, crossing)
    first = min((_order(each, changed) for each in kept), default=0)
    kept = [each for each in kept if _order(each, changed) == first]
    if first != _CHANGED:
        kept += _likeliest([each for each in alike if each in changed], asked, crossing)
    return tuple(kept)


_CHANGED, _HARDWARE, _UNCHANGED = range(3)


def _order(component: Component, changed: Collection[Component]) -> int:
    if component in changed:
        return _CHANGED
    return _UNCHANGED if component.kind.is_software else _HARDWARE


def _near_best(components: Collection[Component], evidence: LogLikelihoods) -> list[Component]:
    best = max((evidence.get(each, 0.0) for each in components), default=0.0)
    return [each for each in components if best - evidence.get(each, 0.0) < DOUBT]


def _likeliest(
    components: Collection[Component], evidence: Iterable[LogLikelihoods], crossing: Mapping[Component, int]
) -> list[Component]:
    """Those that no evidence rules out; where none tells them apart at all, those which the fewest cross. Likeliest
    first; of peers a part of a node, not the node."""
    kept, likelihoods = list(components), {each: 0.0 for each in components}
    for item in evidence:
        kept = _near_best(kept, item)
        likelihoods = {each: likelihoods[each] + item.get(each, 0.0) for each in kept}
    if all(math.isclose(likelihoods[each], likelihoods[kept[0]], abs_tol=1e-9) for each in kept):
        fewest = min((crossing[each] for each in kept), default=0)
        kept = [each for each in kept if crossing[each] == fewest]
    return sorted(
        kept,
        key=lambda component: (
            -round(likelihoods[component], 9),
            crossing[component],
            component.kind is Kind.NODE,
            component,
        ),
    )
