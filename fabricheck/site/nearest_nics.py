"""Which GPU uses which NIC: the one that is nearest to it, by `nvidia-smi topo -m` or the PCI tree."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from fabricheck.site.found import Association, FoundGpu, FoundLink, FoundNic
from fabricheck.site.nvidia import TopoTable
from fabricheck.site.software import NodeSoftware

# Nearest first: one bridge, several bridges, the same host bridge, the same NUMA node, the other socket.
_LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")
_CONSUMER = re.compile(r"GeForce|TITAN")
_SCHEMES: Mapping[str, Callable[[int, int, int], int]] = {
    "one-to-one": lambda at, nics, gpus: at if nics == gpus else -1,
    "packed": lambda at, nics, gpus: at * nics // gpus,
    "round-robin": lambda at, nics, gpus: at % nics,
}


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
    by_name = {nic.name: nic for nic in nics}
    carries = {link.ends[0]: link.total_gbps for link in links if link.technology.startswith("PCIe")}
    dropped: set[str] = set()
    for gpu in gpus if table is not None else ():
        row = table.rows.get(gpu.index, {}) if table is not None else {}
        near = [name for name in by_name if row.get(name) == "PIX" and name not in dropped]
        first, *others = near or [""]
        together = sum(by_name[name].rate_gbps or 0.0 for name in near)
        if others and together > carries.get(f"gpu{gpu.index}", together):
            beside = table.of_nics.get(first, {}) if table is not None else {}
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
    distances, source = _distances(gpus, nics, table)
    if distances is None:
        return (
            Association("dynamic", tuple(nic.name for nic in nics), "no source states which NIC is near which GPU"),
            nics,
            [],
        )
    taken: Counter[str] = Counter()
    near = {gpu.index: _nearest(distances[gpu.index]) for gpu in gpus}
    levels = _levels(gpus, nics, table)
    chosen = []
    for gpu in gpus:
        name = min(near[gpu.index], key=lambda each: taken[each])
        taken[name] += 1
        chosen.append(name)
    wanted = {name for names in near.values() for name in names}
    used = tuple(nic for nic in nics if nic.name in wanted)
    far = [nic.name for nic in nics if nic.name not in wanted]
    notes = [f"{', '.join(far)}: left out of the topology: near no GPU"] if far else []
    if wanted - set(taken):  # more NICs than GPUs: a GPU may use several
        names = tuple(nic.name for nic in used)
        return Association("dynamic", names, f"{source}: several NICs are near a GPU", levels), used, notes
    order = tuple(dict.fromkeys(chosen))
    for scheme, place in _SCHEMES.items():
        if all(place(at, len(order), len(gpus)) == order.index(name) for at, name in enumerate(chosen)):
            by_name = {nic.name: nic for nic in used}
            return Association(scheme, order, source, levels), tuple(by_name[name] for name in order), notes
    pairs = ", ".join(f"gpu{gpu.index}-{name}" for gpu, name in zip(gpus, chosen, strict=True))
    notes.append(f"no scheme explains which NIC is near which GPU ({pairs}): it is treated as dynamic")
    return Association("dynamic", tuple(nic.name for nic in used), f"{source}: {pairs}", levels), used, notes


def _nearest(distances: Mapping[str, int]) -> list[str]:
    least = min(distances.values())
    return [name for name, distance in distances.items() if distance == least]


def _distances(
    gpus: Sequence[FoundGpu], nics: Sequence[FoundNic], table: TopoTable | None
) -> tuple[dict[int, dict[str, int]] | None, str]:
    """By GPU and NIC a number that is the larger, the farther they are from each other; None where nothing states."""
    if table is not None and all(nic.name in table.nics for nic in nics) and all(g.index in table.rows for g in gpus):
        rows = {gpu.index: table.rows[gpu.index] for gpu in gpus}
        if all(row[nic.name] in _LEVELS for row in rows.values() for nic in nics):
            distances = {index: {nic.name: _LEVELS.index(row[nic.name]) for nic in nics} for index, row in rows.items()}
            return distances, "nvidia-smi topo -m"
    places = [*(gpu.pci for gpu in gpus), *(nic.pci for nic in nics)]
    if all(places):
        return {
            gpu.index: {nic.name: -_shared(str(gpu.pci), str(nic.pci), gpu.numa == nic.numa) for nic in nics}
            for gpu in gpus
        }, "the PCI tree in /sys"
    if None not in [*(gpu.numa for gpu in gpus), *(nic.numa for nic in nics)]:
        return {gpu.index: {nic.name: int(gpu.numa != nic.numa) for nic in nics} for gpu in gpus}, "NUMA nodes in /sys"
    return None, ""


def _shared(device: str, other: str, same_numa: bool) -> int:
    """How many bridges two devices have in common; a NUMA node in common is the next best."""
    shared = _bridges(device, other)
    return 2 * shared + int(same_numa) if shared else int(same_numa)


def _bridges(device: str, other: str) -> int:
    a, b = device.split("/"), other.split("/")
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _levels(gpus: Sequence[FoundGpu], nics: Sequence[FoundNic], table: TopoTable | None) -> dict[int, str]:
    """How near the nearest NIC of each GPU is; empty where that of one is not known."""
    levels: dict[int, str] = {}
    for gpu in gpus:
        row = table.rows.get(gpu.index, {}) if table is not None else {}
        told = [row.get(nic.name) or _by_place(gpu, nic) for nic in nics]
        if not all(level in _LEVELS for level in told):
            return {}
        levels[gpu.index] = min((str(level) for level in told), key=_LEVELS.index)
    return levels


def _by_place(gpu: FoundGpu, nic: FoundNic) -> str | None:
    """By the bridges in common, the first of which is the root complex; NUMA nodes alone tell only what is far."""
    same_numa = gpu.numa == nic.numa
    if gpu.pci and nic.pci:
        shared = _bridges(gpu.pci, nic.pci)
        return "PXB" if shared > 1 else "PHB" if shared else "NODE" if same_numa else "SYS"
    return "SYS" if None not in (gpu.numa, nic.numa) and not same_numa else None
