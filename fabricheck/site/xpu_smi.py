"""Reads what xpu-smi says of Intel's GPUs (`xpu-smi topology -m`, `discovery -j`): each tile is a GPU of its own.

Forms of the output: Intel XPU System Management Interface User Guide (intel/xpumanager, doc/smi_user_guide.md).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabricheck import jsonfile
from fabricheck.errors import UserError

_TILE = re.compile(r"GPU (\d+)/(\d+)")
# Two tiles of different cards with a Xe Link between them, and the lanes that it has; XL* is a way over another tile.
_XE_LINK = re.compile(r"XL(\d+)")


@dataclass(frozen=True)
class Tile:
    """A tile: its card, and its number on the card."""

    card: int
    number: int


@dataclass(frozen=True)
class Card:
    """A card as `xpu-smi discovery` names it."""

    model: str
    bus_id: str


def read_matrix(path: Path) -> tuple[tuple[Tile, ...], dict[tuple[int, int], str]]:
    """The tiles of `xpu-smi topology -m` in its order, and what joins each pair of them: `MDF`, `XL16`, `XL*`, `SYS`.

    Raises UserError for a file that is not that table.
    """
    tiles, cells = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = [cell.strip() for cell in line.split("|")]
        match = _TILE.fullmatch(row[0])
        if match is None or _TILE.fullmatch(row[1]):  # the second: the line of the columns' names
            continue
        tiles.append(Tile(int(match[1]), int(match[2])))
        cells.append(row[1:-1])
    if not tiles or any(len(row) != len(tiles) for row in cells):
        raise UserError(f"{path}: has no table of tiles: it is not the output of `xpu-smi topology -m`")
    pairs = itertools.combinations(range(len(tiles)), 2)
    return tuple(tiles), {(a, b): cells[a][b] for a, b in pairs}


def lanes(joined: str) -> int | None:
    """The lanes of a Xe Link between two tiles, for `XL16` 16; None where there is no link of their own."""
    match = _XE_LINK.fullmatch(joined)
    return int(match[1]) if match else None


def read_cards(content: Any, path: Path) -> dict[int, Card]:
    """The cards of `xpu-smi discovery -j` by their number. Raises UserError for other JSON."""
    try:
        entries: Sequence[Mapping[str, Any]] = content["device_list"]
        return {int(one["device_id"]): Card(_model(one["device_name"]), one["pci_bdf_address"]) for one in entries}
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path}: has no list of devices: it is not the output of `xpu-smi discovery -j`") from None


def _model(name: str) -> str:
    return name.removeprefix("Intel(R) ").strip() or "unknown"


def architecture(model: str) -> str:
    """What the compiler calls GPUs of this model, `pvc` for Data Center GPU Max; `unknown` where that is not known."""
    return "pvc" if re.search(r"\bGPU Max \d+", model) else "unknown"


def read_json(path: Path) -> Any:
    """The JSON in a file, None where there is no file. Raises UserError where it is no JSON."""
    return jsonfile.read_json(path) if path.exists() else None
