"""A node as its captures describe it: what a site's files are written from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fabricheck.site.slurm import Slurm
from fabricheck.site.software import NodeSoftware
from fabricheck.state.kernel import generation_of_text
from fabricheck.topology.hardware import GpuProduct, gpu_product

# Gb/s of a lane in one direction by PCIe generation, rounded as the papers do (De Sensi §II-B: 256 Gb/s for 4.0 x16).
_PCIE_LANE_GBPS = {3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}


@dataclass(frozen=True)
class FoundGpu:
    """A GPU. `numa` is None where nothing states; `pci`: the bridges that lead to it.

    `memory_gbps`: nominal bandwidth of its memory, and `memory_source`, who says so. `links`: NVLinks that are active,
    of so many as the driver lists (`links_of_driver`); None where nothing states.
    """

    index: int
    model: str
    arch: str
    numa: int | None
    pci: str | None = None
    memory_gbps: float | None = None
    memory_source: str = ""
    links: int | None = None
    links_of_driver: int = 0
    bus_id: str = ""

    def __post_init__(self) -> None:
        """Raises TypeError for what no capture writes."""
        for name, kind in (("index", int), ("model", str), ("arch", str)):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"the {name} of a GPU is {getattr(self, name)!r}")


@dataclass(frozen=True)
class FoundLink:
    """Parallel links. `rate_gbps` is None where the capture does not tell it: to be filled in by hand."""

    ends: tuple[str, str]
    technology: str
    count: int
    rate_gbps: float | None
    source: str

    @property
    def total_gbps(self) -> float:
        """Of all parallel links; infinite where their rate is unknown."""
        return math.inf if self.rate_gbps is None else self.count * self.rate_gbps


@dataclass(frozen=True)
class FoundNic:
    """A network port. `rate_gbps` is None where the capture does not tell it; `card`: its card's model,
    `interfaces`, the names by which IP and LLDP know it, and `pcie`, generation and width of its link, if known."""

    name: str
    model: str
    rate_gbps: float | None
    numa: int | None
    source: str
    pci: str | None = None
    card: str = ""
    interfaces: tuple[str, ...] = ()
    pcie: tuple[int, int] | None = None
    up: bool = True
    system_guid: str = ""


@dataclass(frozen=True)
class Doubt:
    """`components` have less than they should. `text`: how much of what, and what to look at. `changed`: whether the
    site's files have what it should be, and not what it is."""

    code: str
    components: tuple[str, ...]
    text: str
    changed: bool = False


@dataclass(frozen=True)
class Association:
    """Which GPU uses which NIC: the NICs in the order in which `scheme` assigns them, and who says so.

    `distances`: how near the nearest NIC of each GPU is, in the words of `nvidia-smi topo -m`; empty where that is
    unknown.
    """

    scheme: str
    nics: tuple[str, ...]
    source: str
    distances: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeFacts:
    """A node as its captures describe it.

    `notes`: what has to be checked by hand. `problems`: what could not be asked,
    or is wrong with the node. `unseen`: GPUs on the PCI bus where no GPU could be asked; `on_bus`: all that are there.
    `table`: `nvidia-smi topo -m`, a TopoTable. `doubts`: what the node has less of than it should, which the other
    fields have (`fabricheck.site.nominal`).
    `gpudirect`: which channels between nodes use GPUDirect RDMA by default, and why, where those are not all.
    `nvlink_domain`: how many nodes NVLink joins, and who says so.
    """

    hostname: str
    vendor: str  # nvidia, amd, intel or none
    gpus: tuple[FoundGpu, ...]
    numa_nodes: tuple[int, ...]
    cores: int
    sockets: int
    nics: tuple[FoundNic, ...]
    links: tuple[FoundLink, ...]
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    association: Association | None = None
    software: NodeSoftware = field(default_factory=NodeSoftware)
    slurm: Slurm | None = None
    unseen: int = 0
    on_bus: tuple[Mapping[str, Any], ...] = ()
    table: Any = None
    doubts: tuple[Doubt, ...] = ()
    gpudirect: tuple[str, str] | None = None
    nvlink_domain: tuple[int, str] | None = None

    @property
    def has_switch(self) -> bool:
        """Whether a switch joins GPUs."""
        return any("nvswitch" in link.ends for link in self.links)


