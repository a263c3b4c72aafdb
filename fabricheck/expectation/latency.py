"""Floors of latency: what a collective cannot beat, and below which no measured value can be right."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fabricheck.errors import UserError

_ROUNDS = {"broadcast": 1, "reduce": 1, "allreduce": 2, "allgather": 2, "reduce_scatter": 2}

# The least one-way time in microseconds that anything could take; well below what was ever measured, so that only a
# wrong clock or a transfer that did not happen falls under it.
_SHARED_MEMORY_US = 0.02  # one cache line between two cores takes tens of ns
_DEVICE_US = 0.1  # one crossing of PCIe or NVLink; nvbandwidth reads a peer's memory in 0.8 us on an H200
_LAUNCH_US = 0.5  # a copy or kernel that is launched and waited for
_NETWORK_US = 0.3  # two NICs and a switch; the best of De Sensi §V-B2 is 1.02 us


def collective_floor_us(latency_us: npt.ArrayLike, operation: str) -> float:
    """Least latency of a collective, in us, from a matrix of pair latencies (Schieffer §VI).

    The lowest latency of any pair, once for collectives of one round (broadcast, reduce) and twice for
    those that aggregate and spread (allreduce, allgather, reduce_scatter). `latency_us`: shape (n, n), n >= 2; the
    diagonal and NaN are ignored. Raises UserError for another shape or operation.
    """
    if operation not in _ROUNDS:
        raise UserError(f"{operation!r} is no collective: {', '.join(_ROUNDS)}")
    matrix = np.array(latency_us, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 2:
        raise UserError(f"a latency matrix is square and has at least two devices, not the shape {matrix.shape}")
    np.fill_diagonal(matrix, np.nan)
    if np.isnan(matrix).all():
        raise UserError("the latency matrix has no value")
    return _ROUNDS[operation] * float(np.nanmin(matrix))


def least_plausible_us(transport: str, *, between_nodes: bool, devices: bool) -> float:
    """One-way time in us below which a latency cannot be right."""
    least = _SHARED_MEMORY_US
    if devices:
        least = _DEVICE_US if transport == "mpi" else _LAUNCH_US
    return max(least, _NETWORK_US) if between_nodes else least
