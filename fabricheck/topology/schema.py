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
    index: Annotated[int, Field(ge=0)]
    """the index by which the runtime library knows it in the node"""
    model: Annotated[str, Field(min_length=1)]
    """for example `H100` or `MI250X GCD`"""
    package: Name | None = None
    """the module that several GPUs share"""


class CpuEntry(_Strict):
    """A CPU, or one NUMA domain of it."""

    name: Name
    device_rate: Rate | None = None
    """total rate of all GPUs linked to it, where less than their links"""
    source: Source | None = None
    """where `device_rate` comes from"""


class SwitchEntry(_Strict):
    """A switch between GPUs, or between GPUs and a CPU. Several chips that share the load evenly are one switch."""

    name: Name
    model: Annotated[str, Field(min_length=1)]
    in_network_reduction: bool | None = None
    """it can reduce and multicast (NVLink SHARP), so an allreduce may move half the bytes; left out: unknown, it
    bounds what is plausible"""
    host_only: bool = False
    """GPUs share its links to a CPU and do not use it to reach other GPUs (PCIe of two tiles)"""


class NicEntry(_Strict):
    """A network port."""

    name: Name
    model: Annotated[str, Field(min_length=1)]
    rate: Rate
    source: Source
    burst_bytes: Annotated[int, Field(ge=0)] = 0
    """bytes that may pass faster than the rate (a shaper's bucket)"""


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

    technology: Annotated[str, Field(min_length=1)]
    """for example `NVLink4` or `PCIe 4 x16`"""
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
    group: Name | None = None
    """the group, pod or cell that they belong to"""


class NetworkLinkEntry(_Strict):
    """One kind of link and the ends that it joins, each of the first with each of the second."""

    technology: Annotated[str, Field(min_length=1)]
    """for example `HDR200` or `Slingshot 11`"""
    count: Annotated[int, Field(ge=1, le=10_000)] = 1
    """parallel links of each pair of ends"""
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


class FabricEntry(_Strict):
    """How large the system is, if it is not published which node is plugged in where. Further facts are notes."""

    model_config = ConfigDict(extra="allow")

    nodes: Annotated[int, Field(ge=1)]
    """how many nodes there are"""
    source: Source


class NodePathsEntry(_Strict):
    """Paths inside a node."""

    ccl: Literal["P2P", "SHM"] | None = None
    """the path of NCCL or RCCL"""
    mpi: Literal["IPC", "SHM"] | None = None
    """the path of the MPI library"""


class NetworkPathsEntry(_Strict):
    """Paths between nodes."""

    ccl: (
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
        | None
    ) = None
    """the path of NCCL, RCCL or oneCCL"""
    mpi: Literal["InfiniBand", "RoCE", "OFI/cxi", "OFI/efa", "TCP"] | None = None
    """the path of the MPI library"""


class TransportPathsEntry(_Strict):
    """Paths that libraries have to take where they are other than the hardware implies; a run by another is INVALID."""

    node: NodePathsEntry | None = None
    network: NetworkPathsEntry | None = None
    source: Source


class GpuDirectEntry(_Strict):
    """Whether *CCL uses GPUDirect RDMA by default between nodes, by how near NICs are, GPU and library."""

    channels: Literal["all", "some", "none"]
    """a channel that could, and does not, is INVALID; `none`: any"""
    source: Source


class NvlinkDomainEntry(_Strict):
    """Nodes whose GPUs reach each other's memory over NVLink, as the trays of an NVL72 do."""

    nodes: Annotated[int, Field(ge=2)]
    """how many nodes a domain has"""
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
    gpu_memory: MemoryEntry | None = None
    """of one GPU"""
    host_memory: Literal["measured"] | MemoryEntry | None = None
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
