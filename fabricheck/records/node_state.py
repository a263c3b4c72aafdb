"""What a node said of itself beside a measurement: its GPUs, links, NICs and load, before and after the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fabricheck.records.component import short_host

When = Literal["before", "after"]
#: Sources of a node's state, as `unread` and `notes` call them.
GPUS, NICS = "the GPUs", "the NICs"
#: How a setting of GPUs begins whose NVLinks go to other nodes: it is named by the domain, and its value is the clique.
NVLINK_DOMAIN = "NVLink domain"


@dataclass(frozen=True)
class GpuLink:
    """A link of a GPU to another or to a switch (NVLink, Infinity Fabric, Xe Link) as the driver numbers it.

    `counters` count errors since the driver was loaded, by name.
    """

    number: int
    active: bool
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class GpuProcess:
    """A process that has memory of a GPU; `memory_bytes` where the driver tells."""

    pid: int
    name: str
    memory_bytes: int | None = None


@dataclass(frozen=True)
class GpuState:
    """A GPU, in the driver's order; `None` is what it does not tell.

    The PCIe link now and at most; `performance_state` 0 is under load. `throttle`: names of what holds its clocks down
    now. `settings` are what an administrator chooses (ECC, MIG, persistence and compute mode). `counters` only rise:
    errors, and nanoseconds of throttling by reason. `rows`: remapped rows (before Ampere: retired pages) that wait
    for a reset, or that failed. `busy_percent`: of the last moment in which something computed or its memory was at
    work; `memory_used_bytes`: without what the driver keeps for itself. `pcie_own_generation`: what the GPU can
    do in another slot.
    """

    index: int
    """in the driver's order"""
    name: str
    uuid: str
    bus_id: str
    """PCI address"""
    pcie_generation: int | None = None
    """now"""
    pcie_width: int | None = None
    """lanes, now"""
    pcie_most_generation: int | None = None
    """what GPU and slot allow"""
    pcie_most_width: int | None = None
    """lanes that GPU and slot allow"""
    pcie_own_generation: int | None = None
    performance_state: int | None = None
    clock_mhz: int | None = None
    """of the processors, now"""
    clock_most_mhz: int | None = None
    """the highest clock"""
    power_w: float | None = None
    """now"""
    power_limit_w: float | None = None
    """the limit in effect"""
    power_usual_limit_w: float | None = None
    """the limit by default"""
    temperature_c: int | None = None
    throttle: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    rows_pending: bool = False
    """remapped rows (before Ampere: retired pages) wait for a reset"""
    rows_failed: bool = False
    """rows could not be remapped"""
    links: tuple[GpuLink, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    busy_percent: int | None = None
    memory_used_bytes: int | None = None


@dataclass(frozen=True)
class NicState:
    """A network port. `kind`: ethernet, infiniband or cxi. `counters` only rise: errors, drops, packets."""

    name: str
    kind: str
    up: bool | None = None
    """whether the link is up"""
    rate_gbps: float | None = None
    """of the link, Gb/s"""
    mtu: int | None = None
    """bytes"""
    duplex: str | None = None
    """`full` or `half`"""
    driver: str = ""
    firmware: str = ""
    counters: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    """of RDMA and Ethernet, by name: link layer, lanes, types of GIDs, index of RoCE v2's, traffic class, PFC and
    ECN of each priority, trusted priorities, link to the slot; state of a port that is not activated"""


@dataclass(frozen=True)
class BlockedPath:
    """A way from a `port` of this node to that of the node `to` on which packets of `lost_bytes` (with IPv4's header)
    are lost and those of `passed_bytes` arrive; 0: nothing does, and no connection comes about. `lost_bytes` is 0
    where both ports have the same address."""

    port: str
    to: str
    lost_bytes: int
    """size with IPv4's header"""
    passed_bytes: int
    """size with IPv4's header"""


#: Of more nodes each asks those that are 1, 2, 4, … further in the order of their names.
MOST_NODES = 64


def asked_by(host: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes that `host`, one of `names`, probes the way to."""
    count = len(names)
    if host not in names or count < 2:
        return ()
    steps = range(1, count) if count <= MOST_NODES else [1 << power for power in range((count - 1).bit_length())]
    place = names.index(host)
    return tuple(dict.fromkeys(names[(place + step) % count] for step in steps))


@dataclass(frozen=True)
class KernelEvent:
    """What the kernel's log says of a device, `at_s` seconds after the node started. `kind`, `code`, `severity`,
    `recovery`: as a row of config/kernel_events.yaml has them; `part` as the log names it, a PCI address or a port."""

    kind: str
    part: str
    at_s: float
    text: str
    code: str = ""
    """the finding"""
    number: str = ""
    """NVIDIA's Xid or SXid"""
    severity: str = "error"
    """fatal, error, corrected, program or ended"""
    recovery: str = ""
    """what to do"""
    network: bool = False
    """whether it is a matter of the network"""
    recovered: bool = False
    """whether the log says later that the part works again"""

    @property
    def bus_id(self) -> str:
        """PCI address of the part; empty of a port, and where the log names none."""
        return self.part if ":" in self.part else ""

    @property
    def key(self) -> tuple[str, str, str, float]:
        """By which the same event is known in two states of a node."""
        return self.kind, self.number, self.part, self.at_s


@dataclass(frozen=True)
class NodeState:
    """A node at one moment. `time_s` is its own clock, in seconds since 1970.

    `versions`: kernel, drivers, firmware. `settings`: governor and the like. `busy_cores` of `cores` were at work, and
    `busiest` says which programs, before the run: others'. `xids` and `events` are of the kernel's log, None where it
    cannot be read. `tcp` has the kernel's counters. `blocked`: on which ways to other nodes large packets are lost,
    after the run. `notes`: what could not be asked, and why, a line each. `unread`: the sources of which the list of
    parts is not whole, so that a missing part proves nothing.
    """

    host: str
    when: When
    """before or after the run"""
    time_s: float
    versions: Mapping[str, str] = field(default_factory=dict)
    builds: Mapping[str, str] = field(default_factory=dict)
    """of the benchmark's program and of the libraries that move its data, by file name"""
    settings: Mapping[str, str] = field(default_factory=dict)
    cores: int = 0
    """that the node has"""
    busy_cores: float = 0.0
    busiest: tuple[str, ...] = ()
    memory_bytes: int = 0
    memory_free_bytes: int = 0
    xids: tuple[KernelEvent, ...] | None = None
    """errors that NVIDIA's driver numbers"""
    events: tuple[KernelEvent, ...] | None = None
    """other failures of devices"""
    tcp: Mapping[str, int] = field(default_factory=dict)
    gpus: tuple[GpuState, ...] = ()
    """in the driver's order"""
    nics: tuple[NicState, ...] = ()
    """network ports"""
    blocked: tuple[BlockedPath, ...] = ()
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def logged(self) -> tuple[KernelEvent, ...]:
        """All that the kernel's log says of devices."""
        return (*(self.xids or ()), *(self.events or ()))


@dataclass(frozen=True)
class States:
    """The nodes of a run before and after it, by host. `asked`: whether anybody asked them. `unread`: files that are
    no state, a line each. `twice`: host names that several machines have."""

    before: Mapping[str, NodeState] = field(default_factory=dict)
    after: Mapping[str, NodeState] = field(default_factory=dict)
    asked: bool = False
    unread: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()

    def gpus_of(self, host: str) -> tuple[GpuState, ...]:
        """Those of a node before the run, else after it; none where it did not report."""
        name = short_host(host)
        state = self.before.get(name) or self.after.get(name)
        return state.gpus if state is not None else ()
