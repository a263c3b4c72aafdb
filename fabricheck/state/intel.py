"""What xpu-smi and the kernel say of the Intel GPUs of this node now (`xpu-smi discovery -j`, `ps -j`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fabricheck.records.node_state import GpuProcess, GpuState
from fabricheck.state.capture import read
from fabricheck.state.pcie import generation_of_text
from fabricheck.state.programs import ask

_PATIENCE_S = 8.0


def gpu_states() -> tuple[str, tuple[GpuState, ...], tuple[str, ...]] | None:
    """The driver's version, the cards, and what gave no answer; None where there is no xpu-smi."""
    answers: dict[str, Mapping[str, Any]] = {}
    notes = []
    for what in ("discovery", "ps"):
        got = ask(["xpu-smi", what, "-j"], _PATIENCE_S)
        if got.missing:
            return None
        try:
            content = json.loads(got.output) if got.given else {}
        except ValueError:
            content = {}
        answers[what] = content if isinstance(content, dict) else {}
        if not answers[what]:
            notes.append(f"xpu-smi {what}: {got.problem or 'its answer is not JSON'}")
    return "", read_gpus(answers["discovery"], answers["ps"]), tuple(notes)


def read_gpus(
    discovery: Mapping[str, Any], users: Mapping[str, Any], sysfs: Path = Path("/sys")
) -> tuple[GpuState, ...]:
    """The cards that `discovery` lists, the processes that `ps` lists, and the kernel's word on their PCIe links."""
    gpus: list[GpuState] = []
    for entry in _list(discovery, "device_list"):
        bus_id = str(entry.get("pci_bdf_address", "")).lower()
        link = sysfs / "bus/pci/devices" / bus_id
        gpus.append(
            GpuState(
                index=int(entry.get("device_id", len(gpus))),
                name=str(entry.get("device_name", "")),
                uuid=str(entry.get("uuid", "")),
                bus_id=bus_id,
                pcie_generation=generation_of_text(read(link / "current_link_speed")),
                pcie_width=_width(link / "current_link_width"),
                pcie_most_generation=generation_of_text(read(link / "max_link_speed")),
                pcie_most_width=_width(link / "max_link_width"),
                processes=tuple(
                    GpuProcess(int(one["process_id"]), str(one.get("process_name", "")).rpartition("/")[2])
                    for one in _list(users, "device_util_by_proc_list")
                    if one.get("device_id") == entry.get("device_id")
                    and "process_id" in one
                    and one.get("process_name") != "xpu-smi"
                ),
            )
        )
    return tuple(gpus)


def _list(content: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    entries = content.get(name)
    return [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []


def _width(file: Path) -> int | None:
    text = read(file)
    return int(text) if text.isdecimal() else None
