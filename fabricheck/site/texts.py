"""Outputs of tools as people paste them into a folder: which file is which, and the same entries that a capture has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from fabricheck.errors import UserError
from fabricheck.site.found import pcie_generation
from fabricheck.state import capture

NVIDIA_SMI_TOPO = "nvidia-smi topo -m"
NVIDIA_SMI_LIST = "nvidia-smi -L"
ROCM_SMI_TOPO = "rocm-smi --showtopo"
ROCM_SMI_NAMES = "rocm-smi --showproductname"
XPU_SMI_TOPO = "xpu-smi topology -m"
NCCL_TOPOLOGY = "NCCL_TOPO_DUMP_FILE"
LSCPU = "lscpu"
IBSTAT = "ibstat"
SINFO = "sinfo"
SRUN_MPI = "srun --mpi=list"
SCONTROL_CONFIG = "scontrol show config"
SCONTROL_NODES = "scontrol show nodes"
# A name and what is behind it, in a line of lscpu in any language.
_NAME, _COLON = r"[^:\uff1a\n]*", r"[:\uff1a]"
# By the tool, what only its output has.
_MARKS = {
    NVIDIA_SMI_TOPO: re.compile(r"^[ \t\x1b\[\dm]*GPU0[ \t].*\n[ \t\x1b\[\dm]*GPU0[ \t\x1b\[\dm]+X\b", re.MULTILINE),
    NVIDIA_SMI_LIST: re.compile(r"^[ \t]*GPU \d+: .*\(UUID: ", re.MULTILINE),
    ROCM_SMI_TOPO: re.compile(r"Hops between two GPUs|^HOPS TABLE", re.MULTILINE),
    ROCM_SMI_NAMES: re.compile(r"^GPU\[0\]\s*: Card [Ss]eries:|^\s+MARKET_NAME: ", re.MULTILINE),
    XPU_SMI_TOPO: re.compile(r"^\s*GPU 0/0[ |].*\n\s*GPU 0/0[ |]", re.MULTILINE),
    NCCL_TOPOLOGY: re.compile(r"<system version=\"\d+\">"),
    LSCPU: re.compile(rf"^(?=.*NUMA){_NAME}{_COLON}\s+\d+$", re.MULTILINE),
    IBSTAT: re.compile(r"^CA '\S+'$", re.MULTILINE),
    SINFO: re.compile(r"^(?=.*\bPARTITION\b)(?=.*\bNODELIST\b)|^[^|\s]+\|\d+(?:\|[^|\s]+){4}$", re.MULTILINE),
    SRUN_MPI: re.compile(r"^MPI plugin types are", re.MULTILINE),
    SCONTROL_CONFIG: re.compile(r"^Configuration data as of ", re.MULTILINE),
    SCONTROL_NODES: re.compile(r"^NodeName=\S+ ", re.MULTILINE),
}
TOOLS = ", ".join(f"`{tool}`" for tool in _MARKS)
# Outputs of hundreds of nodes are smaller; logs and archives beside them are not looked at.
_MOST_BYTES = 1 << 20


def pasted_texts(directory: Path) -> dict[str, str]:
    """By the tool, its output, as captured or pasted.

    Raises UserError where two files have the output of one tool, or a captured one has another.
    """
    texts: dict[str, str] = {}
    files: dict[str, str] = {}
    for file in sorted(directory.iterdir()):
        if file.suffix == ".json" or not file.is_file() or file.stat().st_size > _MOST_BYTES:
            continue
        text = file.read_text(encoding="utf-8-sig", errors="replace")
        tools = [tool for tool, mark in _MARKS.items() if mark.search(text)]
        if file.name in capture.FILES and not tools:
            raise UserError(f"{file}: is not the output of its tool: capture the node again")
        for tool in tools:
            if tool in texts:
                both = f"{files[tool]} and {file.name}"
                raise UserError(f"{directory}: {both} both have the output of `{tool}`: keep that of one node")
            texts[tool], files[tool] = text, file.name
    return texts


def _fields(text: str) -> dict[str, str]:
    """The values of lines such as `Rate: 400` by their names."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def numa_of_lscpu(text: str) -> dict[str, Any]:
    """As `fabricheck.state.capture.numa_facts`, in any language; cores, which have no name in common, in English."""
    fields = _fields(text)
    pattern = rf"^(?=.*NUMA){_NAME}?(\d+){_NAME}{_COLON}\s*([\d,-]+)$"
    nodes = [{"index": int(node), "cpus": cpus} for node, cpus in re.findall(pattern, text, re.MULTILINE)]
    sockets = int(fields.get("Socket(s)", 1))
    return {"nodes": nodes, "cores": int(fields.get("Core(s) per socket", 0)) * sockets, "sockets": sockets}


def ports_of_ibstat(text: str) -> list[dict[str, Any]]:
    """As `fabricheck.state.capture.nic_facts`; ibstat names no NUMA node and no PCI address."""
    ports = []
    _, *cards = re.split(r"^CA '(\S+)'$", text, flags=re.MULTILINE)
    for name, card in zip(cards[::2], cards[1::2], strict=True):
        about, *listed = re.split(r"^[ \t]+Port (\d+):$", card, flags=re.MULTILINE)
        for number, of_port in zip(listed[::2], listed[1::2], strict=True):
            port = _fields(of_port)
            if {"State", "Rate"} <= port.keys():
                ports.append(
                    {
                        "name": name if number == "1" else f"{name}_{number}",
                        "kind": port.get("Link layer", "InfiniBand"),
                        "rate": f"{port['Rate']} Gb/sec",
                        "numa_node": None,
                        "card": "".join(re.findall(r"CA type: (\S+)", about)),
                        "system_guid": _fields(about).get("System image GUID", name),
                        "up": port["State"] == "Active",
                    }
                )
    return ports


