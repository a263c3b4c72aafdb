"""NICs: which GPU uses which, by `nvidia-smi topo -m` or the PCI tree, and what joins those of the nodes.

What joins nodes, as topology.yaml says it, is from ibnetdiscover, LLDP, or the topology plugin of Slurm. Rates and
counts of trunks are in the first only. Where they are not known, the file says how large the system is (`fabric`), and
which node is plugged in where stays open.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError, refused
from fabricheck.site.found import Association, FoundGpu, FoundLink, FoundNic
from fabricheck.site.nvidia import TopoTable
from fabricheck.site.slurm import Slurm
from fabricheck.site.software import NodeSoftware
from fabricheck.topology.network import fold

# Gb/s of data of one lane (InfiniBand Architecture Specification; ibnetdiscover's names of speeds).
_LANE_GBPS = {"SDR": 2, "DDR": 4, "QDR": 8, "FDR10": 10, "FDR": 13.64, "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200}
_HEAD = re.compile(r'^(Switch|Ca|Rt)\s+\d+\s+"([SHR]-[0-9a-f]+)"\s+#\s+"([^"]*)"', re.MULTILINE)
_CABLE = re.compile(r'^\[(\d+)\](?:\([0-9a-f]+\))?\s+"([SHR]-[0-9a-f]+)"\[(\d+)\].*?(\d+)x(\w+)\s*$', re.MULTILINE)
_LLDP = re.compile(r"^(?:(\S+?): ?)?lldp\.([\w.-]+?)\.chassis\.name=(.+?)\s*$", re.MULTILINE)


def network_of_slurm(slurm: Slurm, nodes: Sequence[str], nics: Sequence[FoundNic]) -> dict[str, Any]:
    """Of Slurm's switches: the network where all nodes are on one and have one port; else how large the system is."""
    wanted = set(nodes)
    leaves = [each for each in slurm.switches if wanted & set(each.nodes)]
    source = f"scontrol show topology ({slurm.plugin or 'topology plugin'})"
    if not leaves:
        return {"fabric": {"nodes": len(nodes), "source": "sinfo"}} if len(nodes) > 1 else {}
    if len(leaves) == 1 and len(nics) == 1 and wanted == set(leaves[0].nodes) and nics[0].rate_gbps is not None:
        ports = {node: {nics[0].name: leaves[0].name} for node in nodes}
        return {"network": _one_level(ports, nics, source)}
    return {"fabric": {"nodes": len(nodes), "source": source}}


def network_of_lldp(file: Path, nodes: Sequence[str], nics: Sequence[FoundNic]) -> dict[str, Any]:
    """Of `clush -w NODES lldpctl -f keyvalue`, lines as `nid001: lldp.hsn0.chassis.name=leaf1`.

    Raises UserError for a file without such lines.
    """
    # LLDP knows interfaces, and RDMA its devices: eth0 is mlx5_0's.
    names = {name: nic.name for nic in nics for name in (*nic.interfaces, nic.name)}
    ports: dict[str, dict[str, str]] = defaultdict(dict)
    others: set[str] = set()
    for node, port, switch in _LLDP.findall(_read(file)):
        if port not in names:
            others.add(port)
        elif not nodes or node in nodes:
            ports[node or (nodes[0] if len(nodes) == 1 else "")][names[port]] = _name(switch)
    if not ports or "" in ports:
        line = f"nid001: lldp.{min(names, default='hsn0')}.chassis.name=leaf1"
        has = f"; it has {', '.join(sorted(others)[:4])}, which are not in the capture" if others else ""
        raise UserError(f"{file}: has no line such as `{line}`{has}: capture the node again for the interfaces of its "
                        "NICs, and give the output of `clush -w NODES lldpctl -f keyvalue`")  # fmt: skip
    source = f"LLDP, {file.name}"
    switches = {switch for of_node in ports.values() for switch in of_node.values()}
    if len(switches) == 1 and all(nic.rate_gbps is not None for nic in nics):
        return {"network": _one_level(ports, nics, source)}
    return {"fabric": {"nodes": len(ports), "source": source}}


def _one_level(ports: Mapping[str, Mapping[str, str]], nics: Sequence[FoundNic], source: str) -> dict[str, Any]:
    known = {nic.name: nic for nic in nics}
    cables = {
        (f"{node}:{nic}", switch, known[nic].model, known[nic].rate_gbps or 0.0): 1
        for node, of_node in ports.items()
        for nic, switch in of_node.items()
    }
    return _of_cables(cables, [near for near, *_ in cables], source)


