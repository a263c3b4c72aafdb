"""Which GPU uses which NIC: the one that is nearest to it, by `nvidia-smi topo -m` or the PCI tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from fabricheck.site.found import Association, FoundGpu, FoundNic
from fabricheck.site.nvidia import TopoTable

# Nearest first: one bridge, several bridges, the same host bridge, the same NUMA node, the other socket.
_LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")
_SCHEMES: Mapping[str, Callable[[int, int, int], int]] = {
    "one-to-one": lambda at, nics, gpus: at if nics == gpus else -1,
    "packed": lambda at, nics, gpus: at * nics // gpus,
    "round-robin": lambda at, nics, gpus: at % nics,
}


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
            Association("dynamic", tuple(nic.name for nic in nics), "nobody says which NIC is near which GPU"),
            nics,
            [],
        )
    taken: Counter[str] = Counter()
    near = {gpu.index: _nearest(distances[gpu.index]) for gpu in gpus}
    chosen = []
    for gpu in gpus:
        name = min(near[gpu.index], key=lambda each: taken[each])
        taken[name] += 1
        chosen.append(name)
    wanted = {name for names in near.values() for name in names}
    used = tuple(nic for nic in nics if nic.name in wanted)
    far = [nic.name for nic in nics if nic.name not in wanted]
    notes = [f"{', '.join(far)}: near no GPU, and left out of the topology"] if far else []
    if wanted - set(taken):  # more NICs than GPUs: a GPU may use several
        return (
            Association("dynamic", tuple(nic.name for nic in used), f"{source}: several NICs are near a GPU"),
            used,
            notes,
        )
    order = tuple(dict.fromkeys(chosen))
    for scheme, place in _SCHEMES.items():
        if all(place(at, len(order), len(gpus)) == order.index(name) for at, name in enumerate(chosen)):
            by_name = {nic.name: nic for nic in used}
            return Association(scheme, order, source), tuple(by_name[name] for name in order), notes
    pairs = ", ".join(f"gpu{gpu.index}-{name}" for gpu, name in zip(gpus, chosen, strict=True))
    notes.append(f"no scheme says which NIC is near which GPU ({pairs}): it is taken for dynamic")
    return Association("dynamic", tuple(nic.name for nic in used), f"{source}: {pairs}"), used, notes


def _nearest(distances: Mapping[str, int]) -> list[str]:
    least = min(distances.values())
    return [name for name, distance in distances.items() if distance == least]


def _distances(
    gpus: Sequence[FoundGpu], nics: Sequence[FoundNic], table: TopoTable | None
) -> tuple[dict[int, dict[str, int]] | None, str]:
    """By GPU and NIC a number that is the larger, the farther they are from each other; None where nobody says."""
    if table is not None and all(nic.name in table.nics for nic in nics) and all(g.index in table.rows for g in gpus):
        rows = {gpu.index: table.rows[gpu.index] for gpu in gpus}
        if all(row[nic.name] in _LEVELS for row in rows.values() for nic in nics):
            found = {index: {nic.name: _LEVELS.index(row[nic.name]) for nic in nics} for index, row in rows.items()}
            return found, "nvidia-smi topo -m"
    places = [*(gpu.pci for gpu in gpus), *(nic.pci for nic in nics)]
    if all(places):
        return {
            gpu.index: {nic.name: -_shared(str(gpu.pci), str(nic.pci), gpu.numa == nic.numa) for nic in nics}
            for gpu in gpus
        }, "the PCI tree in /sys"
    if None not in [*(gpu.numa for gpu in gpus), *(nic.numa for nic in nics)]:
        return {gpu.index: {nic.name: int(gpu.numa != nic.numa) for nic in nics} for gpu in gpus}, "NUMA nodes in /sys"
    return None, ""


def _shared(one: str, other: str, same_numa: bool) -> int:
    """How many bridges two devices have in common; a NUMA node in common is the next best."""
    a, b = one.split("/"), other.split("/")
    shared = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return 2 * shared + int(same_numa) if shared else int(same_numa)
