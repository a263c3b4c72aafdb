"""What an emulated node tells the stand-ins for GPU libraries (standins/): devices, directed links, routes, versions.

Rates come from the node's link graph, times `scale`. The efficiencies, latencies and properties of devices below are
what the emulation assumes; they say nothing about real hardware, and nothing is ever judged by them but a rehearsal.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError
from fabricheck.limits.optimum import best_ring, edge_disjoint_rings
from fabricheck.records.rehearsal import UUID_MARK
from fabricheck.topology.graph import NodeGraph, node_graph
from fabricheck.topology.host import host_links, host_paths
from fabricheck.topology.model import Gpu, Link, Topology
from fabricheck.topology.nic import nic_of
from fabricheck.topology.transport_paths import ccl_paths

MOVERS = ("copy", "kernel", "ccl")

#: Share of a link's rate that is payload, by the beginning of its technology and by what moves the data. NVLink4 as
#: measured on four H200 (docs/results); the others are round values of the same order.
EFFICIENCY: Mapping[str, tuple[float, float, float]] = {
    "NVLink-C2C": (0.9, 0.9, 0.9),
    "NVLink": (0.881, 0.836, 0.788),
    "Infinity Fabric": (0.8, 0.85, 0.75),
    "PCIe": (0.86, 0.8, 0.8),
    "": (0.85, 0.85, 0.8),
}
MEMORY_EFFICIENCY = (0.9, 0.9, 0.9)
LATENCY_NS = {"copy": 8000, "kernel": 5000, "ccl": 12000}
# Gb/s of a GPU's memory where the topology does not say; only copies inside one GPU depend on it.
_MEMORY_GBPS = 8000.0
# The emulated machine has little memory: no buffer of an emulated GPU is larger unless that is asked for.
LARGEST_ALLOCATION = 256 << 20


@dataclass(frozen=True)
class _Model:
    """A GPU as the runtime and NVML describe it; `arch` as compilers name it, `units` its multiprocessors.

    `bus_bits`: width of its memory's bus.
    """

    vendor: str
    name: str
    arch: str
    units: int
    memory_gib: int
    bus_bits: int
    pageable: bool = False


_MODELS: Mapping[str, _Model] = {
    "V100": _Model("nvidia", "Tesla V100-SXM2-16GB", "sm_70", 80, 16, 4096),
    "A100": _Model("nvidia", "NVIDIA A100-SXM4-40GB", "sm_80", 108, 40, 5120),
    "H100 80GB": _Model("nvidia", "NVIDIA H100 80GB HBM3", "sm_90", 132, 80, 5120),
    "H100": _Model("nvidia", "NVIDIA GH200 120GB", "sm_90", 132, 96, 6144, pageable=True),
    "H200": _Model("nvidia", "NVIDIA H200", "sm_90", 132, 140, 6144),
    "MI250X": _Model("amd", "AMD Instinct MI250X", "gfx90a", 110, 64, 4096),
    "MI300A": _Model("amd", "AMD Instinct MI300A", "gfx942", 228, 128, 8192, pageable=True),
    "MI300X": _Model("amd", "AMD Instinct MI300X", "gfx942", 304, 192, 8192),
    "MI355X": _Model("amd", "AMD Instinct MI355X", "gfx950", 256, 288, 8192),
    "PVC tile": _Model("intel", "Intel(R) Data Center GPU Max 1550", "pvc", 56, 64, 4096),
}

VERSIONS: Mapping[str, Mapping[str, Any]] = {
    "nvidia": {"runtime": 13000, "cuda_driver": 13000, "driver": "580.95.05", "nvml": "13.580.95.05", "ccl": 22809},
    "amd": {"runtime": 50221153, "driver": "6.3.6", "ccl": 21805},
    "intel": {"driver": "1.6.33578", "ccl": 20211702},
}


@dataclass(frozen=True)
class Choices:
    """What a description does not take from the topology.

    `no_peer_access`: pairs of GPUs that cannot use each other's memory. `network`: what *CCL finds between nodes, IB,
    OFI or Socket; None: that of the path that the topology has, Socket without any NIC.
    """

    scale: float
    node: str = "node0"
    largest_allocation: int = LARGEST_ALLOCATION
    no_peer_access: Sequence[tuple[str, str]] = ()
    network: str | None = None
    efficiency: Mapping[str, tuple[float, float, float]] = field(default_factory=lambda: EFFICIENCY)


def write_node(topology: Topology, folder: Path, choices: Choices) -> Path:
    """Write `node.json` into a folder, which is made if needed. Returns the file; raises UserError."""
    content = describe(topology, choices)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "node.json"
        file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}") from None
    return file


def vendor_of(topology: Topology) -> str:
    """nvidia, amd or intel. Raises UserError for a node without GPUs, or with such as have no stand-in."""
    if not topology.gpus:
        raise UserError(f"{topology.system} has no GPUs: nothing stands in for them")
    return _model(topology, topology.gpus[0]).vendor


def _model(topology: Topology, gpu: Gpu) -> _Model:
    for name, model in _MODELS.items():
        if gpu.model.startswith(name):
            return model
    known = ", ".join(_MODELS)
    raise UserError(f"{topology.system}: nothing stands in for a GPU of model {gpu.model!r}, only for {known}")


def describe(topology: Topology, choices: Choices) -> dict[str, Any]:
    """The content of `node.json`. Raises UserError for a GPU that has no stand-in, or a scale that is no rate."""
    if not 0 < choices.scale <= 1:
        raise UserError(f"a scale of {choices.scale:g} does not fit: more than 0 and up to 1")
    vendor = vendor_of(topology)
    links = _Links(topology, choices)
    graph = node_graph(topology)
    is_rail_only = topology.network is not None and topology.network.is_rail_only
    gpus = sorted(topology.gpus, key=lambda gpu: gpu.index)
    routes = [_between(links, graph, choices, a, b) for a, b in itertools.product(gpus, gpus)]
    for gpu in gpus:
        routes += links.to_hosts(gpu)
        routes += links.to_nics(gpu)
    return {
        "format": 1,
        "system": topology.system,
        "node": choices.node,
        "vendor": vendor,
        "scale": choices.scale,
        "largest_allocation": choices.largest_allocation,
        "versions": dict(VERSIONS[vendor]),
        "latency_ns": dict(LATENCY_NS),
        "gpus": [_gpu(topology, choices, gpu) for gpu in gpus],
        "cpus": [{"name": cpu.name} for cpu in topology.cpus],
        "nics": [{"name": nic.name, "model": nic.model} for nic in topology.nics],
        "links": links.entries,
        "routes": routes,
        "ccl": {"network": choices.network or _network(topology), "rings": _rings(graph), "rails": is_rail_only},
    }


def _network(topology: Topology) -> str:
    """What the site's path between nodes goes over; InfiniBand where any network will do."""
    if not topology.nics:
        return "Socket"
    described = ccl_paths(topology, 2).described
    return next((name for name in ("OFI", "Socket") if name in described.split("/")), "IB")


