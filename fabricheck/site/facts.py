"""Reads captured answers into what a site's files are made of."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import networkx as nx

from fabricheck.errors import UserError, reason_of
from fabricheck.site.found import (
    FoundGpu,
    FoundLink,
    FoundNic,
    NodeFacts,
    cpu_of,
    known_numa,
    pcie_generation,
    pcie_link,
)
from fabricheck.site.nics import associate, gpudirect, one_a_card
from fabricheck.site.nvidia import TopoTable, from_nvidia_topo, from_nvml, nvlink_domain, read_topo, switch_reduces
from fabricheck.site.other_gpus import from_kfd, from_rocm_topo, from_xpu_smi, read_json
from fabricheck.site.shapes import find_nearest_shape
from fabricheck.site.slurm import as_captured, read_slurm
from fabricheck.site.software import NodeSoftware, software_of
from fabricheck.state import capture

NVIDIA_SMI_TOPO = "nvidia-smi topo -m"
LSCPU = "lscpu"
IBSTAT = "ibstat"
SINFO = "sinfo"
SRUN_MPI = "srun --mpi=list"
SCONTROL_CONFIG = "scontrol show config"
# By the tool, what only its output has.
_MARKS = {
    NVIDIA_SMI_TOPO: re.compile(r"^[ \t\x1b\[\dm]*GPU0[ \t].*\n[ \t\x1b\[\dm]*GPU0\b", re.MULTILINE),
    LSCPU: re.compile(r"^ *NUMA node\(s\): ", re.MULTILINE),
    IBSTAT: re.compile(r"^CA '\S+'$", re.MULTILINE),
    SINFO: re.compile(r"^(?=.*\bPARTITION\b)(?=.*\bNODELIST\b)|^[^|\s]+\|\d+(?:\|[^|\s]+){4}$", re.MULTILINE),
    SRUN_MPI: re.compile(r"^MPI plugin types are", re.MULTILINE),
    SCONTROL_CONFIG: re.compile(r"^Configuration data as of ", re.MULTILINE),
}
TOOLS = ", ".join(f"`{tool}`" for tool in _MARKS)
# Outputs of hundreds of nodes are smaller; logs and archives beside them are not looked at.
_MOST_BYTES = 1 << 20


def pasted_texts(directory: Path) -> dict[str, Path]:
    """By the tool, the file with its output. Raises UserError where two files have the output of one tool."""
    texts: dict[str, Path] = {}
    for file in sorted(directory.iterdir()):
        if file.name in capture.FILES or not file.is_file() or file.stat().st_size > _MOST_BYTES:
            continue
        text = _text(file)
        for tool, mark in _MARKS.items():
            if not mark.search(text):
                continue
            if tool in texts:
                both = f"{texts[tool].name} and {file.name}"
                raise UserError(f"{directory}: {both} both have the output of `{tool}`: keep that of one node")
            texts[tool] = file
    return texts


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _fields(text: str) -> dict[str, str]:
    """The values of lines such as `Rate: 400` by their names."""
    return {
        name.strip(): value.strip()
        for name, colon, value in (line.partition(":") for line in text.splitlines())
        if colon
    }


def numa_of_lscpu(file: Path) -> dict[str, Any]:
    """As `fabricheck.state.capture.numa_facts`."""
    fields = _fields(_text(file))
    nodes = [
        {"index": int(match[1]), "cpus": cpus}
        for name, cpus in fields.items()
        if (match := re.fullmatch(r"NUMA node(\d+) CPU\(s\)", name)) and cpus
    ]
    sockets = int(fields.get("Socket(s)", 1))
    return {"nodes": nodes, "cores": int(fields.get("Core(s) per socket", 0)) * sockets, "sockets": sockets}


def nics_of_ibstat(file: Path) -> list[dict[str, Any]]:
    """As `fabricheck.state.capture.nic_facts`, of the active ports; ibstat names no NUMA node and no PCI address."""
    nics = []
    _, *cards = re.split(r"^CA '(\S+)'$", _text(file), flags=re.MULTILINE)
    for name, card in zip(cards[::2], cards[1::2], strict=True):
        about, *ports = re.split(r"^[ \t]+Port (\d+):$", card, flags=re.MULTILINE)
        for number, text in zip(ports[::2], ports[1::2], strict=True):
            port = _fields(text)
            if port.get("State") == "Active":
                nics.append(
                    {
                        "name": name if number == "1" else f"{name}_{number}",
                        "kind": port.get("Link layer", "InfiniBand"),
                        "rate": f"{port['Rate']} Gb/sec" if "Rate" in port else None,
                        "numa_node": None,
                        "card": "".join(re.findall(r"CA type: (\S+)", about)),
                    }
                )
    return nics


def slurm_of_texts(texts: Mapping[str, Path]) -> dict[str, str]:
    """As `fabricheck.state.capture.ask_slurm`."""
    outputs = {"mpi": SRUN_MPI, "config": SCONTROL_CONFIG}
    captured = {name: _text(texts[tool]) for name, tool in outputs.items() if tool in texts}
    return {**captured, "sinfo": _rows_of_sinfo(_text(texts[SINFO]))} if SINFO in texts else captured


def _rows_of_sinfo(text: str) -> str:
    """`partition|nodes|gres|names||state` of a table whose header names its columns; without a header, the text."""
    header, *rows = [line.replace("|", " ").split() for line in text.splitlines() if line.strip()] or [[]]
    if "NODELIST" not in header:
        return text
    cells = [dict(zip(header, row, strict=False)) for row in rows]
    return "\n".join(
        "|".join([row["PARTITION"].rstrip("*"), row.get("NODES", ""), row.get("GRES", ""), row["NODELIST"], "", ""])
        for row in cells
        if {"PARTITION", "NODELIST"} <= row.keys()
    )


#: What is written for UPI, or AMD's Infinity Fabric between sockets.
BETWEEN_CPUS = "link between CPUs"
_TELLING = (
    capture.NVML,
    capture.NVIDIA_TOPO,
    capture.AMD,
    capture.ROCM_SMI_TOPO,
    capture.XPU_SMI_TOPO,
    capture.LSTOPO,
    capture.NUMA,
    capture.NICS,
)


def read_facts(directory: Path) -> NodeFacts:
    """Everything that the captures in a directory tell. Raises UserError if there are none, or one is not readable."""
    if not directory.is_dir():
        raise UserError(f"{directory}: is not a directory of captures: make one with `fabricheck capture {directory}`")
    try:
        return _read_facts(directory)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as error:
        reason = f"a capture is not as `fabricheck capture` or its tool writes it ({reason_of(error)})"
        raise UserError(f"{directory}: {reason}: capture the node again") from None


def _read_facts(directory: Path) -> NodeFacts:
    notes: dict[str, list[str]] = defaultdict(list)
    problems: list[str] = [*map(str, read_json(directory / capture.PROBLEMS) or [])]
    pasted = pasted_texts(directory)
    numa_nodes, cores, sockets = _numa(directory, pasted)
    topo = pasted.get(NVIDIA_SMI_TOPO, directory / capture.NVIDIA_TOPO)
    table = read_topo(topo, problems) if topo.exists() else None
    vendor, gpus, links = _gpus(directory, table, numa_nodes, notes["links"], problems)
    if table is not None and any(gpu.model == "unknown" for gpu in gpus):
        notes["gpus"].append("nvidia-smi topo names no models and no architectures: fill in model and arch")
    links += _between_cpus(gpus, links, numa_nodes)
    ports = read_json(directory / capture.NICS) or (nics_of_ibstat(pasted[IBSTAT]) if IBSTAT in pasted else [])
    nics = one_a_card(gpus, _nics(ports, notes["nics"]), links, table, notes["nics"])
    host = read_json(directory / capture.HOST) or {}
    on_bus = read_json(directory / capture.PCI_GPUS) or []
    software = _software(directory)
    if not gpus and not numa_nodes and not nics:
        some = f"none of {', '.join(_TELLING)}, and no text of {TOOLS}"
        raise UserError(f"{directory}: has no captures of GPUs, NICs or NUMA domains: {some}")
    association, nics, of_nics = associate(gpus, nics, table)
    notes["nic_association"] += of_nics
    links += _to_nics(gpus, nics, numa_nodes, notes["links"])
    gdr = None
    if association is not None:
        gdr = gpudirect(vendor, gpus, nics, links, software=software, association=association)
    like = find_nearest_shape(gpus, nics)
    if gdr is not None and like is not None and not like.lacks and all("C2C" not in one.technology for one in links):
        # In a guest the PCI tree is flat, and NCCL is given a topology file; the product has its NICs behind switches.
        notes["gpudirect_rdma"].append(
            f"NCCL would not use GPUDirect RDMA everywhere by distance ({gdr[1]}); {like.name} has it, so it is "
            "expected everywhere, else give gpudirect_rdma in topology.yaml"
        )
        gdr = None
    if gdr is not None:
        channels = "no channel" if gdr[0] == "none" else "some channels"
        notes["gpudirect_rdma"].append(f"GPUDirect RDMA is expected of {channels}: {gdr[1]}")
    unrated = [link.technology for link in links if link.rate_gbps is None]
    notes["links"] += [f"the rate of {technology} is not in the captures" for technology in unrated]
    if any(link.technology == BETWEEN_CPUS for link in links):
        notes["links"].append(
            "GPUs of different NUMA domains use the links between CPUs: give their total rate in one direction (UPI, "
            "Infinity Fabric; the CPU's data sheet)"
        )
    notes["nics"] += [f"the rate of {one.name} is not in the captures" for one in nics if one.rate_gbps is None]
    return NodeFacts(
        hostname=str(host.get("hostname", "")),
        vendor=vendor,
        gpus=gpus,
        numa_nodes=numa_nodes or (0,),
        cores=cores,
        sockets=sockets,
        nics=nics,
        links=tuple(links),
        has_switch=any("nvswitch" in link.ends for link in links),
        switch_reduces=switch_reduces(links),
        notes_at={place: tuple(dict.fromkeys(lines)) for place, lines in notes.items()},
        problems=tuple(dict.fromkeys(problems)),
        association=association,
        software=software,
        unseen=0 if gpus else len(on_bus),
        on_bus=sum(one["vendor"] == vendor for one in on_bus),
        slurm=read_slurm(as_captured(read_json(directory / capture.SLURM) or slurm_of_texts(pasted))),
        gpudirect=gdr,
        nvlink_domain=nvlink_domain(gpus, links),
    )


def _gpus(
    directory: Path, table: TopoTable | None, numa_nodes: tuple[int, ...], notes: list[str], problems: list[str]
) -> tuple[str, tuple[FoundGpu, ...], list[FoundLink]]:
    """The vendor, GPUs and links, by the source that knows most."""
    on_bus = read_json(directory / capture.PCI_GPUS) or []
    nvml = read_json(directory / capture.NVML) or {}
    amd = read_json(directory / capture.AMD)
    tables = [directory / each for each in (capture.ROCM_SMI_TOPO, capture.AMD_SMI_TOPO) if (directory / each).exists()]
    if nvml.get("gpus"):
        numa = {one["bus_id"][-12:]: one["numa_node"] for one in on_bus if one["numa_node"] is not None}
        of_table = table.numa if table is not None else {}
        numa |= {gpu["bus_id"][-12:]: of_table[gpu["index"]] for gpu in nvml["gpus"] if gpu["index"] in of_table}
        speeds = {one["bus_id"][-12:]: pcie_generation(one.get("path_speed") or "") for one in on_bus}
        gpus, links = from_nvml(nvml["gpus"], numa, numa_nodes, problems, speeds)
        places = {one["bus_id"][-12:]: one["pci"] for one in on_bus}
        of_bus = {gpu["index"]: places.get(gpu["bus_id"][-12:]) for gpu in nvml["gpus"]}
        return "nvidia", tuple(replace(gpu, pci=of_bus[gpu.index]) for gpu in gpus), links
    if table is not None and table.rows:
        return "nvidia", *from_nvidia_topo(table, notes)
    if amd:
        return "amd", *from_kfd(amd, numa_nodes)
    if tables:
        return "amd", *from_rocm_topo(tables[0], numa_nodes, notes)
    tiles = directory / capture.XPU_SMI_TOPO
    if tiles.exists():
        more = (directory / capture.XPU_SMI_DISCOVERY, directory / capture.INTEL)
        return "intel", *from_xpu_smi(tiles, *more, notes)
    return "none", (), []


def _between_cpus(gpus: Sequence[FoundGpu], links: Sequence[FoundLink], numa_nodes: tuple[int, ...]) -> list[FoundLink]:
    """Links between NUMA domains, where GPUs reach each other by nothing else. Their rate is unknown."""
    graph = nx.Graph([link.ends for link in links])
    ends = [f"gpu{gpu.index}" for gpu in gpus]
    if len(numa_nodes) < 2 or len(ends) < 2 or not all(end in graph for end in ends):
        return []
    if len({frozenset(nx.node_connected_component(graph, end)) for end in ends}) == 1:
        return []
    pairs = itertools.combinations((f"numa{node}" for node in numa_nodes), 2)
    return [FoundLink(pair, BETWEEN_CPUS, 1, None, "FILL IN: the CPU's data sheet") for pair in pairs]


def _to_nics(
    gpus: Sequence[FoundGpu], nics: Sequence[FoundNic], numa_nodes: tuple[int, ...], notes: list[str]
) -> list[FoundLink]:
    """The links of NICs to their CPUs, where some GPU is at another CPU than one of them."""
    places = {known_numa(numa, numa_nodes) for numa in (*(gpu.numa for gpu in gpus), *(nic.numa for nic in nics))}
    if not gpus or len(places) < 2 or None in places or any(nic.pcie is None for nic in nics):
        return []
    notes.append(
        "GPUs and NICs are at different NUMA domains: nothing is expected of these until links between CPUs are given "
        "(UPI, Infinity Fabric; data sheet)"
    )
    return [pcie_link(nic.name, cpu_of(nic.numa, numa_nodes), *nic.pcie, "the kernel") for nic in nics if nic.pcie]


def _software(directory: Path) -> NodeSoftware:
    content = read_json(directory / capture.SOFTWARE)
    return software_of(content) if content else NodeSoftware()


def _numa(directory: Path, pasted: Mapping[str, Path]) -> tuple[tuple[int, ...], int, int]:
    """NUMA nodes that have cores, physical cores, sockets: from lstopo's XML, else from sysfs, else from lscpu."""
    path = directory / capture.LSTOPO
    if path.exists():
        try:
            root = ElementTree.parse(path).getroot()
        except ElementTree.ParseError as error:
            raise UserError(f"{path}: is not readable XML: {error}") from None
        objects = Counter(one.get("type") for one in root.iter("object"))
        indexes = tuple(
            sorted(
                int(one.get("os_index", "0"))
                for one in root.iter("object")
                if one.get("type") == "NUMANode" and one.get("cpuset", "0x1").strip("0x,")
            )
        )
        return indexes, objects["Core"], objects["Package"]
    numa = read_json(directory / capture.NUMA) or (numa_of_lscpu(pasted[LSCPU]) if LSCPU in pasted else None)
    if not numa:
        return (), 0, 0
    return tuple(one["index"] for one in numa["nodes"]), int(numa["cores"]), int(numa["sockets"])


