"""What joins the nodes, as topology.yaml says it: from ibnetdiscover, LLDP, or Slurm's topology plugin.

Rates and counts of trunks are in the first only. Where they are not known, the file says how large the system is
(`fabric`), and which node is plugged in where stays open.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError, refused
from fabricheck.site.found import FoundNic
from fabricheck.site.slurm import Leaf, Slurm
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
    return {"fabric": _size(len(nodes), leaves, wanted, source)}


def _size(nodes: int, leaves: Sequence[Leaf], wanted: set[str], source: str) -> dict[str, Any]:
    counts = {len(wanted & set(each.nodes)) for each in leaves}
    size = {"nodes_per_leaf": counts.pop()} if len(counts) == 1 else {}
    return {"nodes": nodes, **size, "source": source}


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
    switches = Counter(switch for of_node in ports.values() for switch in of_node.values())
    if len(switches) == 1 and all(nic.rate_gbps is not None for nic in nics):
        return {"network": _one_level(ports, nics, source)}
    leaves = [
        Leaf(name, tuple(node for node, found in ports.items() if name in found.values()), ()) for name in switches
    ]
    fabric = _size(len(ports), leaves, set(ports), source)
    counts = {len(set(found.values())) for found in ports.values()}
    return {"fabric": {**fabric, **({"switches_per_node": counts.pop()} if len(counts) == 1 else {})}}


def _one_level(ports: Mapping[str, Mapping[str, str]], nics: Sequence[FoundNic], source: str) -> dict[str, Any]:
    by_cable: dict[tuple[str, str, float], list[str]] = defaultdict(list)
    rates = {nic.name: nic for nic in nics}
    for node, switch_by_port in ports.items():
        for nic, switch in switch_by_port.items():
            by_cable[nic, switch, rates[nic].rate_gbps or 0.0].append(node)
    switches = sorted({switch for _, switch, _ in by_cable})
    links = [
        {
            "technology": rates[nic].model,
            "rate": f"{rate:g} Gb/s",
            "source": source,
            "pairs": [[f"{fold(nodes)}:{nic}", switch]],
        }
        for (nic, switch, rate), nodes in by_cable.items()
    ]
    return {"nodes": fold(ports), "switches": [{"name": each} for each in switches], "links": links}


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
    switches = sorted({end for found in links.values() for pair in found for end in pair if ":" not in end})
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
