"""Is a number normal? What somebody's tool printed, against what the links of a part allow and what others measured."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.judge.nic_values import KnownNic, load_nics
from fabricheck.judge.part_values import Part, load_parts
from fabricheck.judge.policy import Policy, load_policy
from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import CATALOGUE, SYMPTOMS
from fabricheck.records.judgement import Judgement
from fabricheck.records.operations import COLLECTIVES, HOST_PATHS, OPERATIONS, bus_factor
from fabricheck.records.run import Device, Rank, Run, Samples
from fabricheck.records.verdict import Verdict, worst
from fabricheck.results.point_tools import TOOLS, ToolValue, read_points, samples_of
from fabricheck.results.vendor import vendor_outputs
from fabricheck.results.vendor_output import VendorOutput
from fabricheck.topology.model import Nic, Topology, find_topology
from fabricheck.topology.nic import link_layer
from fabricheck.units import apart, format_size, parse_rate

_NICS = re.compile(r"(\d+) x (\d+(?:\.\d+)?) Gb/s(?: ([\w-]+))?", re.ASCII)
_NICS_EXAMPLE = "give the number, rate and link layer of the NICs of a node, such as --nics '8 x 400 Gb/s InfiniBand'"
# What tools and libraries print of the link layer: perftest; NCCL's choice of adapters, by verbs or a plugin.
_LAYER = re.compile(
    r"Link type *: *(?P<perftest>IB|Ethernet)|NET/IB : Using \[0\][\w:]+/(?P<verbs>IB|RoCE)"
    r"|NET/OFI Selected [Pp]rovider is (?P<provider>efa|cxi)"
)
_LAYER_NAMES = {"IB": "InfiniBand", "RoCE": "Ethernet", "efa": "EFA", "cxi": "Slingshot"}
# How drivers and tools name a GPU.
_GPU_NAME = re.compile(r"(?:NVIDIA|Tesla|AMD Instinct|GeForce|Intel\(R\) Data Center GPU) [A-Z][\w -]*\w")
_MPI = ("osu", "IMB")
_MEASURE_AGAIN = (
    "measure again on an idle node; check clocks and links: nvidia-smi -q -d CLOCK,PERFORMANCE; nvidia-smi nvlink -s"
)
_ORDER = (Verdict.INVALID, Verdict.FAIL, Verdict.DEGRADED, Verdict.INCOMPLETE, Verdict.PASS)


@dataclass(frozen=True)
class NodeDescription:
    """What is known of where a number comes from: the part, GPUs of a node, nodes, and NICs as
    `8 x 400 Gb/s InfiniBand`."""

    part: str | None
    gpus: int | None
    nodes: int = 1
    nics: str | None = None


@dataclass(frozen=True)
class Normal:
    """The answer: a verdict, and the lines that say why, six at most."""

    verdict: Verdict
    lines: tuple[str, ...]


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
                option = f"no values of {name[0]}" if name is not None else "the text names no GPU: give --part"
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


def is_normal(text: str, path: str, asked: NodeDescription, root: Path) -> Normal:
    """What has to be reported of the numbers in a text: the worst of them.

    Raises UserError where nothing in it is a number that is read here, and for a part that is not known.
    """
    points = read_points(text)
    layer = _layer_of(text)
    nic = [each for each in points if each.transport == "nic"]
    if nic:
        return _of_nic(nic[0], path, asked, layer, load_nics(root / "reference_values" / "nics" / "known.yaml"))
    known = KnownParts.of(root)
    if asked.nics is not None and layer is not None and len(asked.nics.split()) == 4:
        asked = replace(asked, nics=f"{asked.nics} {layer}")
    part = known.part(asked, text)
    numbers = [*map(_of_point, points), *_of_outputs(vendor_outputs(text, path))]
    if not numbers:
        tools = ", ".join(("nccl-tests", "rccl-tests", "OMB", "IMB", *TOOLS))
        raise UserError(f"{path}: has no readable result: give an output of {tools}")
    judged = [(one, *judge_number(one, part, asked, known)) for one in numbers]
    number, run, topology = min(judged, key=lambda each: _ORDER.index(each[0].verdict(each[1])))
    return Normal(number.verdict(run), tuple(_lines(number, run, topology, part, path)))


def _layer_of(text: str) -> str | None:
    match = _LAYER.search(text)
    word = next((each for each in match.groups() if each), "") if match is not None else ""
    return _LAYER_NAMES.get(word, word) or None


def _of_point(point: ToolValue) -> PastedNumber:
    return PastedNumber(f"{point.tool} {point.what}", point.transport, None, samples_of(point), {}, {}, point.access)


def _of_outputs(outputs: Sequence[VendorOutput]) -> Iterator[PastedNumber]:
    for output in outputs:
        mpi = output.tool.startswith(_MPI)
        if mpi and output.facts.get("accelerator") is None and "GPU" not in output.tool:
            continue  # between hosts
        largest: dict[str, Samples] = {}
        for given in output.samples:
            row = replace(given, operation="bidirectional", ranks=(0, 1)) if given.operation == "sendrecv" else given
            if row.operation in OPERATIONS and row.placement != "in-place":
                known = largest.get(row.operation)
                largest[row.operation] = row if known is None or known.bytes < row.bytes else known
        environment = {name: value for name, value in output.facts.items() if name.startswith(("NCCL_", "RCCL_"))}
        for row in largest.values():
            library = {} if mpi else _library(output.facts.get("nccl_library", ""))
            wrong = min(output.problems, key=lambda each: _ORDER.index(each.verdict), default=None)
            by = "mpi" if mpi else "ccl"
            yield PastedNumber(output.tool, by, output.ranks, row, environment, library, problem=wrong)


def _library(code: str) -> dict[str, str]:
    """`NCCL 2.28.3` of nccl-tests' 22803."""
    if not code.isdecimal() or len(code) < 5:
        return {}
    return {"name": "NCCL", "version": f"{int(code[:-4])}.{int(code[-4:-2])}.{int(code[-2:])}"}


