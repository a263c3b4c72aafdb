"""Nodes at random, and each in the form of every source that `fabricheck init --from` reads."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.captured import capture_of

#: What may be wrong with a node, and the code that `init` has for it.
FAULTS = {
    "port down": "port-down",
    "port slow": "slow-port",
    "GPU lost": "unlike-product",
    "GPU hidden": "hidden-gpus",
    "no NVLinks of a GPU": "missing-links",
    "no NVLinks": "missing-links",
    "slow slot": "slow-pcie",
}


@dataclass(frozen=True)
class Board:
    """GPUs of a node as NVIDIA sells them: how the driver calls them, and what joins them.

    `links`: NVLinks of a GPU, all to a switch, or by pairs where `paired`; `listed`: as many has the driver.
    """

    name: str
    arch: str
    gpus: tuple[int, ...]
    links: int
    generation: int
    pcie: int
    paired: bool = False
    listed: int = 0
    gres: str = ""


BOARDS = (
    Board("NVIDIA A100-SXM4-80GB", "sm_80", (8,), 12, 3, 4, gres="a100"),
    Board("NVIDIA H100 80GB HBM3", "sm_90", (8,), 18, 4, 5, gres="h100"),
    Board("NVIDIA H200", "sm_90", (8,), 18, 4, 5, gres="h200"),
    Board("NVIDIA B200", "sm_100", (8,), 18, 5, 5, gres="b200"),
    Board("NVIDIA H100 NVL", "sm_90", (2, 4), 12, 4, 5, paired=True, listed=18),
    Board("NVIDIA A100 80GB PCIe", "sm_80", (2, 4), 12, 3, 4, paired=True, listed=12),
    Board("NVIDIA L40S", "sm_89", (4, 8), 0, 0, 4),
)
# NVML's numbers of NVLink versions (nvml.h).
_VERSIONS = {3: 5, 4: 6, 5: 7}
_PORTS = {8: 400, 4: 200, 2: 100}


@dataclass(frozen=True)
class Machine:
    """A node as it should be, `fault`: what is wrong with it, at GPU or port `place`."""

    board: Board
    gpus: int
    numa: int
    kind: str  # of the ports: InfiniBand or Ethernet
    names: tuple[str, ...]
    rate: int
    fault: str = ""
    place: int = 0

    @property
    def visible(self) -> list[int]:
        """The GPUs that the driver shows, by the index that they should have."""
        lost = self.fault in ("GPU lost", "GPU hidden")
        return [index for index in range(self.gpus) if not lost or index != self.place]

    def numa_of(self, index: int) -> int:
        return index * self.numa // self.gpus

    def links_between(self, a: int, b: int) -> int:
        """NVLinks that `nvidia-smi topo -m` shows of a pair; 0 for none."""
        if self.fault == "no NVLinks" or (self.fault == "no NVLinks of a GPU" and self.place in (a, b)):
            return 0
        return self.board.links if not self.board.paired or a // 2 == b // 2 else 0


def draw_machine(rng: random.Random) -> Machine:
    """A node, in half of the cases with a fault that its kind can have."""
    board = rng.choice(BOARDS)
    gpus = rng.choice(board.gpus)
    prefix = rng.choice(("mlx5_", "mlx5_ib", "ibp"))
    names = tuple(f"{prefix}{at}" for at in range(gpus))
    kind = rng.choice(("InfiniBand", "Ethernet"))
    rate = 200 if board.pcie == 4 else _PORTS[gpus]
    machine = Machine(board, gpus, rng.choice((1, 2)), kind, names, rate)
    if rng.random() < 0.5:
        return machine
    faults = ["port down", "port slow", "slow slot"] if gpus > 2 else ["port down", "slow slot"]
    if board.gpus == (8,):
        faults += ["GPU lost", "GPU hidden", "no NVLinks of a GPU", "no NVLinks"]
    return replace(machine, fault=rng.choice(faults), place=rng.randrange(gpus))


def _bus(index: int) -> str:
    return f"0000:{16 * (index + 1):02x}:00.0"


def write_json(machine: Machine, folder: Path) -> Path:
    """As `fabricheck capture` keeps it."""
    gpus = []
    for at, index in enumerate(machine.visible):
        peers = [other for other in machine.visible if other != index]
        if machine.board.paired:
            links: list[dict[str, Any]] = [
                {"remote_kind": "gpu", "remote_bus_id": f"0000{_bus(index ^ 1)}"}
            ] * machine.board.links
        else:
            active = any(machine.links_between(index, other) for other in peers)
            links = [{"remote_kind": "switch", "remote_bus_id": None}] * (machine.board.links if active else 0)
        version = _VERSIONS.get(machine.board.generation)
        gpus.append(
            {
                "index": at,
                "name": machine.board.name,
                "uuid": f"GPU-{index}",
                "arch": machine.board.arch,
                "bus_id": f"0000{_bus(index)}",
                "numa_node": None,
                "memory_mib": 81559,
                "memory_clock_mhz": None,
                "memory_bus_bits": None,
                "pcie_generation": machine.board.pcie - _is(machine, "slow slot", index),
                "pcie_width": 16,
                "c2c_links": None,
                "c2c_mbps": None,
                "mig": False,
                "nvlinks_total": machine.board.listed or machine.board.links,
                "nvlinks": [
                    {"link": n, "version": version, "speed_mbps": 25000, **link} for n, link in enumerate(links)
                ],
            }
        )
    on_bus = range(machine.gpus) if machine.fault == "GPU hidden" else machine.visible
    buses = [
        {
            "vendor": "nvidia",
            "bus_id": _bus(index),
            "driver": "nvidia",
            "numa_node": machine.numa_of(index),
            "pci": _place(index, 0),
            "path_speed": None,
        }
        for index in on_bus
    ]
    return capture_of(folder, numa=machine.numa, nvml=gpus, pci_gpus=buses, nics=_ports(machine))


def _place(index: int, device: int) -> str:
    return f"pci0000:{16 * index:02x}/0000:{16 * index:02x}:01.0/0000:{16 * index + 1:02x}:{device:02x}.0"


def _is(machine: Machine, fault: str, place: int) -> bool:
    return machine.fault == fault and machine.place == place


def _ports(machine: Machine) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "kind": machine.kind,
            "rate": f"{_gbps(machine, at)} Gb/sec",
            "numa_node": machine.numa_of(at),
            "pci": _place(at, 1),
            "driver": "mlx5_core",
            "card": "MT4129",
            "up": not _is(machine, "port down", at),
        }
        for at, name in enumerate(machine.names)
    ]


def _gbps(machine: Machine, at: int) -> int:
    return 10 if _is(machine, "port down", at) else machine.rate // (1 + _is(machine, "port slow", at))


def write_texts(machine: Machine, folder: Path, *, listed: bool = True) -> Path:
    """As outputs of tools in a folder: topo -m, ibstat, lscpu, and -L (`listed`), else sinfo's gres."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = machine.visible
    heads = [*(f"GPU{at}" for at in range(len(shown))), *(f"NIC{at}" for at in range(machine.gpus))]
    lines = ["\t".join(["", *heads, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for at, index in enumerate(shown):
        cells = [_cell(machine, index, other) for other in shown]
        cells += ["PIX" if port == index else _far(machine, index, port) for port in range(machine.gpus)]
        lines.append("\t".join([f"GPU{at}", *cells, "0-47", str(machine.numa_of(index)), "", "N/A"]))
    legend = [
        "",
        "Legend:",
        "",
        "  X    = Self",
        "  NV#  = Connection traversing a bonded set of # NVLinks",
        "",
        "NIC Legend:",
        "",
    ]
    legend += [f"  NIC{at}: {name}" for at, name in enumerate(machine.names)]
    (folder / "topo.txt").write_text("\n".join([*lines, *legend]) + "\n")
    (folder / "ibstat.txt").write_text("".join(_ibstat(machine, at) for at in range(machine.gpus)))
    numa = [f"NUMA node{node} CPU(s):   {48 * node}-{48 * node + 47}" for node in range(machine.numa)]
    cpus = ["Architecture:   x86_64", "Core(s) per socket:  48", f"Socket(s):   {machine.numa}"]
    (folder / "lscpu.txt").write_text("\n".join([*cpus, f"NUMA node(s):   {machine.numa}", *numa]) + "\n")
    if listed:
        names = [f"GPU {at}: {machine.board.name} (UUID: GPU-{index})" for at, index in enumerate(shown)]
        (folder / "list.txt").write_text("\n".join(names) + "\n")
    else:
        head = "PARTITION AVAIL TIMELIMIT NODES GRES STATE NODELIST"
        row = f"gpu* up infinite 4 gpu:{machine.board.gres}:{machine.gpus} idle nid[001-004]"
        (folder / "sinfo.txt").write_text(f"{head}\n{row}\n")
    return folder


def _cell(machine: Machine, index: int, other: int) -> str:
    if index == other:
        return " X "
    count = machine.links_between(index, other)
    return f"NV{count}" if count else _far(machine, index, other)


def _far(machine: Machine, index: int, other: int) -> str:
    return "NODE" if machine.numa_of(index) == machine.numa_of(other) else "SYS"


def _ibstat(machine: Machine, at: int) -> str:
    down = _is(machine, "port down", at)
    return (
        f"CA '{machine.names[at]}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tSystem image GUID: 0x{at + 1:016x}\n"
        f"\tPort 1:\n\t\tState: {'Down' if down else 'Active'}\n"
        f"\t\tPhysical state: {'Polling' if down else 'LinkUp'}\n\t\tRate: {_gbps(machine, at)}\n"
        f"\t\tLink layer: {machine.kind}\n"
    )


def cut(folder: Path, rng: random.Random) -> Path:
    """The same with one file that ends in the middle."""
    file = rng.choice(sorted(folder.iterdir()))
    text = file.read_text()
    file.write_text(text[: rng.randrange(len(text))])
    return folder