_NAMES = (
    re.compile(r"^[ \t]*GPU (\d+): (.*?) \(UUID: ", re.MULTILINE),
    re.compile(r"^GPU\[(\d+)\]\s*: Card [Ss]eries:\s*(.+?)\s*$", re.MULTILINE),
    re.compile(r"^GPU: (\d+)\n(?:[ \t]+.*\n)*?[ \t]+MARKET_NAME: (.+?)\s*$", re.MULTILINE),
)


def names_of_list(text: str) -> dict[int, str]:
    """By index, the model of each GPU in `nvidia-smi -L`, `rocm-smi --showproductname` or `amd-smi static`."""
    return {int(index): model for pattern in _NAMES for index, model in pattern.findall(text)}


_SLICES = re.compile(r"^[ \t]*GPU (\d+): .*\n[ \t]+MIG ", re.MULTILINE)


def sliced_of_list(text: str) -> list[int]:
    """The GPUs below which `nvidia-smi -L` names slices (MIG)."""
    return [int(index) for index in _SLICES.findall(text)]


def slurm_of_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """As `fabricheck.state.capture.ask_slurm`; without `sinfo`, `scontrol show nodes` is in its place."""
    nodes = SINFO if SINFO in texts else SCONTROL_NODES
    outputs = {"mpi": SRUN_MPI, "config": SCONTROL_CONFIG, "sinfo": nodes}
    return {name: texts[tool] for name, tool in outputs.items() if tool in texts}


def read_nccl_topology(text: str) -> dict[str, Any]:
    """The file that NCCL writes with NCCL_TOPO_DUMP_FILE, as files of a capture by name (`nvml`, `numa`, `nics`).

    It has no models of GPUs. Raises ValueError where it is cut off.
    """
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"the topology of NCCL is cut off: {error}") from None
    gpus: list[dict[str, Any]] = []
    ports: list[dict[str, Any]] = []
    cpus = root.findall("cpu")
    for cpu in cpus:
        _below(cpu, f"numa{cpu.get('numaid')}", int(cpu.get("numaid", "0")), (gpus, ports))
    nodes = [{"index": int(cpu.get("numaid", "0")), "cpus": "all"} for cpu in cpus]
    gpus.sort(key=lambda gpu: gpu["index"])
    return {
        "nvml": {"gpus": gpus},
        "numa": {"nodes": nodes, "cores": 0, "sockets": len(nodes)},
        "nics": sorted(ports, key=lambda port: int(port.pop("dev"))),
    }


def _below(
    parent: ElementTree.Element, place: str, numa: int, lists: tuple[list[dict[str, Any]], list[dict[str, Any]]]
) -> None:
    """GPUs and ports below a CPU or bridge, whose `place` names the bridges above."""
    gpus, ports = lists
    for pci in parent.findall("pci"):
        bus, here = pci.get("busid", ""), f"{place}/{pci.get('busid')}"
        for gpu in pci.findall("gpu"):
            gpus.append(_gpu_of_nccl(gpu, pci, here, numa))
        for net in pci.findall("nic/net"):
            ports.append(
                {
                    "name": net.get("name"),
                    "dev": net.get("dev", "0"),
                    "kind": "InfiniBand" if pci.get("class", "").startswith("0x0207") else "Ethernet",
                    "rate": f"{int(net.get('speed', '0')) // 1000} Gb/sec",
                    "numa_node": numa,
                    "pci": here,
                    "driver": "efa" if str(net.get("name")).startswith(("rdmap", "efa")) else None,
                    "card": f"{pci.get('vendor')}:{pci.get('device')}",
                    "link_speed": pci.get("link_speed"),
                    "link_width": pci.get("link_width"),
                    "bus_id": bus,
                }
            )
        _below(pci, here, numa, lists)


def _gpu_of_nccl(gpu: ElementTree.Element, pci: ElementTree.Element, place: str, numa: int) -> dict[str, Any]:
    """As an entry of `fabricheck.state.capture.gpu_facts`."""
    links: list[dict[str, Any]] = []
    kinds = {"0x068000": "switch", "0x03": "gpu", "0x0680": "switch"}
    for link in gpu.findall("nvlink"):
        kind = next((kind for start, kind in kinds.items() if link.get("tclass", "").startswith(start)), "cpu")
        entry = {"version": None, "speed_mbps": None, "remote_kind": kind, "remote_bus_id": link.get("target")}
        links += [entry] * int(link.get("count", "1"))
    return {
        **dict.fromkeys(("uuid", "memory_clock_mhz", "memory_bus_bits", "c2c_links", "c2c_mbps")),
        "index": int(gpu.get("dev", "0")),
        "name": "unknown",
        "arch": f"sm_{gpu.get('sm')}",
        "bus_id": pci.get("busid", ""),
        "numa_node": numa,
        "pci": place,
        "pcie_generation": pcie_generation(pci.get("link_speed") or ""),
        "pcie_width": int(pci.get("link_width") or 0),
        "nvlinks": links,
    }
