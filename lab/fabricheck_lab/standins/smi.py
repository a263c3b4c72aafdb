"""What rocm-smi, amd-smi and xpu-smi say of an emulated node's GPUs: in JSON, and AMD's topology as text.

    smi.py rocm-smi|amd-smi|xpu-smi ARGUMENTS…

The names of the fields are those of ROCm 6, and of Intel's user guide (intel/xpumanager, doc/smi_user_guide.md). An
option that is not stood in for ends with exit status 2 and is named. Another vendor's node has no GPUs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Gpu = Mapping[str, Any]
_MARK = "emulated "
# GT/s of a PCIe lane by generation.
_GTPS = {1: 2.5, 2: 5, 3: 8, 4: 16, 5: 32, 6: 64}


class Node:
    """The description and the faults of the node that FABRICHECK_EMULATED_NODE names."""

    def __init__(self, vendor: str) -> None:
        folder = Path(os.environ.get("FABRICHECK_EMULATED_NODE", "/nowhere"))
        self.content: dict[str, Any] = json.loads((folder / "node.json").read_text(encoding="utf-8"))
        faults = folder / "faults.json"
        self.faults: dict[str, Any] = json.loads(faults.read_text(encoding="utf-8")) if faults.exists() else {}
        by_name = {gpu["name"]: gpu for gpu in self.content["gpus"] if self.content["vendor"] == vendor}
        order = [*self.faults.get("gpu_order", []), *by_name]
        missing = self.faults.get("missing_gpus", [])
        present = [name for name in dict.fromkeys(order) if name in by_name and name not in missing]
        self.gpus: list[Gpu] = [by_name[name] for name in present]

    def fact(self, gpu: Gpu, name: str, otherwise: Any = 0) -> Any:
        return self.faults.get("nvml", {}).get(gpu["name"], {}).get(name, gpu["nvml"].get(name, otherwise))

    def throttle(self, gpu: Gpu) -> Mapping[str, Any]:
        reasons: Mapping[str, Any] = self.faults.get("throttle", {}).get(gpu["name"], {})
        return reasons

    def processes(self, gpu: Gpu) -> list[Mapping[str, Any]]:
        return [one for one in self.faults.get("processes", []) if one["gpu"] == gpu["name"]]

    def version(self, name: str) -> Any:
        return {**self.content["versions"], **self.faults.get("versions", {})}.get(name)

    def clock_mhz(self, gpu: Gpu) -> int:
        return int(self.fact(gpu, "sm_clock_max_mhz") * self.throttle(gpu).get("factor", 1))

    def hops(self, a: Gpu, b: Gpu) -> int:
        if a["name"] == b["name"]:
            return 0
        route = next(one for one in self.content["routes"] if (one["from"], one["to"]) == (a["name"], b["name"]))
        return len(route["links"])


def _card(node: Node, gpu: Gpu) -> dict[str, dict[str, str]]:
    """By option of rocm-smi: the fields of a GPU."""
    used = sum(one.get("memory_bytes", 0) for one in node.processes(gpu))
    power = node.fact(gpu, "power_mw") / 1000
    clock = node.clock_mhz(gpu)
    errors = {name: str(node.fact(gpu, f"{name}_ecc_errors")) for name in ("corrected", "uncorrected")}
    return {
        "--showproductname": {"Card Series": _MARK + gpu["model"], "GFX Version": gpu["arch"]},
        "--showuniqueid": {"Unique ID": "0x" + gpu["uuid"].removeprefix("GPU-").replace("-", "")[:16]},
        "--showbus": {"PCI Bus": gpu["bus_id"].upper()},
        "--showtemp": {"Temperature (Sensor junction) (C)": f"{node.fact(gpu, 'temperature_c'):.1f}"},
        "--showpower": {"Average Graphics Package Power (W)": f"{power:.1f}"},
        "--showclocks": {
            "sclk clock speed:": f"({clock}Mhz)",
            "mclk clock speed:": f"({node.fact(gpu, 'memory_clock_mhz')}Mhz)",
        },
        "--showmeminfo": {
            "VRAM Total Memory (B)": str(gpu["memory_bytes"]),
            "VRAM Total Used Memory (B)": str(used),
        },
        "--showrasinfo": {
            "RAS correctable errors": errors["corrected"],
            "RAS uncorrectable errors": errors["uncorrected"],
        },
        "--showtoponuma": {"(Topology) Numa Node": str(gpu["numa_node"])},
        "--showuse": {"GPU use (%)": "0"},
    }


_SHORT = {"-i": "--showuniqueid", "-t": "--showtemp", "-P": "--showpower", "-c": "--showclocks", "-u": "--showuse"}
_WORDS = {"vram", "all"}  # arguments of --showmeminfo and --showrasinfo


def rocm_smi(node: Node, arguments: Sequence[str]) -> str:
    """The answer of rocm-smi. Raises ValueError for an option that is not stood in for."""
    options = [_SHORT.get(each, each) for each in arguments if each not in _WORDS]
    if "--showtopo" in options:
        return _topology(node)
    asked = [each for each in options if each != "--json"]
    system: dict[str, str] = {}
    cards: dict[str, dict[str, str]] = {}
    for number, gpu in enumerate(node.gpus):
        known = _card(node, gpu)
        fields = cards.setdefault(f"card{number}", {})
        for option in asked or ["--showproductname", "--showbus"]:
            if option in known:
                fields |= known[option]
    for option in asked:
        if option == "--showdriverversion":
            system["Driver version"] = str(node.version("driver"))
        elif option in ("--showpids", "--showpidgpus"):
            system |= {f"PID{one['pid']}": one.get("name", "") for gpu in node.gpus for one in node.processes(gpu)}
        elif not node.gpus or option not in _card(node, node.gpus[0]):
            raise ValueError(f"rocm-smi {option}")
    return json.dumps({**cards, **({"system": system} if system else {})})


def _topology(node: Node) -> str:
    """The tables of `rocm-smi --showtopo`."""
    names = [f"GPU{number}" for number, _ in enumerate(node.gpus)]

    def table(title: str, cell: Callable[[Gpu, Gpu], str]) -> list[str]:
        rows = [" " * 7 + "".join(f"{name:<13}" for name in names)]
        for name, a in zip(names, node.gpus, strict=True):
            rows.append(f"{name:<7}" + "".join(f"{cell(a, b):<13}" for b in node.gpus))
        return [f" {title} ".center(80, "="), *rows, ""]

    lines = ["", " ROCm System Management Interface ".center(80, "=")]
    lines += table("Weight between two GPUs", lambda a, b: str(15 * node.hops(a, b)))
    lines += table("Hops between two GPUs", lambda a, b: str(node.hops(a, b)))
    lines += table("Link Type between two GPUs", lambda a, b: "0" if a["name"] == b["name"] else "XGMI")
    lines.append(" Numa Nodes ".center(80, "="))
    for number, gpu in enumerate(node.gpus):
        lines.append(f"GPU[{number}]\t\t: (Topology) Numa Node: {gpu['numa_node']}")
        lines.append(f"GPU[{number}]\t\t: (Topology) Numa Affinity: {gpu['numa_node']}")
    return "\n".join([*lines, " End of ROCm SMI Log ".center(80, "=")])


def amd_smi(node: Node, arguments: Sequence[str]) -> str:
    """The answer of `amd-smi list|static|metric|process [--json]`. Raises ValueError for another call."""
    words = [each for each in arguments if not each.startswith("-")]
    rows = []
    for number, gpu in enumerate(node.gpus):
        answer: dict[str, Any] = {"gpu": number}
        if words == ["list"]:
            answer |= {"bdf": gpu["bus_id"], "uuid": gpu["uuid"]}
        elif words == ["static"]:
            answer["asic"] = {"market_name": _MARK + gpu["model"], "target_graphics_version": gpu["arch"]}
            answer["driver"] = {"name": "amdgpu", "version": node.version("driver")}
            answer["numa"] = {"node": gpu["numa_node"]}
            most = gpu["pcie"]
            answer["bus"] = {"bdf": gpu["bus_id"], "max_pcie_width": most["width"]}
            answer["bus"]["max_pcie_speed"] = {"value": _GTPS[most["generation"]], "unit": "GT/s"}
        elif words == ["metric"]:
            reasons = node.throttle(gpu).get("reasons", [])
            answer["temperature"] = {"hotspot": {"value": node.fact(gpu, "temperature_c"), "unit": "C"}}
            answer["power"] = {"socket_power": {"value": node.fact(gpu, "power_mw") // 1000, "unit": "W"}}
            answer["power"]["throttle_status"] = "THROTTLED" if reasons else "UNTHROTTLED"
            answer["throttle"] = {"reasons": reasons}
            link = {**gpu["pcie"], **node.faults.get("pcie", {}).get(gpu["name"], {})}
            answer["pcie"] = {"width": link["width"], "speed": {"value": _GTPS[link["generation"]], "unit": "GT/s"}}
            answer["clock"] = {"gfx_0": {"clk": {"value": node.clock_mhz(gpu), "unit": "MHz"}}}
            answer["ecc"] = {
                "total_correctable_count": node.fact(gpu, "corrected_ecc_errors"),
                "total_uncorrectable_count": node.fact(gpu, "uncorrected_ecc_errors"),
            }
        elif words == ["process"]:
            answer["process_list"] = [
                {
                    "process_info": {
                        "name": each.get("name", ""),
                        "pid": each["pid"],
                        "memory_usage": each.get("memory_bytes", 0),
                    }
                }
                for each in node.processes(gpu)
            ]
        else:
            raise ValueError(f"amd-smi {' '.join(arguments)}")
        rows.append(answer)
    return json.dumps(rows)


def xpu_smi(node: Node, arguments: Sequence[str]) -> str:
    """The answer of `xpu-smi discovery|ps -j`, of cards. Raises ValueError for another call."""
    cards: dict[str, list[Gpu]] = {}
    for gpu in node.gpus:
        cards.setdefault(gpu["bus_id"], []).append(gpu)
    rows = []
    for number, (bus_id, tiles) in enumerate(cards.items()):
        if list(arguments) == ["discovery", "-j"]:
            names = {"device_name": _MARK + tiles[0]["model"], "uuid": tiles[0]["uuid"].removeprefix("GPU-")}
            rows.append({"device_id": number, "pci_bdf_address": bus_id, **names})
        elif list(arguments) == ["ps", "-j"]:
            for entry in (process for tile in tiles for process in node.processes(tile)):
                rows.append({"device_id": number, "process_id": entry["pid"], "process_name": entry.get("name", "")})
        else:
            raise ValueError(f"xpu-smi {' '.join(arguments)}")
    return json.dumps({"device_list" if arguments[0] == "discovery" else "device_util_by_proc_list": rows})


_PROGRAMS = {"rocm-smi": ("amd", rocm_smi), "amd-smi": ("amd", amd_smi), "xpu-smi": ("intel", xpu_smi)}


def main(arguments: Sequence[str]) -> int:
    """Print the answer; exit status 2 for what is not stood in for, or where there is no node."""
    program, *rest = arguments
    try:
        vendor, answer = _PROGRAMS[program]
        print(answer(Node(vendor), rest))
    except ValueError as error:
        print(f"fabricheck emulation: nothing stands in for `{error}`", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"fabricheck emulation: there is no emulated node: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
