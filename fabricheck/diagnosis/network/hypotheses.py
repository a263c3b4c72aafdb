"""What can be told apart: hypotheses of faults, each a component or several that are on the same ways."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabricheck.diagnosis.network.routes import FloatArray, IntArray


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
        one, room = way[start:end], headroom[start:end]
        columns.setdefault((one.tobytes(), b""), []).append(int(component[start]))
        # So much room is left that no loss on the grid shows: nothing to try.
        if room.any() and (room < most).any():
            columns.setdefault((one.tobytes(), room.tobytes()), []).append(int(component[start]))
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
