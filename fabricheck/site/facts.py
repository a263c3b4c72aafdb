"""Reads captured answers into what a topology is made of."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from fabricheck.errors import UserError, reason_of
from fabricheck.site import capture as names
from fabricheck.site import xpu_smi
from fabricheck.site.xpu_smi import read_json

# NVML counts versions of NVLink in steps (nvml.h, NVML_NVLINK_VERSION_*): 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0.
_NVLINK_GENERATION = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5}
_NVLINK_OF_ARCH = {"sm_60": 1, "sm_70": 2, "sm_80": 3, "sm_90": 4, "sm_100": 5}
# Nominal Gb/s of one link in one direction by generation (NVIDIA's architecture papers). What the driver tells
# (26,562 MB/s for the fourth) is the speed on the wire.
_NVLINK_GBPS = {1: 160.0, 2: 200.0, 3: 200.0, 4: 200.0, 5: 400.0}
# From this generation on, a switch reduces and multicasts (NVLink SHARP).
_NVLINK_SHARP_GENERATION = 4
# Gb/s of a lane in one direction by PCIe generation, rounded as the papers do (De Sensi §II-B: 256 Gb/s for 4.0 x16).
_PCIE_LANE_GBPS = {3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
# Infinity Fabric between GPUs: 50 GB/s a link (Schieffer et al., §II-A), on the MI200 series.
_XGMI_GBPS = 400.0

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class FoundGpu:
    """A GPU. `numa` is None where nobody says."""

    index: int
    model: str
    arch: str
    numa: int | None


@dataclass(frozen=True)
class FoundLink:
    """Parallel links. `rate_gbps` is None where the capture does not tell it: to be filled in by hand."""

    ends: tuple[str, str]
    technology: str
    count: int
    rate_gbps: float | None
    source: str


@dataclass(frozen=True)
class FoundNic:
    """A network port. `rate_gbps` is None where the capture does not tell it."""

    name: str
    model: str
    rate_gbps: float | None
    numa: int | None
    source: str


@dataclass(frozen=True)
class Facts:
    """A node as its captures describe it. `notes`: what has to be looked at by hand."""

    hostname: str
    vendor: str  # nvidia, amd, intel or none
    gpus: tuple[FoundGpu, ...]
    numa_nodes: tuple[int, ...]
    cores: int
    sockets: int
    nics: tuple[FoundNic, ...]
    links: tuple[FoundLink, ...]
    has_switch: bool
    switch_reduces: bool
    notes: tuple[str, ...] = field(default=())


def read_facts(directory: Path) -> Facts:
    """Everything that the captures in a directory tell. Raises UserError if there are none, or one is not readable."""
    if not directory.is_dir():
        raise UserError(f"{directory}: is no directory of captures: make one with `fabricheck capture {directory}`")
    try:
        return _read_facts(directory)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        reason = f"a capture is not as `fabricheck capture` or its tool writes it ({reason_of(error)})"
        raise UserError(f"{directory}: {reason}: capture the node again") from None


def _read_facts(directory: Path) -> Facts:
    notes: list[str] = []
    nvml = read_json(directory / names.NVML)
    host = read_json(directory / names.HOST) or {}
    numa_nodes, cores, sockets = _numa(directory)
    gpus: tuple[FoundGpu, ...] = ()
    links: list[FoundLink] = []
    vendor = "none"
    topo = directory / names.NVIDIA_TOPO
    if nvml and nvml.get("gpus"):
        vendor = "nvidia"
        gpus, links = _from_nvml(nvml["gpus"], numa_nodes)
    elif topo.exists():
        vendor = "nvidia"
        gpus, links = _from_nvidia_topo(topo, notes)
    elif (amd := _amd_file(directory)) is not None:
        vendor = "amd"
        gpus, links = _from_rocm_topo(amd, notes)
    elif (directory / names.XPU_SMI_TOPO).exists():
        vendor = "intel"
        gpus, links = _from_xpu_smi(directory, notes)
    found_nics = _nics(read_json(directory / names.NICS) or [])
    if not gpus and not numa_nodes and not found_nics:
        known = ", ".join(
            (
                names.NVML,
                names.NVIDIA_TOPO,
                names.ROCM_SMI_TOPO,
                names.XPU_SMI_TOPO,
                names.LSTOPO,
                names.NUMA,
                names.NICS,
            )
        )
        raise UserError(f"{directory}: has no captures that tell of GPUs, NICs or NUMA domains: none of {known}")
    notes += [f"the rate of {link.technology} is not in the captures" for link in links if link.rate_gbps is None]
    notes += [f"the rate of {one.name} is not in the captures" for one in found_nics if one.rate_gbps is None]
    to_switch = [link for link in links if "nvswitch" in link.ends]
    return Facts(
        hostname=str(host.get("hostname", "")),
        vendor=vendor,
        gpus=gpus,
        numa_nodes=numa_nodes or (0,),
        cores=cores,
        sockets=sockets,
        nics=found_nics,
        links=tuple(links),
        has_switch=bool(to_switch),
        switch_reduces=any(_generation_of(link) >= _NVLINK_SHARP_GENERATION for link in to_switch),
        notes=tuple(dict.fromkeys(notes)),
    )


def _numa(directory: Path) -> tuple[tuple[int, ...], int, int]:
    """NUMA nodes that have cores, physical cores, sockets: from lstopo's XML, else from sysfs."""
    path = directory / names.LSTOPO
    if path.exists():
        try:
            root = ElementTree.parse(path).getroot()
        except ElementTree.ParseError as error:
            raise UserError(f"{path}: is not readable XML: {error}") from None
        objects = Counter(one.get("type") for one in root.iter("object"))
        indexes = tuple(
            sorted(
                int(one.get("os_index", "0"))
                for one in root.iter("object")
                if one.get("type") == "NUMANode" and one.get("cpuset", "0x1").strip("0x,")
            )
        )
        return indexes, objects["Core"], objects["Package"]
    numa = read_json(directory / names.NUMA)
    if not numa:
        return (), 0, 0
    return tuple(one["index"] for one in numa["nodes"]), int(numa["cores"]), int(numa["sockets"])


