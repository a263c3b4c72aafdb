"""What nodes of a metric differ by, where sessions measure it on some of them, others each time.

A value is taken to be the level of its session, times what its node usually differs by, times noise. The effect of a
node is the best linear unbiased prediction from the sessions before (Henderson, 1975): its mean, drawn to that of all
nodes the more, the fewer sessions it had; both variances come from the moments of all nodes (Searle, Casella and
McCulloch, *Variance Components*, 1992, section 3.6). Of a node with few sessions before, the effect is known less well:
a value of it is drawn to the level until it strays as much from that as those of known nodes do. So neither is a new
node a loss, nor do the first sessions of nodes count as noise. A session's value depends on it and on those before.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fabricheck.statistics.constants import BEFORE, CLIP, FEWEST, FEWEST_FOR_MIDDLE

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def without_node_effects(cells: pl.DataFrame) -> pl.DataFrame:
    """The `value` of each row as if on a node like the middle one, by its `nodes`, which are a list of names; as it was
    where nothing is known of them. `away`: the logarithm of what was measured over the level of its metric; null of
    metrics that were always on the same nodes.

    `row` and `place` are the numbers of metric and session.
    """
    # Most metrics of a fleet are a node's own, and those are many.
    turns = cells.group_by("row").agg(pl.col("nodes").hash().n_unique().alias("turns")).filter(pl.col("turns") > 1)
    cells = cells.with_columns(away=pl.lit(None, pl.Float64))
    if turns.is_empty():
        return cells
    several = cells.join(turns, on="row", how="semi", maintain_order="left").sort("row", "place", maintain_order=True)
    where = pl.col("nodes").list.sort().list.join("+").fill_null("")
    several = several.with_columns(where=where.rank("dense").over("row").cast(pl.Int64) - 1)
    same = cells.join(turns, on="row", how="anti", maintain_order="left")
    changed = []
    for metric in several.partition_by("row", maintain_order=True):
        alike, away = _alike(metric["place"].to_numpy(), metric["where"].to_numpy(), np.log(metric["value"].to_numpy()))
        changed.append(metric.drop("where").with_columns(value=pl.Series(np.exp(alike)), away=pl.Series(away)))
    return pl.concat([same, *changed])


def _alike(place: Ints, where: Ints, logs: Floats) -> tuple[Floats, Floats]:
    """The values of one metric without what their nodes differ by, by the values of the sessions before, and how far
    they were from its level with that; shapes (values,)."""
    count, total, squares = (np.zeros(int(where.max()) + 1) for _ in range(3))
    levels: deque[tuple[float, float]] = deque(maxlen=BEFORE)  # of sessions, and what is unknown of their nodes
    levelled, away = np.zeros(logs.size), np.zeros(logs.size)
    ends = np.append(np.flatnonzero(np.diff(place)) + 1, logs.size)
    for start, end in zip(np.append(0, ends[:-1]), ends, strict=True):
        nodes, known = where[start:end], _known(count, total, squares)
        left = logs[start:end] - known.effect[nodes]
        levels.append((float(np.median(left)), float(known.unknown[nodes].mean())))
        if left.size >= FEWEST_FOR_MIDDLE:
            level, drawn = levels[-1][0], np.ones(left.size)
        else:
            values, unknown = np.array(levels).T
            level, typical = float(np.median(values)), 1 / (1 / known.variance(unknown)).mean()
            # So that it strays no more than those before.
            drawn = np.minimum(np.sqrt(typical / known.variance(known.unknown[nodes])), 1.0)
        levelled[start:end], away[start:end] = level + drawn * (left - level), logs[start:end] - level
        reach = CLIP * np.sqrt(known.between + known.within)
        moved = known.effect[nodes] + np.clip(left - level, -reach, reach)
        np.add.at(count, nodes, 1.0)
        np.add.at(total, nodes, moved)
        np.add.at(squares, nodes, moved**2)
    return levelled, away


@dataclass(frozen=True, eq=False)
class _Known:
    """What is known of nodes: the effect of each, and what share of the variance `between` nodes is unknown of it, both
    shape (nodes,). `within`: the variance of values of one node."""

    effect: Floats
    unknown: Floats
    between: float
    within: float

    def variance(self, unknown: npt.ArrayLike) -> Floats:
        """Of a value less the effect of its node, of which this share is unknown."""
        return np.maximum(self.within + np.asarray(unknown) * self.between, 1e-300)


def _known(count: Floats, total: Floats, squares: Floats) -> _Known:
    """By the number of the values of each node, their sum and that of their squares."""
    seen = count > 0
    number, nodes = count.sum(), int(seen.sum())
    if nodes < 2 or number - nodes < FEWEST:
        return _Known(np.zeros(count.size), np.ones(count.size), 0.0, 1.0)
    mean = np.divide(total, count, out=np.zeros(count.size), where=seen)
    within = float((squares - count * mean**2).sum()) / (number - nodes)
    grand = float(total.sum()) / number
    between = float((count * (mean - grand) ** 2).sum()) / (nodes - 1)
    alike = (number - float((count**2).sum()) / number) / (nodes - 1)
    variance = max(between - within, 0.0) / alike
    weight = count * variance / np.maximum(count * variance + within, 1e-300)
    return _Known(np.where(seen, weight * (mean - grand), 0.0), 1 - weight, variance, within)
