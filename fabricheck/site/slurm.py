"""What Slurm says of a cluster: partitions with GPUs, how jobs start, and which switches join the nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ClusterShell.NodeSet import NodeSet

from fabricheck.errors import UserError
from fabricheck.topology.network import node_set

# Which of srun's interfaces starts the ranks of an MPI library; with another each rank would be alone.
_INTERFACES = {
    "openmpi": ("pmix",),
    "mpich": ("pmi2",),
    "impi": ("pmi2",),
    "cray-mpich": ("cray_shasta",),
}


# The first columns of `sinfo` as `fabricheck.state.capture` asks for them.
_CAPTURED = ("PARTITION", "NODES", "GRES", "NODELIST")
# NVIDIA's names of MIG profiles: `1g.10gb`, `2g.20gb.me`, `1c.3g.40gb`.
_SLICE = r"(?:\d+c\.)?\d+g\.\d+gb[\w.+-]*"


@dataclass(frozen=True)
class Partition:
    """Slurm's partition: its nodes, and `gpus` a node by its gres; `gres`: their type, where it has one."""

    name: str
    nodes: tuple[str, ...]
    gpus: int
    gres: str = ""

    @property
    def slices(self) -> bool:
        """Whether what it gives out are slices of GPUs (MIG), and not GPUs."""
        return re.fullmatch(_SLICE, self.gres) is not None


@dataclass(frozen=True)
class Leaf:
    """A switch of Slurm's topology: nodes or switches below it."""

    name: str
    nodes: tuple[str, ...]
    switches: tuple[str, ...]


@dataclass(frozen=True)
class Slurm:
    """`accounting`: whether sacct knows finished jobs. `interfaces`: of `srun --mpi=list`, None if unknown."""

    partitions: tuple[Partition, ...]
    switches: tuple[Leaf, ...]
    accounting: bool
    interfaces: tuple[str, ...] | None
    plugin: str = ""
    cluster: str = ""

    def interface_of(self, family: str) -> str | None:
        """What `--mpi=` has to say for an MPI library; None where srun has nothing for it."""
        return next((one for one in _INTERFACES.get(family, ()) if one in (self.interfaces or ())), None)


def read_slurm(captured: Mapping[str, str]) -> Slurm | None:
    """What `fabricheck.state.capture.ask_slurm` kept; None where there is no Slurm."""
    if "sinfo" not in captured:
        return None
    config = dict(re.findall(r"^(\w+)\s*= *(.*?) *$", captured.get("config", ""), re.MULTILINE))
    listed = captured.get("mpi", "").replace("specific pmix plugin versions available:", "").split()
    return Slurm(
        partitions=_partitions(captured["sinfo"]),
        switches=_switches(captured.get("topology", "")),
        accounting=config.get("AccountingStorageType", "").endswith("slurmdbd"),
        interfaces=tuple(one.strip(",") for one in listed) if "mpi" in captured else None,
        plugin=config.get("TopologyPlugin", ""),
        cluster=config.get("ClusterName", ""),
    )


def _partitions(text: str) -> tuple[Partition, ...]:
    """One for each partition and gres of its nodes."""
    nodes: dict[tuple[str, int, str], NodeSet] = {}
    for partition, gres, names in _rows_of_nodes(text) if "NodeName=" in text else _rows_of_sinfo(text):
        try:
            nodes.setdefault((partition, *_gpus(gres)), NodeSet()).update(node_set(names))
        except UserError:
            continue
    return tuple(Partition(name, tuple(names), count, kind) for (name, count, kind), names in nodes.items())


def _rows_of_nodes(text: str) -> Iterator[tuple[str, str, str]]:
    """Partition, gres and name of each node in `scontrol show nodes`."""
    for node in text.split("NodeName=")[1:]:
        fields = dict(re.findall(r"\s(\w+)=(\S*)", node))
        for partition in fields.get("Partitions", "").split(","):
            yield partition, fields.get("Gres", ""), node.split()[0]


def _rows_of_sinfo(text: str) -> Iterator[tuple[str, str, str]]:
    """Partition, gres and names of the nodes in a table whose header names its columns, or as it is captured."""
    columns: Sequence[str] = ()
    for line in text.splitlines():
        cells = line.replace("|", " ").split()
        if "NODELIST" in cells:
            columns = cells
            continue
        row = dict(zip(columns or (_CAPTURED if "|" in line else ()), cells, strict=False))
        if {"PARTITION", "NODELIST"} <= row.keys():
            yield row["PARTITION"].rstrip("*"), row.get("GRES", ""), row["NODELIST"]


def _gpus(gres: str) -> tuple[int, str]:
    """GPUs of `gpu:a100:4(S:0-1),shard:8`: 4, a100. MIG slices have a profile for a type; `no_consume` is none."""
    gpu_types = re.findall(rf"(?:^|,)gpu((?::no_consume|:{_SLICE}|:[A-Za-z][\w.-]*)*):(\d+)", gres)
    kinds = [kind for words, _ in gpu_types for kind in words.split(":") if kind not in ("", "no_consume")]
    return sum(int(count) for _, count in gpu_types), kinds[0] if kinds else ""


def _switches(text: str) -> tuple[Leaf, ...]:
    """Of `SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=nid[001-004]` and `SwitchName=top Level=1 Switches=leaf[0-1]`."""
    leaves = []
    for line in text.splitlines():
        entry = dict(re.findall(r"(\w+)=(\S+)", line))
        if "SwitchName" in entry:
            below = entry.get("Switches")
            # A switch of a higher level names all the nodes below it, too.
            try:
                nodes = () if below else tuple(node_set(entry.get("Nodes", "")))
                leaves.append(Leaf(entry["SwitchName"], nodes, tuple(node_set(below)) if below else ()))
            except UserError:
                continue
    return tuple(leaves)


def as_captured(content: Any) -> dict[str, str]:
    """Outputs of Slurm's commands by name, from a captured file; empty for other content."""
    return {str(name): str(text) for name, text in content.items()} if isinstance(content, dict) else {}
