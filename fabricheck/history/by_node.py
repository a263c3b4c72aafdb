"""Levels of the nodes of a metric of one node, where runs of several nodes tell of it.

A node that is a little faster than the others stays so. What it usually differs by is no noise between runs: bounds are
of what is left, around the level of each node that had enough runs. Of a node that was never seen the difference is not
known, so it belongs to the bound of the general value. Levels are robust centres, and whether nodes differ at all is
asked first (analysis of variance: Searle, Casella and McCulloch, *Variance Components*, 1992, chapter 3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import f

from fabricheck.history.robust import FEWEST, centre_and_spread, prediction_factor
from fabricheck.history.series import KEY
from fabricheck.judge.evidence import short_name

Floats = npt.NDArray[np.float64]

# Of fewer runs of a node nothing is known of their noise.
_FEWEST_OF_NODE = 3
# Nodes that differ by chance this rarely are taken to differ.
_BY_CHANCE = 0.001
# As of a metric (`calibrate`): what a clock cannot tell and nobody acts on.
_LEAST = 0.001


@dataclass(frozen=True)
class NodeLevels:
    """The levels of nodes, in the unit of their metric, and the bounds of all of them, as shares of the level."""

    values: tuple[tuple[str, float], ...]
    lower: float
    upper: float


@dataclass(frozen=True)
class Nodes:
    """How the nodes of a metric differ.

    `rows`: its runs, each as if on a node like the middle one; without those of nodes that had fewer than three.
    `differences`: relative, from the middle, as logarithms, of the nodes that had FEWEST runs or more; `fewest`: how
    many runs the one of them with the fewest had. `spread`: relative, between all `count` nodes.
    """

    rows: pl.DataFrame
    differences: Mapping[str, float]
    fewest: int
    spread: float
    count: int

    def reach_of_any(self, reach: float, rate: float) -> float:
        """How far a run on any node, also on one that was not seen, lies from the middle at most (logarithm).

        `reach`: that of a run on a node whose level is known; `rate`: how often it may be more. Differences are taken
        to be normal, and those of fewer than FEWEST nodes as if so many had told them.
        """
        return math.hypot(reach, prediction_factor(max(self.count, FEWEST), rate) * self.spread)

    def reach_of_known(self, reach: float) -> float:
        """The same of a run on a node of `differences`: its level is of fewer runs than the middle is."""
        return reach * math.sqrt((1 + 1 / self.fewest) / (1 + 1 / self.rows.height))


def nodes_of(rows: pl.DataFrame) -> Nodes | None:
    """How nodes differ by the runs of one metric; None where they do not, or where nothing tells.

    Nothing tells of runs on more than one node at a time, of nodes with fewer runs, and of a metric that failed.
    """
    if (rows["nodes"].list.len() != 1).any() or rows["nodes"].null_count() or (rows["verdict"] == "FAIL").any():
        return None
    hosts = rows["nodes"].list.first().map_elements(short_name, return_dtype=pl.String)
    names, where, counts = np.unique(hosts.to_numpy().astype(str), return_inverse=True, return_counts=True)
    known = counts >= _FEWEST_OF_NODE
    runs, nodes = int(counts[known].sum()), int(known.sum())
    if nodes < 2 or counts.max() < FEWEST or runs - nodes < FEWEST:
        return None
    logs = np.log(rows["value"].to_numpy())
    centres = _centres(logs, where, counts)
    kept = known[where]
    # Around a centre of n values these vary less than around the true one.
    left = (logs - centres[where]) * np.sqrt(counts / np.maximum(counts - 1, 1))[where]
    noise = max(float(centre_and_spread(left[kept]).spread), _LEAST)
    found = centre_and_spread(centres[known])
    between = float((counts[known] * (centres[known] - found.centre) ** 2).sum()) / (nodes - 1)
    spread = math.sqrt(max(float(found.spread) ** 2 - noise**2 * float(np.mean(1 / counts[known])), 0.0))
    if spread == 0 or f.sf(between / noise**2, nodes - 1, runs - nodes) > _BY_CHANCE:
        return None
    middle = float(found.centre)
    enough = np.flatnonzero(counts >= FEWEST)
    alike = rows.with_columns(value=pl.Series(np.exp(middle + left))).filter(pl.Series(kept))
    differences = {str(names[each]): float(centres[each]) - middle for each in enough}
    return Nodes(alike, differences, int(counts[enough].min()), spread, nodes)


def _centres(logs: Floats, where: npt.NDArray[np.intp], counts: npt.NDArray[np.intp]) -> Floats:
    """The centre of each node's values, shape (nodes,)."""
    order = np.argsort(where, kind="stable")
    starts = np.append(0, np.cumsum(counts)[:-1])
    table = np.full((counts.size, int(counts.max())), np.nan)
    table[where[order], np.arange(where.size) - starts[where[order]]] = logs[order]
    return np.asarray(centre_and_spread(table).centre)


def measured_at_once(history: pl.DataFrame) -> int:
    """The most values of one session: one for each metric, and for each node that has it."""
    of = pl.struct(*KEY, pl.col("nodes").list.join("+"))
    return int(history.group_by("session").agg(of.n_unique().alias("values"))["values"].max() or 0)  # type: ignore[arg-type]
