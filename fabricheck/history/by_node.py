"""Levels of nodes, where runs of a metric on several nodes, or between several pairs of them, tell of it.

A node that is a little faster than the others stays so. What it usually differs by is not noise between runs: bounds
are of what is left, around the level of each node that had enough runs. Of a node that was never seen the difference is
not known, so it belongs to the bound of the general value. Levels of single nodes are robust centres; between two nodes
the differences of both add up (least squares, residuals cut off: Huber, *Robust Statistics*, 1981, section 7.8). Pairs
that do not tell their two nodes from each other, since these always meet, have a level as a pair. Whether nodes differ
at all is asked first (analysis of variance: Searle, Casella and McCulloch, *Variance Components*, 1992, chapter 3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import fdtrc

from fabricheck.history.robust import centre_and_spread, prediction_factor
from fabricheck.history.series import KEY, nodes_crossed
from fabricheck.judge.constants import (
    CUT,
    FEWEST,
    FEWEST_FOR_MIDDLE,
    MOST,
    MOST_NODES_OF_PAIRS,
    MOST_STEPS,
    RARELY,
    RESOLUTION,
    SETTLED,
)
from fabricheck.judge.evidence import short_name

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
        return math.hypot(reach, several * prediction_factor(max(self.count, FEWEST), rate) * self.spread)

    def reach_of_known(self, reach: float) -> float:
        """The same (logarithm) of a run on nodes of `differences`: its level is of fewer runs than the middle is."""
        return reach * math.sqrt((1 + self.error) / (1 + 1 / self.rows.height))


@dataclass(frozen=True, eq=False)
class _Fit:
    """Levels of nodes (or of pairs), as logarithms, which add up to that of a run.

    `centres`, shape (nodes,), and their `variance` in those of the noise, (nodes, nodes), or (nodes,) where they are
    independent; `told`: whether the runs tell a node's level at all. `fitted`, shape (runs,): the levels of runs, which
    have `leverage`: the share of a run's own value in it. `freedom`: of how many levels.
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
    def own(self) -> Floats:
        """The variance of each level."""
        return self.variance if self.variance.ndim == 1 else self.variance.diagonal()

    @property
    def enough(self) -> npt.NDArray[np.bool_]:
        """Which are told as well as by FEWEST runs."""
        return np.asarray(self.told & (self.own * FEWEST <= 1 + 1e-9))

    @property
    def tells(self) -> bool:
        """Whether both levels and noise are told well enough."""
        freedom = int((self.leverage <= MOST).sum()) - self.freedom
        return int(self.told.sum()) > 1 and int(self.enough.sum()) >= self.ends and freedom >= FEWEST

    def between(self, chosen: npt.NDArray[np.bool_]) -> float:
        """What the error of their levels adds to the variance between chosen nodes."""
        shared = self.own[chosen].mean()
        if self.variance.ndim == 1:
            return float(shared)
        some, number = self.variance[np.ix_(chosen, chosen)], int(chosen.sum())
        return float((some.trace() - some.sum() / number) / (number - 1))

    def largest(self, chosen: npt.NDArray[np.bool_]) -> float:
        """The largest variance of the level of a run on chosen nodes."""
        own = self.own[chosen]
        if self.variance.ndim == 1:
            return float(own.max())
        pairs = own[:, None] + own + 2 * self.variance[np.ix_(chosen, chosen)]
        return float(pairs[~np.eye(own.size, dtype=bool)].max(initial=0.0))


def nodes_of(rows: pl.DataFrame) -> Nodes | None:
    """How nodes differ by the runs of one metric; None where they do not, or where that is unknown.

    Unknown for runs between more than two nodes, of nodes with fewer runs, and of a metric that failed.
    """
    if rows["nodes"].null_count() or (rows["verdict"] == "FAIL").any():
        return None
    names = rows.select(nodes_crossed()).to_series().to_list()
    crossed = [tuple(sorted({*map(short_name, each)})) for each in names]
    ends = len(crossed[0])
    if ends not in (1, 2) or any(len(each) != ends for each in crossed) or len(set(crossed)) < 2:
        return None
    logs = np.log(rows["value"].to_numpy())
    few = len({node for each in crossed for node in each}) <= MOST_NODES_OF_PAIRS
    fit = _of_ends(logs, np.array(crossed)) if ends == 2 and few else None
    if fit is None or not fit.tells:
        fit = _of_each(logs, np.array(["+".join(each) for each in crossed]))
    return _differing(rows, logs, fit) if fit.tells else None


