"""Reads captured answers into what a site's files are made of."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import networkx as nx

from fabricheck.errors import UserError, reason_of
from fabricheck.records.nic_families import family_of
from fabricheck.site import texts
from fabricheck.site.found import (
    FoundGpu,
    FoundLink,
    FoundNic,
    NodeFacts,
    cpu_of,
    known_numa,
    network_of,
    pcie_generation,
    pcie_link,
)
from fabricheck.site.nics import associate, gpudirect, one_a_card
from fabricheck.site.nominal import nominal, product_of
from fabricheck.site.nvidia import (
    TopoTable,
    entries_of_table,
    from_nvml,
    nvlink_domain,
    read_topo,
)
from fabricheck.site.other_gpus import entries_of_rocm, from_kfd, from_xpu_smi, read_json
from fabricheck.site.slurm import Slurm, as_captured, read_slurm
from fabricheck.site.software import NodeSoftware, software_of
from fabricheck.state import capture
from fabricheck.units import few

#: What is written for UPI, or AMD's Infinity Fabric between sockets.
BETWEEN_CPUS = "link between CPUs"
_TELLING = (
    capture.NVML,
    capture.AMD,
    capture.NUMA,
    capture.NICS,
)


def read_facts(directory: Path, accepted: Collection[str] = ()) -> NodeFacts:
    """The node of the captures in a directory as it should be, but for the doubts whose codes are `accepted`.

    Raises UserError if there are no captures, or one is not readable.
    """
    if not directory.is_dir():
        raise UserError(f"{directory}: is not a directory of captures: make one with `fabricheck capture {directory}`")
    try:
        return _associated(nominal(_read_facts(directory), accepted))
    except UserError as error:
        raise UserError(str(error) if str(directory) in str(error) else f"{directory}: {error}") from None
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as error:
        reason = f"a capture is not as `fabricheck capture` or its tool writes it ({reason_of(error)})"
        raise UserError(f"{directory}: {reason}: capture the node again") from None


def _read_facts(directory: Path) -> NodeFacts:
    """What the captures tell, before anything is concluded from it."""
    notes: list[str] = []
    problems: list[str] = [*map(str, read_json(directory / capture.PROBLEMS) or [])]
    pasted = texts.pasted_texts(directory)
    of_nccl = texts.read_nccl_topology(pasted[texts.NCCL_TOPOLOGY]) if texts.NCCL_TOPOLOGY in pasted else {}
    cpus, cores, sockets = _numa(directory, pasted, of_nccl.get("numa"))
    slurm = read_slurm(as_captured(read_json(directory / capture.SLURM) or texts.slurm_of_texts(pasted)))
    topo = pasted.get(texts.NVIDIA_SMI_TOPO)
    table = read_topo(topo, cpus) if topo else None
    numa_nodes = tuple(sorted({*cpus, *(table.numa.values() if table is not None else ())}))
    nvml = (read_json(directory / capture.NVML) or of_nccl.get("nvml") or {}).get("gpus", ())
    on_bus = read_json(directory / capture.PCI_GPUS) or []
    sliced = {gpu["index"] for gpu in nvml if gpu.get("mig")}
    sliced |= {*texts.sliced_of_list(pasted.get(texts.NVIDIA_SMI_LIST, ""))}
    problems += [_IN_MIG_MODE.format(index) for index in sorted(sliced)]
    sources = _Sources(directory, pasted, nvml, table, on_bus, frozenset(sliced), slurm, numa_nodes)
    vendor, gpus, links = _gpus(sources, notes)
    if any(gpu.model.startswith("unknown") for gpu in gpus):
        notes.append(_ASK_MODEL.get(vendor, "fill in model, and arch in settings.py"))
    ports = read_json(directory / capture.NICS) or of_nccl.get("nics")
    if ports is None:
        ports = texts.ports_of_ibstat(pasted[texts.IBSTAT]) if texts.IBSTAT in pasted else []
    named = {port["name"] for port in ports}
    if absent := [name for name in (table.nics if table is not None else ()) if name not in named]:
        is_verbs = "infiniband" in family_of(absent[0]).counters
        wanted = "the output of `ibstat`" if is_verbs else "what `fabricheck capture` writes"
        notes.append(f"{few(absent)}: in `{texts.NVIDIA_SMI_TOPO}` alone, without a rate: add {wanted}")
    nics = one_a_card(gpus, _nics(ports, notes), links, table, notes)
    if not (gpus or numa_nodes or nics or problems):
        some = f"none of {', '.join(_TELLING)}, and no text of {texts.TOOLS}"
        raise UserError(f"{directory}: has no captures of GPUs, NICs or NUMA domains: {some}")
    host = read_json(directory / capture.HOST) or {}
    return NodeFacts(
        hostname=str(host.get("hostname", "")),
        vendor=vendor,
        gpus=gpus,
        # Without a list of them, those that have GPUs.
        numa_nodes=numa_nodes or tuple(sorted({gpu.numa for gpu in gpus if gpu.numa is not None})) or (0,),
        cores=cores,
        sockets=sockets,
        nics=nics,
        links=tuple(links),
        notes=tuple(notes),
        problems=tuple(dict.fromkeys(problems)),
        software=_software(directory),
        unseen=0 if gpus else len(on_bus) or len(sliced),
        on_bus=tuple(one for one in on_bus if one["vendor"] == vendor),
        table=table,
        slurm=slurm,
    )


# What names the models of GPUs, where the source has none.
_ASK_MODEL = {
    "nvidia": "the models of the GPUs are not in the captures: add the output of `nvidia-smi -L` to the folder",
    "amd": "the models of the GPUs are not in the captures: add the output of `rocm-smi --showproductname`",
    "intel": "the models of the GPUs are not in the captures: add the output of `xpu-smi discovery -j`",
}


def _gres(slurm: Slurm | None, gpus: int) -> str:
    """The model of GPUs as Slurm's nodes with so many offer it, such as `H100`, else all nodes; empty where they offer
    none, or several."""
    partitions = slurm.partitions if slurm is not None else ()
    offered = {part.gres: part.gpus for part in partitions if part.gpus and part.gres and not part.slices}
    kinds = {kind for kind, count in offered.items() if count == gpus} or {*offered}
    words = re.sub(r"^(?:nvidia|amd|intel)[_-]", "", kinds.pop()) if len(kinds) == 1 else ""
    return words.replace("_", " ").upper()


def _associated(facts: NodeFacts) -> NodeFacts:
    """The node with what follows from its parts: which GPU uses which NIC, and notes."""
    notes = [*facts.notes]
    links = [*facts.links, *_between_cpus(facts.gpus, facts.links, facts.numa_nodes)]
    association, nics, of_nics = associate(facts.gpus, facts.nics, facts.table)
    notes += of_nics
    links += _to_nics(facts.gpus, nics, facts.numa_nodes, notes)
    gdr = None
    if association is not None:
        gdr = gpudirect(facts.vendor, facts.gpus, nics, links, software=facts.software, association=association)
    like = product_of(facts)
    if gdr is not None and like is not None and all("C2C" not in link.technology for link in links):
        # In a guest the PCI tree is flat, and NCCL is given a topology file; the product has its NICs behind switches.
        notes.append(
            f"NCCL would not use GPUDirect RDMA everywhere by distance ({gdr[1]}); {like.name} has it, so it is "
            "expected everywhere, else give gpudirect_rdma in topology.yaml"
        )
        gdr = None
    if gdr is not None:
        channels = "no channel" if gdr[0] == "none" else "some channels"
        notes.append(f"GPUDirect RDMA is expected of {channels}: {gdr[1]}")
    unrated = [link.technology for link in links if link.rate_gbps is None]
    notes += [f"the rate of {technology} is not in the captures" for technology in unrated]
    if any(link.technology == BETWEEN_CPUS for link in links):
        notes.append(
            "GPUs of different NUMA domains use the links between CPUs: give their total rate in one direction (UPI, "
            "Infinity Fabric; the CPU's data sheet)"
        )
    unrated = [nic.name for nic in nics if nic.rate_gbps is None]
    notes += [f"the rate of {few(unrated)} is not in the captures"] if unrated else []
    return replace(
        facts,
        nics=nics,
        links=tuple(links),
        notes=tuple(dict.fromkeys(notes)),
        association=association,
        gpudirect=gdr,
        nvlink_domain=nvlink_domain(facts.gpus, links),
    )


_Parts = tuple[tuple[FoundGpu, ...], list[FoundLink]]


_IN_MIG_MODE = "GPU {0} is in MIG mode and left out: switch it off: nvidia-smi -i {0} -mig 0"


@dataclass(frozen=True)
class _Sources:
    """What tells of GPUs: outputs of tools, entries in NVML's form, the table of `topo -m`, GPUs on the PCI bus, those
    in MIG mode (of which a program sees no whole GPU), Slurm, and the NUMA nodes."""

    directory: Path
    pasted: Mapping[str, str]
    nvml: Sequence[Mapping[str, Any]]
    table: TopoTable | None
    on_bus: Sequence[Mapping[str, Any]]
    sliced: frozenset[int]
    slurm: Slurm | None
    numa_nodes: tuple[int, ...]


def _gpus(sources: _Sources, notes: list[str]) -> tuple[str, tuple[FoundGpu, ...], list[FoundLink]]:
    """The vendor, GPUs and links, by the source that has most of them."""
    pasted, table, nvml, sliced = sources.pasted, sources.table, sources.nvml, sources.sliced
    listed = (pasted.get(tool, "") for tool in (texts.NVIDIA_SMI_LIST, texts.ROCM_SMI_NAMES))
    names = texts.names_of_list("\n".join(listed))
    names = {index: name for index, name in names.items() if index not in sliced}
    amd, of_amd = read_json(sources.directory / capture.AMD), "the kernel's KFD"
    rows = table.rows if table is not None else {}
    if not (nvml or rows or amd) and texts.ROCM_SMI_TOPO in pasted:
        amd, of_amd = entries_of_rocm(pasted[texts.ROCM_SMI_TOPO], names, notes), texts.ROCM_SMI_TOPO
    gres = _gres(sources.slurm, len(nvml or rows or amd or ()))
    whole = [index for index in rows if index not in sliced]
    if gres and not names and not nvml and (rows or (amd and not amd[0]["model"])):
        tools = f"`{texts.NVIDIA_SMI_LIST}`, `{texts.ROCM_SMI_NAMES}`"
        notes.append(f"{gres} is Slurm's name of the GPUs: the output of the tool ({tools}) has the whole one")
    if nvml:
        nvml = [gpu for gpu in nvml if gpu["index"] not in sliced]
        numa = table.numa if table is not None else {}
        return "nvidia", *from_nvml(nvml, sources.numa_nodes, sources.on_bus, numa, gres=gres, source="NVML")
    if table is not None and whole:
        entries = entries_of_table(table, whole, names, gres, notes)
        source = texts.NVIDIA_SMI_TOPO
        return "nvidia", *from_nvml(entries, sources.numa_nodes, sources.on_bus, table.numa, gres=gres, source=source)
    if amd:
        return "amd", *from_kfd(amd, sources.numa_nodes, gres, of_amd)
    if texts.XPU_SMI_TOPO in pasted:
        discovery = sources.directory / capture.XPU_SMI_DISCOVERY
        return "intel", *from_xpu_smi(pasted[texts.XPU_SMI_TOPO], discovery, sources.on_bus, notes)
    if names:
        tools = f"`{texts.NVIDIA_SMI_TOPO}` or `{texts.ROCM_SMI_TOPO}`"
        raise UserError(f"{len(names)} GPUs are named, and no source has their links: add the output of {tools}")
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
    if not gpus or not nics or len(places) < 2 or None in places or any(nic.pcie is None for nic in nics):
        return []
    notes.append(
        "GPUs and NICs are at different NUMA domains: nothing is expected of these until links between CPUs are given "
        "(UPI, Infinity Fabric; data sheet)"
    )
    return [pcie_link(nic.name, cpu_of(nic.numa, numa_nodes), *nic.pcie, "the kernel") for nic in nics if nic.pcie]


def _software(directory: Path) -> NodeSoftware:
    content = read_json(directory / capture.SOFTWARE)
    return software_of(content) if content else NodeSoftware(unknown=True)


def _numa(
    directory: Path, pasted: Mapping[str, str], of_nccl: Mapping[str, Any] | None
) -> tuple[Mapping[int, str], int, int]:
    """NUMA nodes that have cores, with Linux's list of these, physical cores, sockets: from sysfs, lscpu, or NCCL's
    file."""
    numa = read_json(directory / capture.NUMA)
    if not numa:
        numa = texts.numa_of_lscpu(pasted[texts.LSCPU]) if texts.LSCPU in pasted else of_nccl
    if not numa:
        return {}, 0, 0
    return {one["index"]: str(one["cpus"]) for one in numa["nodes"]}, int(numa["cores"]), int(numa["sockets"])


def _nics(entries: Sequence[dict[str, Any]], notes: list[str]) -> tuple[FoundNic, ...]:
    """Ports of a high-speed network; of Ethernet ones the fastest, where there is nothing else. Virtual functions share
    the port of a physical one, and count where a guest or container has nothing else."""
    physical = [one for one in entries if not one.get("virtual")]
    if physical and len(physical) < len(entries):
        notes.append(f"{len(entries) - len(physical)} virtual functions are left out: they share ports")
    special = [one for one in physical or entries if one["kind"] != "net"]
    ports = [_nic(one) for one in special or physical or entries]
    nics = _of_cards([nic for nic in ports if nic.up], notes)
    if not special:
        fastest = max((one.rate_gbps or 0 for one in nics), default=0)
        return tuple(one for one in nics if one.rate_gbps == fastest)
    rails = _rails(nics, notes)
    wanted = [nic for nic in ports if not nic.up and _is_missed(nic, rails)]
    named = [nic.name for nic in ports]
    return tuple(sorted((*rails, *wanted), key=lambda nic: named.index(nic.name)))


def _is_missed(nic: FoundNic, rails: Sequence[FoundNic]) -> bool:
    """Whether a port that is down should be up: its card is like those of the others, and has no port that is up. Of
    cards with two ports the second is often unused."""
    alike = any((nic.card, network_of(nic)) == (one.card, network_of(one)) for one in rails)
    return alike and _card(nic) not in {_card(one) for one in rails}


def _card(nic: FoundNic) -> str:
    """The card of a port: by its system's GUID, else by its place without the function, else the port itself."""
    return nic.system_guid or (nic.pci or nic.name).rpartition(".")[0] or nic.name


