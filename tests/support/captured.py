"""Captures of made-up nodes, as `fabricheck capture` keeps them: what a test changes is all that it has to say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fabricheck.state import capture as names

# As lscpu (util-linux 2.37), ibstat (infiniband-diags 2310) and sinfo (23.11) print it, shortened.
TEXTS = {
    "cpu": (
        "Architecture:            x86_64\n  CPU op-mode(s):        32-bit, 64-bit\nCPU(s):                  96\n"
        "    Thread(s) per core:  1\n    Core(s) per socket:  48\n    Socket(s):           2\n"
        "NUMA:                    \n  NUMA node(s):          2\n  NUMA node0 CPU(s):     0-47\n"
        "  NUMA node1 CPU(s):     48-95\n"
    ),
    "ib": (
        "CA 'mlx5_0'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n"
        "\t\tPhysical state: LinkUp\n\t\tRate: 400\n\t\tLink layer: InfiniBand\n"
        "CA 'mlx5_1'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Down\n"
        "\t\tPhysical state: Disabled\n\t\tRate: 10\n\t\tLink layer: Ethernet\n"
    ),
    "slurm": (
        "PARTITION AVAIL  TIMELIMIT  NODES GRES       STATE NODELIST\n"
        "gpu*         up   infinite      4 gpu:h200:4  idle nid[001-004]\n"
        "cpu          up   infinite      9 (null)      idle cn[1-9]\n"
    ),
}

_VERSIONS = {"sm_70": 3, "sm_80": 5, "sm_90": 6, "sm_100": 7, "sm_103": 7}


def nvidia_gpus(
    name: str, arch: str, count: int, *, nvlinks: int = 0, pairs: Iterable[tuple[int, int]] = (), **more: Any
) -> list[dict[str, Any]]:
    """GPUs as NVML tells them: NVLinks to a switch, or so many between each of `pairs`."""
    pairs = list(pairs)
    gpus: list[dict[str, Any]] = []
    for index in range(count):
        if pairs:
            peers = [b if a == index else a for a, b in pairs if index in (a, b)]
            ends = [("gpu", _bus(peer)) for peer in peers for _ in range(nvlinks)]
        else:
            ends = [("switch", "ffffffff:ff:ff.0")] * nvlinks
        links = [
            {"link": at, "version": _VERSIONS.get(arch), "speed_mbps": 25000, "remote_kind": kind, "remote_bus_id": to}
            for at, (kind, to) in enumerate(ends)
        ]
        gpu = {
            "index": index,
            "name": name,
            "uuid": f"GPU-{index}",
            "arch": arch,
            "bus_id": _bus(index),
            "numa_node": None,
            "memory_mib": 81559,
            "memory_clock_mhz": 2619,
            "memory_bus_bits": 5120,
            "pcie_generation": 5,
            "pcie_width": 16,
            "c2c_links": None,
            "c2c_mbps": None,
            "mig": False,
            "nvlinks_total": len(links),
            "nvlinks": links,
        }
        gpus.append({**gpu, **more})
    return gpus


def _bus(index: int) -> str:
    return f"00000000:{16 * (index + 1):02x}:00.0"


def amd_gpu(node: int, links: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """A GPU as the kernel's KFD tells it, at `node` of its topology."""
    return {
        "node": node,
        "arch": "gfx942",
        "bus_id": f"0000:{node:02x}:00.0",
        "numa_node": 0,
        "model": "AMD Instinct MI300X",
        "memory_bus_bits": 8192,
        "memory_clock_mhz": 2600,
        "memory_mib": 196592,
        "link_speed": "32.0 GT/s PCIe",
        "link_width": "16",
        "links": [*links],
        "pci": None,
        **more,
    }


def xgmi(to: int, weight: int = 15, least: int = 64000, most: int = 64000, kind: str = "xgmi") -> dict[str, Any]:
    return {"to": to, "kind": kind, "weight": weight, "least_mbps": least, "most_mbps": most}


def nic(name: str, kind: str = "InfiniBand", rate: str = "400 Gb/sec (4X NDR)", **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "rate": rate, "numa_node": 0, "pci": None, **more}


def topo(gpus: Mapping[int, str], nics: Sequence[str], nic_rows: Mapping[str, str] | None = None) -> str:
    """`nvidia-smi topo -m` of what joins GPUs with NICs: of each its cells, apart by blanks; NVLinks join all GPUs."""
    heads = [*(f"GPU{index}" for index in gpus), *nics]
    lines = ["\t".join(["", *heads, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for index, cells in gpus.items():
        row = [" X " if other == index else "NV18" for other in gpus]
        lines.append("\t".join([f"GPU{index}", *row, *cells.split(), "0-47", "0", "N/A"]))
    for name, cells in (nic_rows or {}).items():
        lines.append("\t".join([name, *cells.split()]))
    return "\n".join(lines) + "\n"


def capture_of(folder: Path, *, numa: int = 1, ccl: tuple[str, str] = ("nccl", "2.26.5"), **files: Any) -> Path:
    """A capture with `files` by the names of `fabricheck.state.capture`, such as NVML; `nvml` may be the GPUs alone.

    What is no text is written as JSON.
    """
    folder.mkdir(parents=True, exist_ok=True)
    nodes = [{"index": index, "cpus": f"{48 * index}-{48 * index + 47}"} for index in range(numa)]
    contents: dict[str, Any] = {
        names.HOST: {"hostname": "node01"},
        names.NUMA: {"nodes": nodes, "cores": 48 * numa, "sockets": min(numa, 2)},
        names.SOFTWARE: {
            "libraries": [],
            "compiler": "/usr/bin/cc",
            "ccl": [*ccl, "/usr"],
            "modules_system": "nomod",
            "notes": [],
        },
    }
    for name, content in files.items():
        gpus = {"driver": "570.1", "gpus": content, "problems": []}
        file = getattr(names, name.upper(), f"{name}.txt")
        contents[file] = gpus if name == "nvml" and isinstance(content, list) else content
    for file, content in contents.items():
        (folder / file).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder
