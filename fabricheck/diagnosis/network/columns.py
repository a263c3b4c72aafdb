"""The components of a design that its readings can tell apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabricheck.diagnosis.network.routes import Design, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Columns:
    """The components that readings can tell apart: an entry is a `reading` in a column, which crosses it with the
    probability `share`, and has `room` (see Design.headroom) there. Entries are in the order of columns, which begin
    at `bounds`; `members`: the components of a column that the same readings cross as surely."""

    members: tuple[tuple[int, ...], ...]
    reading: IntArray
    share: FloatArray
    room: FloatArray
    bounds: IntArray

    @classmethod
    def of(cls, design: Design, used: IntArray, most: float) -> Columns:
        """Those of a design, by the readings that are `used`; `most`: the largest loss that is looked for."""
        number = np.full(len(design.places), -1)
        number[used] = np.arange(used.size)
        reading, probability = number[design.reading[design.way]], design.probability[design.way]
        kept = reading >= 0
        keys, entry = np.unique(design.component[kept] * used.size + reading[kept], return_inverse=True)
        share = np.bincount(entry, probability[kept])
        room = np.bincount(entry, probability[kept] * design.headroom[kept]) / share
        share, room = share.round(9), room.round(9)
        alike: dict[tuple[bytes, bytes, bytes], list[int]] = {}
        starts = np.flatnonzero(np.diff(keys // used.size, prepend=-1))
        for own in np.split(np.arange(keys.size), starts[1:]):
            component, crossed = int(keys[own[0]] // used.size), (keys[own] % used.size).tobytes()
            alike.setdefault((crossed, share[own].tobytes(), bytes(8 * own.size)), []).append(component)
            # So much room may be left that no loss of capacity shows: nothing to try.
            if room[own].any() and room[own].min() < most:
                alike.setdefault((crossed, share[own].tobytes(), room[own].tobytes()), []).append(component)
        readings, shares, rooms = (b"".join(each) for each in zip(*alike, strict=True))
        sizes = [len(crossed) // 8 for crossed, *_ in alike]
        return cls(
            tuple(map(tuple, alike.values())),
            np.frombuffer(readings, dtype=np.int64),
            np.frombuffer(shares),
            np.frombuffer(rooms),
            np.cumsum([0, *sizes]),
        )

    @property
    def sizes(self) -> IntArray:
        """How many readings each has."""
        return np.diff(self.bounds)

    def entries(self, column: int) -> slice:
        """Where those of a column are."""
        return slice(self.bounds[column], self.bounds[column + 1])