def _rings(graph: NodeGraph) -> list[list[int]]:
    """Rings of GPU positions for collectives; none where every GPU reaches every other one alike."""
    if graph.fully_connected or graph.star or len(graph.gpu_names) < 3:
        return []
    order = {name: position for position, name in enumerate(graph.gpu_names)}
    ring_list = edge_disjoint_rings(graph).rings or ((best_ring(graph),) if len(graph.wide_islands) > 1 else ())
    return [[order[name] for name in ring] for ring in ring_list]


class _Links:
    """The directed links of a node, each of them once, by name."""

    def __init__(self, topology: Topology, choices: Choices) -> None:
        self.topology = topology
        self.choices = choices
        self.entries: list[dict[str, Any]] = []
        self._numbers: dict[str, int] = {}
        for link in topology.links:
            for a, b in (link.ends, link.ends[::-1]):
                self._add_link(a, b, link)
        for gpu in topology.gpus:
            rate = topology.gpu_memory_gbps or _MEMORY_GBPS
            self._add(f"{gpu.name} memory", gpu.name, gpu.name, rate, MEMORY_EFFICIENCY)
        for cpu in topology.cpus:
            if cpu.device_rate_gbps is not None:
                for name in (f"{cpu.name}->devices", f"devices->{cpu.name}"):
                    self._add(name, cpu.name, cpu.name, cpu.device_rate_gbps, self._efficiency_at(cpu.name))
        for nic in topology.nics:
            for name in (f"{nic.name} sends", f"{nic.name} receives"):
                self._add(name, nic.name, nic.name, nic.rate_gbps, (1, 1, 1))

    def _add(self, name: str, a: str, b: str, gbps: float, efficiency: Sequence[float]) -> None:
        self._numbers[name] = len(self.entries)
        rate = gbps * 1e9 * self.choices.scale
        share = dict(zip(MOVERS, efficiency, strict=True))
        self.entries.append({"name": name, "from": a, "to": b, "rate": rate, "efficiency": share})

    def _add_link(self, a: str, b: str, link: Link) -> None:
        name = f"{a}->{b}"
        if name in self._numbers:  # links of several kinds between the same two devices
            self.entries[self._numbers[name]]["rate"] += link.total_gbps * 1e9 * self.choices.scale
        else:
            self._add(name, a, b, link.total_gbps, self._efficiency(link))

    def _efficiency(self, link: Link) -> tuple[float, float, float]:
        table = self.choices.efficiency
        return table[next(prefix for prefix in table if link.technology.startswith(prefix))]

    def _efficiency_at(self, cpu: str) -> tuple[float, float, float]:
        """Of the links between a CPU and GPUs, which its own limit is given in the terms of."""
        links = (link for link in host_links(self.topology, self.topology.gpus) if cpu in link.ends)
        return next(map(self._efficiency, links), (1, 1, 1))

    def numbers(self, names: Sequence[str]) -> list[int]:
        return [self._numbers[name] for name in names]

    def to_hosts(self, gpu: Gpu) -> list[dict[str, Any]]:
        """Routes between a GPU and each CPU; to one that it is not linked to, as to its own.

        Where no link to any CPU is described, the GPU's memory is the limit.
        """
        near = {path[-1]: path for path in host_paths(self.topology, gpu)}
        host_links = []
        for cpu in self.topology.cpus:
            if not near:
                memory = self.numbers([f"{gpu.name} memory"])
                ends = itertools.permutations((gpu.name, cpu.name))
                host_links += [{"from": a, "to": b, "links": memory} for a, b in ends]
                continue
            path = near.get(cpu.name) or next(iter(near.values()))
            host = path[-1]
            out = [f"{a}->{b}" for a, b in itertools.pairwise(path)]
            back = [f"{b}->{a}" for a, b in itertools.pairwise(path)]
            out += [name for name in (f"devices->{host}",) if name in self._numbers]
            back += [name for name in (f"{host}->devices",) if name in self._numbers]
            host_links.append({"from": gpu.name, "to": cpu.name, "links": self.numbers(out)})
            host_links.append({"from": cpu.name, "to": gpu.name, "links": self.numbers(back)})
        return host_links

    def to_nics(self, gpu: Gpu) -> list[dict[str, Any]]:
        nic_links = []
        for nic in self.topology.nics:
            nic_links.append({"from": gpu.name, "to": nic.name, "links": self.numbers([f"{nic.name} sends"])})
            nic_links.append({"from": nic.name, "to": gpu.name, "links": self.numbers([f"{nic.name} receives"])})
        return nic_links