def _of_cards(nics: Sequence[FoundNic], notes: list[str]) -> list[FoundNic]:
    """The ports with the least rate of port, PCIe and cable. Functions whose PCIe carries less than their port, and
    that are the same function of the same card in several slots or PCI domains, drive one cable together."""
    limits = {nic.name: pcie_link(nic.name, "", *nic.pcie, "").rate_gbps for nic in nics if nic.pcie is not None}
    cables: dict[tuple[str, ...], list[FoundNic]] = defaultdict(list)
    for nic in nics:
        limit, place = limits.get(nic.name), (nic.pci or "").rpartition("/")[2] or _place_in(nic.name)
        cable: tuple[str, ...] = (nic.name,)
        if place and limit is not None and limit < (nic.rate_gbps or 0.0):
            cable = (nic.system_guid, place[-1:]) if nic.system_guid else (nic.card, place[5:])
        elif place and limit is None and nic.system_guid:
            cable = nic.system_guid, place[5:]  # of other slots and functions the cables may be several
        cables[cable].append(nic)
    at_most = {}
    together = []
    for of_cable in cables.values():
        together += [nic.name for nic in of_cable] if len(of_cable) > 1 else []
        for nic in of_cable:
            part = nic.rate_gbps and min(nic.rate_gbps / len(of_cable), limits.get(nic.name) or nic.rate_gbps)
            at_most[nic.name] = replace(nic, rate_gbps=part)
    if together:
        notes.append(f"{few(together)}: functions of one card share its cable, and each counts as its part of it")
    return [at_most[nic.name] for nic in nics]


