"""Which pairs are measured in which round: a rule, evaluated round by round, in place of a list of all pairs.

`src/fabricbench/pair_rule.hpp` is the same rule; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Pairs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PairRule:
    """All pairs of `ranks` ranks with the same place in their groups of `group` consecutive ranks, which fill them.

    Of groups of one that is all pairs. `in_rounds`: by the circle method, so that a round holds each rank once at most,
    and each unordered pair of groups meets once; else each pair by itself, in ascending order. With two `directions` a
    pair is measured from either rank; the round with the pairs turned around follows at once. Of the `turns` of the
    circle (0: all) there may be fewer, evenly spread over them: a screen, in which each group meets so many others.
    """

    ranks: int
    group: int
    directions: int
    in_rounds: bool
    turns: int = 0

    @classmethod
    def of(cls, series: Mapping[str, Any]) -> PairRule:
        """That of a series of a plan with a `rule`."""
        rule = series["rule"]
        in_rounds = series["schedule"] == "contended"
        return cls(rule["ranks"], rule["group"], rule["directions"], in_rounds, rule.get("turns", 0))

    @property
    def groups(self) -> int:
        """The number of groups."""
        return self.ranks // self.group

    @property
    def is_possible(self) -> bool:
        """Whether the groups are full, and there are two of them at least."""
        full = self.groups >= 2 and self.groups * self.group == self.ranks
        some = self.turns == 0 or (self.in_rounds and self.turns < self.all_turns)
        return full and some and self.directions in (1, 2)

    @property
    def all_turns(self) -> int:
        """In how many turns of the circle all groups have met."""
        return self.groups - 1 + self.groups % 2

    def __len__(self) -> int:
        """The number of pairs."""
        if self.in_rounds:
            return (self.turns or self.all_turns) * (self.groups // 2) * self.group * self.directions
        return self.ranks * (self.groups - 1) // 2 * self.directions

    @property
    def round_count(self) -> int:
        """The number of rounds; of pairs by themselves that of the pairs."""
        return (self.turns or self.all_turns) * self.directions if self.in_rounds else len(self)

    def rounds(self) -> Iterator[tuple[int, Pairs]]:
        """The number of each round, -1 where there are none, and its pairs: (n, 2), source and destination."""
        if self.in_rounds:
            own = self.turns or self.all_turns
            for turn in range(own):
                pairs = self._met(turn * self.all_turns // own)
                for direction in range(self.directions):
                    yield turn * self.directions + direction, pairs[:, ::-1] if direction else pairs
            return
        everyone = np.arange(self.ranks)
        for source in range(self.ranks):
            partners = everyone[everyone % self.group == source % self.group]
            partners = partners[partners != source] if self.directions == 2 else partners[partners > source]
            for destination in partners:
                yield -1, np.array([[source, destination]])

    def _met(self, turn: int) -> Pairs:
        """The pairs of a turn of the circle: the first group stays, the others move on."""
        size = self.groups + self.groups % 2  # who meets the one too many rests
        circle = np.concatenate(([0], (np.arange(size - 1) - turn) % (size - 1) + 1))
        met = np.sort(np.stack((circle[: size // 2], circle[: size // 2 - 1 : -1]), axis=1), axis=1)
        met = met[met[:, 1] < self.groups]
        met = met[np.argsort(met[:, 0])]
        places = np.arange(self.group)
        pairs: Pairs = (met[:, None, :] * self.group + places[None, :, None]).reshape(-1, 2)
        return pairs

    def hash_text(self) -> str:
        """The sum of all (round, source, destination), each mixed, as the header of a result file gives it."""
        total = np.uint64(0)
        with np.errstate(over="ignore"):
            for number, pairs in PairRule(self.ranks, self.group, self.directions, True, self.turns).rounds():
                ends = pairs.astype(np.uint64)
                keys = np.uint64(number + 1 if self.in_rounds else 0) << np.uint64(42) | ends[:, 0] << np.uint64(21)
                total += _mixed(keys | ends[:, 1]).sum(dtype=np.uint64)
        return f"{int(total):016x}"


def planned_groups(header: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The groups of the plan in a header, in its order: each as a series with `round` and `ranks`, written out.

    None of a rule for another number of ranks, with which the header is not valid.
    """
    for series in header["plan"]["series"]:
        if "rule" not in series:
            yield series
            continue
        if series["rule"]["ranks"] != len(header["ranks"]):
            continue
        same = {name: value for name, value in series.items() if name != "rule"}
        for number, pairs in PairRule.of(series).rounds():
            for pair in pairs.tolist():
                yield {**same, "round": number, "ranks": pair}


def _mixed(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The mixing function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, figure 15)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = value ^ (value >> np.uint64(31))
    return mixed
