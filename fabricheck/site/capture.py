"""Asks a node for its devices, links and software, and keeps the answers as files."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError
from fabricheck.site import slurm, sysfs
from fabricheck.site.software import find_software
from fabricheck.state.nvml import NvmlUnavailable, ask_gpu_facts
from fabricheck.state.programs import ask

NVML = "nvml.json"
NVIDIA_TOPO = "nvidia-smi_topo.txt"
AMD_SMI_TOPO = "amd-smi_topology.txt"
ROCM_SMI_TOPO = "rocm-smi_showtopo.txt"
AMD = "amd.json"
XPU_SMI_TOPO = "xpu-smi_topology.txt"
XPU_SMI_DISCOVERY = "xpu-smi_discovery.json"
INTEL = "intel.json"
PCI_GPUS = "pci_gpus.json"
LSTOPO = "lstopo.xml"
NUMA = "numa.json"
NICS = "nics.json"
HOST = "host.json"
SOFTWARE = "software.json"
SLURM = "slurm.json"
#: What could not be asked, and why.
PROBLEMS = "problems.json"

# By the vendor of the GPUs that they know; without one, of any node.
_COMMANDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "nvidia": {NVIDIA_TOPO: ["nvidia-smi", "topo", "-m"]},
    "amd": {AMD_SMI_TOPO: ["amd-smi", "topology"], ROCM_SMI_TOPO: ["rocm-smi", "--showtopo"]},
    "intel": {XPU_SMI_TOPO: ["xpu-smi", "topology", "-m"], XPU_SMI_DISCOVERY: ["xpu-smi", "discovery", "-j"]},
    "": {LSTOPO: ["lstopo", "--of", "xml"]},
}
_OTHERS = (NVML, AMD, NUMA, NICS, INTEL, PCI_GPUS, HOST, SOFTWARE, SLURM, PROBLEMS)
_FILES = (*_OTHERS, *(name for commands in _COMMANDS.values() for name in commands))
# Variables that choose GPUs; the runtimes obey them, and the drivers' tools do not.
_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
#: Seconds that a tool of a vendor may take.
PATIENCE = 60.0


def capture(directory: Path, root: Path = Path("/sys"), patience: float = PATIENCE) -> list[str]:
    """Write what this node says into `directory` (made if needed); the names of the files that were written.

    What the node does not have leaves no file; what has no answer leaves a line in `problems.json`. Raises UserError if
    the directory cannot be written.
    """
    problems: list[str] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in _FILES:  # what an earlier capture found may be gone
            (directory / name).unlink(missing_ok=True)
        written = []
        on_bus = sysfs.pci_gpus(root)
        nvml = _nvml(patience, on_bus, problems)
        amd = sysfs.amd_facts(root)
        vendor = "nvidia" if nvml.get("gpus") else "amd" if amd else _vendor(on_bus)
        for name, command in _tools(vendor):
            if (text := _output(command, patience, problems)) is not None:
                (directory / name).write_text(text, encoding="utf-8")
                written.append(name)
        problems += _hiding(len(nvml.get("gpus", amd)))
        contents: dict[str, Any] = {
            HOST: {"hostname": socket.gethostname().split(".")[0]},
            NVML: nvml,
            AMD: amd,
            NUMA: sysfs.numa_facts(root),
            NICS: sysfs.nic_facts(root),
            INTEL: sysfs.intel_facts(root),
            PCI_GPUS: on_bus,
            SOFTWARE: find_software(vendor).as_json(),
            SLURM: slurm.ask_slurm(problems),
            PROBLEMS: problems,
        }
        for name, content in contents.items():
            if content:
                (directory / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
                written.append(name)
    except OSError as error:
        raise UserError(f"{directory}: cannot be written: {error.strerror}") from None
    return written


def _tools(vendor: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Those of the GPUs' vendor; of all where there is none: a tool may know GPUs that the PCI bus does not show."""
    for whose, commands in _COMMANDS.items():
        if whose in ("", vendor) or vendor == "none":
            yield from commands.items()


def _output(command: Sequence[str], patience: float, problems: list[str]) -> str | None:
    answer = ask(command, patience)
    if answer.given and answer.output.strip():
        return answer.output
    if answer.problem:
        problems.append(f"`{' '.join(command)}` {answer.problem}")
    return None


def _nvml(patience: float, on_bus: Sequence[dict[str, Any]], problems: list[str]) -> dict[str, Any]:
    """What NVML says; where it does not answer although there are NVIDIA GPUs, that is a problem."""
    there = [one for one in on_bus if one["vendor"] == "nvidia"]
    try:
        facts = ask_gpu_facts(patience)
    except NvmlUnavailable as error:
        driver = "" if any(one["driver"] for one in there) else "no driver is loaded; "
        if there:
            problems.append(f"{len(there)} NVIDIA GPUs on the PCI bus, and {driver}{error}")
        elif not error.absent:
            problems.append(str(error))
        return {}
    problems += facts.pop("problems", [])
    return facts


def _hiding(gpus: int) -> Iterator[str]:
    """Variables that leave fewer GPUs than there are; Slurm sets them with all GPUs of a job, too."""
    for name in _HIDING:
        value = os.environ.get(name)
        if value is not None and len([each for each in value.split(",") if each]) < gpus:
            yield f"{name}={value!r} in the environment hides GPUs: unset it"


def _vendor(on_bus: Sequence[dict[str, Any]]) -> str:
    return str(on_bus[0]["vendor"]) if on_bus else "none"
