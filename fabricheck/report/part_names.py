"""What parts of a machine are called by those who pull them, and which command looks at one first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fabricheck.errors import UserError
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.nic_families import family_of
from fabricheck.records.rehearsal import EMULATED
from fabricheck.records.run import Device
from fabricheck.report.content import plain
from fabricheck.topology.model import Topology
from fabricheck.topology.placement import gpu_of_ranks

# Whose GPUs an emulated one stands for, by the backend.
_EMULATED = {"cuda": "nvidia", "hip": "amd", "sycl": "intel"}
# What each vendor's tool says of a GPU's links first; {} is the PCI address of the GPU.
_LOOK_AT_GPU = {
    "nvidia": "nvidia-smi nvlink -e -i {}",
    "amd": "amd-smi metric -x -g {}",
    "intel": "xpu-smi stats -d {}",
}


@dataclass(frozen=True)
class NodeGpu:
    """A GPU of a node: its name in the topology, its node-local index and what the runtime said of it."""

    name: str
    index: int
    device: Device
    platform: str


@dataclass(frozen=True)
class NodeParts:
    """The GPUs of the nodes that runs were on, by host and name in the topology, and the other devices' kinds."""

    gpus: Mapping[tuple[str, str], NodeGpu] = field(default_factory=dict)
    nics: frozenset[str] = frozenset()

    @classmethod
    def of(cls, runs: Sequence[RunJudgement]) -> NodeParts:
        """The GPUs and NICs that runs name, by their headers and topologies."""
        gpus: dict[tuple[str, str], NodeGpu] = {}
        nics: set[str] = set()
        for run in runs:
            if run.topology is not None:
                network = run.topology.network
                ports = (network.component(port).name for port in network.ports) if network is not None else ()
                nics |= {*(nic.name for nic in run.topology.nics), *ports}
            for gpu in _gpus_of(run):
                gpus.setdefault(gpu[0], gpu[1])
        return cls(gpus, frozenset(nics))

    def title(self, component: Component) -> str:
        """`nid001 GPU 2 (bus 0000:08:00.0)`, `nid001 link GPU 2 - nvswitch`, `nid001 GPU 2 → GPU 3`; other names as
        they are."""
        words = " ".join(each for each in (component.direction, component.condition) if each and each != "out")
        name = self._title(component)
        return f"{name} {words}" if words else name

    def _title(self, component: Component) -> str:
        host, name = component.node, component.name
        if component.kind is Kind.PATH:
            far = self._end(component.far_node, component.far)
            far = far if component.far_node == host else f"{component.far_node} {far}".strip()
            return f"{host} {self._end(host, name)}".strip() + f" {'→' if component.direction else '↔'} {far}"
        if component.kind is Kind.LINK and host and host == component.far_node:
            return f"{host} link {self._end(host, name)} - {self._end(host, component.far)}"
        own = replace(component, direction="", condition="").text
        if not host or not name or component.kind is Kind.LINK:
            return own
        if (gpu := self.gpus.get((host, name))) is not None:
            return f"{host} GPU {gpu.index} (bus {gpu.device.address})"
        return f"{host} NIC {name}" if name in self.nics else own

    def place(self, components: Sequence[Component]) -> str:
        """Several, if it is unknown which one it is; of a GPU and its link the link's other end is enough."""
        if not components:
            return ""
        first, *others = components
        return ", or ".join([self.title(first), *(self._beside(first, other) for other in others)])

    def _beside(self, first: Component, other: Component) -> str:
        ends = [end for end in other.ends if (end.node, end.name) != (first.node, first.name)]
        if other.kind is Kind.LINK and first.kind is not Kind.LINK and len(ends) == 1 and ends[0].node == first.node:
            return f"its link to {self._end(first.node, ends[0].name)}"
        return self.title(other)

    def looks(self, components: Sequence[Component]) -> tuple[str, ...]:
        """The command, between backticks, that tells most of each of them that has one: of a slow pair, both ends.

        Between nodes, the links of GPUs are left out: data do not cross them.
        """
        ends = [end for each in components for end in each.ends]
        if len({end.node for end in ends}) > 1:
            ends = [end for end in ends if (end.node, end.name) not in self.gpus]
        return tuple(dict.fromkeys(filter(None, map(self._look, ends))))

    def _look(self, end: Component) -> str:
        gpu, look = self.gpus.get((end.node, end.name)), ""
        if gpu is not None:
            look = _LOOK_AT_GPU.get(gpu.platform, "").format(gpu.device.address)
        elif end.node and end.name in self.nics:
            look = family_of(end.name).counters.format(end.name)
        return f"on {plain(end.node)}: `{plain(look)}`" if look else ""

    def _end(self, host: str, name: str) -> str:
        gpu = self.gpus.get((host, name))
        return f"GPU {gpu.index}" if gpu is not None else name


def _gpus_of(judged: RunJudgement) -> list[tuple[tuple[str, str], NodeGpu]]:
    gpus, indexes = [], gpu_of_ranks(judged.run)
    platform = str(judged.run.header.get("platform", ""))
    if platform == EMULATED:
        platform = _EMULATED.get(str(judged.run.header.get("backend")), "")
    for rank in judged.run.ranks:
        if rank.device is not None:
            index = indexes[rank.rank]
            name = _name(judged.topology, index)
            gpus.append(((rank.host, name), NodeGpu(name, index, rank.device, platform)))
    return gpus


def _name(topology: Topology | None, index: int) -> str:
    try:
        return topology.gpu(index).name if topology is not None else f"gpu{index}"
    except UserError:  # the judge says so
        return f"gpu{index}"