def _nics(entries: Sequence[dict[str, Any]], notes: list[str]) -> tuple[FoundNic, ...]:
    """Ports of a high-speed network; of Ethernet ones the fastest, where there is nothing else. Virtual functions share
    the port of a physical one, and count where a guest or container has nothing else."""
    physical = [one for one in entries if not one.get("virtual")]
    if physical and len(physical) < len(entries):
        notes.append(f"{len(entries) - len(physical)} virtual functions are left out: they share ports")
    special = [one for one in physical or entries if one["kind"] != "net"]
    nics = [_nic(one) for one in special or physical or entries]
    if special:
        return _rails(nics, notes)
    fastest = max((one.rate_gbps or 0 for one in nics), default=0)
    return tuple(one for one in nics if one.rate_gbps == fastest)


def _rails(nics: Sequence[FoundNic], notes: list[str]) -> tuple[FoundNic, ...]:
    """Ports without those of a front-end or for management: of another network or card than most, slower, and few."""
    kinds: dict[tuple[str, str], list[FoundNic]] = {}
    for nic in nics:
        kinds.setdefault((nic.model.partition(" ")[0], nic.card), []).append(nic)

    def total(ports: Sequence[FoundNic]) -> float:
        return sum(nic.rate_gbps or 0.0 for nic in ports)

    main = max(kinds.values(), key=total)
    few = [
        nic.name
        for ports in kinds.values()
        if 2 * len(ports) < len(main) and max(nic.rate_gbps or 0.0 for nic in ports) < (main[0].rate_gbps or 0.0)
        for nic in ports
    ]
    if few:
        notes.append(f"{', '.join(few)}: left out as front-end: slower than the {len(main)} others and of another kind")
    return tuple(nic for nic in nics if nic.name not in few)


