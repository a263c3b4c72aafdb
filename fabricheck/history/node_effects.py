"""What nodes of a metric differ by, where sessions measure it on some of them, others each time.

A value is taken to be the level of its session, times what its node usually differs by, times noise. The effect of a
node is the best linear unbiased prediction from the sessions before (Henderson, 1975): its mean, drawn to that of all
nodes the more, the fewer sessions it had; both variances come from the moments of all nodes (Searle, Casella and
McCulloch, *Variance Components*, 1992, section 3.6). A session's value depends on it and on those before.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt
import polars as pl

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Sessions whose middle is the level, where one says too little.
_LEVEL_SESSIONS = 15
_FEWEST_OF_SESSION = 3
# Of fewer values, beyond one a node, nothing is known of the noise.
_FEWEST_AGAIN = 8
# A value moves what is known of its node by no more than this many standard deviations.
_REACH = 4.0


def without_node_effects(cells: pl.DataFrame) -> pl.DataFrame:
    """The `value` of each row less the effect of its `nodes`, which are a list of names; 0 where nothing is known.

    `row` and `place` are the numbers of metric and session. Metrics that were always on the same nodes stay as they
    are.
    """
    # Most metrics of a fleet are a node's own, and those are many.
    turns = cells.group_by("row").agg(pl.col("nodes").hash().n_unique().alias("turns")).filter(pl.col("turns") > 1)
    if turns.is_empty():
        return cells
    several = cells.join(turns, on="row", how="semi", maintain_order="left").sort("row", "place", maintain_order=True)
    where = pl.col("nodes").list.sort().list.join("+").fill_null("")
    several = several.with_columns(where=where.rank("dense").over("row").cast(pl.Int64) - 1)
    same = cells.join(turns, on="row", how="anti", maintain_order="left")
    changed = []
    for each in several.partition_by("row", maintain_order=True):
        effect = _effects(each["place"].to_numpy(), each["where"].to_numpy(), np.log(each["value"].to_numpy()))
        changed.append(each.drop("where").with_columns(value=pl.col("value") / np.exp(effect)))
    return pl.concat([same, *changed])


def _effects(place: Ints, where: Ints, logs: Floats) -> Floats:
    """The effect of the node of each value of one metric, shape (values,), by the values of the sessions before."""
    count, total, squares = (np.zeros(int(where.max()) + 1) for _ in range(3))
    levels: deque[float] = deque(maxlen=_LEVEL_SESSIONS)
    found = np.zeros(logs.size)
    ends = np.append(np.flatnonzero(np.diff(place)) + 1, logs.size)
    for start, end in zip(np.append(0, ends[:-1]), ends, strict=True):
        nodes, effect, deviation = where[start:end], *_predicted(count, total, squares)
        found[start:end] = effect[nodes]
        left = logs[start:end] - effect[nodes]
        levels.append(float(np.median(left)))
        level = levels[-1] if left.size >= _FEWEST_OF_SESSION else float(np.median(levels))
        moved = effect[nodes] + np.clip(left - level, -_REACH * deviation, _REACH * deviation)
        np.add.at(count, nodes, 1.0)
        np.add.at(total, nodes, moved)
        np.add.at(squares, nodes, moved**2)
    return found


def _predicted(count: Floats, total: Floats, squares: Floats) -> tuple[Floats, float]:
    """The effect of each node by the number of its values, their sum and that of their squares; and the standard
    deviation of one more value."""
    seen = count > 0
    number, nodes = count.sum(), int(seen.sum())
    none = np.zeros(count.size)
    if nodes < 2 or number - nodes < _FEWEST_AGAIN:
        return none, np.inf
    mean = np.divide(total, count, out=np.zeros(count.size), where=seen)
    within = float((squares - count * mean**2).sum()) / (number - nodes)
    grand = float(total.sum()) / number
    between = float((count * (mean - grand) ** 2).sum()) / (nodes - 1)
    alike = (number - float((count**2).sum()) / number) / (nodes - 1)
    variance = max(between - within, 0.0) / alike
    weight = count * variance / np.maximum(count * variance + within, 1e-300)
    return np.where(seen, weight * (mean - grand), 0.0), float(np.sqrt(variance + within))
