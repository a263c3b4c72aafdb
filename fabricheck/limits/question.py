"""A question about one metric, and the limits that answer it: what the parts of this room give each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fabricheck.limits.in_rounds import Company
from fabricheck.records.run import Groups
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


@dataclass(frozen=True, kw_only=True)
class MeasuredSeries:
    """The measurement that a metric comes from.

    `operation`, `implementation`, `transport`, `schedule` and `bytes` as in the result file. `devices`: the GPU of each
    rank, as node-local index or name, in rank order (source and destination of a pair, the root of a rooted collective
    first); empty for the host backend. `nodes`: on how many nodes the ranks are. `ends`: the node or port of each rank
    in the topology's network, where it has one; `beside`: what else is on the links and NICs of a pair or group in such
    a round. `ranks`: how many; needed only where `devices` is empty or names each GPU of a node once for several nodes
    (default: as many as `devices`, else two for pairs, else one a node and at least two). `oversubscribed`: ranks share
    cores. `host_memory` and `buffers`: the kind of host memory and where the buffers of a pair lie, as in the plan of
    the result file; None where all is on devices. `floor_fraction`: share of `expected` under which a large transfer
    fails; it is lowered by the time that a small one needs to start, and so is `achievable`.
    `nics`: the NICs of each rank with libfabric, by the topology's names or others; over several of them a message goes
    in stripes. `without_switch`: the variable that keeps NCCL from reducing in the switch, where one
    does.

    Of patterns that are lists of messages (`LISTED`): `groups`, their (n, g, k); `messages`, source, destination,
    both counted by place among `devices`, and bytes of each, and the step but for the first; `places`, the node of each
    rank (default: blocks of equal size, one after another); `company`, how many ranks do something else at the same
    time; `step_transports`, those of a striping's split, translate and assemble (default: `transport`).
    """

    operation: str
    implementation: str
    transport: str
    schedule: str
    devices: Sequence[str | int]
    nodes: int
    bytes: int
    quantity: str
    host_copy_gbps: float | None
    ends: Sequence[str] = ()
    beside: Company | None = None
    ranks: int | None = None
    oversubscribed: bool = False
    host_memory: str | None = None
    buffers: str | None = None
    floor_fraction: float = FLOOR_FRACTION
    groups: Groups | None = None
    messages: Sequence[tuple[int, ...]] = ()
    places: Sequence[int] | None = None
    company: int = 0
    step_transports: Sequence[str] = ()
    nics: Sequence[Sequence[str]] = ()
    without_switch: str = ""


@dataclass(frozen=True, kw_only=True)
class Question(MeasuredSeries):
    """A series on the topology that limits it. `gpus`: the GPU of each rank, in order; empty for the host backend.
    `steps` of an operation that is a list of messages, and the `transports` of each."""

    topology: Topology
    gpus: tuple[Gpu, ...]
    ranks: int
    places: Sequence[int]
    steps: tuple[transfers.Step, ...] = ()
    transports: tuple[str, ...] = ()

    @property
    def per_node(self) -> int:
        """Ranks on a node, at least 1."""
        return max(1, self.ranks // self.nodes)

    @property
    def at_once(self) -> int:
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