def _nic(reported: Mapping[str, Any]) -> FoundNic:
    match = re.match(r"([0-9.]+) Gb/sec|[A-Za-z]{2}_?([0-9]+)G", reported["rate"] or "")
    rate = float(match[1] or match[2]) if match else None
    kind = _kind(reported)
    # Slingshot and plain Ethernet are their own interfaces; what the kernel lists as an RDMA device has a rate's name.
    model = {"cxi": "Slingshot (cxi)", "net": "Ethernet"}.get(kind) or f"{kind} {reported['rate'] or ''}".strip()
    sources = {"cxi": "/sys/class/cxi", "net": "/sys/class/net"}
    source = sources.get(reported["kind"], "/sys/class/infiniband")
    more = str(reported.get("card") or ""), tuple(map(str, reported.get("interfaces") or ()))
    generation, width = pcie_generation(reported.get("link_speed") or ""), reported.get("link_width") or ""
    pcie = (generation, int(width)) if generation and width.isdecimal() else None
    return FoundNic(reported["name"], model, rate, reported["numa_node"], source, reported.get("pci"), *more, pcie)


def _kind(reported: Mapping[str, Any]) -> str:
    """The network of a port: an RDMA device whose link layer is Ethernet is RoCE; EFA has a link layer of its own."""
    name, driver = str(reported["name"]), str(reported.get("driver") or "")
    if driver == "efa" or (reported["kind"] == "Unspecified" and name.startswith(("rdmap", "efa"))):
        return "EFA"
    return {"Ethernet": "RoCE"}.get(reported["kind"], str(reported["kind"]))
