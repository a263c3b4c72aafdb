"""The noise of readings, and a set of faults with it: normal in logarithms, with outliers that can be anywhere."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr, stdtrit  # that of scipy.stats.t, which takes half a second to import

from fabricheck.diagnosis.network.routes import FloatArray

# So many readings are anything at all, evenly over a range of logarithms: the density of a normal value, without its
# 1/sqrt(2 pi), next to which they stand.
_OUTLIERS, _RANGE = 0.05, 2.0
OUTLIER_DENSITY = _OUTLIERS * math.sqrt(2 * math.pi) / _RANGE
# Readings are taken to be no more exact than this.
_LEAST_NOISE = 1e-3
_COARSEST = 0.011


def density_of(residual: FloatArray, noise: float | FloatArray) -> FloatArray:
    """Density of residuals (logarithms). It is nowhere less than that of outliers, which bounds what one can prove
    (bounded influence: Maronna, Martin, Yohai, Robust Statistics, 2006, section 2.2)."""
    near = (1 - _OUTLIERS) / noise * np.exp(-0.5 * (residual / noise) ** 2)
    density: FloatArray = near + OUTLIER_DENSITY
    return density


def least_noise(y: FloatArray) -> float:
    """The noise that readings (logarithms, shape (R,)) have at least: what they were rounded to, where many are equal,
    and a tenth of a per cent. Equal readings further apart than a per cent are faults and not rounded."""
    values = np.unique(y.round(9))
    if values.size > y.size / 2 or values.size < 2:
        return _LEAST_NOISE
    step = float(np.diff(values).min())
    return max(_LEAST_NOISE, step) if step <= _COARSEST else _LEAST_NOISE


def p_value(gain: float, readings: int, hypotheses: int) -> float:
    """Probability that noise alone gains so much log likelihood somewhere, over all hypotheses (Bonferroni).

    For known routes a fault is a shift of the mean of some readings of normal noise whose width is unknown: twice
    the gain is the monotonic image of a squared Student's t. For unknown routes that is an approximation, which
    the benchmark checks.
    """
    freedom = readings - 2
    squared = freedom * math.expm1(min(2 * max(gain, 0.0) / readings, 700.0))
    return min(1.0, hypotheses * float(stdtr(freedom, -math.sqrt(squared))))


def gain_of(p: float, readings: int, hypotheses: int) -> float:
    """The gain in log likelihood that has the p-value `p`: the inverse of `p_value`."""
    freedom = readings - 2
    return 0.5 * readings * math.log1p(float(stdtrit(freedom, p / hypotheses)) ** 2 / freedom)


@dataclass(frozen=True, eq=False)
class State:
    """Faults with their losses as -log(1 - loss), scale and noise, and what follows from them."""

    faults: tuple[int, ...]
    losses: tuple[float, ...]
    scale: float
    noise: float
    least: float  # the noise is no smaller
    likelihood: float = -math.inf


def without_fault(state: State, position: int) -> State:
    """The same without one of its faults."""
    return replace(
        state,
        faults=state.faults[:position] + state.faults[position + 1 :],
        losses=state.losses[:position] + state.losses[position + 1 :],
    )
