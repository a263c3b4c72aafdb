"""The paths that *CCL and MPI have to take, in a node and between nodes: by topology.yaml, else by the hardware."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

from fabricheck.results.proof_logs import FALL_BACKS, HOST_STAGING
from fabricheck.topology.model import Nic, Topology

_SOCKET = r"^NET/(?:Socket|FastSocket)"
_ANY_NETWORK = "any network but sockets"
_ANY_BUT_TCP = "any network but TCP"
# Paths by sockets, and those of which the mover is unknown.
_NO_RDMA = ("NET/Socket", "TCP", "NET/MPI", _ANY_NETWORK, _ANY_BUT_TCP)

# Links between GPUs over which *CCL has no reason to leave the device.
_DIRECT = re.compile(r"NVLink|Infinity Fabric|Xe Link")

# How *CCL's network plugins call their channels, `NET/<name>/<device>`, by what they go over: NCCL's own and those of
# HPC-X and NGC (nccl-rdma-sharp-plugins), Google's gIB and AMD's ANP over verbs; aws-ofi-nccl over libfabric. A plugin
# that is not named here is judged by what NCCL itself says of its channels: whether GPUDirect RDMA is used.
_VERBS = r"NET/(?:IB|IBext\w*|UCX\w*|gIB|\w*ANP\w*)/"
_OFI = r"NET/(?:OFI\w*|AWS[^/]*|[Ll]ibfabric\w*)/"
_OTHERS = r"NET/(?!(?:Socket|FastSocket|MPI)\b|OFI provider )[^/]+/"
# The best path there is: memory of a GPU of another node over NVLink.
_MNNVL = "P2P/MNNVL"


class Fabric(Enum):
    """What a NIC is a port of, as far as libraries treat it: the path of *CCL over it, and of an MPI library."""

    INFINIBAND = ("NET/IB", "InfiniBand")
    ROCE = ("NET/IB", "RoCE")
    OMNI_PATH = ("NET/OFI", "")
    SLINGSHOT = ("NET/OFI", "OFI/cxi")
    EFA = ("NET/OFI", "OFI/efa")
    ETHERNET = ("NET/Socket", "TCP")

    @property
    def rdma(self) -> bool:
        """Whether NICs of this fabric read and write remote memory themselves."""
        return self is not Fabric.ETHERNET

    @property
    def verbs(self) -> bool:
        """Whether perftest runs on NICs of this fabric by its usual types of connection."""
        return self in (Fabric.INFINIBAND, Fabric.ROCE, Fabric.OMNI_PATH)

    @property
    def loops_back(self) -> bool:
        """Whether libfabric sends what stays on a node over a NIC too; of Omni-Path psm3 and opx take shared memory."""
        return self.rdma and self is not Fabric.OMNI_PATH


# By a NIC's model, the first that fits. `Ethernet 400 Gb/sec (4X NDR)` is how the kernel words the rate of an RDMA
# device. Slingshot-10 has NICs of more than one maker, and no default.
_FABRICS = (
    (re.compile(r"Slingshot-10"), None),
    (re.compile(r"Cassini|Slingshot|\bcxi\b", re.IGNORECASE), Fabric.SLINGSHOT),
    (re.compile(r"\bEFA\b|Elastic Fabric", re.IGNORECASE), Fabric.EFA),
    (re.compile(r"Omni-?Path|\bhfi1\b", re.IGNORECASE), Fabric.OMNI_PATH),
    (re.compile(r"\bRoCE|Thor|Pollara|Pensando|^Ethernet .*\(\d+X ", re.IGNORECASE), Fabric.ROCE),
    (re.compile(r"InfiniBand|ConnectX|BlueField", re.IGNORECASE), Fabric.INFINIBAND),
    (re.compile(r"Ethernet|veth", re.IGNORECASE), Fabric.ETHERNET),
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
    "P2P in islands": Paths((r"^NET/",), ("^P2P",), "P2P"),
    "SHM": Paths((r"^NET/",), ("^SHM",), "SHM"),
    "": Paths((_SOCKET,)),
}


def _over(plugins: str, others: str, described: str, *, gpudirect: str = "all") -> Paths:
    """*CCL over RDMA by a plugin of `plugins`, or one that is in no table; not over `others`, a known family.

    `gpudirect`: whether all channels, some or none have to use GPUDirect RDMA.
    """
    wanted = rf"^(?:{plugins}|(?!{others}){_OTHERS})" if others else f"^{plugins}"
    forbidden: tuple[str, ...] = (*FALL_BACKS, _SOCKET)
    if gpudirect == "all":
        forbidden = (*forbidden, rf"^{_OTHERS}(?!.*GDRDMA)")
    proof = "" if gpudirect == "none" else ".*GDRDMA"
    return Paths(forbidden, (rf"{wanted}{proof}|^{_MNNVL}",), described + ("/GDRDMA" if proof else ""))


_FAMILIES = {"NET/IB": (_VERBS, _OFI), "NET/OFI": (_OFI, _VERBS), "NET/RDMA": (_OTHERS, "")}
#: By name, between nodes. What goes on inside each of the nodes is no part of it.
_BETWEEN_NODES = {
    **{f"{name}/GDRDMA": _over(*plugins, name) for name, plugins in _FAMILIES.items()},
    **{name: _over(*plugins, name, gpudirect="none") for name, plugins in _FAMILIES.items()},
    # oneCCL says no more than this, and leaves it to the MPI library.
    "NET/OFI": Paths((*FALL_BACKS, _SOCKET), (r"^NET/(?:OFI|AWS|Libfabric)",), "NET/OFI"),
    "NET/MPI": Paths(FALL_BACKS, (r"^NET/MPI",), "NET/MPI"),
    # Without RDMA: sockets, or what a cloud's plugin makes of its NICs.
    "NET/Socket": Paths((), (r"^NET/",), "NET/Socket"),
    _MNNVL: Paths((r"^NET/",), (f"^{_MNNVL}",), _MNNVL),
    "": Paths(FALL_BACKS, (r"^NET/",), _ANY_NETWORK),
}


# What MPI libraries say: UCX's lanes (`host: rc_mlx5/mlx5_0:1`), Open MPI's own transports (`btl tcp`), libfabric's
# provider. A sentinel such as `btl self` is on every path.
_TCP = (*FALL_BACKS, r"^btl tcp$")
_IB_LANE = r"\b(?:rc|dc|ud)(?:_mlx5|_verbs|_x)?/"
_VERBS_OF_MPI = rf"{_IB_LANE}|^btl openib$|^pml pami$|^OFI provider (?:verbs|mlx|psm)"
_MPI_IN_NODE = {
    "IPC": Paths((HOST_STAGING[-1],), (r"^(?:cuda|rocm|ze): .*_ipc/|^btl smcuda$",), "IPC"),
    "SHM": Paths(_TCP, (r"\b(?:sysv|posix|cma|xpmem|knem)/|^btl (?:vader|sm)$|^shm$",), "SHM"),
    "": Paths(),
}
_MPI_BETWEEN_NODES = {
    "InfiniBand": Paths(_TCP, (_VERBS_OF_MPI,), "InfiniBand"),
    "RoCE": Paths(_TCP, (_VERBS_OF_MPI,), "RoCE"),
    "OFI/cxi": Paths(_TCP, (r"^OFI provider cxi\b",), "OFI/cxi"),
    "OFI/efa": Paths(_TCP, (r"^OFI provider efa\b",), "OFI/efa"),
    "TCP": Paths((), (r"^btl tcp$|\btcp/|^OFI provider (?:tcp|sockets)\b",), "TCP"),
    "": Paths(_TCP, (rf"{_IB_LANE}|^btl (?!tcp|self|vader|sm)|^OFI provider (?!shm)",), _ANY_BUT_TCP),
}


def mpi_paths(topology: Topology, nodes: int) -> Paths:
    """The paths of an MPI library inside a node, or between `nodes` nodes. Inside, nothing is requested by default."""
    if nodes == 1:
        return _MPI_IN_NODE[topology.mpi_path_in_node or ""]
    paths = {fabric.value[1] for fabric in fabrics_of(topology)}
    default = paths.pop() if len(paths) == 1 else ""
    return _MPI_BETWEEN_NODES[topology.mpi_path_between_nodes or default]


def nic_paths(topology: Topology) -> Paths:
    """The paths of libfabric alone, also where data come back to their node: its NICs, without a copy on the host."""
    between = mpi_paths(topology, 2)
    staging = topology.gpudirect_rdma in (None, "all") and any(fabric.rdma for fabric in fabrics_of(topology))
    return replace(between, forbidden=(*between.forbidden, *[r"^OFI provider .* staged$"] * staging))


def ccl_paths(topology: Topology, nodes: int) -> Paths:
    """The paths of a run of *CCL over all GPUs of one node, or over `nodes` nodes."""
    inside = _IN_NODE[topology.ccl_path_in_node or _default_in_node(topology)]
    if nodes == 1:
        return inside
    between = _between(topology, nodes)
    # Some runs have pairs inside their nodes too: those must not go through the host's memory where they need not.
    staging = ("^SHM",) if "^SHM" in inside.forbidden else ()
    return Paths((*between.forbidden, *staging), between.required, between.described)


def by_rdma(topology: Topology, transport: str, nodes: int) -> bool:
    """Return whether data go between `nodes` nodes by RDMA or NVLink; False for sockets and where it is unknown."""
    paths = ccl_paths(topology, nodes) if transport == "ccl" else mpi_paths(topology, nodes)
    return paths.described not in _NO_RDMA


def fabrics_of(topology: Topology) -> frozenset[Fabric]:
    """What the NICs of a node are ports of, as far as their models tell; those of the front-end are left out."""
    fabrics = {fabric for nic in topology.nics if (fabric := fabric_of(nic.model)) is not None}
    return frozenset({fabric for fabric in fabrics if fabric.rdma} or fabrics)


def data_nics(topology: Topology) -> tuple[Nic, ...]:
    """The NICs of a node that move data between nodes, in their order: not those of the front-end."""
    fabrics = fabrics_of(topology)
    return tuple(nic for nic in topology.nics if not fabrics or fabric_of(nic.model) in fabrics)


def fabric_of(model: str) -> Fabric | None:
    """What a NIC of this model is a port of; None where it is unknown."""
    return next((fabric for pattern, fabric in _FABRICS if pattern.search(model)), None)


def _default_in_node(topology: Topology) -> str:
    """Direct links join all GPUs (P2P), or some (bridges of pairs): between the others the driver may give no P2P."""
    joined = {gpu.name: {gpu.name} for gpu in topology.gpus} | {one.name: {one.name} for one in topology.switches}
    for link in topology.links:
        if set(link.ends) <= joined.keys() and _DIRECT.match(link.technology):
            together = joined[link.ends[0]] | joined[link.ends[1]]
            joined |= dict.fromkeys(together, together)
    islands = {frozenset(joined[gpu.name]) for gpu in topology.gpus}
    if all(len(island) == 1 for island in islands):
        return ""
    return "P2P" if len(islands) == 1 else "P2P in islands"


def _between(topology: Topology, nodes: int) -> Paths:
    """Between nodes, by the file, else by the hardware: NVLink where one domain holds the nodes, else the NICs."""
    if topology.ccl_path_between_nodes is not None:
        return _BETWEEN_NODES[topology.ccl_path_between_nodes]
    # Of a system with several domains, nobody says which nodes are in one.
    if max(nodes, topology.nodes) <= topology.nvlink_domain_nodes:
        return _BETWEEN_NODES[_MNNVL]
    fabrics = fabrics_of(topology)
    paths = {fabric.value[0] for fabric in fabrics}
    path = paths.pop() if len(paths) == 1 else "NET/RDMA" if fabrics else ""
    if not fabrics or Fabric.ETHERNET in fabrics:
        return _BETWEEN_NODES[path]
    # oneCCL, on GPUs with Xe Links, does not say whether NICs reach device memory.
    if not topology.gpus or any(link.technology.startswith("Xe Link") for link in topology.links):
        return _BETWEEN_NODES[path]
    return _over(*_FAMILIES[path], path, gpudirect=topology.gpudirect_rdma or "all")