# systemd's and udev's names of ports by their place: roceP2p1s0f1 is function 1 of slot 0 of bus 1 of PCI domain 2.
_BY_PLACE = re.compile(r"(?:roce|ib|en)(?:P(\d+))?p(\d+)s(\d+)f(\d)\w*")


def _place_in(name: str) -> str:
    """The PCI address that the name of a port tells; empty where it tells none."""
    match = _BY_PLACE.fullmatch(name)
    domain, bus, slot, function = (int(number or 0) for number in match.groups()) if match else (0, 0, 0, 0)
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function}" if match else ""


# RDMA device ids of BlueField (the kernel's hca_type): DPUs for the host's storage and front-end.
_DPU = re.compile(r"MT4168[26]|MT41692|BlueField")


def _rails(nics: Sequence[FoundNic], notes: list[str]) -> tuple[FoundNic, ...]:
    """Ports without those of a front-end or for management: of another network than most, which no rail reaches, or of
    another card, slower, and few."""
    kinds: dict[tuple[str, str], list[FoundNic]] = {}
    for nic in nics:
        kinds.setdefault((network_of(nic), nic.card), []).append(nic)

    def total(ports: Sequence[FoundNic]) -> float:
        return sum(nic.rate_gbps or 0.0 for nic in ports)

    if not kinds:
        return ()
    main = max(kinds.values(), key=total)
    rate = main[0].rate_gbps or 0.0
    front: list[str] = []
    for ports in kinds.values():
        slower = max(nic.rate_gbps or 0.0 for nic in ports) < rate and 2 * len(ports) < len(main)
        is_other = network_of(ports[0]) != network_of(main[0])
        if ports is not main and (is_other or slower or _DPU.search(ports[0].card)):
            front += [nic.name for nic in ports]
    if front:
        text = f"left out as front-end: a DPU, or of another network, or slower and fewer than the {len(main)} others"
        notes.append(f"{few(front)}: {text}")
    return tuple(nic for nic in nics if nic.name not in front)


