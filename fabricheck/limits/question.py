"""A question about one metric, and the limits that answer it: what the parts of this room give each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fabricheck.limits.in_rounds import Company
from fabricheck.topology import transfers
from fabricheck.topology.model import Gpu, Topology

FLOOR_FRACTION = 0.5

# Generous start-up times in us: below the size at which they matter, the floor of a goodput falls with the size. A
# collective of n ranks needs up to n - 1 steps. (CommBench §5.2.4: NCCL above 40 us, MPI 6-8 us between nodes.)
START_UP_US = {
    **dict.fromkeys(("staging", "ccl", "cores"), 100.0),
    **dict.fromkeys(("copy", "kernel", "mpi", "fabric"), 50.0),
}

# Shared memory against `host_copy_gbps`, one core's copy of 64 MiB. Nominal: one such copy for each message. What
# fits the caches moves up to ten times as fast as from memory; more is not plausible. MPI may copy twice, in small
# pieces, on cores that other ranks or virtual machines use too: an order of magnitude is the least to ask, and ranks
# that share cores and memory share that.
CACHE_GAIN = 12.0
SHARED_MEMORY_FLOOR = 0.05
SHARED_MEMORY_START_UP_US = 100.0
SHARED_CORE_START_UP_US = 10_000.0  # ranks that share a core wait for each other's time slice


@dataclass(frozen=True)
class Limits:
    """Gb/s, in the convention of result files; None if unknown. `start_up_us` bounds the floor."""

    nominal: float | None
    expected: float | None
    ceiling: float | None
    start_up_us: float
    source: str
    floor_share: float = 1.0


@dataclass(frozen=True)
class Question:
    """What is to be expected of one series: who transfers what, by which transport, at which schedule."""

    topology: Topology
    operation: str
    transport: str
    schedule: str
    gpus: tuple[Gpu, ...]  # one a rank, in order; empty for the host backend
    ranks: int
    nodes: int
    ends: tuple[str, ...]  # the node or port of each rank in the network; empty where that is not known
    bytes: int
    host_copy_gbps: float | None
    oversubscribed: bool
    host_memory: str | None = None
    buffers: str | None = None
    steps: tuple[transfers.Step, ...] = ()  # of an operation that is a list of messages
    places: tuple[int, ...] = ()  # the node of each rank
    company: int = 0  # ranks that do something else at the same time
    transports: tuple[str, ...] = ()  # of each step
    implementation: str = "library"  # of a collective; `transfers`: each message of its definition, whoever moves it
    beside: Company | None = None  # of a pair or group that goes with others at the same time, where they are known
    nics: tuple[tuple[str, ...], ...] = ()  # of each rank by libfabric; over several a message goes in stripes
    without_switch: str = ""  # the variable that keeps NCCL from reducing in the switch

    @property
    def per_node(self) -> int:
        """Ranks on a node, at least 1."""
        return max(1, self.ranks // self.nodes)

    @property
    def groups(self) -> int:
        """How many collectives a node has a part in at the same time."""
        return self.beside.groups if self.beside else 1

    @property
    def stripes(self) -> int:
        """Over how many NICs each message goes, at least 1."""
        return max(1, min(map(len, self.nics), default=1))

    @property
    def node_gpus(self) -> tuple[Gpu, ...]:
        """The GPUs, each once, in the order of their first rank."""
        return tuple(dict.fromkeys(self.gpus))


def in_turn(rates: Sequence[float]) -> float:
    """The rate of parts of equal size that are transferred one after the other, in the unit of `rates`."""
    time = sum(1 / rate for rate in rates)
    return 1 / time if time else math.inf
