"""A node's devices and links, and the network, as plain values, read from `topology.yaml` (docs/formats.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.suite import site_root
from fabricheck.topology.network import Network, network_from
from fabricheck.topology.schema import DirectedRate, FabricEntry, MemoryEntry, SwitchEntry, TopologyFile
from fabricheck.units import parse_rate
from fabricheck.yamlfile import YamlFile, read_yaml


@dataclass(frozen=True)
class Gpu:
    """A GPU, GCD or tile; `index` is the node-local index of the runtime library."""

    name: str
    index: int
    model: str
    package: str | None = None


@dataclass(frozen=True)
class Cpu:
    """A CPU or one of its NUMA domains. `device_rate_gbps`: what all its GPUs get together; None: their links' sum."""

    name: str
    device_rate_gbps: float | None = None


@dataclass(frozen=True)
class Switch:
    """A switch between GPUs; `in_network_reduction`: it reduces and multicasts (NVLink SHARP), None where that is
    unknown; `host_only`: it joins GPUs with a CPU, and never with each other."""

    name: str
    model: str
    in_network_reduction: bool | None = False
    host_only: bool = False


@dataclass(frozen=True)
class Nic:
    """A network port with its rate in Gb/s; `burst_bytes` may pass faster (a shaper's bucket)."""

    name: str
    model: str
    rate_gbps: float
    source: str
    burst_bytes: int = 0


@dataclass(frozen=True)
class Link:
    """`count` parallel links of `rate_gbps` each between two devices, full duplex.

    `back_gbps`: rate of one link from the second end to the first, where it is another than forward.
    """

    ends: tuple[str, str]
    technology: str
    count: int
    rate_gbps: float
    source: str
    back_gbps: float | None = None

    @property
    def total_gbps(self) -> float:
        """Rate of all parallel links together, in the faster direction, in Gb/s."""
        return self.count * max(self.rate_gbps, self.back_gbps or 0.0)

    def towards(self, end: str) -> float:
        """Rate of all parallel links together, towards one of the ends, in Gb/s."""
        if self.back_gbps is not None and end == self.ends[0]:
            return self.count * self.back_gbps
        return self.count * self.rate_gbps


@dataclass(frozen=True, eq=False)
class Topology:
    """One node, and what joins it to others. Two objects are equal only if they are the same one, so that results can
    be kept for each.

    `host_memory_gbps`: bandwidth of the node's memory in Gb/s; `host_memory_measured`: it is unknown, and values rest
    on the copy bandwidth that each run measures. `fabric`: how large a system is whose `network` is not published.
    `ccl_path_…`, `mpi_path_…`: those that *CCL and MPI have to take, where the file says it
    (`fabricheck.topology.transport_paths`). `gpudirect_rdma`: whether all channels of *CCL between nodes, some or none
    use it by default. `nvlink_domain_nodes`: how many nodes NVLink joins. Raises UserError when names do not fit
    together.
    """

    system: str
    description: str
    gpus: tuple[Gpu, ...]
    cpus: tuple[Cpu, ...]
    switches: tuple[Switch, ...] = ()
    nics: tuple[Nic, ...] = ()
    links: tuple[Link, ...] = ()
    nic_scheme: str | None = None
    gpu_memory_gbps: float | None = None
    host_memory_gbps: float | None = None
    network: Network | None = None
    fabric: FabricEntry | None = None
    ccl_path_in_node: str | None = None
    ccl_path_between_nodes: str | None = None
    mpi_path_in_node: str | None = None
    mpi_path_between_nodes: str | None = None
    gpudirect_rdma: str | None = None
    nvlink_domain_nodes: int = 1

    def __post_init__(self) -> None:
        names: set[str] = set()
        for name in self.names:
            if name in names:
                raise UserError(f"topology of {self.system}: two devices are named {name!r}")
            names.add(name)
        for link in self.links:
            for end in link.ends:
                if end not in names:
                    raise UserError(f"topology of {self.system}: a link ends at the unknown device {end!r}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all devices: GPUs, CPUs, switches, NICs."""
        fabric = (*(one.name for one in self.gpus), *(one.name for one in self.cpus))
        return (*fabric, *(one.name for one in self.switches), *(one.name for one in self.nics))

    @property
    def host_switches(self) -> tuple[Switch, ...]:
        """The switches that join GPUs with CPUs, and never with each other."""
        return tuple(switch for switch in self.switches if switch.host_only)

    @cached_property
    def _gpus(self) -> dict[str | int, Gpu]:
        return {key: gpu for gpu in reversed(self.gpus) for key in (gpu.index, gpu.name)}

    @property
    def nodes(self) -> int:
        """How many nodes there are, by the network or what is known of its size; 0 where the file does not state."""
        if self.network is not None:
            return len(self.network.nodes)
        return self.fabric.nodes if self.fabric is not None else 0

    def gpu(self, which: str | int) -> Gpu:
        """The GPU of this name or node-local index. Raises UserError if there is none."""
        if which in self._gpus:
            return self._gpus[which]
        names = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in self.gpus) or "none"
        raise UserError(f"{self.system} has no GPU {which!r}: its GPUs are {names}")


