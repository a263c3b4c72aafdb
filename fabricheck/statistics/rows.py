"""Work on the rows of large arrays, some at a time: what they need in between stays small, and the cores share them."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from fabricheck.statistics.constants import AT_ONCE, MOST_STEPS, PRIOR_METRICS
from fabricheck.waiting import steps

Arrays = tuple[npt.NDArray[np.generic], ...]


def by_rows(work: Callable[[slice], Arrays], rows: int) -> Arrays:
    """The arrays that `work` returns for slices of so many rows, put together; they do not depend on how it is cut."""
    parts = [slice(first, min(first + AT_ONCE, rows)) for first in range(0, rows, AT_ONCE)]
    if len(parts) < 2:
        return work(slice(0, rows))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        results = list(steps(threads.map(work, parts), len(parts), f"parts of {AT_ONCE:,} metrics"))
    return tuple(np.concatenate(each) for each in zip(*results, strict=True))


def sample_of(rows: npt.NDArray[np.int64], most: int = 4096) -> npt.NDArray[np.int64]:
    """Some of many rows, evenly: what a thousand metrics have in common, these tell as well."""
    return rows[:: -(-rows.size // most)] if rows.size > most else rows


def shares_of(likelihoods: npt.NDArray[np.float64], prior: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How common each kind is among metrics, shape (kinds,), by the likelihood of each for each metric, (metrics,
    kinds), and how common it is before anything was measured (empirical Bayes: Robbins, 1956)."""
    share = prior
    for _ in range(MOST_STEPS):
        weights = likelihoods * share
        weights /= weights.sum(axis=1, keepdims=True)
        share = (weights.sum(axis=0) + PRIOR_METRICS * prior) / (len(likelihoods) + PRIOR_METRICS)
    return share
