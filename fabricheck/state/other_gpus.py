"""What `amd-smi` (ROCm 6 and 7) and `xpu-smi` say of AMD's and Intel's GPUs of this node now, both in JSON."""

from __future__ import annotations

import fnmatch
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fabricheck.records.node_state import GpuLink, GpuProcess, GpuState
from fabricheck.state.capture import read
from fabricheck.state.kernel import generation, generation_of_text
from fabricheck.state.programs import ask

_PATIENCE_S = 8.0
# By a field of `GpuState`, where amd-smi has it in any version, and what it is made to; of several numbers the largest.
_FIELDS: Mapping[str, tuple[Callable[[float], object], tuple[str, ...]]] = {
    "pcie_generation": (generation, ("pcie.speed",)),
    "pcie_width": (int, ("pcie.width",)),
    "pcie_most_generation": (generation, ("bus.max_pcie_speed",)),
    "pcie_most_width": (int, ("bus.max_pcie_width",)),
    "clock_mhz": (int, ("clock.gfx*.clk",)),
    "clock_most_mhz": (int, ("clock.gfx*.max_clk",)),
    "power_w": (float, ("power.socket_power",)),
    "power_limit_w": (float, ("limit.socket_power*", "limit.ppt0.socket_power*")),
    "power_usual_limit_w": (float, ("limit.max_power*", "limit.ppt0.max_power*")),
    "temperature_c": (int, ("temperature.hotspot",)),
}
# The same of counters; those of throttling rose while clocks were held down.
_COUNTERS = {
    "ecc_corrected": "ecc.total_correctable_count",
    "pcie_replays": "pcie.replay_count",
    "throttled_prochot": "throttle.prochot_accumulated",
    "throttled_power": "throttle.ppt_accumulated",
    "throttled_thermal_socket": "throttle.socket_thermal_accumulated",
    "throttled_thermal_vr": "throttle.vr_thermal_accumulated",
    "throttled_thermal_hbm": "throttle.hbm_thermal_accumulated",
}
# The driver's version, the GPUs, and a line for each call that gave no answer.
_Gpus = tuple[str, tuple[GpuState, ...], tuple[str, ...]]


def amd_gpus() -> _Gpus | None:
    """The driver's version, the GPUs, and a line for each call that gave no answer; None where there is no amd-smi."""
    calls = {"static": entries_of, "metric": entries_of, "process": entries_of, "xgmi": link_marks}
    asked = _asked("amd-smi", "--json", calls)
    if asked is None:
        return None
    answers, notes = asked
    # GPUs that have no XGMI, and older versions, have no answer.
    notes.pop("xgmi", None)
    lines = tuple(notes.values())
    if not any(answers.values()):
        # Without AMD's driver amd-smi may be there, and say so in words of its own.
        return ("", (), lines) if lines else None
    return *read_amd_gpus(*(answers[call] for call in calls)), lines


def _asked(
    program: str, option: str, calls: Mapping[str, Callable[[str], Any]]
) -> tuple[dict[str, Any], dict[str, str]] | None:
    """By call, the answer of a vendor's tool as its reader has it, and a line where there is none; None where the tool
    is not there."""
    # Each takes a second or two to start, most of it by itself.
    with ThreadPoolExecutor(len(calls)) as pool:
        outputs = list(pool.map(lambda call: ask([program, call, option], _PATIENCE_S), calls))
    if any(output.missing for output in outputs):
        return None
    answers, notes = {}, {}
    for (call, read_answer), output in zip(calls.items(), outputs, strict=True):
        answers[call] = ()
        if not output.given:
            notes[call] = f"{program} {call}: {output.problem}"
            continue
        try:
            answers[call] = read_answer(output.output)
        except ValueError:
            notes[call] = f"{program} {call}: its answer is not JSON"
    return answers, notes


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
    driver = ""
    gpus = []
    for position, entry in enumerate(static or metric):
        index = entry["gpu"] if isinstance(entry.get("gpu"), int) else position
        # Their sections have different names.
        whole: dict[str, Any] = {}
        for entries in (xgmi, process, metric, static):
            for part in entries:
                whole |= part if part.get("gpu") == entry.get("gpu") else {}
        driver = driver or _text(whole, "driver.version") or _text(whole, "driver.driver_version")
        gpus.append(_gpu(index, whole))
    return driver, tuple(gpus)