def load_topology(path: Path) -> Topology:
    """Read and check a `topology.yaml`. Raises UserError that names file, line and field."""
    file = read_yaml(path)
    if not isinstance(file.content, dict):
        raise UserError(f"{path}:1: is not a mapping of fields: see docs/formats.md")
    entry = file.validated(TopologyFile.model_validate)
    _check_names(file, entry)
    _check_links(file, entry)
    _check_association(file, entry)
    if entry.network is not None and entry.fabric is not None:
        file.fail(("fabric", "nodes"), "network has the number of nodes: leave out fabric")
    memory, paths = entry.host_memory, entry.transport_paths
    return Topology(
        system=entry.system,
        description=entry.description,
        gpus=tuple(Gpu(gpu.name, gpu.index, gpu.model, gpu.package) for gpu in entry.gpus),
        cpus=tuple(Cpu(cpu.name, parse_rate(cpu.device_rate) if cpu.device_rate else None) for cpu in entry.cpus),
        switches=tuple(Switch(one.name, one.model, _reduces(one, entry), one.host_only) for one in entry.switches),
        nics=tuple(Nic(nic.name, nic.model, parse_rate(nic.rate), nic.source, nic.burst_bytes) for nic in entry.nics),
        links=tuple(
            Link((pair[0], pair[1]), link.technology, link.count, *_rates(link.rate, link.source))
            for link in entry.links
            for pair in link.pairs
        ),
        nic_scheme=entry.nic_association.scheme if entry.nic_association else None,
        gpu_memory_gbps=parse_rate(entry.gpu_memory.rate) if entry.gpu_memory else None,
        host_memory_gbps=parse_rate(memory.rate) if isinstance(memory, MemoryEntry) else None,
        network=network_from(file, entry.network, [nic.name for nic in entry.nics]) if entry.network else None,
        fabric=entry.fabric,
        ccl_path_in_node=paths.node.ccl if paths and paths.node else None,
        ccl_path_between_nodes=paths.network.ccl if paths and paths.network else None,
        mpi_path_in_node=paths.node.mpi if paths and paths.node else None,
        mpi_path_between_nodes=paths.network.mpi if paths and paths.network else None,
        gpudirect_rdma=entry.gpudirect_rdma.channels if entry.gpudirect_rdma else None,
        nvlink_domain_nodes=entry.nvlink_domain.nodes if entry.nvlink_domain else 1,
    )


def _reduces(switch: SwitchEntry, entry: TopologyFile) -> bool | None:
    """As the file has it; else None where its links may be NVLinks of the fourth generation or later, whose switches
    can (NVIDIA H100 architecture white paper)."""
    own = [link.technology for link in entry.links if any(switch.name in pair for pair in link.pairs)]
    unknown = any(re.match(r"NVLink(?! ?[123]\b)", technology) for technology in own)
    return None if switch.in_network_reduction is None and unknown else bool(switch.in_network_reduction)


def _rates(rate: str | DirectedRate, source: str) -> tuple[float, str, float | None]:
    """The last fields of a Link."""
    if isinstance(rate, str):
        return parse_rate(rate), source, None
    return parse_rate(rate.forward), source, parse_rate(rate.back)


def find_topology(system: str, site_configs: Path | None = None) -> Topology:
    """The topology of a system, or of a `system:partition`, from the files in `<site_configs>/<system>/` (default: of
    the suite that we are in, or of FABRICHECK_SITES).

    `topology-<partition>.yaml` where there is one, else `topology.yaml`. Raises UserError.
    """
    name, _, partition = system.partition(":")
    site_configs = site_configs or site_root(name) / "site_configs"
    path = partition_files(name, site_configs).get(partition, site_configs / name / "topology.yaml")
    if not os.path.isfile(path):
        systems = sorted(found.parent.name for found in site_configs.glob("*/topology.yaml"))
        listed = ", ".join(systems) if systems else f"none: is {site_configs} right?"
        raise UserError(f"no system {name!r}: {path} does not exist; systems are {listed}")
    return load_topology(path)


