"""A number that a tool printed, judged as a run of fabricbench on nodes of a part."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.operations import COLLECTIVES, HOST_PATHS
from fabricheck.records.run import Device, Rank, Run, Samples
from fabricheck.records.verdict import Verdict, worst
from fabricheck.topology.model import Nic, Topology, find_topology
from fabricheck.topology.nic import link_layer
from fabricheck.yardsticks.part_values import Part, load_parts
from fabricheck.yardsticks.policy import Policy, load_policy

_NICS = re.compile(r"(\d+) x (\d+(?:\.\d+)?) Gb/s(?: ([\w-]+))?", re.ASCII)


_NICS_EXAMPLE = "give the number, rate and link layer of the NICs of a node, such as --nics '8 x 400 Gb/s InfiniBand'"


# How drivers and tools name a GPU.
_GPU_NAME = re.compile(r"(?:NVIDIA|Tesla|AMD Instinct|GeForce|Intel\(R\) Data Center GPU) [A-Z][\w -]*\w")


@dataclass(frozen=True)
class NodeDescription:
    """What is known of where a number comes from: the part, GPUs of a node, nodes, and NICs as
    `8 x 400 Gb/s InfiniBand`."""

    part: str | None
    gpus: int | None
    nodes: int | None = None
    nics: str | None = None


@dataclass(frozen=True)
class PastedNumber:
    """One number: by what it was measured, how many ranks took part if the tool says it, and its samples."""

    tool: str
    transport: str
    ranks: int | None
    samples: Samples
    environment: Mapping[str, str]
    library: Mapping[str, str]
    access: str = "write"
    problem: Finding | None = None

    def verdict(self, judged: RunJudgement) -> Verdict:
        """That of the number, no better than what is wrong with the output."""
        return worst([judged.verdict, *([self.problem.verdict] if self.problem is not None else [])])


@dataclass(frozen=True)
class KnownParts:
    """What numbers are judged by: the parts and the policy of a suite at `root`."""

    root: Path
    parts: tuple[Part, ...]
    policy: Policy

    @classmethod
    def of(cls, root: Path) -> KnownParts:
        """Those of a suite."""
        parts = load_parts(root / "reference_values" / "parts")
        return cls(root, parts, load_policy(root / "config" / "policy.yaml"))

    def part(self, asked: NodeDescription, text: str) -> Part:
        """The part that is requested, or whose name is in the text; of several that of which most is known.

        Raises UserError where none is, or none has so many GPUs in a node.
        """
        named = [part for part in self.parts if _is_named(part, asked.part, text) and self._gpus(part)]
        if not named:
            known = ", ".join(part.part for part in self.parts if self._gpus(part))
            option = f"--part {asked.part}: no values"
            if asked.part is None:
                name = _GPU_NAME.search(text)
                option = f"no values of {name[0]}" if name is not None else "the text names no GPU"
            raise UserError(f"{option}. Known parts: {known}")
        able = [part for part in named if self._gpus(part) >= (asked.gpus or 1)]
        if not able:
            most = max(named, key=self._gpus)
            text = f"--gpus {asked.gpus}: {most.part} has at most {self._gpus(most)} in a node"
            raise UserError(f"{text}: give --nodes for several")
        return max(able, key=lambda part: (self._gpus(part) == 8, len(part.values)))

    def _gpus(self, part: Part) -> int:
        if part.system is not None:
            return len(find_topology(part.system, self.root / "site_configs").gpus)
        return part.board.gpus if part.board is not None else 0

    def node(self, part: Part, gpus: int | None, nics: tuple[Nic, ...]) -> Topology:
        """A node of so many GPUs of the part; of all where that is None."""
        if part.board is None:
            node = find_topology(part.system or "", self.root / "site_configs")
            return replace(node, nics=nics, network=None)
        return part.board.node(part.part.removeprefix("NVIDIA "), gpus or part.board.gpus, nics)


def _is_named(part: Part, asked: str | None, text: str) -> bool:
    if asked is None:
        patterns = (re.escape(name).replace(r"\*", r"[^\n]*") for name in part.names)
        return any(re.search(rf"{pattern}(?!\w)", text) for pattern in patterns)
    words = re.split(r"[ _-]", part.part.upper())
    return all(word in words for word in asked.upper().split())


def judge_number(
    number: PastedNumber, part: Part, asked: NodeDescription, known: KnownParts
) -> tuple[RunJudgement, Topology]:
    """The judgement of a number on nodes of a part, and a node. Raises UserError where ranks do not fit the nodes."""
    operation, nodes = number.samples.operation, asked.nodes or 1
    collective = operation in COLLECTIVES
    ranks = number.ranks if collective and number.ranks else len(number.samples.ranks)
    gpus = asked.gpus or (-(-ranks // nodes) if collective else None)
    if collective and gpus is not None:
        ranks = ranks if number.ranks else gpus * nodes
        if ranks != gpus * nodes:
            raise UserError(
                f"the output has {ranks} ranks instead of {nodes} x {gpus}: give --nodes, or --gpus (GPUs of a node)"
            )
    topology = known.node(part, gpus, nics_of(asked.nics))
    run = _as_run(number, part, ranks, nodes)
    alone = replace(topology, nvlink_domain_nodes=1)
    by_nics = SystemJudge(alone, None, known.policy, parts=known.parts).judge_alone(run)
    if topology.nvlink_domain_nodes == 1 or not _by_nvlink(number, by_nics):
        return by_nics, alone
    return SystemJudge(topology, None, known.policy, parts=known.parts).judge_alone(run), topology


def _by_nvlink(number: PastedNumber, by_nics: RunJudgement) -> bool:
    """Whether NVLink joins the nodes, where a switch could: unless a variable says no, or NICs could carry as much."""
    if number.environment.get("NCCL_MNNVL_ENABLE") == "0":
        return False
    judged = by_nics.judgements[-1]
    nominal = judged.expectation.nominal
    return nominal is None or judged.value > nominal


def _as_run(number: PastedNumber, part: Part, ranks: int, nodes: int) -> Run:
    """The number as a run of fabricbench."""
    operation, samples = number.samples.operation, number.samples
    name, bytes_ = part.names[0].replace("*", ""), int(sum(part.memory_gib) / 2 * 2**30)
    members = []
    for rank in range(ranks):
        node = rank * nodes // ranks
        local = rank - -(-node * ranks // nodes)
        gpu = Device(local, name, f"0000:{local:02x}:00.0", f"node{node}-gpu{local}", 0, bytes_)
        members.append(Rank(rank, f"node{node}", local, 1, "0", 0, gpu))
    samples = replace(samples, ranks=tuple(range(ranks)), wrong_bytes=max(0, samples.wrong_bytes), placement="")
    series = {"operation": operation, "schedule": "uncontended", "ranks": [*range(ranks)], "bytes": [samples.bytes]}
    plan = {"series": [{**series, "round": -1}], "access": number.access, "injected": None, "shared_devices": False}
    header = {
        "program": number.tool,
        "transport": number.transport,
        "backend": "cuda",
        "environment": dict(number.environment),
        "host_copy_gbps": None,
        "oversubscribed": False,
        "plan": {**plan, "host_memory": "pinned" if operation in HOST_PATHS else None},
        "ranks": [{"rank": each.rank} for each in members],
        "libraries": {number.transport: number.library} if number.library else {},
    }
    return Run(number.tool, header, tuple(members), (samples,), {"records": 1})


def nics_of(text: str | None) -> tuple[Nic, ...]:
    """The NICs of a node as `8 x 400 Gb/s InfiniBand` describes them. Raises UserError for another form."""
    if text is None:
        return ()
    match = _NICS.fullmatch(text.strip())
    layer = link_layer(match[3] or "") if match is not None else None
    if match is None or not 0 < int(match[1]) <= 64 or (match[3] and layer is None):
        raise UserError(f"--nics {text!r}: {_NICS_EXAMPLE}")
    # Models as `init` names them, of which it is known how much they carry (config/hardware.yaml).
    rate = f"{float(match[2]):g} Gb/sec"
    models = {"InfiniBand": f"InfiniBand {rate}", "Ethernet": f"RoCE {rate}", "EFA": "EFA", "Slingshot": "Slingshot-11"}
    model = models.get(layer or "", layer or "NIC")
    return tuple(Nic(f"nic{each}", model, float(match[2]), "--nics") for each in range(int(match[1])))