def _between(links: _Links, graph: NodeGraph, choices: Choices, a: Gpu, b: Gpu) -> dict[str, Any]:
    if a == b:  # read and written: twice through the memory
        return {"from": a.name, "to": a.name, "links": links.numbers([f"{a.name} memory"] * 2)}
    names = [f"{start}->{end}" for start, end in graph.widest_path(a, b).edges]
    none = {frozenset(pair) for pair in choices.no_peer_access}
    allowed = frozenset((a.name, b.name)) not in none
    return {"from": a.name, "to": b.name, "links": links.numbers(names), "peer_access": allowed}


def _gpu(topology: Topology, choices: Choices, gpu: Gpu) -> dict[str, Any]:
    model = _model(topology, gpu)
    digits = UUID_MARK + hashlib.sha256(f"{topology.system} {choices.node} {gpu.name}".encode()).hexdigest()[:24]
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    paths = host_paths(topology, gpu)
    nic = nic_of(topology, gpu)
    number = model.arch.removeprefix("sm_")
    cpus = [cpu.name for cpu in topology.cpus]
    host = paths[0][-1] if paths else cpus[0]
    return {
        "name": gpu.name,
        "index": gpu.index,
        "model": model.name,
        "arch": model.arch,
        "uuid": f"GPU-{uuid}",
        "bus_id": bus_id(topology, gpu),
        "memory_bytes": model.memory_gib << 30,
        "multiprocessors": model.units,
        "major": int(number[:-1]) if number.isdecimal() else 9,
        "minor": int(number[-1]) if number.isdecimal() else 0,
        "pageable_memory_access": 1 if model.pageable else 0,
        "cpu": host,
        "numa_node": cpus.index(host),
        "nic": nic.name if nic else "",
        "nic_index": topology.nics.index(nic) if nic else -1,
        "nvlinks": _nvlinks(topology, gpu),
        "pcie": _pcie(topology, gpu),
        "nvml": _state(topology, model),
    }