def partition_files(system: str, site_configs: Path) -> dict[str, Path]:
    """The files of partitions whose nodes are not those of `topology.yaml`, by the partition's name."""
    folder = site_configs / system
    # Not Path's: that fails where a name is too long for any file.
    files = sorted(folder.glob("topology-*.yaml")) if os.path.isdir(folder) else []
    return {file.stem.removeprefix("topology-"): file for file in files}


def _check_names(file: YamlFile, entry: TopologyFile) -> None:
    seen: dict[str, str] = {}
    for group in ("gpus", "cpus", "switches", "nics"):
        for position, device in enumerate(getattr(entry, group)):
            if device.name in seen:
                file.fail((group, position, "name"), f"{device.name!r} appears under {seen[device.name]} too")
            seen[device.name] = group
    indexes: set[int] = set()
    for position, gpu in enumerate(entry.gpus):
        if gpu.index in indexes:
            file.fail(("gpus", position, "index"), f"another GPU has the index {gpu.index} too")
        indexes.add(gpu.index)
    for position, cpu in enumerate(entry.cpus):
        if cpu.device_rate and not cpu.source:
            file.fail(("cpus", position, "device_rate"), "has no source: add one beside it")


def _check_links(file: YamlFile, entry: TopologyFile) -> None:
    kinds = {device.name: group for group in ("gpus", "cpus", "switches", "nics") for device in getattr(entry, group)}
    joined: dict[str, set[str]] = {name: set() for name in kinds}
    kept: set[tuple[frozenset[str], str]] = set()
    for position, link in enumerate(entry.links):
        for number, pair in enumerate(link.pairs):
            place = ("links", position, "pairs", number)
            for end in pair:
                if end not in kinds:
                    file.fail(place, f"unknown device {end!r}: name it under gpus, cpus, switches or nics")
            if pair[0] == pair[1]:
                file.fail(place, f"{pair[0]!r} is linked to itself")
            if (frozenset(pair), link.technology) in kept:
                file.fail(place, f"the {link.technology} links of {pair[0]} and {pair[1]} are given twice: use count")
            kept.add((frozenset(pair), link.technology))
            joined[pair[0]].add(pair[1])
            joined[pair[1]].add(pair[0])
    for position, switch in enumerate(entry.switches):
        ends = {kinds[name] for name in joined[switch.name]}
        if switch.host_only and ends != {"gpus", "cpus"}:
            what = f"{switch.name} is host_only, and linked to {' and '.join(sorted(ends)) or 'nothing'}"
            file.fail(("switches", position), f"{what}: link it to GPUs and to a CPU, and to nothing else")
    _check_connected(file, entry, joined)


def _check_connected(file: YamlFile, entry: TopologyFile, joined: dict[str, set[str]]) -> None:
    """Every GPU reaches every other one over what carries data between GPUs; a single GPU reaches a CPU."""
    if not entry.gpus:
        return
    unused = {nic.name for nic in entry.nics}
    if len(entry.gpus) > 1:
        unused |= {switch.name for switch in entry.switches if switch.host_only}
    goal = [gpu.name for gpu in entry.gpus] if len(entry.gpus) > 1 else [cpu.name for cpu in entry.cpus]
    reached: set[str] = set()
    todo = [entry.gpus[0].name]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo.extend(joined[name] - unused)
    missing = [name for name in goal if name not in reached]
    if len(entry.gpus) == 1:
        if len(missing) == len(goal):
            file.fail(("gpus", 0), f"{entry.gpus[0].name} is disconnected: no link leads to a CPU")
        return
    if missing:
        # The minority is at fault, when most GPUs are connected.
        apart = missing if len(missing) <= len(goal) / 2 else [name for name in goal if name in reached]
        position = next(number for number, gpu in enumerate(entry.gpus) if gpu.name == apart[0])
        _fail_disconnected(file, position, apart)


def _fail_disconnected(file: YamlFile, position: int, apart: Sequence[str]) -> None:
    what = f"{apart[0]} is" if len(apart) == 1 else f"{', '.join(apart)} are"
    file.fail(("gpus", position), f"{what} disconnected: no links connect it to the other GPUs")


def _check_association(file: YamlFile, entry: TopologyFile) -> None:
    association = entry.nic_association
    if association is None:
        return
    place = ("nic_association", "scheme")
    if not entry.nics or not entry.gpus:
        file.fail(place, "there are no GPUs and NICs to associate")
    if association.scheme == "one-to-one" and len(entry.gpus) != len(entry.nics):
        file.fail(place, f"one-to-one does not fit {len(entry.gpus)} GPUs and {len(entry.nics)} NICs")
    if association.scheme == "packed" and len(entry.gpus) % len(entry.nics) and len(entry.nics) % len(entry.gpus):
        file.fail(place, f"packed does not fit {len(entry.gpus)} GPUs and {len(entry.nics)} NICs: they do not divide")
