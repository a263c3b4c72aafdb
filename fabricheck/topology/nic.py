"""GPUs, their NICs, and what a node can send to other nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from fabricheck.topology.model import Gpu, Nic, Topology

#: What joins the NICs of nodes, by a pattern of how a NIC's model is called. A ConnectX may be on either.
_LAYERS = {
    "InfiniBand": re.compile("InfiniBand|\\b[EHNX]DR\\b", re.IGNORECASE),
    "Ethernet": re.compile("Ethernet|RoCE|Thor|Pollara|\\bE8[13]0\\b", re.IGNORECASE),
    "Slingshot": re.compile("Slingshot|Cassini|cxi", re.IGNORECASE),
    "EFA": re.compile("EFA", re.IGNORECASE),
    "Omni-Path": re.compile("Omni-?Path|\\bOPA\\b", re.IGNORECASE),
}


def link_layer(model: str) -> str | None:
    """The link layer by a NIC's model: `InfiniBand`, `Ethernet`, `Slingshot`, `EFA`, `Omni-Path`; None: unknown."""
    return next((layer for layer, pattern in _LAYERS.items() if pattern.search(model)), None)


def nics_of(topology: Topology, gpu: Gpu) -> tuple[Nic, ...]:
    """The NICs that a GPU uses; none where the node has none or the association is dynamic."""
    position = sorted(one.index for one in topology.gpus).index(gpu.index)
    several = len(topology.nics) // len(topology.gpus)
    if topology.nic_scheme == "packed" and several > 1:
        return topology.nics[position * several : (position + 1) * several]
    nic = assigned_nic(topology, position, len(topology.gpus))
    return (nic,) if nic is not None else ()


def nic_of(topology: Topology, gpu: Gpu) -> Nic | None:
    """The one NIC that a GPU uses (CommBench figure 2). None where it uses several, or it is unknown which."""
    nics = nics_of(topology, gpu)
    return nics[0] if len(nics) == 1 else None


def assigned_nic(topology: Topology, position: int, members: int) -> Nic | None:
    """The NIC of the GPU or rank at `position` among the `members` of a node, by the node's scheme (CommBench §2.1.2).

    None where the node has none or the association is dynamic.
    """
    nics = topology.nics
    if not nics or topology.nic_scheme in (None, "dynamic"):
        return nics[0] if len(nics) == 1 else None
    if topology.nic_scheme == "round-robin":
        return nics[position % len(nics)]
    return nics[position * len(nics) // members]


def gpus_of_ports(topology: Topology) -> tuple[Gpu, ...]:
    """One GPU for each NIC of the node, the first of those that use it, in the order of the NICs.

    All GPUs if it is unknown which NIC each uses: then all NICs may take part.
    """
    ordered = sorted(topology.gpus, key=lambda gpu: gpu.index)
    first: dict[str, Gpu] = {}
    for gpu in ordered:
        nic = nic_of(topology, gpu)
        if nic is None:
            return tuple(ordered)
        first.setdefault(nic.name, gpu)
    return tuple(first[nic.name] for nic in topology.nics if nic.name in first)


def node_gbps(topology: Topology, k: int | None = None) -> float:
    """Gb/s that a node sends when its first k GPUs are active (all: None): with p of them on each NIC, filled one after
    another, f_nic (1 + ReLU(k - p) / p), dealt out to r NICs in turn f_nic k / ceil(k / r) (CommBench eq. (1), (2)).

    A dynamic association can use all NICs whatever k (DGX A100 with its plugin). 0 without NICs.
    """
    return gpus_gbps(topology, sorted(topology.gpus, key=lambda gpu: gpu.index)[:k])


def gpus_gbps(topology: Topology, active: Sequence[Gpu]) -> float:
    """Gb/s that a node sends when exactly these GPUs are active and each sends the same amount, over all its NICs.

    The NIC with most to send is done last; all others wait for it.
    """
    nics_of_gpus = [nics_of(topology, gpu) for gpu in active]
    if not active or () in nics_of_gpus:
        return sum(nic.rate_gbps for nic in topology.nics)
    shares: Counter[Nic] = Counter()
    for nics in nics_of_gpus:
        for nic in nics:
            shares[nic] += 1  # all GPUs have as many NICs
    return len(active) * len(nics_of_gpus[0]) * min(nic.rate_gbps / share for nic, share in shares.items())


def alltoall_asymptotic_gbps(topology: Topology) -> float:
    """Goodput of one GPU in an alltoall over very many nodes: its share of the node's NICs (De Sensi §V-C), in Gb/s."""
    gpus = len(topology.gpus)
    return node_gbps(topology, gpus) / gpus if gpus else 0.0
