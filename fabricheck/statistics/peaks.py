"""How improbable a value is by what was seen: values in order, and a generalised Pareto distribution beyond them.

Peaks over a threshold (Pickands, Annals of Statistics 3, 1975), fitted by probability weighted moments (Hosking and
Wallis, Technometrics 29, 1987). Noise of real machines has other tails than a normal distribution, and a thousand
metrics have enough values between them to know theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import boxcox, inv_boxcox

from fabricheck.statistics.constants import FEWEST_FOR_TAIL, MOST_PEAKS, PEAKS

Floats = npt.NDArray[np.float64]

# A tail is taken to be no thinner than about a normal one, which has -0.1 to -0.2 there; one without a mean is cut off.
_SHAPES = (-0.1, 0.9)


@dataclass(frozen=True, eq=False)
class ParetoTail:
    """The upper tail of values: `ordered` are all of them; beyond `threshold` lies the share `share` of them, as a
    generalised Pareto distribution with `shape` and `scale`."""

    ordered: Floats
    threshold: float
    share: float
    shape: float
    scale: float

    def probability(self, value: npt.ArrayLike) -> Floats:
        """How probable a value so large or larger is; counted below the threshold, by the fit above it."""
        wanted = np.asarray(value, dtype=np.float64)
        counted = 1 - np.searchsorted(self.ordered, wanted, side="left") / self.ordered.size
        reached = np.clip((wanted - self.threshold) / self.scale, 0.0, -1 / self.shape if self.shape < 0 else None)
        beyond = self.share * inv_boxcox(-reached, -self.shape)
        return np.asarray(np.where(wanted > self.threshold, beyond, counted))

    def quantile(self, probability: float) -> float:
        """The value that is exceeded with this probability."""
        if probability >= self.share:
            return float(np.quantile(self.ordered, 1 - probability))
        return self.threshold + -self.scale * float(boxcox(probability / self.share, -self.shape))


def upper_tail(
    values: npt.ArrayLike, peaks: int | None = None, prior: tuple[float, int] = (0.0, 0)
) -> ParetoTail | None:
    """The upper tail of `values`, of any shape, NaN left out; None where they are fewer than FEWEST_FOR_TAIL.

    `peaks`: so many of the largest make it. `prior`: its shape before it was looked at, with the weight of so many.
    """
    ordered = np.asarray(values, dtype=np.float64).ravel()
    ordered = np.sort(ordered[np.isfinite(ordered)])
    if ordered.size < FEWEST_FOR_TAIL:
        return None
    peaks = min(MOST_PEAKS, int(PEAKS * ordered.size)) if peaks is None else peaks
    threshold = float(ordered[-peaks - 1])
    excess = ordered[-peaks:] - threshold
    mean = float(excess.mean())
    if mean <= 0:  # all the largest values are equal
        return ParetoTail(ordered, threshold, peaks / ordered.size, 0.0, max(abs(threshold), 1.0) * 1e-12)
    # Hosking and Wallis write k for -shape; the plotting positions are theirs too.
    place = (np.arange(1, peaks + 1) - 0.35) / peaks
    told = 2 - mean / (mean - 2 * float(np.mean((1 - place) * excess)))
    shape = float(np.clip((peaks * told + prior[1] * prior[0]) / (peaks + prior[1]), *_SHAPES))
    return ParetoTail(ordered, threshold, peaks / ordered.size, shape, mean * (1 - shape))
