"""How collectives split the ranks of a run into groups, of which each has one of its own: the same number of ranks, the
same distance apart. `groups_of` in `src/fabricbench/patterns.cpp` is the same rule; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Split:
    """Groups of `count` ranks, `stride` apart, which together are all ranks: one side of a grid of ranks."""

    count: int
    stride: int

    @classmethod
    def of(cls, ranks: Sequence[int]) -> Split | None:
        """That of which these ranks could be a group; None of ranks that are not the same distance apart."""
        split = cls(len(ranks), ranks[1] - ranks[0] if len(ranks) > 1 else 1)
        return split if split.stride > 0 and tuple(ranks) == split.group(ranks[0]) else None

    def __str__(self) -> str:
        return f"{self.count}x{self.stride}"

    def group(self, first: int) -> tuple[int, ...]:
        """The ranks of the group that begins with rank `first`."""
        return tuple(range(first, first + self.count * self.stride, self.stride))

    def groups(self, ranks: int) -> Iterator[tuple[int, ...]]:
        """All groups of `ranks` ranks; none where they would not be full."""
        block = self.count * self.stride
        if ranks % block == 0:
            for begin in range(0, ranks, block):
                yield from map(self.group, range(begin, begin + self.stride))

    def fits(self, name: str, ranks: int) -> bool:
        """Whether it is what `name` asks for of `ranks` ranks: `nodes`, `rails` or such as `4x2`; empty: all in one."""
        if name == "rails":
            return self.count * self.stride == ranks
        return self.stride == 1 if name == "nodes" else str(self) == (name or f"{ranks}x1")