def _nic(reported: Mapping[str, Any]) -> FoundNic:
    match = re.match(r"([0-9.]+) Gb/sec|[A-Za-z]{2}_?([0-9]+)G", reported["rate"] or "")
    rate = float(match[1] or match[2]) if match else None
    kind = _kind(reported)
    # Slingshot and plain Ethernet are their own interfaces; what the kernel lists as an RDMA device has a rate's name.
    model = {"cxi": "Slingshot (cxi)", "net": "Ethernet"}.get(kind) or f"{kind} {reported['rate'] or ''}".strip()
    sources = {"cxi": "/sys/class/cxi", "net": "/sys/class/net"}
    source = sources.get(reported["kind"], "/sys/class/infiniband")
    generation, width = pcie_generation(reported.get("link_speed") or ""), reported.get("link_width") or ""
    is_up = bool(reported.get("up", True))
    return FoundNic(
        reported["name"],
        model,
        rate if is_up else None,
        reported["numa_node"],
        source,
        reported.get("pci"),
        str(reported.get("card") or ""),
        tuple(map(str, reported.get("interfaces") or ())),
        (generation, int(width)) if generation and width.isdecimal() else None,
        is_up,
        str(reported.get("system_guid") or ""),
    )


def _kind(reported: Mapping[str, Any]) -> str:
    """The network of a port: an RDMA device whose link layer is Ethernet is RoCE; EFA has a link layer of its own."""
    name, driver = str(reported["name"]), str(reported.get("driver") or "")
    if driver == "efa" or (reported["kind"] == "Unspecified" and name.startswith(("rdmap", "efa"))):
        return "EFA"
    return {"Ethernet": "RoCE"}.get(reported["kind"], str(reported["kind"]))
