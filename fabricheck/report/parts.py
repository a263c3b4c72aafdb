"""What parts of a machine are called by those who pull them, and which command looks at one first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fabricheck.errors import UserError
from fabricheck.expectation.placement import gpu_of_ranks
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.rehearsal import EMULATED
from fabricheck.records.run import Device
from fabricheck.records.verdict import Verdict, worst
from fabricheck.topology.model import Topology

# Whose GPUs an emulated one stands for, by the backend.
_EMULATED = {"cuda": "nvidia", "hip": "amd", "sycl": "intel"}
# `nid001:gpu0-nid002:gpu1`; hosts have hyphens too.
_PAIR = re.compile(r"([^ :]+:[^ :]*?\w)-([^ :]+:.*)")
# What each vendor's tool says of a GPU's links first; {} is the index of the GPU.
_LOOK_AT_GPU = {
    "nvidia": "nvidia-smi nvlink -e -i {}",
    "amd": "rocm-smi --showxgmierr -d {}",
    "intel": "xpu-smi stats -d {}",
}


@dataclass(frozen=True)
class Gpu:
    """A GPU of a node: its name in the topology, its node-local index and what the runtime said of it."""

    name: str
    index: int
    device: Device
    platform: str


@dataclass(frozen=True)
class Parts:
    """The GPUs of the nodes that runs were on, by host and name in the topology, and the other devices' kinds."""

    gpus: Mapping[tuple[str, str], Gpu] = field(default_factory=dict)
    nics: frozenset[str] = frozenset()

    @classmethod
    def of(cls, runs: Sequence[RunJudgement]) -> Parts:
        gpus: dict[tuple[str, str], Gpu] = {}
        nics: set[str] = set()
        for each in runs:
            if each.topology is not None:
                ports = each.topology.network.ports if each.topology.network is not None else ()
                nics |= {*(nic.name for nic in each.topology.nics), *(port.partition(":")[2] for port in ports)}
            for found in _gpus_of(each):
                gpus.setdefault(found[0], found[1])
        return cls(gpus, frozenset(nics))

    def title(self, component: str) -> str:
        """`nid001:gpu2` as `nid001 GPU 2 (bus 0000:08:00.0)`; as it is where it is nothing that is known."""
        host, colon, part = component.partition(":")
        if not colon:
            return component
        if (gpu := self.gpus.get((host, part))) is not None:
            return f"{host} GPU {gpu.index} (bus {gpu.device.bus_id})"
        if part in self.nics:
            return f"{host} NIC {part}"
        if link := self._link(host, part):
            return f"{host} link {self._end(host, link[0])} - {self._end(host, link[1])}"
        return component

    def place(self, place: str) -> str:
        """A place that a message names: a part, `nid001:gpu2 sending`, a pair of parts, or several of these."""
        named = re.sub(r"[\w.][\w.-]*:[\w.]+(?:-[\w.]+)?(?![\w:-])", lambda found: self.title(found[0]), place)
        ends = _split(place)
        return self.pair(ends[0], ends[1], "→" if "→" in place else "↔") if len(ends) == 2 else named

    def pair(self, a: str, b: str, arrow: str) -> str:
        """Two ends of a pair, such as `nid001 GPU 2 → GPU 3`."""
        (host, _, first), (other, _, second) = a.partition(":"), b.partition(":")
        end = self._end(other, second)
        return f"{host} {self._end(host, first)} {arrow} {end if host == other else f'{other} {end}'}"

    def beside(self, component: str, other: str) -> str:
        """`other` where `component` was named already: of a GPU's link only the other end is new."""
        host, _, part = component.partition(":")
        own, _, name = other.partition(":")
        link = self._link(own, name)
        if own == host and part in link:
            return f"its link to {self._end(host, link[1] if part == link[0] else link[0])}"
        return self.title(other)

    def labels(self, component: str) -> tuple[str, ...]:
        """How messages about the node's own state begin that are about this component."""
        host, _, part = component.partition(":")
        gpu = self.gpus.get((host, part))
        return (f"{host}: GPU {gpu.index}: ",) if gpu is not None else (f"{host}: {part}: ",) if part else ()

    def look(self, component: str) -> str:
        """The command that tells most of the component; empty where there is none."""
        host, _, part = component.partition(":")
        for name in (part, *self._link(host, part)):
            if (gpu := self.gpus.get((host, name))) is not None and gpu.platform in _LOOK_AT_GPU:
                return f"on {host}: {_LOOK_AT_GPU[gpu.platform].format(gpu.index)}"
            if name in self.nics:
                return f"on {host}: ethtool -S {name}, or the counters below /sys/class/infiniband/{name}"
        return ""

    def _link(self, host: str, part: str) -> tuple[str, ...]:
        """The two ends of `gpu0-gpu1`; none where it is no link. Names may have hyphens of their own."""
        splits = [(part[:at], part[at + 1 :]) for at, each in enumerate(part) if each == "-" and 0 < at < len(part) - 1]
        known = (ends for ends in splits if any((host, end) in self.gpus or end in self.nics for end in ends))
        return next(known, splits[0] if len(splits) == 1 else ())

    def _end(self, host: str, name: str) -> str:
        gpu = self.gpus.get((host, name))
        return f"GPU {gpu.index}" if gpu is not None else name


def ends_of(place: str) -> tuple[str, ...]:
    """The component that a message's place names first, or the two ends of the pair, in any order the same."""
    return tuple(sorted(_split(place)))


def _split(place: str) -> list[str]:
    first = re.split(r", | or ", place)[0]
    pair = _PAIR.fullmatch(first)
    return [each.partition(" ")[0] for each in (pair.groups() if pair else re.split(r" [→↔] ", first))]


def gpu_names(judged: RunJudgement) -> dict[int, str]:
    """The component that each rank of a run drove, such as `nid001:gpu2`; without a GPU `nid001:rank 2`."""
    indexes = gpu_of_ranks(judged.run)
    return {
        each.rank: f"{each.host}:{_name(judged.topology, indexes[each.rank])}"
        if each.device is not None
        else f"{each.host}:rank {each.rank}"
        for each in judged.run.ranks
    }


def worst_of_parts(runs: Sequence[RunJudgement]) -> Mapping[str, Verdict]:
    """The worst verdict of what was measured on one part alone, such as copies between host and GPU."""
    found: dict[str, Verdict] = {}
    for judged in runs:
        bad = [each for each in judged.judgements if each.verdict is not Verdict.PASS]
        names = gpu_names(judged) if bad else {}
        for each in bad:
            components = {names.get(rank, "") for rank in each.samples.ranks}
            if len(components) == 1:
                component = components.pop()
                found[component] = worst((each.verdict, found.get(component, each.verdict)))
    return found


def _gpus_of(judged: RunJudgement) -> list[tuple[tuple[str, str], Gpu]]:
    found, indexes = [], gpu_of_ranks(judged.run)
    platform = str(judged.run.header.get("platform", ""))
    if platform == EMULATED:
        platform = _EMULATED.get(str(judged.run.header.get("backend")), "")
    for each in judged.run.ranks:
        if each.device is not None:
            index = indexes[each.rank]
            name = _name(judged.topology, index)
            found.append(((each.host, name), Gpu(name, index, each.device, platform)))
    return found


def _name(topology: Topology | None, index: int) -> str:
    try:
        return topology.gpu(index).name if topology is not None else f"gpu{index}"
    except UserError:  # the judge says so
        return f"gpu{index}"
