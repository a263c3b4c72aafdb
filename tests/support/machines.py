"""Nodes at random, and each in the form of every source that `fabricheck init --from` reads."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.support.captured import amd_gpu, capture_of, xgmi

#: What may be wrong with a node, and the code that `init` has for it.
FAULTS = {
    "port down": "port-down",
    "port slow": "slow-port",
    "GPU lost": "unlike-product",
    "GPU hidden": "hidden-gpus",
    "no NVLinks of a GPU": "missing-links",
    "no NVLinks": "missing-links",
    "an NVLink down": "missing-links",
    "slow slot": "slow-pcie",
    "GPU in MIG mode": "unlike-product",
}


@dataclass(frozen=True)
class Board:
    """GPUs of a node as NVIDIA sells them: how the driver calls them, and what joins them.

    `links` of a GPU: all to a switch, or to the others of its `hive` of so many GPUs; `listed`: as many has the driver.
    `generation` of the links, 0 where AMD names none. `c2c`: links to the CPU instead of PCIe.
    """

    name: str
    arch: str
    gpus: tuple[int, ...]
    links: int
    generation: int
    pcie: int
    hive: int = 0
    listed: int = 0
    gres: str = ""
    c2c: int = 0

    @property
    def is_amd(self) -> bool:
        return self.arch.startswith("gfx")


BOARDS = (
    Board("NVIDIA A100-SXM4-80GB", "sm_80", (8,), 12, 3, 4, gres="a100"),
    Board("NVIDIA H100 80GB HBM3", "sm_90", (8,), 18, 4, 5, gres="h100"),
    Board("NVIDIA H200", "sm_90", (8,), 18, 4, 5, gres="h200"),
    Board("NVIDIA B200", "sm_100", (8,), 18, 5, 5, gres="b200"),
    Board("NVIDIA H100 NVL", "sm_90", (2, 4), 12, 4, 5, hive=2, listed=18),
    Board("NVIDIA A100 80GB PCIe", "sm_80", (2, 4), 12, 3, 4, hive=2, listed=12),
    Board("NVIDIA RTX A6000", "sm_86", (2, 4), 4, 3, 4, hive=2),
    Board("NVIDIA L40S", "sm_89", (4, 8), 0, 0, 4),
    Board("NVIDIA A100-SXM4-40GB", "sm_80", (4,), 12, 3, 4, hive=4),
    Board("NVIDIA GH200 120GB", "sm_90", (4,), 18, 4, 5, c2c=10, hive=4),
    Board("NVIDIA GB200", "sm_100", (4,), 18, 5, 6, c2c=5),
    Board("AMD Instinct MI300X", "gfx942", (8,), 7, 3, 5, hive=8),
    Board("AMD Instinct MI300A", "gfx942", (4,), 6, 3, 5, hive=4),
    Board("AMD Instinct MI210", "gfx90a", (4, 8), 3, 0, 4, hive=4),
)
# NVML's numbers of NVLink versions (nvml.h).
_VERSIONS = {3: 5, 4: 6, 5: 7}
_PORTS = {8: 400, 4: 200, 2: 100}

#: How lscpu of util-linux names NUMA nodes, cores of a socket and sockets, by language.
_LSCPU = {
    "en": ("NUMA node(s):", "NUMA node{} CPU(s):", "Core(s) per socket:", "Socket(s):"),
    "de": ("NUMA-Knoten:", "NUMA-Knoten{} CPU(s):", "Kern(e) pro Sockel:", "Sockel:"),
    "fr": ("Nœud(s) NUMA :", "Nœud NUMA {} de processeur(s) :", "Cœur(s) par socket :", "Socket(s) :"),
    "zh": ("NUMA 节点\uff1a", "NUMA 节点{} CPU\uff1a", "每个座的核数\uff1a", "座\uff1a"),
}


@dataclass(frozen=True)
class Forms:
    """How versions of tools and languages print the same: columns of NICs by their `own_names`, as before driver 520;
    NUMA nodes with those of GPUs' memory (`numa_list`), as on Grace; the `language` of lscpu; Slurm by `sinfo`'s table,
    its columns apart by bars, or `scontrol show node`."""

    own_names: bool = False
    numa_list: bool = False
    language: str = "en"
    slurm: str = "table"
    windows: bool = False


@dataclass(frozen=True)
class Machine:
    """A node as it should be, `fault`: what is wrong with it, at GPU or port `place`."""

    board: Board
    gpus: int
    numa: int
    kind: str  # of the ports: InfiniBand or Ethernet
    names: tuple[str, ...]  # in the order of the GPUs that they are next to
    rate: int
    storage: bool = False  # one more port, slower and near no GPU
    behind: int = 1  # GPUs that share a bridge with each other and their ports
    knows_numa: bool = True  # a guest's PCI devices may have no NUMA node
    partitions: int = 1  # of each of AMD's GPUs
    functions: int = 1  # PCI functions by which a node sees each port
    spare: int = 0  # more ports, into which no cable is plugged
    dpus: int = 0  # ports of BlueField for the front-end, as near to each GPU as its CPU
    vpis: int = 0  # ports of the same cards as the others', in the other mode, for storage: near no GPU
    forms: Forms = Forms()
    fault: str = ""
    place: int = 0
    lost: int | None = None  # a GPU that is not there beside the fault, or beside partitions

    @property
    def visible(self) -> list[int]:
        """The GPUs that the driver shows, by the index that they should have."""
        lost = {self.lost, self.place if self.fault in ("GPU lost", "GPU hidden") else None}
        return [index for index in range(self.gpus) if index not in lost]

    @property
    def whole(self) -> list[int]:
        """Those that are GPUs, and not slices of one."""
        return [index for index in self.visible if not _is(self, "GPU in MIG mode", index)]

    @property
    def spares(self) -> tuple[str, ...]:
        return tuple(f"mlx5_{88 + at}" for at in range(self.spare))

    @property
    def group(self) -> int:
        """GPUs below one bridge: also those that share a port."""
        return max(self.behind, self.gpus // len(self.names)) if self.names else 1

    def numa_of(self, index: int) -> int:
        """That of the bridge above: one bridge is at one NUMA node."""
        return (index - index % self.group) * self.numa // self.gpus

    def gpu_of(self, port: int) -> int:
        """The GPU that a port is next to, the first of several."""
        return port * self.gpus // len(self.names)

    def is_near(self, index: int, port: int) -> bool:
        """Whether a port is behind the bridge of a GPU."""
        return self.gpu_of(port) // self.group == index // self.group

    def links_between(self, a: int, b: int) -> int:
        """NVLinks that `nvidia-smi topo -m` shows of a pair; 0 for none."""
        if self.fault == "no NVLinks" or (self.fault == "no NVLinks of a GPU" and self.place in (a, b)):
            return 0
        hive = self.board.hive
        down = hive > 0 and self.fault == "an NVLink down" and {a, b} == {self.place, self.place ^ 1}
        if hive and a // hive != b // hive:
            return 0
        return self.board.links // max(hive - 1, 1) - down


def draw_machine(rng: random.Random) -> Machine:
    """A node, in half of the cases with a fault that its kind can have."""
    machine = _draw_machine(rng)
    language = rng.choice([*_LSCPU]) if rng.random() < 0.5 else "en"
    slurm, windows = rng.choice(("table", "bars", "scontrol")), rng.random() < 0.2
    forms = Forms(rng.random() < 0.3, rng.random() < 0.3, language, slurm, windows)
    dpus = rng.choice((1, 2)) if len(machine.names) >= 4 and machine.functions == 1 and rng.random() < 0.3 else 0
    vpis = (
        rng.randint(1, min(len(machine.names) // 2, 4))
        if len(machine.names) >= 4 and machine.functions == 1 and rng.random() < 0.2
        else 0
    )
    return replace(machine, forms=forms, dpus=dpus, vpis=vpis)


def _draw_machine(rng: random.Random) -> Machine:
    board = rng.choice(BOARDS)
    gpus = rng.choice(board.gpus)
    # Several ports a GPU, one, one of two GPUs, or none.
    ports, rate = gpus, 200 if board.pcie == 4 else _PORTS[gpus]
    if rng.random() < 0.4:
        ports, rate = rng.choice([(2 * gpus, rate // 2), (gpus // 2, rate), (0, rate)])
    prefix = rng.choice(("mlx5_", "mlx5_ib", "ibp") if not board.is_amd else ("bnxt_re", "mlx5_"))
    names = tuple(f"{prefix}{at}" for at in range(ports))
    numa = 2 if board.c2c else rng.choice((1, 2))
    kind = rng.choice(("InfiniBand", "Ethernet"))
    behind = 2 if ports >= gpus and rng.random() < 0.3 else 1
    storage = ports >= gpus and rng.random() < 0.3
    machine = Machine(
        board, gpus, numa, kind, names, rate, storage, behind, knows_numa=bool(board.c2c) or rng.random() < 0.8
    )
    if board.arch == "gfx942" and ports <= gpus and rng.random() < 0.3:
        lost = rng.randrange(gpus) if gpus == 8 and rng.random() < 0.4 else None
        return replace(machine, partitions=rng.choice((2, 8)), storage=False, behind=1, lost=lost)
    if ports >= 1 and rng.random() < 0.2:
        return replace(machine, functions=2) if rng.random() < 0.5 else replace(machine, spare=rng.choice((1, 2)))
    if rng.random() < 0.5:
        return machine
    faults = ["an NVLink down"] * bool(board.links and not board.is_amd)
    faults += ["port down"] * (ports > 1) + ["port slow"] * (ports > 2) + ["slow slot"] * (not board.c2c)
    faults += ["no NVLinks of a GPU"] * (3 < gpus == board.hive)
    if board.gpus == (8,):
        faults += ["no NVLinks of a GPU"] * (not board.is_amd)
        faults += ["GPU lost"] * (ports == gpus and behind == 1)  # else nothing tells which one is lost
        faults += ["no NVLinks", "GPU hidden"] * (not board.is_amd)
        faults += ["GPU in MIG mode"] * (3 * (not board.is_amd))
    fault = rng.choice(faults or [""])
    place, lost = rng.randrange(ports if "port" in fault else gpus), None
    if fault == "GPU in MIG mode" and ports == gpus and behind == 1 and rng.random() < 0.5:
        lost = rng.choice([index for index in range(gpus) if index != place])
    return replace(machine, fault=fault, place=place, lost=lost)


def _bus(index: int) -> str:
    return f"0000:{16 * (index + 1):02x}:00.0"


def write_json(machine: Machine, folder: Path) -> Path:
    """As `fabricheck capture` keeps it."""
    if machine.board.is_amd:
        return capture_of(folder, numa=machine.numa, amd=_kfd(machine), nics=_ports(machine))
    gpus = []
    for at, index in enumerate(machine.visible):
        links: list[dict[str, Any]] = []
        for other in machine.visible if machine.board.hive else ():
            peer = {"remote_kind": "gpu", "remote_bus_id": f"0000{_bus(other)}"}
            links += [peer] * (machine.links_between(index, other) if other != index else 0)
        if not machine.board.hive and any(machine.links_between(index, other) for other in machine.visible):
            down = _is(machine, "an NVLink down", index)
            links = [{"remote_kind": "switch", "remote_bus_id": None}] * (machine.board.links - down)
        version = _VERSIONS.get(machine.board.generation)
        gpus.append(
            {
                "index": at,
                "name": machine.board.name,
                "uuid": f"GPU-{index}",
                "arch": machine.board.arch,
                "bus_id": f"0000{_bus(index)}",
                # Of its own memory, where it has one.
                "numa_node": 2 + 8 * index if machine.board.c2c else None,
                "memory_mib": 81559,
                "memory_clock_mhz": None,
                "memory_bus_bits": None,
                "pcie_generation": machine.board.pcie,
                "pcie_width": 16 >> _is(machine, "slow slot", index),
                "c2c_links": machine.board.c2c or None,
                "c2c_mbps": 90000 if machine.board.c2c else None,
                "mig": index not in machine.whole,
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
            "numa_node": machine.numa_of(index) if machine.knows_numa else None,
            "pci": _place(machine, index, index % 2),
            "path_speed": None,
        }
        for index in on_bus
    ]
    return capture_of(folder, numa=machine.numa, nvml=gpus, pci_gpus=buses, nics=_ports(machine))


def _kfd(machine: Machine) -> list[dict[str, Any]]:
    """AMD's GPUs as the kernel lists them; of a partition other than the first it knows no PCI device."""
    gpus = []
    parts, rate = machine.partitions, 64000 if machine.board.generation else 50000
    for index, part in itertools.product(machine.visible, range(parts)):
        links = [
            xgmi(2 + other * parts + peer, 15 if parts == 1 else 41, rate, rate * machine.links_between(index, other))
            for other, peer in itertools.product(machine.visible, range(parts))
            if other != index and machine.links_between(index, other)
        ]
        inside = range(2 + index * parts, 2 + (index + 1) * parts)
        links += [xgmi(peer, 13, 819200, 819200) for peer in inside if peer != inside[part]]
        speed = f"{_SPEEDS[machine.board.pcie - _is(machine, 'slow slot', index)]} GT/s PCIe"
        more: dict[str, Any] = {
            "model": machine.board.name,
            "arch": machine.board.arch,
            "numa_node": machine.numa_of(index) if machine.knows_numa else None,
            "pci": _place(machine, index, index % 2),
            "link_speed": speed,
        }
        unknown = {**dict.fromkeys((*more, "link_width")), "arch": machine.board.arch} if part else {}
        gpus.append(amd_gpu(inside[part], links, **{**more, **unknown}))
    return gpus


