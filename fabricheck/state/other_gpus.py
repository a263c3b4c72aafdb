"""What `amd-smi` (ROCm 6 and 7) and `xpu-smi` say of AMD's and Intel's GPUs of this node now, both in JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fabricheck.records.node_state import GpuLink, GpuProcess, GpuState
from fabricheck.state.capture import read
from fabricheck.state.kernel import generation, generation_of_text
from fabricheck.state.programs import ask

_PATIENCE_S = 8.0
# Of `metric`'s throttle section what rose while clocks were held down, and what that is called here.
_THROTTLE = {
    "prochot_accumulated": "throttled_prochot",
    "ppt_accumulated": "throttled_power",
    "socket_thermal_accumulated": "throttled_thermal_socket",
    "vr_thermal_accumulated": "throttled_thermal_vr",
    "hbm_thermal_accumulated": "throttled_thermal_hbm",
}


def amd_gpus() -> tuple[str, tuple[GpuState, ...], tuple[str, ...]] | None:
    """The driver's version, the GPUs, and a line for each call that gave no answer; None where there is no amd-smi."""
    answers, notes = {}, []
    calls = ("static", "metric", "process", "xgmi")
    # Each takes a second or two to start, most of it by itself.
    with ThreadPoolExecutor(len(calls)) as pool:
        said = dict(
            zip(calls, pool.map(lambda what: ask(["amd-smi", what, "--json"], _PATIENCE_S), calls), strict=True)
        )
    if any(got.missing for got in said.values()):
        return None
    # GPUs that have no XGMI, and older versions, have no answer.
    xgmi = link_marks(got.output) if (got := said.pop("xgmi")).given else []
    for what, got in said.items():
        try:
            answers[what] = entries_of(got.output) if got.given else []
        except ValueError:
            answers[what] = []
            notes.append(f"amd-smi {what}: its answer is not JSON")
        if not got.given:
            notes.append(f"amd-smi {what}: {got.problem}")
    if not any(answers.values()):
        # Without AMD's driver amd-smi may be there, and say so in words of its own.
        return ("", (), tuple(notes)) if notes else None
    driver, gpus = read_amd_gpus(answers["static"], answers["metric"], answers["process"], xgmi)
    return driver, gpus, tuple(notes)


def entries_of(text: str) -> list[dict[str, Any]]:
    """One entry a GPU: a list, which newer versions wrap into `gpu_data`. ValueError where it is neither."""
    content = json.loads(text)
    if isinstance(content, dict):
        content = content.get("gpu_data", [])
    if not isinstance(content, list):
        raise ValueError("is not a list of GPUs")
    return [each for each in content if isinstance(each, dict)]


def link_marks(text: str) -> list[dict[str, Any]]:
    """The GPUs' entries with `link_status` in the answer of `amd-smi xgmi --json`, wherever a version has them.

    They are of ports in `xgmi_source_status` or `link_port_status`, of peers in `link_status` (ROCm 7).
    """
    try:
        todo: list[Any] = [json.loads(text)]
    except ValueError:
        return []
    marks = []
    while todo:
        part = todo.pop(0)
        if isinstance(part, dict) and "gpu" in part and _links(part.get("link_status")):
            marks.append(part)
        elif isinstance(part, (dict, list)):
            todo += part.values() if isinstance(part, dict) else part
    return marks


def read_amd_gpus(
    static: Sequence[Mapping[str, Any]],
    metric: Sequence[Mapping[str, Any]],
    process: Sequence[Mapping[str, Any]],
    xgmi: Sequence[Mapping[str, Any]] = (),
) -> tuple[str, tuple[GpuState, ...]]:
    """The driver's version and the GPUs, from the entries of `amd-smi static`, `metric`, `process` and `xgmi`."""
    links = {_index(each): each for each in xgmi}
    now = {_index(each): each for each in metric}
    users = {_index(each): each for each in process}
    driver = ""
    gpus = []
    for position, entry in enumerate(static or metric):
        index = _index(entry)
        index = position if index is None else index
        driver = driver or _text(entry, "driver", "version") or _text(entry, "driver", "driver_version")
        gpus.append(_gpu(index, entry, now.get(index, {}), users.get(index, {}), links.get(index, {})))
    return driver, tuple(gpus)