def network_of_ibnetdiscover(file: Path, nodes: Sequence[str], nics: Sequence[FoundNic]) -> dict[str, Any]:
    """Every cable of an InfiniBand fabric, of those of `nodes` (none: all), by the output of `ibnetdiscover`.

    A node's ports are found by its name and the NIC's (`"nid001 mlx5_0"`). Raises UserError for another file, or where
    no port of the nodes is in it.
    """
    text = _read(file)
    heads = list(_HEAD.finditer(text))
    if not heads:
        raise UserError(f"{file}: has no switches and adapters: it is not the output of ibnetdiscover")
    names = {nic.name for nic in nics}
    titles = _titles(heads)
    cables: Counter[tuple[str, str, str, float]] = Counter()
    for at, head in enumerate(heads):
        end = heads[at + 1].start() if at + 1 < len(heads) else len(text)
        for cable in _CABLE.finditer(text, head.end(), end):
            ends = [_end(each, titles, names, nodes) for each in (head[2], cable[2])]
            if head[1] != "Switch" or None in ends:
                continue  # each cable of an adapter stands at its switch, too
            rate = int(cable[4]) * _LANE_GBPS.get(cable[5], 0.0)
            near, far = sorted(map(str, ends), key=lambda name: ":" not in name)
            cables[near, far, f"{cable[4]}x{cable[5]}", rate] += 1
    ports = [one for one, *_ in cables if ":" in one]
    if not ports:
        example = f"{nodes[0] if nodes else 'nid001'} {min(names, default='mlx5_0')}"
        raise UserError(f"{file}: names no port of this system's nodes, such as {example!r}")
    return {"network": _of_cables(cables, ports, f"ibnetdiscover, {file.name}")}


def _titles(heads: Sequence[re.Match[str]]) -> dict[str, tuple[str, str]]:
    """By GUID whether it is a Switch or Ca, and a name: of two switches with one name, the GUID too."""
    titles = {head[2]: (head[1], head[3]) for head in heads}
    often = Counter(_name(title) for kind, title in titles.values() if kind == "Switch")
    return {
        guid: (kind, (_name(title) if often[_name(title)] == 1 else f"{_name(title)}-{guid[-6:]}"))
        if kind == "Switch"
        else (kind, title)
        for guid, (kind, title) in titles.items()
    }


def _end(guid: str, titles: Mapping[str, tuple[str, str]], nics: set[str], nodes: Sequence[str]) -> str | None:
    """A switch, or `NODE:NIC`; None for what is neither."""
    kind, title = titles.get(guid, ("", ""))
    if kind == "Switch":
        return title
    words = title.split()
    host = words[0].partition(".")[0] if words else ""
    known = len(words) > 1 and words[-1] in nics and (not nodes or host in nodes)
    return f"{host}:{words[-1]}" if known else None