def _gpu(index: int, entry: Mapping[str, Any]) -> GpuState:
    fields: dict[str, Any] = {}
    for name, (as_field, paths) in _FIELDS.items():
        numbers = [number for path in paths for number in _numbers(entry, path).values()]
        fields[name] = as_field(max(numbers)) if numbers else None
    return GpuState(
        index=index,
        name=_text(entry, "asic.market_name"),
        uuid=_text(entry, "uuid"),
        bus_id=(_text(entry, "bus.bdf") or _text(entry, "bdf")).lower(),
        throttle=("throttled",) if _text(entry, "power.throttle_status") == "THROTTLED" else (),
        counters=_counters(entry),
        links=_links(entry.get("link_status", entry.get("xgmi_link_status"))),
        processes=_processes(entry),
        **fields,
    )


def _counters(entry: Mapping[str, Any]) -> dict[str, int]:
    named = {name: number for name, path in _COUNTERS.items() for number in _numbers(entry, path).values()}
    blocks = _numbers(entry, "ecc_blocks.*.uncorrectable_count")
    for total in _numbers(entry, "ecc.total_uncorrectable_count").values():
        named["ecc_uncorrected"] = max(total - sum(blocks.values()), 0.0)  # what no block has
    named |= {f"ecc_uncorrected_{block.lower()}": number for block, number in blocks.items()}
    return {name: int(number) for name, number in named.items()}


def _links(status: Any) -> tuple[GpuLink, ...]:
    """U is up, D down, X not there; `U/D` two links to one peer."""
    marks = [mark for each in status for mark in str(each).split("/")] if isinstance(status, list) else []
    return tuple(GpuLink(number, mark == "U") for number, mark in enumerate(marks) if mark in ("U", "D"))


def _processes(entry: Mapping[str, Any]) -> tuple[GpuProcess, ...]:
    """Where nothing runs, the list holds words instead of processes."""
    processes = []
    for process in _list(entry, "process_list"):
        used: list[float] = []
        for path in ("memory_usage.vram_mem", "mem_usage", "memory_usage"):
            used += _numbers(process, f"process_info.{path}").values()
        name = _text(process, "process_info.name")
        for pid in _numbers(process, "process_info.pid").values():
            processes.append(GpuProcess(int(pid), name, int(used[0]) if used else None))
    return tuple(processes)


def _at(entry: Any, path: str) -> Iterator[tuple[str, Any]]:
    """What stands at a path such as `clock.gfx*.clk`, with the name that fits its star."""
    name, _, rest = path.partition(".")
    for key in fnmatch.filter(entry, name) if isinstance(entry, dict) else ():
        if not rest:
            yield key, entry[key]
            continue
        for below, value in _at(entry[key], rest):
            yield (key if "*" in name else below), value


def _text(entry: Mapping[str, Any], path: str) -> str:
    return next((str(value) for _, value in _at(entry, path) if value not in (None, "N/A")), "")


def _numbers(entry: Mapping[str, Any], path: str) -> dict[str, float]:
    """Numbers at a path, which may stand as such, as text, or as `{"value": …, "unit": …}`; without `N/A`."""
    numbers = {}
    for name, value in _at(entry, path):
        content: Any = value.get("value") if isinstance(value, dict) else value
        try:
            number = float(content) if not isinstance(content, bool) else math.nan
        except (TypeError, ValueError, OverflowError):
            continue
        if math.isfinite(number):
            numbers[name] = number
    return numbers


def intel_gpus() -> _Gpus | None:
    """The driver's version, the cards, and what gave no answer; None where there is no xpu-smi."""
    asked = _asked("xpu-smi", "-j", {"discovery": json.loads, "ps": json.loads})
    if asked is None:
        return None
    answers, notes = asked
    return "", read_intel_gpus(answers["discovery"], answers["ps"]), tuple(notes.values())


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


def _list(content: Any, name: str) -> Sequence[Mapping[str, Any]]:
    entries = content.get(name) if isinstance(content, dict) else None
    return [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []


def _width(file: Path) -> int | None:
    text = read(file)
    return int(text) if text.isdecimal() else None