def _gpu(
    index: int,
    static: Mapping[str, Any],
    now: Mapping[str, Any],
    users: Mapping[str, Any],
    xgmi: Mapping[str, Any],
) -> GpuState:
    power, clock = _section(now, "power"), _section(now, "clock")
    limit = _section(static, "limit")
    limit = _section(limit, "ppt0") or limit  # ROCm 7 has several
    clocks = [value for name, one in clock.items() if name.startswith("gfx") and (value := _number(one, "clk"))]
    most = [value for name, one in clock.items() if name.startswith("gfx") and (value := _number(one, "max_clk"))]
    return GpuState(
        index=index,
        name=_text(static, "asic", "market_name"),
        uuid=str(static.get("uuid", "")),
        bus_id=(_text(static, "bus", "bdf") or str(static.get("bdf", ""))).lower(),
        pcie_generation=generation(_number(now, "pcie", "speed")),
        pcie_width=_whole(_number(now, "pcie", "width")),
        pcie_most_generation=generation(_number(static, "bus", "max_pcie_speed")),
        pcie_most_width=_whole(_number(static, "bus", "max_pcie_width")),
        clock_mhz=_whole(max(clocks, default=None)),
        clock_most_mhz=_whole(max(most, default=None)),
        power_w=_number(power, "socket_power"),
        power_limit_w=_number(limit, "socket_power") or _number(limit, "socket_power_limit"),
        power_usual_limit_w=_number(limit, "max_power") or _number(limit, "max_power_limit"),
        temperature_c=_whole(_number(now, "temperature", "hotspot")),
        throttle=("throttled",) if power.get("throttle_status") == "THROTTLED" else (),
        counters=_counters(now),
        links=_links(xgmi.get("link_status", now.get("xgmi_link_status"))),
        processes=_processes(users),
    )


def _counters(now: Mapping[str, Any]) -> dict[str, int]:
    total = _number(now, "ecc", "total_uncorrectable_count")
    blocks = {
        name: _number(now, "ecc_blocks", name, "uncorrectable_count") or 0.0 for name in _section(now, "ecc_blocks")
    }
    named = {
        "ecc_corrected": _number(now, "ecc", "total_correctable_count"),
        # What no block has.
        "ecc_uncorrected": None if total is None else max(total - sum(blocks.values()), 0.0),
        **{f"ecc_uncorrected_{name.lower()}": count for name, count in blocks.items()},
        "pcie_replays": _number(now, "pcie", "replay_count"),
        **{ours: _number(now, "throttle", theirs) for theirs, ours in _THROTTLE.items()},
    }
    return {name: int(value) for name, value in named.items() if value is not None}


def _links(status: Any) -> tuple[GpuLink, ...]:
    """U is up, D down, X not there; `U/D` two links to one peer."""
    marks = [mark for each in status for mark in str(each).split("/")] if isinstance(status, list) else []
    return tuple(GpuLink(number, mark == "U") for number, mark in enumerate(marks) if mark in ("U", "D"))


def _processes(users: Mapping[str, Any]) -> tuple[GpuProcess, ...]:
    """Where nothing runs, the list holds words instead of processes."""
    processes = []
    listed = users.get("process_list")
    for process in listed if isinstance(listed, list) else ():
        info = _section(process, "process_info") if isinstance(process, dict) else {}
        pid = _whole(_number(info, "pid"))
        if pid is not None:
            used = (
                _number(info, "memory_usage", "vram_mem") or _number(info, "mem_usage") or _number(info, "memory_usage")
            )
            processes.append(GpuProcess(pid, str(info.get("name", "")), _whole(used)))
    return tuple(processes)


def _index(entry: Mapping[str, Any]) -> int | None:
    index = entry.get("gpu")
    return index if isinstance(index, int) else None


def _section(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    content = entry.get(name)
    return content if isinstance(content, dict) else {}


def _text(entry: Mapping[str, Any], section: str, name: str) -> str:
    value = _section(entry, section).get(name)
    return str(value) if value not in (None, "N/A") else ""


def _number(entry: Mapping[str, Any], *names: str) -> float | None:
    """A number that may stand as such, as text, or as `{"value": …, "unit": …}`; None for `N/A` and where it is not."""
    value: Any = entry
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, dict):
        value = value.get("value")
    try:
        number = float(value) if not isinstance(value, bool) and value is not None else math.nan
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def intel_gpus() -> tuple[str, tuple[GpuState, ...], tuple[str, ...]] | None:
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
    return "", read_intel_gpus(answers["discovery"], answers["ps"]), tuple(notes)


def read_intel_gpus(
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
