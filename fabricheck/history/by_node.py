"""Levels of nodes, where runs of a metric on several nodes, or between several pairs of them, tell of it.

A node that is a little faster than the others stays so. What it usually differs by is not noise between runs: bounds
are of what is left, around the level of each node that had enough runs. Of a node that was never seen the difference is
not known, so it belongs to the bound of the general value. Between two nodes the differences of both add up; levels are
those of least squares, residuals cut off (Huber, *Robust Statistics*, 1981, section 7.8). Pairs that do not tell their
two nodes from each other, since these always meet, have a level as a pair. Whether nodes differ at all is asked
first (analysis of variance: Searle, Casella and McCulloch, *Variance Components*, 1992, chapter 3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import fdtrc

from fabricheck.history.series import KEY, nodes_crossed
from fabricheck.records.component import short_host
from fabricheck.statistics.constants import (
    CUT,
    FEWEST,
    FEWEST_FOR_MIDDLE,
    MOST,
    MOST_STEPS,
    RARELY,
    RESOLUTION,
    SETTLED,
)
from fabricheck.statistics.robust import centre_and_spread, prediction_factor

#: Least squares of more nodes than these take minutes for a few metrics.
MOST_NODES_OF_PAIRS = 1000

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NodeLevels:
    """The levels of nodes, or of pairs `a+b`, in the unit of their metric, and the bounds of all of them, as shares of
    the level. That of a node in a metric between two is with another one like the middle one."""

    values: tuple[tuple[str, float], ...]
    lower: float
    upper: float


@dataclass(frozen=True)
class Nodes:
    """How the nodes of a metric differ, or the pairs, where it is these that have levels.

    `rows`: its runs, each as if on nodes like the middle one; without those that say nothing of the noise.
    `differences`: relative, from the middle, as logarithms, of the nodes that had FEWEST runs or more; `error`: the
    largest variance of the level of a run on such nodes, in those of the noise. `spread`: relative, between all `count`
    nodes; `ends`: how many of them a run has.
    """

    rows: pl.DataFrame
    differences: Mapping[str, float]
    error: float
    spread: float
    count: int
    ends: int

    def reach_of_any(self, reach: float, rate: float, unknown: int | None = None) -> float:
        """How far a run on any nodes, also on those that were not seen, lies from the middle at most (logarithm).

        `reach`: that of a run on nodes whose levels are known; `rate`: how often it may be more; `unknown`: of how many
        of its nodes nothing is known (all). Differences are taken to be normal, and those of fewer than FEWEST nodes
        as if so many had told them.
        """
        several = math.sqrt(self.ends if unknown is None else unknown)
        return math.hypot(reach, several * float(prediction_factor(max(self.count, FEWEST), rate)) * self.spread)

    def reach_of_known(self, reach: float) -> float:
        """The same (logarithm) of a run on nodes of `differences`: its level is of fewer runs than the middle is."""
        return reach * math.sqrt((1 + self.error) / (1 + 1 / self.rows.height))


@dataclass(frozen=True, eq=False)
class _Fit:
    """Levels of nodes (or of pairs), as logarithms, which add up to that of a run on `ends` of them.

    `centres` and their `variance` in those of the noise, shapes (nodes,); `told`: whether the runs tell a node's level
    at all. `fitted`, shape (runs,): the levels of runs, which have `leverage`: the share of a run's own value in it.
    `freedom`: of how many levels.
    """

    names: npt.NDArray[np.str_]
    ends: int
    centres: Floats
    variance: Floats
    told: npt.NDArray[np.bool_]
    fitted: Floats
    leverage: Floats
    freedom: int

    @property
    def enough(self) -> npt.NDArray[np.bool_]:
        """Which are told as well as by FEWEST runs."""
        return np.asarray(self.told & (self.variance * FEWEST <= 1 + 1e-9))

    @property
    def tells(self) -> bool:
        """Whether both levels and noise are told well enough."""
        freedom = int((self.leverage <= MOST).sum()) - self.freedom
        return int(self.told.sum()) > 1 and int(self.enough.sum()) >= self.ends and freedom >= FEWEST


def nodes_of(rows: pl.DataFrame) -> Nodes | None:
    """How nodes differ by the runs of one metric; None where they do not, or where that is unknown.

    Unknown for runs between more than two nodes, of nodes with fewer runs, and of a metric that failed.
    """
    if rows["nodes"].null_count() or (rows["verdict"] == "FAIL").any():
        return None
    names = rows.select(nodes_crossed()).to_series().to_list()
    crossed = [tuple(sorted({*map(short_host, each)})) for each in names]
    ends = len(crossed[0])
    if ends not in (1, 2) or any(len(each) != ends for each in crossed) or len(set(crossed)) < 2:
        return None
    logs = np.log(rows["value"].to_numpy())
    few = ends == 1 or len({node for each in crossed for node in each}) <= MOST_NODES_OF_PAIRS
    fit = _fit(logs, np.array(crossed)) if few else None
    if ends == 2 and (fit is None or not fit.tells):
        fit = _fit(logs, np.array([["+".join(each)] for each in crossed]))
    return _differing(rows, logs, fit) if fit is not None and fit.tells else None


def _differing(rows: pl.DataFrame, logs: Floats, fit: _Fit) -> Nodes | None:
    kept = fit.leverage <= MOST
    runs, nodes, enough = int(kept.sum()), int(fit.told.sum()), fit.enough
    # Around a level that they tell themselves these vary less than around the true one.
    left = (logs - fit.fitted) / np.sqrt(np.where(kept, 1 - fit.leverage, 1.0))
    noise = max(float(centre_and_spread(left[kept]).spread), RESOLUTION)
    centres = centre_and_spread(fit.centres[fit.told])
    middle = fit.ends * float(centres.centre)
    between = float(((fit.fitted[kept] - middle) ** 2).sum()) / (fit.freedom - 1)
    spread = math.sqrt(max(float(centres.spread) ** 2 - noise**2 * float(fit.variance[fit.told].mean()), 0.0))
    if spread == 0 or fdtrc(fit.freedom - 1, runs - fit.freedom, between / noise**2) > RARELY:
        return None
    alike = rows.with_columns(value=pl.Series(np.exp(middle + left))).filter(pl.Series(kept))
    own = fit.centres - centres.centre
    differences = {str(fit.names[each]): float(own[each]) for each in np.flatnonzero(enough)}
    return Nodes(alike, differences, fit.ends * float(fit.variance[enough].max()), spread, nodes, fit.ends)


def _fit(logs: Floats, hosts: npt.NDArray[np.str_]) -> _Fit:
    """The levels of the nodes of each run, `hosts` of shape (runs, ends), that add up to it."""
    names, where = np.unique(hosts, return_inverse=True)
    where = where.reshape(hosts.shape)
    used = np.ones(logs.size, dtype=bool)
    while True:
        counts = np.bincount(where[used].ravel(), minlength=names.size)
        rare = used & (counts[where] < FEWEST_FOR_MIDDLE).any(axis=1)
        if not rare.any():
            break
        used &= ~rare
    told, inverse = counts > 0, 1 / np.maximum(counts, 1)  # of a diagonal matrix
    freedom, variance, together = int(told.sum()), inverse, np.zeros(logs.size)
    if hosts.shape[1] == 2:
        first, second = where.T
        squares = np.diag(counts).astype(np.float64)
        np.add.at(squares, (first[used], second[used]), 1.0)
        np.add.at(squares, (second[used], first[used]), 1.0)
        inverse = np.asarray(np.linalg.pinv(squares, rcond=1e-9, hermitian=True), np.float64)
        resolved = (inverse * squares).sum(axis=1)
        # Of nodes that met only each other, or only one node, the sums are known and not the levels.
        told &= resolved > 1 - 1e-6
        if 2 * told[where].all(axis=1).mean() < 1:  # most runs do not tell their nodes apart: pairs have levels
            told[:] = False
        freedom, variance, together = round(resolved.sum()), inverse.diagonal(), 2 * inverse[first, second]
    leverage = np.where(used, variance[where].sum(axis=1) + together, 1.0)
    centres, fitted = np.zeros(names.size), np.zeros(logs.size)
    reach = np.inf
    for _ in range(MOST_STEPS if told.any() else 0):
        values = fitted + np.clip(logs - fitted, -reach, reach)
        sums = np.bincount(where[used].ravel(), np.repeat(values[used], hosts.shape[1]), names.size)
        before, centres = centres, inverse @ sums if inverse.ndim == 2 else inverse * sums
        fitted = centres[where].sum(axis=1)
        left = (logs - fitted)[used] / np.sqrt(np.maximum(1 - leverage[used], 1e-3))
        reach = CUT * float(centre_and_spread(left).spread)
        if np.abs(centres - before).max() < SETTLED:
            break
    return _Fit(names, hosts.shape[1], centres, variance, told, fitted, leverage, freedom)


def measured_at_once(history: pl.DataFrame) -> int:
    """The most values of one session: one for each metric, and for each node that has it."""
    of = pl.struct(*KEY, pl.col("nodes").list.join("+"))
    return int(history.group_by("session").agg(of.n_unique().alias("values"))["values"].max() or 0)  # type: ignore[arg-type]
