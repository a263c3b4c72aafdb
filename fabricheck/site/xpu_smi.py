"""Reads what xpu-smi says of Intel's GPUs (`xpu-smi topology -m`, `discovery -j`): each tile is a GPU of its own.

Forms of the output: Intel XPU System Management Interface User Guide (intel/xpumanager, doc/smi_user_guide.md).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabricheck import jsonfile
from fabricheck.errors import UserError
from fabricheck.site.found import FoundGpu, FoundLink

_TILE = re.compile(r"\s*GPU (\d+)/(\d+)")
# Two tiles of different cards with a Xe Link between them, and the lanes that it has; XL* is a way over another tile.
_XE_LINK = re.compile(r"XL(\d+)")


@dataclass(frozen=True)
class Tile:
    """A tile: its card, and its number on the card."""

    card: int
    number: int


@dataclass(frozen=True)
class XpuCard:
    """A card as `xpu-smi discovery` names it."""

    model: str
    bus_id: str


def read_matrix(path: Path) -> tuple[tuple[Tile, ...], dict[tuple[int, int], str]]:
    """The tiles of `xpu-smi topology -m` in its order, and what joins each pair of them: `MDF`, `XL16`, `XL*`, `SYS`.

    The tool sets its columns apart by blanks (1.0 to 2.0), and its guide by bars; 2.0 has NICs behind the tiles. Raises
    UserError for another file.
    """
    tiles, cells = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        match = _TILE.match(line)
        if match is None:  # also the line of the columns' names, which is indented
            continue
        row = line[match.end() :].replace("|", " ").split()
        if row[:1] == ["GPU"]:
            continue
        tiles.append(Tile(int(match[1]), int(match[2])))
        cells.append(row)
    cells = [row[: len(tiles)] for row in cells]
    if not tiles or any(len(row) != len(tiles) for row in cells):
        raise UserError(f"{path}: has no table of tiles: it is not the output of `xpu-smi topology -m`")
    pairs = itertools.combinations(range(len(tiles)), 2)
    return tuple(tiles), {(a, b): cells[a][b] for a, b in pairs}


def parse_lanes(joined: str) -> int | None:
    """The lanes of a Xe Link between two tiles, for `XL16` 16; None where there is no link of their own."""
    match = _XE_LINK.fullmatch(joined)
    return int(match[1]) if match else None


def read_cards(content: Any, path: Path) -> dict[int, XpuCard]:
    """The cards of `xpu-smi discovery -j` by their number. Raises UserError for other JSON."""
    try:
        entries: Sequence[Mapping[str, Any]] = content["device_list"]
        return {int(one["device_id"]): XpuCard(_model(one["device_name"]), one["pci_bdf_address"]) for one in entries}
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path}: has no list of devices: it is not the output of `xpu-smi discovery -j`") from None


def _model(name: str) -> str:
    return name.removeprefix("Intel(R) ").strip() or "unknown"


def architecture(model: str) -> str:
    """What the compiler calls GPUs of this model, `pvc` for Data Center GPU Max; `unknown` where that is not known."""
    return "pvc" if re.search(r"\bGPU Max \d+", model) else "unknown"


def read_json(path: Path) -> Any:
    """The JSON in a file, None where there is no file. Raises UserError where it is not JSON, or not as expected."""
    content = jsonfile.read_json(path) if path.exists() else None
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UserError(f"{path}: has half of a character (a lone surrogate)") from None
    return content


def from_xpu_smi(
    topology: Path, discovery: Path, intel: Path, notes: list[str]
) -> tuple[tuple[FoundGpu, ...], list[FoundLink]]:
    """`xpu-smi topology -m` and `discovery -j`, with the kernel's word on PCIe links: a tile is a GPU."""
    tiles, joined = read_matrix(topology)
    listed = read_json(discovery)
    cards = read_cards(listed, discovery) if listed else {}
    kernel = {one["bus_id"]: one for one in read_json(intel) or []}
    gpus, links = [], []
    for index, tile in enumerate(tiles):
        card = cards.get(tile.card, XpuCard("unknown", ""))
        pci = kernel.get(card.bus_id, {})
        numa = pci.get("numa_node")
        gpus.append(FoundGpu(index, f"{card.model}, tile", architecture(card.model), numa))
        if tile.number == 0 and pci.get("link_speed") and pci.get("link_width"):
            # "32.0 GT/s PCIe": so many Gb/s a lane.
            rate = float(pci["link_speed"].split()[0]) * int(pci["link_width"])
            links.append(FoundLink((f"gpu{index}", f"numa{numa or 0}"), "PCIe", 1, rate, "the kernel"))
    for (a, b), how in joined.items():
        if how == "MDF":
            links.append(FoundLink((f"gpu{a}", f"gpu{b}"), "MDFI", 1, None, "xpu-smi topology -m"))
        elif (width := parse_lanes(how)) is not None:
            links.append(FoundLink((f"gpu{a}", f"gpu{b}"), f"Xe Link x{width}", 1, None, "xpu-smi topology -m"))
    if len({tile.card for tile in tiles}) > 1 and not any(how.startswith("XL") for how in joined.values()):
        notes.append("no Xe Link between cards is named, and xpu-smi 2 names none: add those that they have")
    notes.append("xpu-smi reports lanes of Xe Link but no rates, and nothing about MDFI: fill them in")
    if any(tile.number for tile in tiles):
        notes.append("the PCIe link of a card stands at its first tile, and the other tiles reach it through MDFI")
    return tuple(gpus), links