def _state(topology: Topology, model: _Model) -> dict[str, int]:
    """What NVML says of a healthy GPU. Clock and width of the memory's bus give its bandwidth: two bits a clock."""
    gbps = topology.gpu_memory_gbps or _MEMORY_GBPS
    return {
        "memory_bus_bits": model.bus_bits,
        "memory_clock_mhz": round(gbps * 1000 / model.bus_bits / 2),
        "sm_clock_max_mhz": 1980,
        "temperature_c": 35,
        "power_mw": 120_000,
        "power_limit_mw": 700_000,
    }


def bus_id(topology: Topology, gpu: Gpu) -> str:
    """The PCI address of an emulated GPU, the same on all nodes: one of its own, but for the tiles of an Intel card."""
    number = gpu.index
    if _model(topology, gpu).vendor == "intel":
        number = list(dict.fromkeys(one.package for one in topology.gpus)).index(gpu.package)
    return f"0000:{16 * number % 256 + 8:02x}:{number // 16:02x}.0"


def _nvlinks(topology: Topology, gpu: Gpu) -> list[dict[str, Any]]:
    """Every NVLink of a GPU as NVML tells of it: what is at the other end, generation, rate in Mbyte/s."""
    by_name = {one.name: one for one in topology.gpus}
    switches = {one.name for one in topology.switches}
    nvlinks: list[dict[str, Any]] = []
    for link in topology.links:
        match = re.match(r"NVLink(\d)", link.technology)
        if gpu.name not in link.ends or match is None:
            continue
        other = next(end for end in link.ends if end != gpu.name)
        kind = "gpu" if other in by_name else "switch" if other in switches else "cpu"
        far = bus_id(topology, by_name[other]) if kind == "gpu" else "0000:f0:00.0"
        rate = {"generation": int(match[1]), "mbytes_per_s": round(link.rate_gbps * 1000 / 8)}
        nvlinks += [{"to": other, "kind": kind, "bus_id": far, **rate} for _ in range(link.count)]
    return nvlinks


def _pcie(topology: Topology, gpu: Gpu) -> dict[str, int]:
    for link in topology.links:
        match = re.match(r"PCIe (\d)\S* x(\d+)", link.technology)
        if gpu.name in link.ends and match is not None:
            return {"generation": int(match[1]), "width": int(match[2])}
    return {"generation": 5, "width": 16}
