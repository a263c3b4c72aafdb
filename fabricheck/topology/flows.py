"""Flows and cuts of a directed graph with capacities: what links allow, whatever the algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: Of networks with more vertices not all cuts are looked at: 65,536 take 0.1 s.
MOST_VERTICES = 16


@dataclass(frozen=True, eq=False)
class FlowNetwork:
    """`capacity[u, v]`: Gb/s from vertex u to vertex v, 0 without a link. The first vertices are the `terminals`, by
    their names: GPUs that send and receive. All others only forward."""

    terminals: tuple[str, ...]
    capacity: Matrix

    @property
    def has_all_cuts(self) -> bool:
        """Whether `cuts` are all that there are, so that the least is what flows reach (Ford and Fulkerson)."""
        return len(self.capacity) <= MOST_VERTICES

    @cached_property
    def cuts(self) -> tuple[Mask, Matrix]:
        """Which terminals are on the sending side of each cut, shape (cuts, terminals), some but not all, and Gb/s of
        the links from there to the other side, (cuts,). Of a large network those around one terminal."""
        vertices, size = len(self.capacity), len(self.terminals)
        if self.has_all_cuts:
            members = (np.arange(1 << vertices)[:, None] >> np.arange(vertices) & 1).astype(np.float64)
        else:
            alone = np.eye(vertices)[:size]
            members = np.concatenate([alone, 1 - alone])
        inside = members[:, :size] > 0
        parts = inside.any(axis=1) & ~inside.all(axis=1)
        members = members[parts]
        return inside[parts], ((members @ self.capacity) * (1 - members)).sum(axis=1)

    def out_of(self, members: Mask) -> float:
        """The least cut, in Gb/s, from these terminals to all others; infinite where it was not looked at."""
        inside, rates = self.cuts
        return float(min(rates[(inside == members).all(axis=1)], default=np.inf))


def widest_rates(network: FlowNetwork) -> Matrix:
    """Rate of the widest single path between each two terminals; shape (n, n), infinite on the diagonal, 0 if none."""
    widest, size = network.capacity.copy(), len(network.terminals)
    np.fill_diagonal(widest, np.inf)
    for middle in range(len(widest)):
        np.maximum(widest, np.minimum(widest[:, middle, None], widest[None, middle, :]), out=widest)
    rates: Matrix = widest[:size, :size]
    return rates
