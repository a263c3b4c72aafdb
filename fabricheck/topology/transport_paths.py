"""The paths that *CCL and MPI have to take, in a node and between nodes: by topology.yaml, else by the hardware."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fabricheck.results.proof_logs import FALL_BACKS, HOST_STAGING
from fabricheck.topology.model import Topology

_SOCKET = r"^NET/Socket"
_ANY_NETWORK = "any network but sockets"

# Links between GPUs over which *CCL has no reason to leave the device.
_DIRECT = re.compile(r"NVLink|Infinity Fabric|Xe Link")
# A channel of the OFI plugin, and not the provider below it.
_OFI = r"^NET/(?:OFI|AWS[^/]*|Libfabric)/"
# By a NIC's model, the path of *CCL over it. Slingshot-10 has NICs of more than one maker, and no default.
_OF_NIC = (
    (re.compile(r"ConnectX|InfiniBand"), "NET/IB/GDRDMA"),
    (re.compile(r"Cassini|Slingshot-11"), "NET/OFI/GDRDMA"),
    (re.compile(r"Ethernet|veth"), "NET/Socket"),
)
# And of an MPI library.
_MPI_OF_NIC = (
    (re.compile(r"ConnectX|InfiniBand"), "InfiniBand"),
    (re.compile(r"Cassini|Slingshot-11"), "OFI/cxi"),
    (re.compile(r"Ethernet|veth"), "TCP"),
)


@dataclass(frozen=True)
class Paths:
    """Paths that the libraries must not, and must, have reported: regular expressions for the `proof` of a footer.

    `described`: what they follow from, in the words of topology.yaml.
    """

    forbidden: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    described: str = ""


#: By name, inside a node.
_IN_NODE = {
    "P2P": Paths(HOST_STAGING, ("^P2P",), "P2P"),
    "SHM": Paths((r"^NET/",), ("^SHM",), "SHM"),
    "": Paths((_SOCKET,)),
}
#: By name, between nodes. What goes on inside each of the nodes is no part of it.
_BETWEEN_NODES = {
    "NET/IB/GDRDMA": Paths((_SOCKET, r"^NET/IB/(?!.*GDRDMA)"), (r"^NET/IB/.*GDRDMA",), "NET/IB/GDRDMA"),
    "NET/IB": Paths((_SOCKET,), (r"^NET/IB/",), "NET/IB"),
    "NET/OFI/GDRDMA": Paths((*FALL_BACKS, rf"{_OFI}(?!.*GDRDMA)"), (rf"{_OFI}.*GDRDMA",), "NET/OFI/GDRDMA"),
    "NET/OFI": Paths(FALL_BACKS, (r"^NET/(?:OFI|AWS|Libfabric)",), "NET/OFI"),
    "NET/MPI": Paths(FALL_BACKS, (r"^NET/MPI",), "NET/MPI"),  # oneCCL, which leaves it to the MPI library
    "NET/Socket": Paths((), (_SOCKET,), "NET/Socket"),
    "": Paths(FALL_BACKS, (r"^NET/",), _ANY_NETWORK),
}


# What MPI libraries say: UCX's lanes (`host: rc_mlx5/mlx5_0:1`), Open MPI's own transports (`btl tcp`), libfabric's
# provider. A sentinel such as `btl self` is on every path.
_TCP = (*FALL_BACKS, r"^btl tcp$")
_IB_LANE = r"\b(?:rc|dc|ud)(?:_mlx5|_verbs|_x)?/"
_MPI_IN_NODE = {
    "IPC": Paths((HOST_STAGING[-1],), (r"^(?:cuda|rocm|ze): .*_ipc/|^btl smcuda$",), "IPC"),
    "SHM": Paths(_TCP, (r"\b(?:sysv|posix|cma|xpmem|knem)/|^btl (?:vader|sm)$|^shm$",), "SHM"),
    "": Paths(),
}
_MPI_BETWEEN_NODES = {
    "InfiniBand": Paths(_TCP, (rf"{_IB_LANE}|^btl openib$|^pml pami$|^OFI provider (?:verbs|mlx|psm)",), "InfiniBand"),
    "OFI/cxi": Paths(_TCP, (r"^OFI provider cxi\b",), "OFI/cxi"),
    "TCP": Paths((), (r"^btl tcp$|\btcp/|^OFI provider (?:tcp|sockets)\b",), "TCP"),
    "": Paths(_TCP, (rf"{_IB_LANE}|^btl (?!tcp|self|vader|sm)|^OFI provider (?!shm)",), "any network but TCP"),
}


def mpi_paths(topology: Topology, nodes: int) -> Paths:
    """The paths of an MPI library inside a node, or between `nodes` nodes. Inside, nothing is asked for by default."""
    if nodes == 1:
        return _MPI_IN_NODE[topology.mpi_path_in_node or ""]
    return _MPI_BETWEEN_NODES[topology.mpi_path_between_nodes or _default_between_nodes(topology, _MPI_OF_NIC)]


def ccl_paths(topology: Topology, nodes: int) -> Paths:
    """The paths of a run of *CCL over all GPUs of one node, or over `nodes` nodes."""
    inside = _IN_NODE[topology.ccl_path_in_node or _default_in_node(topology)]
    if nodes == 1:
        return inside
    between = _BETWEEN_NODES[topology.ccl_path_between_nodes or _default_of_ccl(topology)]
    # Some runs have pairs inside their nodes too: those must not go through the host's memory where they need not.
    staging = ("^SHM",) if inside.described == "P2P" else ()
    return Paths((*between.forbidden, *staging), between.required, between.described)


def _default_in_node(topology: Topology) -> str:
    fabric = {gpu.name for gpu in topology.gpus} | {switch.name for switch in topology.switches}
    direct = any(set(link.ends) <= fabric and _DIRECT.match(link.technology) for link in topology.links)
    return "P2P" if direct else ""


def _default_of_ccl(topology: Topology) -> str:
    """Between nodes. oneCCL, on GPUs with Xe Links, does not say whether NICs reach device memory."""
    path = _default_between_nodes(topology, _OF_NIC)
    intel = any(link.technology.startswith("Xe Link") for link in topology.links)
    return path.removesuffix("/GDRDMA") if intel else path


def _default_between_nodes(topology: Topology, of_nic: Sequence[tuple[re.Pattern[str], str]]) -> str:
    found = {path for nic in topology.nics for model, path in of_nic if model.search(nic.model)}
    return found.pop() if len(found) == 1 else ""