def judge_number(
    number: PastedNumber, part: Part, asked: NodeDescription, known: KnownParts
) -> tuple[RunJudgement, Topology]:
    """The judgement of a number on nodes of a part, and a node. Raises UserError where ranks do not fit the nodes."""
    operation, nodes = number.samples.operation, asked.nodes
    collective = operation in COLLECTIVES
    ranks = number.ranks if collective and number.ranks else len(number.samples.ranks)
    gpus = asked.gpus or (-(-ranks // nodes) if collective else None)
    if collective and gpus is not None:
        ranks = ranks if number.ranks else gpus * nodes
        if ranks != gpus * nodes:
            raise UserError(
                f"the output has {ranks} ranks instead of {nodes} x {gpus}: give --nodes, or --gpus (GPUs of a node)"
            )
    topology = known.node(part, gpus, _nics(asked.nics))
    run = _as_run(number, part, ranks, nodes)
    if not _by_nvlink(topology, number, run):
        topology = replace(topology, nvlink_domain_nodes=1)
    return SystemJudge(topology, None, known.policy, parts=known.parts).judge_alone(run), topology


def _by_nvlink(topology: Topology, number: PastedNumber, run: Run) -> bool:
    """Whether NVLink joins the nodes, where a switch could: unless a variable says no, or NICs could carry as much."""
    if number.environment.get("NCCL_MNNVL_ENABLE") == "0":
        return False
    reached = float(run.samples[0].goodput_gbps[0])
    return not topology.nics or reached > sum(nic.rate_gbps for nic in topology.nics)


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


def _nics(text: str | None) -> tuple[Nic, ...]:
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


def _lines(number: PastedNumber, run: RunJudgement, topology: Topology, part: Part, path: str) -> Iterator[str]:
    if not run.judgements:
        yield f"{run.verdict.value}  {path}: {number.tool}: no large message size"
        return
    (judged,) = run.judgements[-1:]
    nodes = len({each.host for each in run.run.ranks})
    ranks = len(judged.samples.ranks)
    where = f"{nodes} nodes of {len(topology.gpus)} x" if nodes > 1 else "a pair of" if ranks == 2 else f"{ranks} x"
    size = format_size(judged.samples.bytes)
    what = f"{path}: {number.tool}, {where} {part.part}, {size}"
    only = "" if judged.is_judged else " (not judged: only above the minimum)"
    yield f"{number.verdict(run).value}  {what}: {_say(judged, judged.value)}{only}"
    expectation, yard = judged.expectation, judged.yardstick
    if number.problem is not None:
        yield f"  problem      {number.problem.message}"
    elif expectation.expected is not None:
        achievable = expectation.achievable
        payload = f"; payload of healthy links {_say(judged, achievable)}" if achievable is not None else ""
        links = expectation.source.partition(";")[0]
        yield f"  link rate    {_say(judged, expectation.expected)}{payload} ({links})"
    if yard is not None and yard.kind in ("part", "published") and not yard.alarm:
        yield f"  measured     {_say(judged, yard.value)}; passes from {_say(judged, yard.bound)} on: {yard.source}"
    if judged.alarms:
        limits = sorted(judged.alarms, key=lambda one: one.bound, reverse=judged.better == "lower")
        yield "  alert limit  " + "; ".join(one.source for one in limits[:3])
    problems = [*([number.problem] if number.problem is not None else []), *run.problems]
    code = next((each.code for each in problems if each.is_problem), judged.code)
    unknown = [*dict.fromkeys(nic.model for nic in topology.nics if link_layer(nic.model) is None)]
    if nodes > 1 and (unknown or not topology.nics) and topology.nvlink_domain_nodes < nodes:
        yield f"  unknown      how the nodes are joined: {_NICS_EXAMPLE}"
    if not code:
        told = "nothing, the value is normal. To test your system: fabricheck init, then fabricheck run"
        if not judged.is_judged:
            told = "no healthy value is known: compare with an equal node, or with this node after an upgrade"
        yield f"  next         {told}"
        return
    yield f"  likely       {CATALOGUE[code].alone}: fabricheck explain {code}"
    if CATALOGUE[code].symptom == SYMPTOMS[0]:  # slow
        yield f"  next         {_MEASURE_AGAIN}"
    elif CATALOGUE[code].steps:
        yield f"  next         {CATALOGUE[code].steps[0].format(system='SYSTEM', node='the node', part='N', file=path)}"


def _say(judged: Judgement, value: float) -> str:
    if judged.unit != "Gb/s":
        return f"{value:.4g} {judged.unit}"
    operation, ranks = judged.samples.operation, len(judged.samples.ranks)
    if operation in COLLECTIVES and ranks > 1:
        return f"{value / 8 * bus_factor(operation, ranks):.4g} GB/s busbw"
    return f"{value / 8:.4g} GB/s"


def _of_nic(point: ToolValue, path: str, asked: NodeDescription, layer: str | None, nics: Sequence[KnownNic]) -> Normal:
    """Of what crossed a NIC alone: the loosest of the bounds whose memory and link layer are those of the number."""
    wanted = (asked.part or "").lower().replace(" ", "")
    names = (wanted, f"connectx-{wanted}") if wanted else ()
    rates = {each.rate_gbps for each in _nics(asked.nics)}
    named = [one for one in nics if one.nic.lower().replace(" ", "") in names]
    nic = next((one for one in named if not rates or parse_rate(one.rate) in rates), None)
    if nic is None:
        known = ", ".join(dict.fromkeys(one.nic for one in nics))
        raise UserError(f"{path}: is a result of a NIC: give --part, one of {known}")
    rows = [one for one in nic.values if (one.tool, one.memory, one.unit) == (point.what, point.memory, point.unit)]
    better = point.unit != "us"
    sign = 1 if better else -1
    bounds = [one for one in rows if one.alarm_of is not None and (layer is None or one.layer in (None, layer))]
    loosest = min(bounds, key=lambda one: sign * one.value, default=None)
    broken = loosest is not None and sign * point.value < sign * loosest.value
    beyond = better and point.value > parse_rate(nic.rate) * 1.05
    verdict = Verdict.DEGRADED if broken else Verdict.PASS if bounds else Verdict.INCOMPLETE
    verdict = Verdict.INVALID if beyond or not math.isfinite(point.value) else verdict
    size = f", {format_size(point.bytes)}" if point.bytes else ""
    lines = [
        f"{verdict.value}  {path}: {point.what}, {nic.nic}, {point.memory} memory{size}: {point.value:.4g} {point.unit}"
    ]
    if better:
        rate = parse_rate(nic.rate)
        lines.append(f"  link rate    {rate:g} Gb/s a port ({nic.source}); payload {nic.payload}")
    for limit in sorted(bounds, key=lambda one: sign * one.value)[:2]:
        side = apart(point.value, limit.value)
        required = f"{limit.value:g} {limit.unit} that {limit.alarm_of} requires: {limit.conditions}"
        lines.append(f"  alert limit  {side} the {required} ({limit.source})")
    if broken:
        lines.append("  likely       the NIC, its slot, its cable or the memory: fabricheck explain slow-nic")
        lines.append("  next         lspci -vv: LnkSta of the NIC; ibstat: rate; and the NUMA node of the tool")
    return Normal(verdict, tuple(lines))