def _of_cables(cables: Mapping[tuple[str, str, str, float], int], ports: Sequence[str], source: str) -> dict[str, Any]:
    """The field `network`. Between two switches each cable was seen from both ends."""
    links: dict[tuple[str, str, float, int], list[tuple[str, str]]] = defaultdict(list)
    both: Counter[tuple[str, str, str, float]] = Counter()
    for (near, far, technology, rate), count in cables.items():
        if ":" in near:
            nic = near.partition(":")[2]
            links[nic, technology, rate, 1].append((near, far))
        else:
            both[min(near, far), max(near, far), technology, rate] += count
    for (near, far, technology, rate), count in both.items():
        links["", technology, rate, max(1, count // 2)].append((near, far))
    ends: set[str] = set()
    for joined in links.values():
        ends.update(*joined)
    switches = sorted(end for end in ends if ":" not in end)
    written = []
    for (nic, technology, rate, count), pairs in links.items():
        by_switch: dict[str, list[str]] = defaultdict(list)
        for near, far in pairs:
            by_switch[far].append(near.partition(":")[0])
        named = [[f"{fold(nodes)}:{nic}" if nic else fold(nodes), switch] for switch, nodes in by_switch.items()]
        more = {"count": count} if count > 1 else {}
        written.append({"technology": technology, **more, "rate": f"{rate:g} Gb/s", "source": source, "pairs": named})
    nodes = fold(dict.fromkeys(port.partition(":")[0] for port in ports))
    return {"nodes": nodes, "switches": [{"name": each} for each in switches], "links": written}


def _name(title: str) -> str:
    """Of `MF0;leaf1:IS5030/U1` leaf1; else the title with what a name may not have replaced."""
    match = re.fullmatch(r"\w+;([\w.-]+):.*", title)
    name = match[1] if match else title
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-_.") or "switch"


def _read(file: Path) -> str:
    with refused(f"{file}:", "read"):
        return file.read_text(encoding="utf-8", errors="replace")


# Nearest first: one bridge, several bridges, the same host bridge, the same NUMA node, the other socket.
_LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")
_CONSUMER = re.compile(r"GeForce|TITAN")


def gpudirect(
    vendor: str,
    gpus: Sequence[FoundGpu],
    nics: Sequence[FoundNic],
    links: Sequence[FoundLink],
    *,
    software: NodeSoftware,
    association: Association,
) -> tuple[str, str] | None:
    """Whether all channels of NCCL or RCCL, some or none use GPUDirect RDMA by default, and why; None for all of them,
    or where nothing states how near the NICs are.

    As ncclTopoCheckGdr of NCCL's src/graph/paths.cc has it: up to a PCIe switch in common (PXB); beyond that through
    NVLink-C2C, from 2.27 on. RCCL takes a host bridge in common too (PHB). GPUs before Ampere without NVLink do not
    send by it.
    """
    nvlinked = {end for link in links if link.technology.startswith("NVLink") for end in link.ends}
    if vendor == "nvidia" and all(_CONSUMER.search(gpu.model) for gpu in gpus):
        return "none", "NVIDIA's GPUDirect RDMA documentation: data center and professional GPUs only"
    if vendor == "nvidia" and not nvlinked and all(nic.model.startswith("EFA") for nic in nics):
        return "none", "AWS documentation of EFA: GPUDirect RDMA on P instances only"
    if vendor not in ("nvidia", "amd") or not association.distances:
        return None
    source = association.source
    enough = _LEVELS.index("PHB" if vendor == "amd" else "PXB")
    by_c2c = {end for link in links if link.technology == "NVLink-C2C" for end in link.ends}
    newer = software.ccl is not None and _version(software.ccl[1]) >= (2, 27)
    near = [
        _LEVELS.index(level) <= enough or (newer and f"gpu{index}" in by_c2c and level != "SYS")
        for index, level in association.distances.items()
    ]
    levels = ", ".join(sorted(set(association.distances.values()), key=_LEVELS.index))
    library = "RCCL" if vendor == "amd" else "NCCL"
    if not any(near):
        return "none", f"{source}: {levels}, beyond which {library} does not use GPUDirect RDMA by default"
    if not all(near):
        return "some", f"{source}: {levels}: {library} uses GPUDirect RDMA of some GPUs by default"
    old = [gpu for gpu in gpus if (arch := re.fullmatch(r"sm_(\d{2,3})[af]?", gpu.arch)) and int(arch[1]) < 80]
    if len(gpus) > 1 and any(f"gpu{gpu.index}" not in nvlinked for gpu in old):
        return "some", "before Ampere and without NVLink, NCCL receives by GPUDirect RDMA, and does not send by it"
    return None


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:3] if part.isdecimal())


def one_a_card(
    gpus: Sequence[FoundGpu],
    nics: tuple[FoundNic, ...],
    links: Sequence[FoundLink],
    table: TopoTable | None,
    notes: list[str],
) -> tuple[FoundNic, ...]:
    """The ports without those that `nvidia-smi topo -m` puts beside another behind one bridge (PIX), at the same GPU,
    where they together carry more than the GPU's own PCIe link: they are functions of one card, and share its port.
    """
    if table is None:
        return nics
    by_name = {nic.name: nic for nic in nics}
    carries = {link.ends[0]: link.total_gbps for link in links if link.technology.startswith("PCIe")}
    dropped: set[str] = set()
    for gpu in gpus:
        row = table.rows.get(gpu.index, {})
        first, *others = [name for name in by_name if row.get(name) == "PIX" and name not in dropped] or [""]
        together = sum(by_name[name].rate_gbps or 0.0 for name in (first, *others) if name)
        if others and together > carries.get(f"gpu{gpu.index}", together):
            beside = table.of_nics.get(first, {})
            dropped |= {name for name in others if beside.get(name) == "PIX" and _alike(by_name[name], by_name[first])}
    if dropped:
        notes.append(
            f"{', '.join(name for name in by_name if name in dropped)}: left out: virtual functions, or ports of the "
            "same card (ls /sys/class/infiniband/*/device/physfn)"
        )
    return tuple(nic for nic in nics if nic.name not in dropped)


def _alike(nic: FoundNic, other: FoundNic) -> bool:
    return (nic.model, nic.rate_gbps, nic.card) == (other.model, other.rate_gbps, other.card)