def _from_nvml(
    gpus: Sequence[dict[str, Any]], numa_nodes: Sequence[int]
) -> tuple[tuple[FoundGpu, ...], list[FoundLink]]:
    by_bus = {gpu["bus_id"][-12:]: f"gpu{gpu['index']}" for gpu in gpus}
    found = tuple(
        FoundGpu(gpu["index"], _short_model(gpu["name"]), gpu["arch"], _known_numa(gpu["numa_node"], numa_nodes))
        for gpu in gpus
    )
    counted: Counter[tuple[str, str, int | None, float | None]] = Counter()
    for gpu in gpus:
        me = f"gpu{gpu['index']}"
        for link in gpu["nvlinks"]:
            other = by_bus.get((link["remote_bus_id"] or "")[-12:])
            if other is None:
                other = {"switch": "nvswitch", "cpu": _cpu_of(gpu, numa_nodes)}.get(link["remote_kind"])
            if other is None or (other.startswith("gpu") and other < me):
                continue  # counted from the other end
            generation = _NVLINK_GENERATION.get(link["version"], _NVLINK_OF_ARCH.get(gpu["arch"]))
            counted[me, other, generation, _nvlink_gbps(generation, link["speed_mbps"])] += 1
    links = [
        FoundLink((me, other), f"NVLink{generation or ''}", count, rate, "NVML")
        for (me, other, generation, rate), count in counted.items()
    ]
    for gpu in gpus:
        generation, width = gpu["pcie_generation"], gpu["pcie_width"]
        if generation and width:
            lane = _PCIE_LANE_GBPS.get(generation)
            rate = lane * width if lane else None
            technology = f"PCIe {generation} x{width}"
            links.append(FoundLink((f"gpu{gpu['index']}", _cpu_of(gpu, numa_nodes)), technology, 1, rate, "NVML"))
    return found, links


def _generation_of(link: FoundLink) -> int:
    number = link.technology.removeprefix("NVLink")
    return int(number) if number.isdecimal() else 0


def _nvlink_gbps(generation: int | None, speed_mbps: int | None) -> float | None:
    if generation in _NVLINK_GBPS:
        return _NVLINK_GBPS[generation]
    return speed_mbps * 8 / 1000 if speed_mbps else None


def _known_numa(node: int | None, numa_nodes: Sequence[int]) -> int | None:
    return node if node is not None and node in numa_nodes else None


def _cpu_of(gpu: dict[str, Any], numa_nodes: Sequence[int]) -> str:
    node = _known_numa(gpu["numa_node"], numa_nodes)
    return f"numa{node if node is not None else (numa_nodes[0] if numa_nodes else 0)}"


