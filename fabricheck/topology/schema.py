"""The schema of `topology.yaml`, for reading and for the published JSON schema. Unknown fields are errors."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag

from fabricheck.errors import UserError
from fabricheck.units import parse_rate


def _check_rate(text: str) -> str:
    try:
        parse_rate(text)
    except UserError as error:
        raise ValueError(str(error)) from None
    return text


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="letters, digits, `_`, `.`, `-`")]
Rate = Annotated[
    str,
    AfterValidator(_check_rate),
    Field(description="a rate in one direction with its unit, such as `200 Gb/s` or `25 GB/s` (10^9)"),
]
Source = Annotated[str, Field(min_length=1, description="where the number comes from: paper and table, or vendor page")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class GpuEntry(_Strict):
    """A GPU, GCD or tile: whatever the runtime library shows as one device."""

    name: Name
    index: Annotated[int, Field(ge=0, description="the index by which the runtime library knows it in the node")]
    model: Annotated[str, Field(min_length=1, description="for example `H100` or `MI250X GCD`")]
    package: Annotated[Name | None, Field(description="the module that several GPUs share")] = None


class CpuEntry(_Strict):
    """A CPU, or one NUMA domain of it."""

    name: Name
    device_rate: Annotated[
        Rate | None, Field(description="total rate of all GPUs linked to it, where less than their links")
    ] = None
    source: Annotated[Source | None, Field(description="where `device_rate` comes from")] = None


class SwitchEntry(_Strict):
    """A switch between GPUs, or between GPUs and a CPU. Several chips that share the load evenly are one switch."""

    name: Name
    model: Annotated[str, Field(min_length=1)]
    in_network_reduction: Annotated[
        bool | None,
        Field(
            description="it can reduce and multicast (NVLink SHARP), so an allreduce may move half the bytes; left "
            "out: unknown, it bounds what is plausible"
        ),
    ] = None
    host_only: Annotated[
        bool,
        Field(description="GPUs share its links to a CPU and do not use it to reach other GPUs (PCIe of two tiles)"),
    ] = False


class NicEntry(_Strict):
    """A network port."""

    name: Name
    model: Annotated[str, Field(min_length=1)]
    rate: Rate
    source: Source
    burst_bytes: Annotated[
        int, Field(ge=0, description="bytes that may pass faster than the rate (a shaper's bucket)")
    ] = 0


Count = Annotated[int, Field(ge=1, le=10_000, description="parallel links of each pair")]


class DirectedRate(_Strict):
    """Rates of a link that is not as fast one way as the other."""

    forward: Annotated[Rate, Field(description="from the first device of a pair to the second")]
    back: Annotated[Rate, Field(description="from the second to the first")]


def _kind_of_rate(value: object) -> str:
    return "each direction" if isinstance(value, (dict, DirectedRate)) else "both directions"


LinkRate = Annotated[
    Annotated[Rate, Tag("both directions")] | Annotated[DirectedRate, Tag("each direction")],
    Discriminator(_kind_of_rate),
    Field(description="of one link, in one direction, with its unit; or of each direction"),
]


class LinkEntry(_Strict):
    """One kind of link and the pairs of devices that it joins."""

    technology: Annotated[str, Field(min_length=1, description="for example `NVLink4` or `PCIe 4 x16`")]
    count: Count
    rate: LinkRate
    source: Source
    pairs: Annotated[list[Annotated[list[Name], Field(min_length=2, max_length=2)]], Field(min_length=1)]
    """names of devices. A GPU may have links to several NUMA domains"""


class AssociationEntry(_Strict):
    """Which GPU uses which NIC (CommBench §2.1.2)."""

    scheme: Literal["packed", "round-robin", "one-to-one", "dynamic"]
    source: Source


class MemoryEntry(_Strict):
    """Bandwidth of a memory: bytes read or written, each counted once."""

    rate: Rate
    source: Source


NodeList = Annotated[str, Field(min_length=1, description="names in short form, such as `nid[001-004]`")]
End = Annotated[str, Field(min_length=1, description="switches, or ports such as `nid[001-004]:hsn0`, in short form")]


class NetworkSwitchEntry(_Strict):
    """Switches between nodes."""

    name: NodeList
    group: Annotated[Name | None, Field(description="the group, pod or cell that they belong to")] = None


class NetworkLinkEntry(_Strict):
    """One kind of link and the ends that it joins, each of the first with each of the second."""

    technology: Annotated[str, Field(min_length=1, description="for example `HDR200` or `Slingshot 11`")]
    count: Annotated[int, Field(ge=1, le=10_000, description="parallel links of each pair of ends")] = 1
    rate: Annotated[Rate, Field(description="of one link, in one direction, with its unit")]
    source: Source
    pairs: Annotated[list[Annotated[list[End], Field(min_length=2, max_length=2)]], Field(min_length=1)]
    """a port is `NODE:NIC` with a NIC of `nics`"""


class NetworkEntry(_Strict):
    """What joins the nodes."""

    nodes: NodeList
    switches: Annotated[list[NetworkSwitchEntry], Field(min_length=1)]
    """switches that no trunk joins are rails, and each two nodes need a rail in common"""
    links: Annotated[list[NetworkLinkEntry], Field(min_length=1)]


class SwitchPortsEntry(_Strict):
    """What the ports of one switch lead to."""

    endpoints: Annotated[int | None, Field(ge=1, description="to NICs of nodes")] = None
    group: Annotated[int | None, Field(ge=0, description="to other switches of its group")] = None
    other_groups: Annotated[int | None, Field(ge=0, description="to switches of other groups")] = None


class FabricEntry(_Strict):
    """How large the system is and what joins its nodes, if it is not published which node is plugged in where."""

    nodes: Annotated[int, Field(ge=1, description="how many nodes there are")]
    kind: Annotated[Literal["dragonfly", "dragonfly+", "fat-tree"] | None, Field(description="of network")] = None
    groups: Annotated[int | None, Field(ge=1, description="groups, pods or cells")] = None
    nodes_per_group: Annotated[int | None, Field(ge=1)] = None
    leaves_per_group: Annotated[int | None, Field(ge=1, description="switches that nodes are plugged into")] = None
    spines_per_group: Annotated[int | None, Field(ge=0, description="switches without nodes")] = None
    nodes_per_leaf: Annotated[int | None, Field(ge=1)] = None
    switches_per_node: Annotated[int | None, Field(ge=1, description="leaves that one node is plugged into")] = None
    leaf_ports: SwitchPortsEntry | None = None
    spine_ports: SwitchPortsEntry | None = None
    source: Source


class NodePathsEntry(_Strict):
    """Paths inside a node."""

    ccl: Annotated[Literal["P2P", "SHM"] | None, Field(description="the path of NCCL or RCCL")] = None
    mpi: Annotated[Literal["IPC", "SHM"] | None, Field(description="the path of the MPI library")] = None


class NetworkPathsEntry(_Strict):
    """Paths between nodes."""

    ccl: Annotated[
        Literal[
            "NET/IB/GDRDMA",
            "NET/IB",
            "NET/OFI/GDRDMA",
            "NET/OFI",
            "NET/RDMA/GDRDMA",
            "NET/RDMA",
            "NET/MPI",
            "NET/Socket",
        ]
        | None,
        Field(description="the path of NCCL, RCCL or oneCCL"),
    ] = None
    mpi: Annotated[
        Literal["InfiniBand", "RoCE", "OFI/cxi", "OFI/efa", "TCP"] | None,
        Field(description="the path of the MPI library"),
    ] = None


class TransportPathsEntry(_Strict):
    """Paths that libraries have to take where they are other than the hardware implies; a run by another is INVALID."""

    node: NodePathsEntry | None = None
    network: NetworkPathsEntry | None = None
    source: Source


class GpuDirectEntry(_Strict):
    """Whether *CCL uses GPUDirect RDMA by default between nodes, by how near NICs are, GPU and library."""

    channels: Annotated[
        Literal["all", "some", "none"], Field(description="a channel that could, and does not, is INVALID; `none`: any")
    ]
    source: Source


class NvlinkDomainEntry(_Strict):
    """Nodes whose GPUs reach each other's memory over NVLink, as the trays of an NVL72 do."""

    nodes: Annotated[int, Field(ge=2, description="how many nodes a domain has")]
    source: Source


