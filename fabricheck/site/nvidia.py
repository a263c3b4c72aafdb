"""NVIDIA's GPUs and their links: from NVML, else from `nvidia-smi topo -m`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fabricheck.errors import UserError
from fabricheck.site.found import (
    FoundGpu,
    FoundLink,
    cpu_of,
    known_numa,
    link_to_cpu,
    memory_gbps,
    model_and_arch,
    pcie_generation,
)
from fabricheck.topology.hardware import gpu_product
from fabricheck.units import few

# NVML counts versions of NVLink in steps (nvml.h, NVML_NVLINK_VERSION_*): 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0.
_NVLINK_GENERATION = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5}
NVLINK_OF_ARCH = {"sm_60": 1, "sm_70": 2, "sm_75": 2, "sm_80": 3, "sm_86": 3, "sm_90": 4, "sm_100": 5, "sm_103": 5}
# Nominal Gb/s of one link in one direction by generation (NVIDIA's architecture papers). What the driver tells
# (26,562 MB/s for the fourth) is the speed on the wire.
_NVLINK_GBPS = {1: 160.0, 2: 200.0, 3: 200.0, 4: 200.0, 5: 400.0}
# The same where an architecture has other links (NVIDIA Ampere GA102 GPU Architecture: four links of 14.0625 GB/s).
_NVLINK_GBPS_OF_ARCH = {"sm_86": 112.5}
# From this generation on, a switch reduces and multicasts (NVLink SHARP).
_NVLINK_SHARP_GENERATION = 4

#: Who says the rate of a GPU that can do more than the bridges, or the CPU, above it.
SLOWEST_ON_THE_WAY = "the kernel: the slowest link to the CPU"
# `PIX`, `NODE`, `NV18` and the like, and `X` of a device with itself.
_CELL = re.compile(r"X|NV\d+|[A-Z]{3}|NODE|N/A")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def from_nvml(
    entries: Sequence[Mapping[str, Any]],
    numa_nodes: tuple[int, ...],
    on_bus: Sequence[Mapping[str, Any]],
    table_numa: Mapping[int, int],
    *,
    gres: str,
    source: str,
) -> tuple[tuple[FoundGpu, ...], list[FoundLink]]:
    """GPUs and links of `fabricheck.state.capture.gpu_facts`, or of a `source` in its form. `gres`: what the scheduler
    calls them. `on_bus`: the kernel's places of GPUs, and the slowest PCIe link on the way to the CPU. `table_numa`:
    NUMA nodes by `nvidia-smi topo -m`."""
    kernel = {device["bus_id"][-12:]: device for device in on_bus}
    by_bus = {gpu["bus_id"][-12:]: gpu["index"] for gpu in entries}
    gpus, nvlinks, to_cpus = [], [], []
    for gpu in entries:
        index, bus_id = gpu["index"], str(gpu["bus_id"])[-12:]
        device = kernel.get(bus_id, {})
        # NVML names the NUMA node of a GPU's own memory, where it has one, as on Grace.
        nodes = (table_numa.get(index), device.get("numa_node"), gpu["numa_node"] if numa_nodes else None)
        numa = next((node for node in nodes if known_numa(node, numa_nodes) is not None), None)
        cpu = cpu_of(numa, numa_nodes)
        model, arch = model_and_arch(gpu["name"], gpu["arch"], gres)
        clock, bits = gpu.get("memory_clock_mhz"), gpu.get("memory_bus_bits")
        gpus.append(
            FoundGpu(
                index,
                model,
                arch,
                numa,
                gpu.get("pci") or device.get("pci"),
                memory_gbps(clock, bits),
                f"NVML: memory clock of {clock} MHz at most, two transfers a cycle, {bits} bit",
                len(gpu["nvlinks"]),
                int(gpu.get("nvlinks_total") or 0),
                bus_id,
            )
        )
        counted: Counter[tuple[str, int | None, float | None]] = Counter()
        for link in gpu["nvlinks"]:
            peer = by_bus.get((link["remote_bus_id"] or "")[-12:])
            kinds = {"switch": "nvswitch", "cpu": cpu}
            other = f"gpu{peer}" if peer is not None else kinds.get(link["remote_kind"])
            if other is None or (peer is not None and peer < index):
                continue  # counted from the other end
            generation = _NVLINK_GENERATION.get(link["version"], NVLINK_OF_ARCH.get(arch))
            counted[other, generation, nvlink_gbps(generation, link["speed_mbps"], arch)] += 1
        of_sheet = "" if gpu["arch"] == arch else f"; the data sheet of {model}"
        for (other, generation, rate), count in counted.items():
            technology = f"NVLink{generation or ''}"
            nvlinks.append(FoundLink((f"gpu{index}", other), technology, count, rate, f"{source}{of_sheet}"))
        if gpu.get("c2c_links") and gpu.get("c2c_mbps"):
            rate = gpu["c2c_mbps"] * 8 / 1000
            to_cpus.append(FoundLink((f"gpu{index}", cpu), "NVLink-C2C", gpu["c2c_links"], rate, source))
            continue
        own, path = gpu["pcie_generation"], pcie_generation(device.get("path_speed") or "")
        least, of_path = (path, SLOWEST_ON_THE_WAY) if own and 0 < path < own else (own, source)
        pcie = (least, gpu["pcie_width"]) if least and gpu["pcie_width"] else None
        to_cpus.append(link_to_cpu((f"gpu{index}", cpu), model, pcie, of_path))
    return tuple(gpus), [*nvlinks, *to_cpus]


def switch_reduces(links: Sequence[FoundLink]) -> bool:
    """Whether a switch among the links can reduce and multicast."""
    generations = [link.technology.removeprefix("NVLink") for link in links if "nvswitch" in link.ends]
    return any(one.isdecimal() and int(one) >= _NVLINK_SHARP_GENERATION for one in generations)


# Nodes of an NVLink domain by the GPU's model, where a switch joins its GPUs (NVIDIA's data sheets: GB200 NVL72 and
# GB300 NVL72 have 18 compute trays of four GPUs).
_DOMAINS = {"GB200": 18, "GB300": 18}


def nvlink_domain(gpus: Sequence[FoundGpu], links: Sequence[FoundLink]) -> tuple[int, str] | None:
    """How many nodes NVLink joins, and who says so; None where it ends at the node."""
    model = next((known for known in _DOMAINS for gpu in gpus if known in gpu.model.split()), None)
    if model is None or not any("nvswitch" in link.ends for link in links):
        return None
    return _DOMAINS[model], f"NVIDIA {model} NVL72 data sheet: 18 compute trays a rack; a smaller domain: change it"


def nvlink_gbps(generation: int | None, speed_mbps: int | None, arch: str = "") -> float | None:
    """Nominal Gb/s of one link in one direction, by its GPU and generation, else by the driver's speed on the wire."""
    if arch in _NVLINK_GBPS_OF_ARCH:
        return _NVLINK_GBPS_OF_ARCH[arch]
    if generation in _NVLINK_GBPS:
        return _NVLINK_GBPS[generation]
    return speed_mbps * 8 / 1000 if speed_mbps else None


