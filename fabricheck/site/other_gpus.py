"""GPUs of AMD and Intel, and their links.

Of AMD from the kernel's KFD, else from the tables of rocm-smi or amd-smi. Of Intel from `xpu-smi topology -m` and
`discovery -j`, in the forms of the Intel XPU System Management Interface User Guide (intel/xpumanager,
doc/smi_user_guide.md): each tile is a GPU of its own.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fabricheck import jsonfile
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

# Gb/s of a link of Infinity Fabric between GPUs in one direction, and its generation: 50 GB/s on the MI200 series
# (Schieffer et al., §II-A), 64 on MI300 and 76.8 on MI350 (AMD's CDNA 3 and 4 white papers). Drivers may say 50 of all.
_XGMI_GBPS = 400.0
_XGMI = {"gfx940": (3, 512.0), "gfx941": (3, 512.0), "gfx942": (3, 512.0), "gfx950": (4, 614.4)}
# Weights of XGMI with no GPU between (Linux, drivers/gpu/drm/amd/amdkfd/kfd_crat.c): one hop; partitions of one GPU;
# partitions of two GPUs, whose link all of them share. 30 and 45 are two and three hops.
_ONE_HOP, _SAME_GPU, _OF_TWO_GPUS = 15, 13, 41
_DIRECT = (_ONE_HOP, _SAME_GPU, _OF_TWO_GPUS)
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def from_kfd(
    entries: Sequence[Mapping[str, Any]], numa_nodes: tuple[int, ...], gres: str, source: str
) -> tuple[tuple[FoundGpu, ...], list[FoundLink]]:
    """GPUs and links of `fabricheck.state.capture.amd_facts`, or of a `source` in its form. `gres`: what the scheduler
    calls them."""
    of_node = {entry["node"]: index for index, entry in enumerate(entries)}
    ends = _ends(entries, of_node)
    partitioned = any(end.startswith("card") for end in ends)
    gpus, links = [], []
    joined: set[tuple[str, str]] = set()
    for index, (entry, end) in enumerate(zip(entries, ends, strict=True)):
        # The kernel knows the PCI device at the first partition of a GPU.
        device = entries[ends.index(end)]
        numa = known_numa(device["numa_node"], numa_nodes)
        cpu = cpu_of(numa, numa_nodes)
        clock, bits = entry["memory_clock_mhz"], entry["memory_bus_bits"]
        of_memory = f"{source}: memory clock of {clock} MHz, two transfers a cycle, {bits} bit"
        model, arch = model_and_arch(device["model"] or "unknown", entry["arch"], gres)
        memory = memory_gbps(clock, bits)
        to_cpu, counted = None, 0
        for link in entry["links"]:
            peer, rate, count = of_node.get(link["to"]), *_parallel(link)
            if link["kind"] != "xgmi":
                continue
            if peer is None:
                to_cpu = FoundLink((end, cpu), "Infinity Fabric to the CPU", count, rate, source)
                continue
            # All partitions of a GPU share its links.
            other = ends[peer] if ends[peer] != end else f"gpu{index}"
            if link["weight"] not in _DIRECT or other == end:
                continue
            counted += count
            if (other, end) not in joined and (end, other) not in joined:
                joined.add((end, other))
                technology = "Infinity Fabric" if ends[peer] != end else "Infinity Fabric in the GPU"
                links.append(_of_arch(FoundLink((end, other), technology, count, rate, source), arch))
        links_of_gpu = None if partitioned or not entry.get("counts", True) else counted
        gpus.append(FoundGpu(index, model, arch, numa, device["pci"], memory, of_memory, links_of_gpu))
        generation, width = pcie_generation(entry["link_speed"] or ""), entry["link_width"] or ""
        if entry is device:
            pcie = (generation, int(width)) if generation and width.isdecimal() else None
            by_pcie = link_to_cpu((end, cpu), model, pcie, "the kernel" if pcie else source, unknown="link to the CPU")
            links.append(to_cpu or by_pcie)
    return tuple(gpus), links


def _ends(entries: Sequence[Mapping[str, Any]], of_node: Mapping[int, int]) -> list[str]:
    """By index what has the links of a GPU: itself, or the card of which it is a partition."""
    ends: list[str] = []
    for index, entry in enumerate(entries):
        peers = [
            link for link in entry["links"] if link["to"] in of_node
        ]  # a link to the CPU may have this weight, too
        of_card = [of_node[link["to"]] for link in peers if link["weight"] == _SAME_GPU]
        first = min(of_card, default=index)
        ends.append(
            ends[first] if first < index else f"card{index // (1 + len(of_card))}" if of_card else f"gpu{index}"
        )
    return ends


def _of_arch(link: FoundLink, arch: str) -> FoundLink:
    """The links of two GPUs at the nominal rate of their architecture, where that has one of its own."""
    if arch not in _XGMI or link.technology != "Infinity Fabric":
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


def entries_of_rocm(text: str, names: Mapping[int, str], notes: list[str]) -> list[dict[str, Any]]:
    """`rocm-smi --showtopo` or `amd-smi topology` in the form of the kernel's KFD: weight, hops and kind of each pair,
    NUMA node of each GPU. `names`: their models, if known.

    Links are the pairs of XGMI with no GPU between, by weight: hops are 1 for every pair of an MI250. How many parallel
    links they are is not in there. Raises UserError for another text.
    """
    text = _ESCAPES.sub("", text)
    hops, kinds, weights = _matrix(text, "hops"), _matrix(text, "type"), _matrix(text, "weight")
    if not hops or not kinds:
        raise UserError("a text without tables of hops and link types is not the output of rocm-smi --showtopo")
    nodes = {int(a): int(b) for a, b in re.findall(r"GPU ?\[?(\d+)\]?\s*: \(Topology\) Numa Node:\s*(\d+)", text)}
    size = len(hops)
    told = len(weights) == size and any(cell.isdecimal() and cell != "0" for row in weights for cell in row)
    direct, wanted = (weights, {*map(str, _DIRECT)}) if told else (hops, {"1"})
    if not told:
        notes.append("rocm-smi has no weights: pairs of one hop are taken as linked, which is wrong for MI250")
    notes.append(
        "the output does not have the number of Infinity Fabric links of a pair: every count is 1, correct it by hand"
    )
    link = {"kind": "xgmi", "weight": _ONE_HOP, "least_mbps": None, "most_mbps": None}
    unknown = dict.fromkeys(("memory_bus_bits", "memory_clock_mhz", "link_speed", "link_width", "pci"))
    entries = []
    for index in range(size):
        peers = [to for to in range(size) if kinds[index][to] == "XGMI" and direct[index][to] in wanted]
        node = nodes.get(index)
        entries.append(
            {
                **unknown,
                "node": index,
                "model": names.get(index),
                "arch": "unknown",
                # ROCm 5 prints the unknown one, -1, without its sign.
                "numa_node": node if node is None or node < 1 << 31 else None,
                "counts": told and bool(names),
                "links": [{**link, "to": to} for to in peers],
            }
        )
    return entries


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


_TILE = re.compile(r"\s*GPU (\d+)/(\d+)")
# Two tiles of different cards with a Xe Link between them, and the lanes that it has; XL* is a way over another tile.
_XE_LINK = re.compile(r"XL(\d+)")


def _tiles(text: str) -> tuple[list[tuple[int, int]], dict[tuple[int, int], str]]:
    """Card and number of each tile of `xpu-smi topology -m` in its order, and what joins each pair: `MDF`, `XL16`,
    `XL*`, `SYS`.

    The tool sets its columns apart by blanks (1.0 to 2.0), and its guide by bars; 2.0 has NICs behind the tiles. Raises
    UserError for another file.
    """
    tiles, rows = [], []
    for line in text.splitlines():
        match = _TILE.match(line)
        if match is None:  # also the line of the columns' names, which is indented
            continue
        cells = line[match.end() :].replace("|", " ").split()
        if cells[:1] != ["GPU"]:
            tiles.append((int(match[1]), int(match[2])))
            rows.append(cells)
    if not tiles or any(len(cells) < len(tiles) for cells in rows):
        raise UserError("a text without a table of tiles is not the output of `xpu-smi topology -m`")
    return tiles, {(a, b): rows[a][b] for a, b in itertools.combinations(range(len(tiles)), 2)}


def _cards(path: Path) -> dict[int, tuple[str, str]]:
    """Model and PCI address of the cards of `xpu-smi discovery -j` by their number; none where there is no file.

    Raises UserError for other JSON.
    """
    content = read_json(path)
    try:
        cards = {}
        for card in content["device_list"] if content else ():
            model = card["device_name"].removeprefix("Intel(R) ").strip() or "unknown"
            cards[int(card["device_id"])] = model, str(card["pci_bdf_address"])
        return cards
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UserError(f"{path}: has no list of devices: it is not the output of `xpu-smi discovery -j`") from None


def read_json(path: Path) -> Any:
    """The JSON in a file, None where there is no file. Raises UserError where it is not JSON, or not as expected."""
    content = jsonfile.read_json(path) if path.exists() else None
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UserError(f"{path}: has half of a character (a lone surrogate)") from None
    return content


def from_xpu_smi(
    topology: str, discovery: Path, on_bus: Sequence[Mapping[str, Any]], notes: list[str]
) -> tuple[tuple[FoundGpu, ...], list[FoundLink]]:
    """`xpu-smi topology -m` and `discovery -j`, with the kernel's word on PCIe links: a tile is a GPU."""
    tiles, joined = _tiles(topology)
    cards = _cards(discovery)
    kernel = {one["bus_id"]: one for one in on_bus}
    gpus, links = [], []
    for index, (card, number) in enumerate(tiles):
        model, bus_id = cards.get(card, ("unknown", ""))
        pci = kernel.get(bus_id, {})
        numa = pci.get("numa_node")
        to_others = sum(_XE_LINK.fullmatch(how) is not None for pair, how in joined.items() if index in pair)
        gpus.append(FoundGpu(index, *model_and_arch(f"{model}, tile", "unknown", ""), numa, links=to_others))
        if number == 0:
            known = pcie_generation(pci.get("path_speed") or ""), int(pci.get("link_width") or 0)
            ends = f"gpu{index}", cpu_of(numa, ())
            links.append(link_to_cpu(ends, model, known if all(known) else None, "the kernel"))
    for (a, b), how in joined.items():
        if how == "MDF":
            links.append(FoundLink((f"gpu{a}", f"gpu{b}"), "MDFI", 1, None, "xpu-smi topology -m"))
        elif (lanes := _XE_LINK.fullmatch(how)) is not None:
            links.append(FoundLink((f"gpu{a}", f"gpu{b}"), f"Xe Link x{lanes[1]}", 1, None, "xpu-smi topology -m"))
    if len({card for card, _ in tiles}) > 1 and not any(how.startswith("XL") for how in joined.values()):
        notes.append("no Xe Link between cards is named, and xpu-smi 2 names none: add those that they have")
    notes.append("xpu-smi reports lanes of Xe Link but no rates, and nothing about MDFI: fill them in")
    if any(number for _, number in tiles):
        notes.append("the PCIe link of a card stands at its first tile, and the other tiles reach it through MDFI")
    return tuple(gpus), links