def _place(machine: Machine, index: int, device: int) -> str:
    """Two GPUs have a root complex, and each a bridge, or both one."""
    root, bridge = 16 * (index // 2), 16 * (index - index % machine.behind) + 1
    return f"pci0000:{root:02x}/0000:{root:02x}:{bridge % 32:02x}.0/0000:{bridge:02x}:{device:02x}.0"


def _is(machine: Machine, fault: str, place: int) -> bool:
    return machine.fault == fault and machine.place == place


_STORAGE = "mlx5_77"
_DPUS = ("mlx5_55", "mlx5_56")
_VPIS = ("mlx5_60", "mlx5_61", "mlx5_62", "mlx5_63")
_OTHER_MODE = {"InfiniBand": "Ethernet", "Ethernet": "InfiniBand"}


def _ports(machine: Machine) -> list[dict[str, Any]]:
    ports: list[dict[str, Any]] = []
    for at, name in enumerate((*machine.names, *machine.spares)):
        spare = f"pci0000:e{at % 16:x}/0000:e{at % 16:x}:00.0"
        place = _place(machine, machine.gpu_of(at), 8 + at) if at < len(machine.names) else spare
        port = {
            "name": name,
            "kind": machine.kind,
            "rate": f"{_gbps(machine, at)} Gb/sec",
            "numa_node": machine.numa_of(machine.gpu_of(at)) if machine.knows_numa else None,
            "pci": place,
            "driver": "mlx5_core",
            "card": "MT4129",
            "up": at < len(machine.names) and not _is(machine, "port down", at),
        }
        ports.append(port)
        for function in range(1, machine.functions):
            ports.append({**port, "name": f"{name}_v{function}", "pci": f"{place[:-1]}{function}", "virtual": True})
    if machine.storage:
        slower = {"name": _STORAGE, "rate": f"{machine.rate // 2} Gb/sec", "pci": "pci0000:f0/0000:f1:00.0", "up": True}
        ports.append({**ports[0], **slower})
    for at, name in enumerate(_VPIS[: machine.vpis]):
        place = f"pci0000:c{at}/0000:c{at}:00.0"
        vpi = {"name": name, "kind": _OTHER_MODE[machine.kind], "pci": place, "rate": f"{machine.rate} Gb/sec"}
        ports.append({**ports[0], **vpi, "up": True, "numa_node": at % machine.numa if machine.knows_numa else None})
    for at, name in enumerate(_DPUS[: machine.dpus]):
        place = f"pci0000:d{at}/0000:d{at}:00.0"
        dpu = {"name": name, "card": "MT41692", "pci": place, "rate": f"{machine.rate} Gb/sec", "up": True}
        ports.append({**ports[0], **dpu, "numa_node": at % machine.numa if machine.knows_numa else None})
    return ports


def _gbps(machine: Machine, at: int) -> int:
    return 10 if _is(machine, "port down", at) else machine.rate // (1 + _is(machine, "port slow", at))


def write_texts(machine: Machine, folder: Path, *, listed: bool = True) -> Path:
    """As outputs of tools in a folder: topo -m, ibstat, lscpu, and -L (`listed`), else sinfo's gres."""
    folder.mkdir(parents=True, exist_ok=True)
    shown, forms = machine.visible, machine.forms
    others = [*[_STORAGE] * machine.storage, *_VPIS[: machine.vpis], *_DPUS[: machine.dpus]]
    nics = [*machine.names, *others]
    columns = nics if forms.own_names else [f"NIC{at}" for at in range(len(nics))]
    heads = [*(f"GPU{at}" for at in range(len(shown))), *columns]
    lines = ["\t".join(["", *heads, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for at, index in enumerate(shown):
        cells = [_cell(machine, index, other) for other in shown]
        cells += [_to_port(machine, index, port) for port in range(len(machine.names))]
        cells += ["SYS"] * len(others)
        numa = machine.numa_of(index)
        place = f"{numa},{2 + 8 * numa}-{9 + 8 * numa}" if forms.numa_list else str(numa)
        place = place if machine.knows_numa else "N/A"
        lines.append("\t".join([f"GPU{at}", *cells, "0-47", place, "", "N/A"]))
    legend = ["", "Legend:", "", "  X    = Self", "  NV#  = Connection traversing a bonded set of # NVLinks", ""]
    if not forms.own_names:
        legend += ["NIC Legend:", "", *(f"  NIC{at}: {name}" for at, name in enumerate(nics))]
    (folder / "topo.txt").write_text("\n".join([*lines, *legend]) + "\n")
    if machine.names:
        (folder / "ibstat.txt").write_text(_ibstat_of_all(machine))
    (folder / "lscpu.txt").write_text(_lscpu(machine))
    if listed:
        names = []
        for at, index in enumerate(shown):
            names.append(f"GPU {at}: {machine.board.name} (UUID: GPU-{index})")
            if index not in machine.whole:
                names += [f"  MIG 3g.40gb     Device  {part}: (UUID: MIG-{part})" for part in range(2)]
        (folder / "list.txt").write_text("\n".join(names) + "\n")
    else:
        (folder / "slurm.txt").write_text(_slurm(machine))
    for file in folder.iterdir() if forms.windows else ():
        file.write_text(file.read_text(), encoding="utf-8-sig", newline="\r\n")
    return folder


def _lscpu(machine: Machine) -> str:
    nodes, node, cores, sockets = _LSCPU[machine.forms.language]
    lines = ["Architecture:   x86_64", f"{cores}  48", f"{sockets}   {machine.numa}", f"{nodes}   {machine.numa}"]
    lines += [f"{node.format(at)}   {48 * at}-{48 * at + 47}" for at in range(machine.numa)]
    return "\n".join(lines) + "\n"


def _slurm(machine: Machine) -> str:
    gres, form = f"gpu:{machine.board.gres}:{machine.gpus}(S:0-1)", machine.forms.slurm
    if form == "table":
        head = "PARTITION AVAIL TIMELIMIT NODES GRES STATE NODELIST"
        return f"{head}\ngpu* up infinite 4 {gres} idle nid[001-004]\n"
    if form == "bars":
        return f"PARTITION|NODES|GRES|NODELIST\ngpu*|4|{gres}|nid[001-004]\n"
    return "".join(
        f"NodeName=nid00{at} Arch=x86_64 CoresPerSocket=48 \n   CPUAlloc=0 CPUTot=96 CPULoad=0.01\n   Gres={gres}\n"
        f"   NodeAddr=nid00{at} NodeHostName=nid00{at} Version=23.11.4\n   State=IDLE ThreadsPerCore=1\n"
        f"   Partitions=gpu \n   CfgTRES=cpu=96,gres/gpu={machine.gpus}\n\n"
        for at in range(1, 5)
    )


def _cell(machine: Machine, index: int, other: int) -> str:
    if index == other:
        return " X "
    count = machine.links_between(index, other)
    return f"NV{count}" if count else _far(machine, index, other)


def _to_port(machine: Machine, index: int, port: int) -> str:
    return "PIX" if machine.is_near(index, port) else _far(machine, index, machine.gpu_of(port))


def _far(machine: Machine, index: int, other: int) -> str:
    return "NODE" if machine.numa_of(index) == machine.numa_of(other) else "SYS"


def _ibstat_of_all(machine: Machine) -> str:
    text = "".join(_ibstat(machine, name, at) for at, name in enumerate(machine.names))
    slower = replace(machine, rate=machine.rate // 2, fault="")
    text += _ibstat(slower, _STORAGE, len(machine.names)) * machine.storage
    in_other_mode = replace(machine, kind=_OTHER_MODE[machine.kind], fault="")
    text += "".join(_ibstat(in_other_mode, name, 60 + at) for at, name in enumerate(_VPIS[: machine.vpis]))
    dpus = [_ibstat(machine, name, 98 + at) for at, name in enumerate(_DPUS[: machine.dpus])]
    return text + "".join(dpus).replace("MT4129", "MT41692")


# Of a port that is down: without a peer, or switched off.
_NOT_UP = ("Polling", "Disabled")


def _ibstat(machine: Machine, name: str, at: int) -> str:
    down = _is(machine, "port down", at)
    return (
        f"CA '{name}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tSystem image GUID: 0x{at + 1:016x}\n"
        f"\tPort 1:\n\t\tState: {'Down' if down else 'Active'}\n"
        f"\t\tPhysical state: {_NOT_UP[at % 2] if down else 'LinkUp'}\n\t\tRate: {_gbps(machine, at)}\n"
        f"\t\tLink layer: {machine.kind}\n"
    )


def write_rocm(machine: Machine, folder: Path) -> Path:
    """As rocm-smi prints it, or amd-smi, which has no NUMA nodes; beside their models, ibstat and lscpu."""
    write_texts(machine, folder)
    (folder / "topo.txt").unlink()
    shown = machine.visible
    short = machine.knows_numa
    names = [f"GPU{at}" if short else _bus(index) for at, index in enumerate(shown)]
    titles = {"Weight": "WEIGHT TABLE:", "Hops": "HOPS TABLE:", "Link Type": "LINK TYPE TABLE:"}
    text = ""
    for what, title in titles.items():
        text += f"===== {what} between two GPUs =====\n" if short else f"\n{title}\n"
        text += f"{'':14}{' '.join(f'{name:12}' for name in names)}\n"
        for name, index in zip(names, shown, strict=True):
            joined = [machine.links_between(index, other) > 0 for other in shown]
            cells = {
                "Weight": ["15" if direct else "40" for direct in joined],
                "Hops": ["1" if direct else "2" for direct in joined],
                "Link Type": ["XGMI" if direct else "PCIE" for direct in joined],
            }[what]
            cells[shown.index(index)] = {"Link Type": "0" if short else "SELF"}.get(what, "0")
            text += f"{name:14}{' '.join(f'{cell:12}' for cell in cells)}\n"
    for at, index in enumerate(shown if short else ()):
        text += f"GPU[{at}]\t\t: (Topology) Numa Node: {machine.numa_of(index)}\n"
    (folder / "amd.txt").write_text(text)
    form = "GPU[{}]\t\t: Card Series: \t\t{}" if short else "GPU: {}\n    ASIC:\n        MARKET_NAME: {}\n"
    models = [form.format(at, machine.board.name) for at in range(len(shown))]
    (folder / "list.txt").write_text("\n".join(models) + "\n")
    return folder


_SPEEDS = {3: "8.0", 4: "16.0", 5: "32.0"}


def write_nccl(machine: Machine, folder: Path) -> Path:
    """As NCCL dumps its topology (NCCL_TOPO_DUMP_FILE): GPUs and ports that work, below bridges and CPUs."""
    folder.mkdir(parents=True, exist_ok=True)
    root = ElementTree.Element("system", version="1")
    cpus = [ElementTree.SubElement(root, "cpu", numaid=str(node)) for node in range(machine.numa)]
    bridges: dict[int, ElementTree.Element] = {}

    def device(parent: ElementTree.Element, bus: str, kind: str, width: int = 16) -> ElementTree.Element:
        speed = f"{_SPEEDS[machine.board.pcie]} GT/s PCIe"
        more = {"class": kind, "link_speed": speed, "link_width": str(width)}
        return ElementTree.SubElement(parent, "pci", {"busid": bus, **more})

    for dev, index in enumerate(machine.visible):
        at = index // machine.group
        bridges.setdefault(at, device(cpus[machine.numa_of(index)], f"0000:{at:02x}:1f.0", "0x060400"))
        pci = device(bridges[at], _bus(index), "0x030200", 16 >> _is(machine, "slow slot", index))
        gpu = ElementTree.SubElement(pci, "gpu", dev=str(dev), sm=machine.board.arch[3:])
        peers = [other for other in range(machine.gpus) if other != index and machine.links_between(index, other)]
        for peer in peers if machine.board.hive else ():
            count = str(machine.links_between(index, peer))
            ElementTree.SubElement(gpu, "nvlink", target=_bus(peer), count=count, tclass="0x030200")
        if peers and not machine.board.hive:
            count = str(machine.board.links)
            ElementTree.SubElement(gpu, "nvlink", target="ffff:ff:ff.0", count=count, tclass="0x068000")
    for at, name in enumerate(machine.names):
        bridge = bridges[machine.gpu_of(at) // machine.group]
        kind = "0x020700" if machine.kind == "InfiniBand" else "0x020000"
        nic = ElementTree.SubElement(device(bridge, f"0000:{at:02x}:1e.0", kind), "nic")
        ElementTree.SubElement(nic, "net", name=name, speed=str(1000 * _gbps(machine, at)))
    (folder / "system.txt").write_text(ElementTree.tostring(root, "unicode"))
    return folder


def cut(folder: Path, rng: random.Random) -> Path:
    """The same with one file that ends in the middle."""
    file = rng.choice(sorted(folder.iterdir()))
    text = file.read_text()
    file.write_text(text[: rng.randrange(len(text))])
    return folder