@dataclass(frozen=True)
class TopoTable:
    """`nvidia-smi topo -m`: for each GPU what joins it to other GPUs and NICs (`NV18`, `PIX`, `SYS`, …) by name, and
    its NUMA node; the same of each NIC, by its name."""

    rows: Mapping[int, Mapping[str, str]]
    numa: Mapping[int, int]
    of_nics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    hides_links: bool = False

    @property
    def nics(self) -> tuple[str, ...]:
        """The names of the NICs, in the order of the table."""
        row = next(iter(self.rows.values()), {})
        return tuple(name for name in row if not re.fullmatch(r"GPU\d+", name))


def read_topo(text: str, cpus: Mapping[int, str]) -> TopoTable:
    """Raises UserError for a text that is not that table, or has no whole row of a GPU.

    `cpus`: the list of each NUMA node, by which older versions, which have no column of these, tell where a GPU is.
    """
    text = _ESCAPES.sub("", text)
    # A terminal's copy has blanks for tabs.
    between = "\t" if "\t" in text else " {2,}"
    # Pasted, a table may be indented, and its header may have lost the blanks at its start.
    table = [[cell.strip() for cell in re.split(between, line.lstrip())] for line in text.splitlines()]
    head = next((cells for cells in table if cells[0] == "GPU0"), None)
    if head is None:
        raise UserError("a table without GPUs is not the output of `nvidia-smi topo -m`")
    # GPUs and NICs come first; newer versions number the NICs and name them below: `NIC0: mlx5_0`.
    at_cpus, at_numa = (head.index(name) + 1 if name in head else None for name in ("CPU Affinity", "NUMA Affinity"))
    names = dict(re.findall(r"^[ \t]*(NIC\d+): (\S+)", text, re.MULTILINE))
    ends = [names.get(cell, cell) for cell in head[: (at_cpus or len(head) + 1) - 1] if cell]
    # Where blanks are between cells, an empty one before the NUMA node is not seen.
    least = at_numa if at_numa is not None and between == "\t" else len(ends)
    rows: dict[int, dict[str, str]] = {}
    numa: dict[int, int] = {}
    of_nics: dict[str, dict[str, str]] = {}
    for cells in table:
        name = names.get(cells[0], cells[0])
        row = dict(zip(ends, cells[1:], strict=False))
        if cells is head or name not in ends or len(row) < len(ends):
            continue
        if not re.fullmatch(r"GPU\d+", name):
            of_nics[name] = row
        elif len(cells) > least and all(_CELL.fullmatch(cell) for cell in row.values()):
            index = int(name[3:])
            rows[index] = row
            node = _numa_node(cells, at_numa, at_cpus, cpus)
            if node is not None:
                numa[index] = node
    missing = [name for name in ends if re.fullmatch(r"GPU\d+", name) and int(name[3:]) not in rows]
    if missing:
        gpus = few(missing)
        raise UserError(
            f"nvidia-smi topo has no whole row of {gpus}: it is cut off or has lost blanks: capture it again"
        )
    # That of `topo -mp` shows PCIe where there are NVLinks; its legend has none.
    return TopoTable(rows, numa, of_nics, hides_links="Legend:" in text and not re.search(r"\bNV(\d|#)", text))