def known_numa(node: int | None, numa_nodes: tuple[int, ...]) -> int | None:
    """The NUMA node, or None where the machine has no such node; without a list of its nodes it has any."""
    return node if node is not None and node >= 0 and (not numa_nodes or node in numa_nodes) else None


def network_of(nic: FoundNic) -> str:
    """The network of a port: InfiniBand, RoCE, EFA, Slingshot, Ethernet."""
    return nic.model.partition(" ")[0]


def cpu_of(numa: int | None, numa_nodes: tuple[int, ...]) -> str:
    """The topology's name of the NUMA node that a GPU is at: the first where nothing states."""
    return f"numa{numa if numa is not None else (numa_nodes[0] if numa_nodes else 0)}"


def pcie_link(device: str, cpu: str, generation: int, width: int, source: str) -> FoundLink:
    """The link of a GPU or NIC to its CPU; without a rate for a generation that is not known here."""
    lane = _PCIE_LANE_GBPS.get(generation)
    return FoundLink((device, cpu), f"PCIe {generation} x{width}", 1, lane * width if lane else None, source)


def pcie_of(product: GpuProduct | None) -> tuple[int, int] | None:
    """Generation and width of PCIe by a data sheet; None where it has none."""
    if product is None or product.pcie_generation is None or product.pcie_width is None:
        return None
    return product.pcie_generation, product.pcie_width


def link_to_cpu(
    ends: tuple[str, str], model: str, pcie: tuple[int, int] | None, source: str, *, unknown: str = "PCIe"
) -> FoundLink:
    """The link of a GPU to its CPU by its `pcie` (generation and width), else by the data sheet of its model; without
    a rate, and called `unknown`, where neither has it."""
    product = gpu_product(model)
    sheet = f"the data sheet of {model}"
    if pcie is not None:
        return pcie_link(*ends, *pcie, source)
    if product is not None and product.to_cpu:
        return FoundLink(ends, product.to_cpu, 1, None, sheet)
    if (of_sheet := pcie_of(product)) is not None:
        return pcie_link(*ends, *of_sheet, sheet)
    return FoundLink(ends, unknown, 1, None, source)


def model_and_arch(name: str, arch: str, gres: str) -> tuple[str, str]:
    """The model of a GPU, by Slurm's name of it (`gres`) where its source has none, and its arch, by its data sheet."""
    model = short_model(name)
    model = gres if model == "unknown" and gres else model
    product = gpu_product(model)
    if product is not None and arch == "unknown":
        arch = f"sm_{product.arch}" if product.backend == "cuda" else product.arch
    return model, arch


def pcie_generation(speed: str) -> int:
    """Of the kernel's `32.0 GT/s PCIe` the generation, 5; 0 for another form."""
    return generation_of_text(speed) or 0


def memory_gbps(clock_mhz: int | None, bus_bits: int | None) -> float | None:
    """Nominal bandwidth of a GPU's memory in Gb/s: two transfers a cycle over the whole bus; None where one is unknown.

    As NVIDIA's deviceQuery counts: an H100 of 2,619 MHz and 5,120 bit has 3.35 TB/s, as its data sheet says.
    """
    return 2 * clock_mhz * bus_bits / 1000 if clock_mhz and bus_bits else None


def short_model(name: str) -> str:
    """A GPU model without its maker, such as `H200` for `NVIDIA H200`."""
    for before in ("emulated ", "NVIDIA ", "AMD ", "Tesla "):
        name = name.removeprefix(before)
    return name.strip() or "unknown"
