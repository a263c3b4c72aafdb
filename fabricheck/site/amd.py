"""AMD's GPUs and their links: from the kernel's KFD, else from the tables of rocm-smi or amd-smi."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError
from fabricheck.site.found import (
    FoundGpu,
    FoundLink,
    cpu_of,
    known_numa,
    memory_gbps,
    pcie_generation,
    pcie_link,
    short_model,
)

# Gb/s of a link of Infinity Fabric between GPUs in one direction, and its generation: 50 GB/s on the MI200 series
# (Schieffer et al., §II-A), 64 on MI300 and 76.8 on MI350 (AMD's CDNA 3 and 4 white papers). Drivers may say 50 of all.
_XGMI_GBPS = 400.0
_XGMI = {"gfx940": (3, 512.0), "gfx941": (3, 512.0), "gfx942": (3, 512.0), "gfx950": (4, 614.4)}
# Weights of XGMI with no GPU between (Linux, drivers/gpu/drm/amd/amdkfd/kfd_crat.c): one hop; partitions of one GPU;
# partitions of two GPUs, whose link all of them share. 30 and 45 are two and three hops.
_ONE_HOP, _SAME_GPU, _OF_TWO_GPUS = 15, 13, 41
_DIRECT = (_ONE_HOP, _SAME_GPU, _OF_TWO_GPUS)
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_KFD = "the kernel's KFD"


def from_kfd(
    entries: Sequence[Mapping[str, Any]], numa_nodes: tuple[int, ...]
) -> tuple[tuple[FoundGpu, ...], list[FoundLink]]:
    """GPUs and links of `fabricheck.state.capture.amd_facts`."""
    of_node = {entry["node"]: index for index, entry in enumerate(entries)}
    peers = [
        sum(each["kind"] == "xgmi" and each["to"] in of_node and each["weight"] == _ONE_HOP for each in entry["links"])
        for entry in entries
    ]
    whole = not any(each["weight"] in (_SAME_GPU, _OF_TWO_GPUS) for entry in entries for each in entry["links"])
    gpus, links = [], []
    for index, entry in enumerate(entries):
        numa = known_numa(entry["numa_node"], numa_nodes)
        clock, bits = entry["memory_clock_mhz"], entry["memory_bus_bits"]
        source = f"{_KFD}: memory clock of {clock} MHz, two transfers a cycle, {bits} bit"
        model = short_model(entry["model"] or "unknown")
        memory = memory_gbps(clock, bits)
        counted = peers[index] if whole else None
        gpus.append(FoundGpu(index, model, entry["arch"], numa, entry["pci"], memory, source, counted))
        to_cpu = None
        for link in entry["links"]:
            peer, rate, count = of_node.get(link["to"]), *_parallel(link)
            if peer is None and link["kind"] == "xgmi":
                to_cpu = FoundLink(
                    (f"gpu{index}", cpu_of(numa, numa_nodes)), "Infinity Fabric to the CPU", count, rate, _KFD
                )
            elif peer is not None and peer > index and link["kind"] == "xgmi" and link["weight"] in _DIRECT:
                found_link = FoundLink((f"gpu{index}", f"gpu{peer}"), "Infinity Fabric", count, rate, _KFD)
                links.append(_of_arch(found_link, entry["arch"]) if link["weight"] == _ONE_HOP else found_link)
        generation, width = pcie_generation(entry["link_speed"] or ""), entry["link_width"] or ""
        if to_cpu is not None:
            links.append(to_cpu)
        elif generation and width.isdecimal():
            links.append(pcie_link(index, cpu_of(numa, numa_nodes), generation, int(width), "the kernel"))
        else:
            links.append(FoundLink((f"gpu{index}", cpu_of(numa, numa_nodes)), "link to the CPU", 1, None, _KFD))
    return tuple(gpus), links


def _of_arch(link: FoundLink, arch: str) -> FoundLink:
    """The links of two GPUs at the rate of their architecture, where that has one of its own."""
    if arch not in _XGMI:
        return link
    generation, rate = _XGMI[arch]
    source = f"AMD's white papers, {arch}; {link.source}"
    return replace(link, technology=f"Infinity Fabric {generation}", rate_gbps=rate, source=source)


def _parallel(link: Mapping[str, Any]) -> tuple[float | None, int]:
    """Gb/s of one link and how many there are, by the bandwidths of one and of all; without them, one of the MI200."""
    least, most = link["least_mbps"], link["most_mbps"]
    if not least or not most:
        return _XGMI_GBPS, 1
    return least * 8 / 1000, max(1, round(most / least))


def from_rocm_topo(
    path: Path, numa_nodes: tuple[int, ...], notes: list[str]
) -> tuple[tuple[FoundGpu, ...], list[FoundLink]]:
    """`rocm-smi --showtopo` or `amd-smi topology`: weight, hops and kind of each pair, NUMA node of each GPU.

    Links are the pairs of XGMI with no GPU between, by weight: hops are 1 for every pair of an MI250. How many parallel
    links they are is not in there. Raises UserError for another text.
    """
    text = _ESCAPES.sub("", path.read_text(encoding="utf-8"))
    hops, kinds, weights = _matrix(text, "hops"), _matrix(text, "type"), _matrix(text, "weight")
    if not hops or not kinds:
        raise UserError(f"{path}: has no tables of hops and link types: it is not the output of rocm-smi --showtopo")
    nodes = {int(a): int(b) for a, b in re.findall(r"GPU\[(\d+)\]\s*: \(Topology\) Numa Node:\s*(\d+)", text)}
    size = len(hops)
    numas = [known_numa(nodes.get(index), numa_nodes) for index in range(size)]
    gpus = tuple(FoundGpu(index, "unknown", "unknown", numa) for index, numa in enumerate(numas))
    told = len(weights) == size and any(cell.isdecimal() and cell != "0" for row in weights for cell in row)
    direct, wanted = (weights, {*map(str, _DIRECT)}) if told else (hops, {"1"})
    if not told:
        notes.append(f"{path.name} has no weights: pairs of one hop are taken as linked, which is wrong for MI250")
    pairs = [(a, b) for a, b in itertools.combinations(range(size), 2) if kinds[a][b] == "XGMI"]
    pairs = [(a, b) for a, b in pairs if direct[a][b] in wanted]
    notes.append(
        "the output does not have the number of Infinity Fabric links of a pair: every count is 1, correct it by hand"
    )
    notes.append("rocm-smi --showtopo has no models, architectures and rates to the CPU: fill them in")
    links = [FoundLink((f"gpu{a}", f"gpu{b}"), "Infinity Fabric", 1, _XGMI_GBPS, path.name) for a, b in pairs]
    links += [
        FoundLink((f"gpu{gpu.index}", cpu_of(gpu.numa, numa_nodes)), "link to the CPU", 1, None, path.name)
        for gpu in gpus
    ]
    return gpus, links


def _matrix(text: str, what: str) -> list[list[str]]:
    """The rows of the table whose title names `what`, without their names."""
    titles = {
        "hops": r"Hops between two GPUs|HOPS TABLE",
        "type": r"Link Type between two GPUs|LINK TYPE TABLE",
        "weight": r"Weight between two GPUs|WEIGHT TABLE",
    }
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