def associate(
    gpus: Sequence[FoundGpu], nics: tuple[FoundNic, ...], table: TopoTable | None
) -> tuple[Association | None, tuple[FoundNic, ...], list[str]]:
    """The association, the NICs that GPUs use in its order, and notes. Without GPUs all NICs stay, and nothing is said.

    As NCCL and MPI libraries do, each GPU takes of those that are equally near the one that fewest took before it.
    """
    if not gpus or not nics:
        return None, nics, []
    places, source = places_of(gpus, nics, table)
    if places is None:
        return (
            Association("dynamic", tuple(nic.name for nic in nics), "no source states which NIC is near which GPU"),
            nics,
            [],
        )
    near = {gpu.index: nearest(places[gpu.index]) for gpu in gpus}
    wanted = {name for names in near.values() for name in names}
    used = tuple(nic for nic in nics if nic.name in wanted)
    far = [nic.name for nic in nics if nic.name not in wanted]
    notes = [f"{', '.join(far)}: left out of the topology: near no GPU"] if far else []
    levels = {index: min(of_gpu.values())[1] for index, of_gpu in places.items()}
    levels = levels if all(levels.values()) else {}
    chosen = _dealt([near[gpu.index] for gpu in gpus])
    order = tuple(dict.fromkeys(name for names in chosen for name in names))
    scheme = _scheme(chosen, order) if len(order) == len(used) else "dynamic"
    if scheme != "dynamic":
        by_name = {nic.name: nic for nic in used}
        return Association(scheme, order, source, levels), tuple(by_name[name] for name in order), notes
    pairs = ", ".join(f"gpu{gpu.index}-{'/'.join(names)}" for gpu, names in zip(gpus, chosen, strict=True))
    notes.append(f"no scheme explains which NIC is near which GPU ({pairs}): it is treated as dynamic")
    return Association("dynamic", tuple(nic.name for nic in used), f"{source}: {pairs}", levels), used, notes


def _dealt(near: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Which NICs each GPU uses: its part of those that are near it and others, which fewest took before it."""
    shared = Counter(name for names in near for name in names)
    taken: Counter[str] = Counter()
    dealt = []
    for names in near:
        part = max(1, len(names) // max(shared[name] for name in names))
        own = sorted(names, key=lambda name: taken[name])[:part]
        taken.update(own)
        dealt.append(tuple(own))
    return dealt


def _scheme(chosen: Sequence[tuple[str, ...]], order: tuple[str, ...]) -> str:
    """The scheme by which each GPU has its NICs, `dynamic` where there is none."""
    gpus, nics = len(chosen), len(order)
    divides = gpus % nics == 0 or nics % gpus == 0
    several = max(1, nics // gpus)
    if divides and chosen == [order[at * nics // gpus :][:several] for at in range(gpus)]:
        return "one-to-one" if nics == gpus else "packed"
    in_turn = chosen == [(order[at % nics],) for at in range(gpus)]
    return "round-robin" if in_turn else "dynamic"


# How far a NIC is from a GPU: a number to compare, and in the words of `nvidia-smi topo -m`, empty where unknown.
_Place = tuple[int, str]


def nearest(places: Mapping[str, _Place]) -> list[str]:
    """The names with the least distance."""
    least = min(places.values())
    return [name for name, place in places.items() if place[0] == least[0]]


def places_of(
    gpus: Sequence[FoundGpu], nics: Sequence[FoundNic], table: TopoTable | None
) -> tuple[dict[int, dict[str, _Place]] | None, str]:
    """By GPU and NIC how far they are from each other, and who says so; None where no source states all of it."""
    for source, read in _SOURCES.items() if nics else ():
        places: dict[int, dict[str, _Place]] = {}
        for gpu in gpus:
            row = table.rows.get(gpu.index, {}) if table is not None else {}
            known = {nic.name: place for nic in nics if (place := read(gpu, nic, row)) is not None}
            if len(known) == len(nics):
                places[gpu.index] = known
        if len(places) == len(gpus):
            return places, source
    return None, ""


def _by_table(gpu: FoundGpu, nic: FoundNic, row: Mapping[str, str]) -> _Place | None:
    level = row.get(nic.name, "")
    return (_LEVELS.index(level), level) if level in _LEVELS else None


def _by_bridges(gpu: FoundGpu, nic: FoundNic, row: Mapping[str, str]) -> _Place | None:
    """By the bridges in common, the first of which is the root complex; a NUMA node in common is the next best."""
    if not gpu.pci or not nic.pci:
        return None
    shared = 0
    for bridge, other in zip(gpu.pci.split("/"), nic.pci.split("/"), strict=False):
        if bridge != other:
            break
        shared += 1
    same_numa = gpu.numa == nic.numa
    level = "PXB" if shared > 1 else "PHB" if shared else "NODE" if same_numa else "SYS"
    return -2 * shared - same_numa, level


def _by_numa(gpu: FoundGpu, nic: FoundNic, row: Mapping[str, str]) -> _Place | None:
    """NUMA nodes tell only what is far."""
    if gpu.numa is None or nic.numa is None:
        return None
    return (0, "") if gpu.numa == nic.numa else (1, "SYS")


_SOURCES: Mapping[str, Callable[[FoundGpu, FoundNic, Mapping[str, str]], _Place | None]] = {
    "nvidia-smi topo -m": _by_table,
    "the PCI tree in /sys": _by_bridges,
    "NUMA nodes in /sys": _by_numa,
}
