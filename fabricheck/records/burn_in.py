"""What went on in a burn-in, window by window: how fast each rank was, and what its GPU reported beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fabricheck.records.node_state import States
from fabricheck.records.operations import DATA_TYPES

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

#: The phase in which all goes on at the same time.
TOGETHER = "together"
#: Bytes of the numbers that are multiplied, by type.
_BYTES = {**DATA_TYPES, "float64": 8}


@dataclass(frozen=True)
class Product:
    """The matrix product of a burn-in. `type`: of the numbers that are multiplied; `order`: rows of the square
    matrices; `by`: which library multiplies, with its version, or `kernel`, by rank."""

    type: str
    order: int
    by: tuple[str, ...]

    @property
    def operations(self) -> int:
        """Floating-point operations."""
        return 2 * self.order**3

    @property
    def bytes(self) -> int:
        """Bytes of the three matrices, by which its metrics are in Gb/s."""
        return 3 * self.order**2 * _BYTES[self.type]

    @property
    def gbps_of_tflops(self) -> float:
        """Gb/s at 1 Tflop/s."""
        return 8e3 * self.bytes / self.operations


@dataclass(frozen=True, eq=False)
class BurnIn:
    """`phases`: of each window.

    `medians`: of a window's iterations in ns, shape (windows, ranks), 0 where there were
    none, of `products`, `traffic`, `copies`, and of how late a rank was for the others in a `ring` and an `allreduce`.
    `wrong`: words of products that differ from the right ones, by rank; `wrong_bytes`: of the
    traffic. `states`: the GPUs that ranks drive in the first and in the last window. `why_no_library`: why a library
    that was to multiply does not, of the first rank without; empty where it does.
    """

    phases: tuple[str, ...]
    medians: Mapping[str, Counts]
    wrong: tuple[int, ...]
    wrong_bytes: int
    states: States = field(default_factory=States)
    why_no_library: str = ""

    @property
    def together(self) -> npt.NDArray[np.bool_]:
        """The windows in which all went on at the same time, shape (windows,)."""
        return np.array([phase == TOGETHER for phase in self.phases], dtype=bool)
