"""What is wrong with an emulated node: `faults.json` in its folder, which the stand-ins read again when it changes.

lab/README.md has the format. An empty mapping is a healthy node.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError

REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
)
#: Numbers that NVML, and where they have it rocm-smi and amd-smi, say of a GPU.
FACTS = (
    "temperature_c",
    "power_mw",
    "power_limit_mw",
    "sm_clock_max_mhz",
    "memory_clock_mhz",
    "corrected_ecc_errors",
    "uncorrected_ecc_errors",
    "remapped_rows_pending",
    "remapped_rows_failed",
    "pcie_replays",
    "ecc_mode",
    "mig_mode",
    "persistence_mode",
    "compute_mode",
)
_LISTS_OF_GPUS = ("missing_gpus", "gpu_order", "hung_gpus", "gdr_lost", "no_fabric_plugin")
_BY_GPU = ("nvlinks", "pcie", "throttle", "products", "nvml", "nic_of")
_OTHERS = ("links", "processes", "versions")


def plant(folder: Path, faults: Mapping[str, Any]) -> None:
    """Write the faults of the node in `folder`, in place of those before. Raises UserError for an unknown name."""
    node = _node(folder)
    gpus = [gpu["name"] for gpu in node["gpus"]]
    for name, value in faults.items():
        if name not in (*_LISTS_OF_GPUS, *_BY_GPU, *_OTHERS):
            known = ", ".join((*_LISTS_OF_GPUS, *_BY_GPU, *_OTHERS))
            raise UserError(f"there is no fault {name!r} of an emulated node: choose from {known}")
        if name in _BY_GPU or (name in _LISTS_OF_GPUS and value is not True):
            _known(name, value, gpus)
    _known("links", faults.get("links", {}), [link["name"] for link in node["links"]])
    nics = [nic["name"] for nic in node["nics"]]
    _known("nic_of", faults.get("nic_of", {}).values(), nics)
    for gpu, facts in faults.get("nvml", {}).items():
        _known(f"nvml of {gpu}", facts, FACTS)
    _known("versions", faults.get("versions", {}), node["versions"])
    places = [one["name"] for group in ("gpus", "cpus") for one in node[group]]
    for process in faults.get("processes", ()):
        _known("processes", [process.get("gpu")], gpus)
        for flow in process.get("flows", ()):
            _known("processes", flow, places)
    for gpu, throttled in faults.get("throttle", {}).items():
        _known(f"throttle of {gpu}", throttled.get("reasons", ()), REASONS)
    # Whoever reads it sees the old one or the new one, whole.
    draft = folder / ".faults.json"
    draft.write_text(json.dumps(faults, indent=1) + "\n", encoding="utf-8")
    os.replace(draft, folder / "faults.json")


def _node(folder: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads((folder / "node.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is not an emulated node: {error}") from None
    return content


def _known(what: str, given: Iterable[Any], known: Iterable[str]) -> None:
    names = list(known)
    for key in given:
        if key not in names:
            raise UserError(f"{what}: the node has no {key!r}: choose from {', '.join(names)}")
