"""What a measurement is, whoever made it: the records that every reader produces and every consumer takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fabricheck.records.burn_in import BurnIn, Product
from fabricheck.records.finding import Finding
from fabricheck.records.node_state import States
from fabricheck.records.operations import ROUND_TRIPS
from fabricheck.records.order_statistics import as_series


def pci_address(bus_id: str) -> str:
    """As Linux writes it, `0000:18:00.0`: some drivers give the domain eight digits."""
    return bus_id.lower()[-12:]


@dataclass(frozen=True)
class Device:
    """A GPU (or GCD, tile) as the runtime library reported it. `tile`: its number where a card has several."""

    index: int
    name: str
    bus_id: str
    uuid: str
    numa_node: int
    memory_bytes: int
    tile: int | None = None

    @property
    def address(self) -> str:
        """Its PCI address (`pci_address`)."""
        return pci_address(self.bus_id)


@dataclass(frozen=True)
class Rank:
    """One MPI rank: where it ran, which GPU it drove (`None` in the host backend, and for a processor), and which NICs,
    as libfabric names them, where it chose them itself."""

    rank: int
    host: str
    local_rank: int
    pid: int
    cpus: str
    numa_node: int
    device: Device | None
    nics: tuple[str, ...] = ()


# More GPUs or nodes in a line are counted.
_MOST_NAMED = 2


def list_ranks(ranks: Iterable[int]) -> str:
    """Ranks in their order, as `0-3,7`."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(f"{first}-{last}" if first != last else str(first) for first, last in spans)


def describe_places(ranks: Sequence[Rank]) -> str:
    """Where ranks ran, for a message: `nid001, GPU 2 at 0000:18:00.0; nid002, GPU 0 at 0000:17:00.0`."""
    hosts: dict[str, list[str]] = {}
    for rank in ranks:
        device = rank.device
        hosts.setdefault(rank.host, []).extend([f"GPU {device.index} at {device.bus_id}"] if device is not None else [])
    return "; ".join(_first([", ".join([host, *_first(gpus)]) for host, gpus in hosts.items()]))


def _first(names: Sequence[str]) -> list[str]:
    more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    return [*names[:_MOST_NAMED], *more]


@dataclass(frozen=True)
class Groups:
    """The parameters (n, g, k) of a pattern between groups (CommBench, section 4.3).

    `count` groups of `size` consecutive ranks, of which the first `active` of a group take part.
    """

    count: int
    size: int
    active: int

    def __str__(self) -> str:
        return f"{self.count}x{self.size}x{self.active}"


@dataclass(frozen=True)
class Samples:
    """The kept iterations of one operation on one pair or group at one size.

    `times_ns`: int64, shape (iterations,), in the order in which they were measured; round trips for a ping-pong.
    Where `statistic` is `mean` the tool printed no iterations: `times_ns` is then one time, the mean of a run, and says
    nothing of the spread. `placement` is where the result went, for tools that measure both.
    `kept_of`: of how many iterations `times_ns` are the order statistics (`fabricheck.records.order_statistics`), in
    ascending order; 0 where it has them all. `rank_error`: the standard error of the rank of their median, from the
    order that these have lost (`fabricheck.statistics.iterations.median_interval`).
    `groups`: only of patterns between groups of ranks and of striping. `messages`: source, destination and bytes of
    each, and the step where it is not the first; only of the messages of matrices.
    `aggressor`: what went on beside a victim, as the messages of a repetition; its times are those of the attacks.
    `cold_us`: the median latency of the first exchange after a pause, where `times_ns` are of later ones, else 0. No
    yardstick is for it.
    """

    operation: str
    implementation: str
    schedule: str
    round: int
    ranks: tuple[int, ...]
    bytes: int
    warmup: int
    stopped: str
    wrong_bytes: int
    times_ns: npt.NDArray[np.int64]
    statistic: Literal["iterations", "mean"] = "iterations"
    placement: Literal["", "out-of-place", "in-place"] = ""
    groups: Groups | None = None
    messages: tuple[tuple[int, ...], ...] = ()
    kept_of: int = 0
    rank_error: float = 0.0
    aggressor: Samples | None = None
    cold_us: float = 0.0

    @property
    def count(self) -> int:
        """The number of iterations."""
        return self.kept_of or self.times_ns.size

    @property
    def in_order(self) -> bool:
        """Whether the iterations are in the order in which they were measured."""
        return not self.kept_of

    @property
    def one_way_ns(self) -> npt.NDArray[np.float64]:
        """Time of one transfer in ns, shape (iterations,): half of a round trip, else the time itself."""
        times = as_series(self.times_ns, self.kept_of) if self.kept_of else self.times_ns.astype(np.float64)
        return times / 2 if self.operation in ROUND_TRIPS else times

    @property
    def goodput_gbps(self) -> npt.NDArray[np.float64]:
        """Goodput of each iteration in Gb/s (10^9 bit/s), shape (iterations,)."""
        return 8.0 * self.bytes / self.one_way_ns

    @property
    def latency_us(self) -> npt.NDArray[np.float64]:
        """Latency of each iteration in microseconds, shape (iterations,)."""
        return self.one_way_ns / 1000.0


@dataclass(frozen=True)
class Run:
    """One result file, read and guarded. A run with `problems` may still hold samples worth seeing.

    `states`: what its nodes said of themselves before and after it. `burn_in`: of a run that went on under load,
    and which `product` that multiplied; the store keeps the second alone.
    """

    path: str
    header: Mapping[str, Any]
    ranks: tuple[Rank, ...]
    samples: tuple[Samples, ...]
    footer: Mapping[str, Any] | None
    problems: tuple[Finding, ...] = field(default=())
    states: States = field(default_factory=States)
    burn_in: BurnIn | None = None
    product: Product | None = None

    @property
    def hosts(self) -> frozenset[str]:
        """Those of its ranks."""
        return frozenset(rank.host for rank in self.ranks)

    @property
    def on_gpus(self) -> bool:
        """Whether its data were in the memory of GPUs, and not of a processor in the place of one (platform `cpu`)."""
        return self.header["backend"] != "host" and self.header.get("platform") != "cpu"