def _numa_node(cells: Sequence[str], at_numa: int | None, at_cpus: int | None, cpus: Mapping[int, str]) -> int | None:
    """Where a row of the table has its GPU: the first of a list, in which those of GPUs' memory come later; of older
    versions, which have no such column, the node that has the row's cores."""
    if at_numa is not None:
        match = re.match(r"\d+", cells[at_numa]) if at_numa < len(cells) else None
        return int(match[0]) if match is not None else None
    listed = cells[at_cpus] if at_cpus is not None and at_cpus < len(cells) else None
    return next((node for node, of_node in cpus.items() if of_node == listed), None)


def entries_of_table(
    table: TopoTable, whole: Collection[int], names: Mapping[int, str], gres: str, notes: list[str]
) -> list[dict[str, Any]]:
    """The `whole` GPUs of `nvidia-smi topo -m` in NVML's form: it has counts of NVLinks, no rates and switches.
    `names`: their models by index; `gres`: what the scheduler calls them.

    Raises UserError for the table of `topo -mp`, which hides NVLinks.
    """
    if table.hides_links:
        raise UserError(
            "the table of GPUs is that of `nvidia-smi topo -mp`, which hides NVLinks: give that of `topo -m`"
        )
    counts: dict[tuple[int, int], int] = {}
    for index in whole:
        for name, cell in table.rows[index].items():
            if (match := re.fullmatch(r"NV(\d+)", cell)) and int(name[3:]) in whole:
                counts[index, int(name[3:])] = int(match[1])
    product = gpu_product(names.get(min(whole), gres))
    by_switch = _is_switch(whole, counts, product.links if product is not None else None, notes)
    entries = []
    for index in whole:
        links: list[dict[str, Any]] = []
        of_gpu = {other: count for (gpu, other), count in sorted(counts.items()) if gpu == index}
        for other, count in ({-1: max(of_gpu.values())} if by_switch and of_gpu else of_gpu).items():
            kind = "switch" if by_switch else "gpu"
            links += [
                {"version": None, "speed_mbps": None, "remote_kind": kind, "remote_bus_id": f"GPU{other}"}
            ] * count
        entries.append(
            {
                "index": index,
                "name": names.get(index, "unknown"),
                "arch": "unknown",
                "bus_id": f"GPU{index}",
                "numa_node": None,
                "pcie_generation": None,
                "pcie_width": None,
                "nvlinks": links,
            }
        )
    return entries


def _is_switch(
    gpus: Collection[int], counts: Mapping[tuple[int, int], int], of_sheet: int | None, notes: list[str]
) -> bool:
    """Whether `NVn` between pairs is a switch with n links a GPU: where direct links would need more than a GPU has
    (`of_sheet`, else 18, the most up to Blackwell)."""
    of_gpu = {gpu: [count for pair, count in counts.items() if pair[0] == gpu] for gpu in gpus}
    linked = [gpu for gpu in gpus if of_gpu[gpu]]
    needed = max(map(sum, of_gpu.values()), default=0)
    most = max(counts.values(), default=0)
    everyone = len(counts) == len(linked) * (len(linked) - 1)
    if not everyone or len(linked) < 2 or (needed <= (of_sheet or 18) and most != of_sheet):
        return False
    if of_sheet is None:
        notes.append(f"NV{most} between all pairs is taken for an NVSwitch: a GPU does not have that many links")
    return True