def _short_model(name: str) -> str:
    return name.removeprefix("NVIDIA ").removeprefix("AMD ").strip() or "unknown"


def _from_nvidia_topo(path: Path, notes: list[str]) -> tuple[tuple[FoundGpu, ...], list[FoundLink]]:
    """`nvidia-smi topo -m`: counts of NVLinks between GPUs; it says nothing of models, rates and switches."""
    table = [_ESCAPES.sub("", line) for line in path.read_text(encoding="utf-8").splitlines()]
    header = next((line.split("\t") for line in table if "GPU0" in line), None)
    if header is None:
        raise UserError(f"{path}: has no table of GPUs: it is not the output of `nvidia-smi topo -m`")
    columns = [cell.strip() for cell in header]
    gpu_columns = [position for position, cell in enumerate(columns) if re.fullmatch(r"GPU\d+", cell)]
    numa_column = columns.index("NUMA Affinity") if "NUMA Affinity" in columns else None
    gpus, counts = [], {}
    for line in table:
        cells = [cell.strip() for cell in line.split("\t")]
        if not re.fullmatch(r"GPU\d+", cells[0]) or len(cells) < len(gpu_columns) + 1:
            continue
        index = int(cells[0][3:])
        numa = cells[numa_column] if numa_column is not None and numa_column < len(cells) else ""
        gpus.append(FoundGpu(index, "unknown", "unknown", int(numa) if numa.isdecimal() else None))
        for position in gpu_columns:
            match = re.fullmatch(r"NV(\d+)", cells[position])
            if match:
                counts[index, int(columns[position][3:])] = int(match[1])
    one_way = {pair: count for pair, count in counts.items() if pair[0] < pair[1]}
    notes.append("nvidia-smi topo names no models and no architectures: fill in model, arch and rates")
    links = _switch_or_direct(len(gpus), one_way, notes)
    numa_links = [
        FoundLink((f"gpu{gpu.index}", f"numa{gpu.numa or 0}"), "PCIe", 1, None, "nvidia-smi topo -m") for gpu in gpus
    ]
    return tuple(gpus), links + numa_links


def _switch_or_direct(gpus: int, counts: dict[tuple[int, int], int], notes: list[str]) -> list[FoundLink]:
    """`NVn` between all pairs is a switch with n links a GPU where direct links would need more than a GPU has."""
    if not counts:
        return []
    widths = set(counts.values())
    most = 18  # NVLinks of one GPU, up to Blackwell
    everyone = len(counts) == gpus * (gpus - 1) // 2
    if everyone and len(widths) == 1 and next(iter(widths)) * (gpus - 1) > most:
        count = next(iter(widths))
        notes.append(f"NV{count} between all pairs is taken for an NVSwitch: direct links would be more than a GPU has")
        ends = [(f"gpu{index}", "nvswitch") for index in range(gpus)]
    else:
        return [
            FoundLink((f"gpu{a}", f"gpu{b}"), "NVLink", count, None, "nvidia-smi topo -m")
            for (a, b), count in sorted(counts.items())
        ]
    return [FoundLink(pair, "NVLink", count, None, "nvidia-smi topo -m") for pair in ends]


def _amd_file(directory: Path) -> Path | None:
    for name in (names.ROCM_SMI_TOPO, names.AMD_SMI_TOPO):
        if (directory / name).exists():
            return directory / name
    return None


def _from_rocm_topo(path: Path, notes: list[str]) -> tuple[tuple[FoundGpu, ...], list[FoundLink]]:
    """`rocm-smi --showtopo` or `amd-smi topology`: hops and kind of each pair, NUMA node of each GPU.

    Links are the pairs of one hop by XGMI. How many parallel links they are is not in there.
    """
    text = _ESCAPES.sub("", path.read_text(encoding="utf-8"))
    hops, kinds = _matrix(text, "hops"), _matrix(text, "type")
    if not hops or not kinds:
        raise UserError(f"{path}: has no tables of hops and link types: it is not the output of rocm-smi --showtopo")
    nodes = {int(a): int(b) for a, b in re.findall(r"GPU\[(\d+)\]\s*: \(Topology\) Numa Node:\s*(\d+)", text)}
    size = len(hops)
    gpus = tuple(FoundGpu(index, "unknown", "unknown", nodes.get(index)) for index in range(size))
    pairs = [(a, b) for a, b in itertools.combinations(range(size), 2) if kinds[a][b] == "XGMI" and hops[a][b] == "1"]
    notes.append(
        "how many Infinity Fabric links join a pair is not in the output: every count is 1, correct them by hand"
    )
    notes.append("rocm-smi --showtopo names no models and architectures, and no rates to the CPU: fill them in")
    links = [FoundLink((f"gpu{a}", f"gpu{b}"), "Infinity Fabric", 1, _XGMI_GBPS, path.name) for a, b in pairs]
    links += [
        FoundLink((f"gpu{gpu.index}", f"numa{gpu.numa}"), "link to the CPU", 1, None, path.name)
        for gpu in gpus
        if gpu.numa is not None
    ]
    return gpus, links