def _differing(rows: pl.DataFrame, logs: Floats, fit: _Fit) -> Nodes | None:
    kept = fit.leverage <= MOST
    runs, nodes, enough = int(kept.sum()), int(fit.told.sum()), fit.enough
    # Around a level that they tell themselves these vary less than around the true one.
    left = (logs - fit.fitted) / np.sqrt(np.where(kept, 1 - fit.leverage, 1.0))
    noise = max(float(centre_and_spread(left[kept]).spread), RESOLUTION)
    centres = centre_and_spread(fit.centres[fit.told])
    middle = fit.ends * float(centres.centre)
    between = float(((fit.fitted[kept] - middle) ** 2).sum()) / (fit.freedom - 1)
    spread = math.sqrt(max(float(centres.spread) ** 2 - noise**2 * fit.between(fit.told), 0.0))
    if spread == 0 or fdtrc(fit.freedom - 1, runs - fit.freedom, between / noise**2) > RARELY:
        return None
    alike = rows.with_columns(value=pl.Series(np.exp(middle + left))).filter(pl.Series(kept))
    own = fit.centres - centres.centre
    differences = {str(fit.names[each]): float(own[each]) for each in np.flatnonzero(enough)}
    return Nodes(alike, differences, fit.largest(enough), spread, nodes, fit.ends)


def _of_each(logs: Floats, hosts: npt.NDArray[np.str_]) -> _Fit:
    """The centre of the values of each node, or pair."""
    names, where, counts = np.unique(hosts, return_inverse=True, return_counts=True)
    order = np.argsort(where, kind="stable")
    starts = np.append(0, np.cumsum(counts)[:-1])
    table = np.full((counts.size, int(counts.max())), np.nan)
    table[where[order], np.arange(where.size) - starts[where[order]]] = logs[order]
    centres = np.asarray(centre_and_spread(table).centre)
    told = counts >= FEWEST_FOR_MIDDLE
    leverage = np.where(told[where], 1 / counts[where], 1.0)
    return _Fit(names, 1, centres, 1 / counts, told, centres[where], leverage, int(told.sum()))


def _of_ends(logs: Floats, hosts: npt.NDArray[np.str_]) -> _Fit:
    """The levels of the two nodes of each run, `hosts` of shape (runs, 2), that add up to it."""
    names, where = np.unique(hosts, return_inverse=True)
    where = where.reshape(hosts.shape)
    used = np.ones(logs.size, dtype=bool)
    while True:
        counts = np.bincount(where[used].ravel(), minlength=names.size)
        rare = used & (counts[where] < FEWEST_FOR_MIDDLE).any(axis=1)
        if not rare.any():
            break
        used &= ~rare
    design = np.zeros((logs.size, names.size))
    design[np.arange(logs.size)[:, None], where] = 1.0
    size, axes = np.linalg.eigh(design[used].T @ design[used])
    axes = axes[:, size > 1e-9 * max(size.max(), 1.0)] if used.any() else axes[:, :0]
    # Of nodes that met only each other, or only one node, the sums are known and not the levels.
    told = (counts > 0) & ((axes**2).sum(axis=1) > 1 - 1e-6)
    variance = (axes / size[size.size - axes.shape[1] :]) @ axes.T
    if 2 * told[where].all(axis=1).mean() < 1:  # pairs that most runs do not tell from each other have levels as pairs
        told[:] = False
    leverage = np.where(used, ((design @ variance) * design).sum(axis=1), 1.0)
    solve = variance @ design[used].T
    centres = solve @ logs[used]
    for _ in range(MOST_STEPS if told.any() else 0):
        fitted = design[used] @ centres
        left = logs[used] - fitted
        reach = CUT * centre_and_spread(left / np.sqrt(np.maximum(1 - leverage[used], 1e-3))).spread
        before, centres = centres, solve @ (fitted + np.clip(left, -reach, reach))
        if np.abs(centres - before).max() < SETTLED:
            break
    return _Fit(names, 2, centres, variance, told, design @ centres, leverage, axes.shape[1])


def measured_at_once(history: pl.DataFrame) -> int:
    """The most values of one session: one for each metric, and for each node that has it."""
    of = pl.struct(*KEY, pl.col("nodes").list.join("+"))
    return int(history.group_by("session").agg(of.n_unique().alias("values"))["values"].max() or 0)  # type: ignore[arg-type]
