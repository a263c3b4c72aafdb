"""Noise of healthy metrics, from session to session: ten shapes, and what launches on real machines recorded.

Every shape is a function of a random generator, metrics and sessions to an array of shape (metrics, sessions), with a
standard deviation of 1 from session to session (outliers and dips come on top) and positive values worse. What was
recorded is drawn whole launch by whole launch, so that what metrics have in common stays; of fewer metrics than are
asked for, each is taken several times, from other launches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

from benchmarks.launch_noise import values

Floats = npt.NDArray[np.float64]
Generator = np.random.Generator
RESULTS = Path(__file__).parents[1] / "docs" / "results"


@dataclass(frozen=True)
class Shape:
    name: str
    make: Callable[[Generator, int, int], Floats]


def gaussian(rng: Generator, metrics: int, sessions: int) -> Floats:
    return rng.standard_normal((metrics, sessions))


def heavy_tailed(rng: Generator, metrics: int, sessions: int) -> Floats:
    return np.asarray(rng.standard_t(3, (metrics, sessions)) / np.sqrt(3))


def skewed(rng: Generator, metrics: int, sessions: int) -> Floats:
    """An exponential distribution, its tail on the worse side."""
    return rng.standard_exponential((metrics, sessions)) - 1


def bimodal(rng: Generator, metrics: int, sessions: int) -> Floats:
    """30% of the sessions in a mode that is worse by four spreads of a mode."""
    noise = rng.standard_normal((metrics, sessions)) + 4 * (rng.random((metrics, sessions)) < 0.3)
    return np.asarray((noise - 1.2) / np.sqrt(1 + 16 * 0.21))


def dips(rng: Generator, metrics: int, sessions: int) -> Floats:
    """1% of the sessions are worse by 3 to 10 spreads."""
    noise = rng.standard_normal((metrics, sessions))
    return np.asarray(noise + (rng.random(noise.shape) < 0.01) * rng.uniform(3, 10, noise.shape))


def outliers(rng: Generator, metrics: int, sessions: int) -> Floats:
    """1% of the values are ten times as far away, to either side."""
    noise = rng.standard_normal((metrics, sessions))
    return np.where(rng.random(noise.shape) < 0.01, 10 * noise, noise)


def autocorrelated(correlation: float) -> Callable[[Generator, int, int], Floats]:
    def make(rng: Generator, metrics: int, sessions: int) -> Floats:
        noise = rng.standard_normal((metrics, sessions)) * np.sqrt(1 - correlation**2)
        noise[:, 0] /= np.sqrt(1 - correlation**2)
        return np.asarray(lfilter([1], [1, -correlation], noise, axis=1))

    return make


def jumps(rng: Generator, metrics: int, sessions: int) -> Floats:
    """A level that is correlated by 0.7 and whose steps have heavy tails (t3)."""
    return np.asarray(lfilter([1], [1, -0.7], np.sqrt(1 - 0.7**2) * heavy_tailed(rng, metrics, sessions), axis=1))


def beneath(correlation: float, white: float) -> Callable[[Generator, int, int], Floats]:
    """A level that is correlated, beneath noise of launches that is this share of the variance."""
    level = autocorrelated(correlation)
    return lambda *given: np.sqrt(1 - white) * level(*given) + np.sqrt(white) * gaussian(*given)


def weekly(rng: Generator, metrics: int, sessions: int) -> Floats:
    """Half of the variance is that of the days of the week, which each metric has its own of."""
    days = rng.standard_normal((metrics, 7))
    days = (days - days.mean(axis=1, keepdims=True)) / days.std(axis=1, keepdims=True)
    return np.asarray((rng.standard_normal((metrics, sessions)) + days[:, np.arange(sessions) % 7]) / np.sqrt(2))


def common(rng: Generator, metrics: int, sessions: int) -> Floats:
    """70% of the variance is that of the session, the same for all metrics."""
    shared = rng.standard_normal((1, sessions))
    return np.asarray(np.sqrt(0.7) * shared + np.sqrt(0.3) * rng.standard_normal((metrics, sessions)))


@cache
def recorded_launches(archive: str) -> Floats:
    """Medians of the launches of an archive, shape (metrics, launches): logarithms, more is worse, median 0."""
    count, values_by_key = values(RESULTS / f"{archive}.tar.xz")
    rows = []
    for (*_, quantity), metrics in values_by_key.items():
        sign = -1.0 if quantity == "goodput" else 1.0
        for series in metrics.values():
            if len(series) == count:
                rows.append([sign * np.log(np.median(each)) for each in series])
    table = np.asarray(rows)
    return np.asarray(table - np.median(table, axis=1, keepdims=True))


def recorded(archive: str) -> Callable[[Generator, int, int], Floats]:
    def make(rng: Generator, metrics: int, sessions: int) -> Floats:
        table = recorded_launches(archive)
        # Nothing is as exact as a value that came twice: launches drawn again are moved by a tenth of the spread.
        table = table / np.maximum(table.std(axis=1, keepdims=True), 1e-9)
        rows = []
        for _ in range(-(-metrics // len(table))):
            drawn = table[:, rng.integers(table.shape[1], size=sessions)]
            rows.append(drawn + 0.1 * rng.standard_normal(drawn.shape))
        return np.asarray(np.concatenate(rows)[:metrics])

    return make


SHAPES = (
    Shape("Gaussian", gaussian),
    Shape("heavy tails (t3)", heavy_tailed),
    Shape("skewed", skewed),
    Shape("bimodal", bimodal),
    Shape("dips on 1%", dips),
    Shape("tenfold outliers on 1%", outliers),
    Shape("AR 0.5", autocorrelated(0.5)),
    Shape("AR 0.98", autocorrelated(0.98)),
    Shape("weekly", weekly),
    Shape("common factor 70%", common),
)
RECORDED = (
    Shape("recorded, four GPUs", recorded("h200-2026-11-22/launches-4-gpus")),
    Shape("recorded, four other GPUs", recorded("h200-2026-11-22/launches-4-gpus-b")),
    Shape("recorded, two GPUs", recorded("h200x2-2026-11-27/launches-2-gpus")),
    Shape("recorded, one GPU", recorded("h200-2026-11-22/launches-1-gpu")),
    Shape("recorded, one H100", recorded("h100-2026-11-23/launches-1-gpu")),
    Shape("recorded, emulated cluster", recorded("emulated-2026-11-23/sessions-4-nodes")),
)
ALL = (*SHAPES, *RECORDED)
