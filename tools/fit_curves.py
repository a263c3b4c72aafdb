"""Fit the curves of parts to their points: latency, the pipeline's share and the rate of large messages.

    python -m tools.fit_curves        # what each curve of reference_values/parts should say

Time = latency + pipeline x sqrt(latency x bytes / rate) + bytes / rate is linear in 1, sqrt(bytes) and bytes (the root
of FULL_BYTES at most); the least squares of relative errors with none negative (Lawson and Hanson 1974) give them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from fabricheck.limits.achievable import FULL_BYTES, TimeOverSize
from fabricheck.units import parse_size
from fabricheck.yardsticks.part_values import load_parts

ROOT = Path(__file__).resolve().parent.parent


def fitted(points: Sequence[tuple[str, float]]) -> tuple[TimeOverSize, float]:
    """The curve through points of size and time in us, and the largest relative error of a time."""
    sizes = np.array([float(parse_size(size)) for size, _ in points])
    times = np.array([time for _, time in points])
    terms = np.stack([np.ones_like(sizes), np.sqrt(np.minimum(sizes, FULL_BYTES)), sizes], axis=1)
    (latency, root, per_byte), _ = nnls(terms / times[:, None], np.ones_like(times))
    curve = TimeOverSize(float(latency), float(8e-3 / per_byte), float(root / np.sqrt(latency * per_byte)))
    errors = [abs(curve.time_us(size) / time - 1) for size, time in zip(sizes, times, strict=True)]
    return curve, max(errors)


def main() -> int:
    for part in load_parts(ROOT / "reference_values" / "parts"):
        for known in part.curves:
            curve, error = fitted(known.points)
            numbers = f"latency_us: {curve.latency_us:.4g}, pipeline: {curve.pipeline:.3g}, gbps: {curve.gbps:.4g}"
            print(f"{part.part}: {known.conditions}: {numbers}, within: {error:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