def _from_xpu_smi(directory: Path, notes: list[str]) -> tuple[tuple[FoundGpu, ...], list[FoundLink]]:
    """`xpu-smi topology -m` and `discovery -j`, with the kernel's word on PCIe links: a tile is a GPU."""
    tiles, joined = xpu_smi.read_matrix(directory / names.XPU_SMI_TOPO)
    discovery = directory / names.XPU_SMI_DISCOVERY
    listed = read_json(discovery)
    cards = xpu_smi.read_cards(listed, discovery) if listed else {}
    kernel = {one["bus_id"]: one for one in read_json(directory / names.INTEL) or []}
    gpus, links = [], []
    for index, tile in enumerate(tiles):
        card = cards.get(tile.card, xpu_smi.Card("unknown", ""))
        pci = kernel.get(card.bus_id, {})
        numa = pci.get("numa_node")
        gpus.append(FoundGpu(index, f"{card.model}, tile", xpu_smi.architecture(card.model), numa))
        if tile.number == 0 and pci.get("link_speed") and pci.get("link_width"):
            # "32.0 GT/s PCIe": so many Gb/s a lane.
            rate = float(pci["link_speed"].split()[0]) * int(pci["link_width"])
            links.append(FoundLink((f"gpu{index}", f"numa{numa or 0}"), "PCIe", 1, rate, "the kernel"))
    for (a, b), how in joined.items():
        if how == "MDF":
            links.append(FoundLink((f"gpu{a}", f"gpu{b}"), "MDFI", 1, None, "xpu-smi topology -m"))
        elif (lanes := xpu_smi.lanes(how)) is not None:
            links.append(FoundLink((f"gpu{a}", f"gpu{b}"), f"Xe Link x{lanes}", 1, None, "xpu-smi topology -m"))
    notes.append("xpu-smi tells lanes of Xe Link and no rates, and nothing of MDFI's: fill them in")
    if any(tile.number for tile in tiles):
        notes.append("the PCIe link of a card stands at its first tile, and the other tiles reach it through MDFI")
    return tuple(gpus), links


def _matrix(text: str, what: str) -> list[list[str]]:
    """The rows of the table whose title names `what`, without their names."""
    titles = {"hops": r"Hops between two GPUs|HOPS TABLE", "type": r"Link Type between two GPUs|LINK TYPE TABLE"}
    rows: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        if re.search(titles[what], line, re.IGNORECASE):
            inside = True
        elif inside:
            cells = line.split()
            if cells and re.fullmatch(r"GPU\d+|[0-9a-f]{4}:[0-9a-f:.]+", cells[0]) and not _is_header(cells):
                rows.append(cells[1:])
            elif rows:
                break
    size = len(rows)
    return [row[:size] for row in rows] if all(len(row) >= size for row in rows) else []


def _is_header(cells: Sequence[str]) -> bool:
    return len(cells) > 1 and all(re.fullmatch(r"GPU\d+|[0-9a-f]{4}:[0-9a-f:.]+", cell) for cell in cells)


def _nics(entries: Sequence[dict[str, Any]]) -> tuple[FoundNic, ...]:
    found = []
    for one in entries:
        match = re.match(r"([0-9.]+) Gb/sec|BS_([0-9]+)G", one["rate"] or "")
        rate = float(match[1] or match[2]) if match else None
        model = "Slingshot (cxi)" if one["kind"] == "cxi" else f"{one['kind']} {one['rate'] or ''}".strip()
        source = "/sys/class/cxi" if one["kind"] == "cxi" else "/sys/class/infiniband"
        found.append(FoundNic(one["name"], model, rate, one["numa_node"], source))
    return tuple(found)
