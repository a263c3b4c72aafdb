"""Asks a node for its devices and links, and keeps the answers as files."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError
from fabricheck.state.nvml import NvmlUnavailable, ask_gpu_facts

NVML = "nvml.json"
NVIDIA_TOPO = "nvidia-smi_topo.txt"
AMD_SMI_TOPO = "amd-smi_topology.txt"
ROCM_SMI_TOPO = "rocm-smi_showtopo.txt"
XPU_SMI_TOPO = "xpu-smi_topology.txt"
XPU_SMI_DISCOVERY = "xpu-smi_discovery.json"
INTEL = "intel.json"
LSTOPO = "lstopo.xml"
NUMA = "numa.json"
NICS = "nics.json"
HOST = "host.json"

_COMMANDS = {
    NVIDIA_TOPO: ["nvidia-smi", "topo", "-m"],
    AMD_SMI_TOPO: ["amd-smi", "topology"],
    ROCM_SMI_TOPO: ["rocm-smi", "--showtopo"],
    XPU_SMI_TOPO: ["xpu-smi", "topology", "-m"],
    XPU_SMI_DISCOVERY: ["xpu-smi", "discovery", "-j"],
    LSTOPO: ["lstopo", "--of", "xml"],
}


def capture(directory: Path, sysfs: Path = Path("/sys")) -> list[str]:
    """Write what this node says into `directory` (made if needed); the names of the files that were written.

    What the node does not have leaves no file. Raises UserError if the directory cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        written = [name for name, command in _COMMANDS.items() if _keep_output(directory / name, command)]
        contents: dict[str, Any] = {
            HOST: {"hostname": socket.gethostname().split(".")[0]},
            NVML: nvml_facts(),
            NUMA: numa_facts(sysfs),
            NICS: nic_facts(sysfs),
            INTEL: intel_facts(sysfs),
        }
        for name, content in contents.items():
            if content:
                (directory / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
                written.append(name)
    except OSError as error:
        raise UserError(f"{directory}: cannot be written: {error.strerror}") from None
    return written


def _keep_output(file: Path, command: list[str]) -> bool:
    if shutil.which(command[0]) is None:
        return False
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    if done.returncode != 0 or not done.stdout.strip():
        return False
    file.write_text(done.stdout, encoding="utf-8")
    return True


def nvml_facts() -> dict[str, Any]:
    """What NVML says of the GPUs; empty where there is no NVML."""
    try:
        return ask_gpu_facts()
    except NvmlUnavailable:
        return {}


def numa_facts(sysfs: Path) -> dict[str, Any]:
    """NUMA nodes that have CPUs, with their CPU lists; physical cores and sockets of the node."""
    nodes = []
    for path in sorted(sysfs.glob("devices/system/node/node[0-9]*"), key=lambda one: int(one.name[4:])):
        cpus = _read(path / "cpulist")
        if cpus:
            nodes.append({"index": int(path.name[4:]), "cpus": cpus})
    cores, sockets = set(), set()
    for path in sysfs.glob("devices/system/cpu/cpu[0-9]*/topology"):
        socket_id, core = _read(path / "physical_package_id"), _read(path / "core_id")
        if socket_id is not None and core is not None:
            cores.add((socket_id, core))
            sockets.add(socket_id)
    return {"nodes": nodes, "cores": len(cores), "sockets": len(sockets)} if nodes else {}


def nic_facts(sysfs: Path) -> list[dict[str, Any]]:
    """Ports of InfiniBand and Slingshot adapters: name, kind, the kernel's rate text, NUMA node."""
    found = []
    for port in sorted(sysfs.glob("class/infiniband/*/ports/*")):
        device = port.parent.parent
        state, rate = _read(port / "state"), _read(port / "rate")
        name = device.name if port.name == "1" else f"{device.name}_{port.name}"
        if rate and state and "ACTIVE" in state:
            layer = _read(port / "link_layer") or "InfiniBand"
            found.append({"name": name, "kind": layer, "rate": rate, "numa_node": _numa(device)})
    for device in sorted(sysfs.glob("class/cxi/cxi[0-9]*")):
        # In Gb/s, as "BS_200G", in the driver's own directory.
        speed = _read(device / "device" / "port" / "speed") or _read(device / "device" / "properties" / "speed")
        found.append({"name": device.name, "kind": "cxi", "rate": speed, "numa_node": _numa(device)})
    return found


def intel_facts(sysfs: Path) -> list[dict[str, Any]]:
    """Intel's GPUs by the kernel's own word: PCI address, NUMA node, and its PCIe link's speed and width at most."""
    found = []
    for driver in ("i915", "xe"):
        for device in sorted(sysfs.glob(f"bus/pci/drivers/{driver}/*:*:*.*")):
            numa = _read(device / "numa_node")
            found.append(
                {
                    "bus_id": device.name,
                    "numa_node": int(numa) if numa is not None else None,
                    "link_speed": _read(device / "max_link_speed"),
                    "link_width": _read(device / "max_link_width"),
                }
            )
    return found


def _numa(device: Path) -> int | None:
    text = _read(device / "device" / "numa_node")
    return int(text) if text is not None and text.lstrip("-").isdecimal() else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