class TopologyFile(_Strict):
    """The node of one system, and what joins its nodes."""

    system: Name
    """the name of the folder"""
    description: Annotated[str, Field(min_length=1)]
    """one line"""
    gpus: list[GpuEntry] = Field(default_factory=list)
    """GPUs, GCDs or tiles"""
    cpus: Annotated[list[CpuEntry], Field(min_length=1)]
    """CPUs or NUMA domains"""
    switches: list[SwitchEntry] = Field(default_factory=list)
    """between GPUs, or between GPUs and a CPU"""
    nics: list[NicEntry] = Field(default_factory=list)
    """network ports"""
    links: list[LinkEntry] = Field(default_factory=list)
    """one entry for each kind of link; those of NICs and between CPUs where GPUs reach some NICs by another CPU"""
    nic_association: AssociationEntry | None = None
    """which GPU uses which NIC"""
    gpu_memory: Annotated[MemoryEntry | None, Field(description="of one GPU")] = None
    host_memory: Annotated[
        Literal["measured"] | MemoryEntry | None,
        Field(description="of the node; `measured`: nominal values rest on the copy bandwidth that each run measures"),
    ] = None
    """of the node; `measured`: nominal values rest on the copy bandwidth that each run measures"""
    network: NetworkEntry | None = None
    """what joins the nodes"""
    fabric: FabricEntry | None = None
    """in place of `network`, if it is not published which node is plugged in where"""
    transport_paths: TransportPathsEntry | None = None
    """where libraries rightly take another path than the hardware implies ([paths](formats.md))"""
    gpudirect_rdma: GpuDirectEntry | None = None
    """without it all channels of NCCL or RCCL use GPUDirect RDMA: NICs may be too far from GPUs, or GPUs and
    libraries too old"""
    nvlink_domain: NvlinkDomainEntry | None = None
    """how many nodes NVLink joins. Between so many nodes the model goes over their NVSwitches; of more, each domain
    counts as one node. Where `network` or `fabric` has more nodes than a domain, it is unknown which two nodes are
    in one: between so few the NICs say what is expected, and NVLink what is plausible"""
