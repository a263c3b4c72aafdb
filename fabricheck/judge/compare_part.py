"""Is a number normal? What somebody's tool printed, against what the links of a part allow and what others measured."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.judge.nic_values import KnownNic, load_nics
from fabricheck.judge.part_values import Part, PartValue, RunContext, in_unit, load_parts, matches
from fabricheck.judge.policy import Policy, load_policy
from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import CATALOGUE, SYMPTOMS
from fabricheck.records.judgement import Judgement
from fabricheck.records.metrics import Metric
from fabricheck.records.operations import COLLECTIVES, HOST_PATHS, OPERATIONS, bus_factor
from fabricheck.records.run import Device, Rank, Run, Samples
from fabricheck.records.verdict import Verdict, worst
from fabricheck.results.point_tools import TOOLS, ToolValue, read_points, samples_of
from fabricheck.results.vendor import vendor_outputs
from fabricheck.results.vendor_output import VendorOutput
from fabricheck.topology.model import Nic, Topology
from fabricheck.units import apart, format_size, parse_rate

_NICS = re.compile(r"(\d+) x (\d+(?:\.\d+)?) Gb/s", re.ASCII)
_MPI = ("osu", "IMB")
_MEASURE_AGAIN = (
    "measure again on an idle node; check clocks and links: nvidia-smi -q -d CLOCK,PERFORMANCE; nvidia-smi nvlink -s"
)
_ORDER = (Verdict.INVALID, Verdict.FAIL, Verdict.DEGRADED, Verdict.INCOMPLETE, Verdict.PASS)


@dataclass(frozen=True)
class NodeDescription:
    """What is known of where a number comes from: the part, GPUs of a node, nodes, and NICs as `8 x 400 Gb/s`."""

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
class _Number:
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


def is_normal(text: str, path: str, asked: NodeDescription, root: Path) -> Normal:
    """What has to be reported of the numbers in a text: the worst of them.

    Raises UserError where nothing in it is a number that is read here, and for a part that is not known.
    """
    points = read_points(text)
    nic = [each for each in points if each.transport == "nic"]
    if nic:
        return _of_nic(nic[0], path, asked, load_nics(root / "reference_values" / "nics" / "known.yaml"))
    parts = load_parts(root / "reference_values" / "parts")
    part = _part(parts, asked, text)
    numbers = [*map(_of_point, points), *_of_outputs(vendor_outputs(text, path))]
    if not numbers:
        known = ", ".join(("nccl-tests", "rccl-tests", "OMB", "IMB", *TOOLS))
        raise UserError(f"{path}: has no readable result: give an output of {known}")
    policy = load_policy(root / "config" / "policy.yaml")
    judged = [(one, *_judged(one, part, parts, asked, policy)) for one in numbers]
    number, run, topology = min(judged, key=lambda each: _ORDER.index(each[0].verdict(each[1])))
    lines = tuple(_lines(number, run, topology, (part, parts), path))
    return Normal(number.verdict(run), lines)


def _part(parts: Sequence[Part], asked: NodeDescription, text: str) -> Part:
    """The part that is requested, or whose name is in the text; of several the first whose board has so many GPUs."""
    if asked.part is None:
        parts_named = [
            part for part in parts if any(re.search(fnmatch.translate(f"*{name}*"), text) for name in part.names)
        ]
    else:
        words = asked.part.upper().split()
        parts_named = [part for part in parts if all(word in re.split(r"[ _-]", part.part.upper()) for word in words)]
    boards = {part.part: part.board.gpus for part in parts_named if part.board is not None}
    able = [part for part in parts_named if boards.get(part.part, 0) >= (asked.gpus or 1)]
    if not boards:
        known = ", ".join(part.part for part in parts if part.board is not None)
        option = f"--part {asked.part}: no values" if asked.part is not None else "the text names no GPU: give --part"
        raise UserError(f"{option}. Known parts: {known}")
    if not able:
        name = max(boards, key=boards.__getitem__)
        raise UserError(f"--gpus {asked.gpus}: {name} has at most {boards[name]} in a node: give --nodes for several")
    return max(able, key=lambda part: len(part.values) + 1000 * (part.board is not None and part.board.gpus == 8))


def _of_point(point: ToolValue) -> _Number:
    return _Number(f"{point.tool} {point.what}", point.transport, None, samples_of(point), {}, {}, point.access)


def _of_outputs(outputs: Sequence[VendorOutput]) -> Iterator[_Number]:
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
            yield _Number(output.tool, by, output.ranks, row, environment, library, problem=wrong)


def _library(code: str) -> dict[str, str]:
    """`NCCL 2.28.3` of nccl-tests' 22803."""
    if not code.isdecimal() or len(code) < 5:
        return {}
    return {"name": "NCCL", "version": f"{int(code[:-4])}.{int(code[-4:-2])}.{int(code[-2:])}"}


def _judged(
    number: _Number, part: Part, parts: Sequence[Part], asked: NodeDescription, policy: Policy
) -> tuple[RunJudgement, Topology]:
    assert part.board is not None
    operation, nodes = number.samples.operation, asked.nodes
    collective = operation in COLLECTIVES
    ranks = number.ranks if collective and number.ranks else len(number.samples.ranks)
    gpus = asked.gpus or (-(-ranks // nodes) if collective else part.board.gpus)
    if collective:
        ranks = ranks if number.ranks else gpus * nodes
        if ranks != gpus * nodes:
            raise UserError(
                f"the output has {ranks} ranks instead of {nodes} x {gpus}: give --nodes, or --gpus (GPUs of a node)"
            )
    topology = part.board.node(part.part.removeprefix("NVIDIA "), gpus, _nics(asked.nics))
    device = (part.names[0].replace("*", ""), int(sum(part.memory_gib) / 2 * 2**30))
    members = []
    for rank in range(ranks):
        node = rank * nodes // ranks
        local = rank - -(-node * ranks // nodes)
        gpu = Device(local, device[0], f"0000:{local:02x}:00.0", f"node{node}-gpu{local}", 0, device[1])
        members.append(Rank(rank, f"node{node}", local, 1, "0", 0, gpu))
    samples = replace(number.samples, ranks=tuple(range(ranks)), wrong_bytes=max(0, number.samples.wrong_bytes))
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
    run = Run(number.tool, header, tuple(members), (replace(samples, placement=""),), {"records": 1})
    judge = SystemJudge(topology, None, policy, parts=tuple(parts))
    return judge.judge_alone(run), topology


def _nics(text: str | None) -> tuple[Nic, ...]:
    if text is None:
        return ()
    match = _NICS.fullmatch(text.strip())
    if match is None or not 0 < int(match[1]) <= 64:
        raise UserError(f"--nics {text!r}: give the number and rate of the NICs of a node, such as '8 x 400 Gb/s'")
    return tuple(Nic(f"nic{each}", "NIC", float(match[2]), "--nics") for each in range(int(match[1])))


def _lines(
    number: _Number, run: RunJudgement, topology: Topology, known: tuple[Part, Sequence[Part]], path: str
) -> Iterator[str]:
    part, parts = known
    if not run.judgements:
        yield f"{run.verdict.value}  {path}: {number.tool}: no large message size"
        return
    (judged,) = run.judgements[-1:]
    nodes = len({each.host for each in run.run.ranks})
    ranks = len(judged.samples.ranks)
    where = f"{nodes} nodes of {len(topology.gpus)} x" if nodes > 1 else "a pair of" if ranks == 2 else f"{ranks} x"
    size = format_size(judged.samples.bytes)
    what = f"{path}: {number.tool}, {where} {part.part}, {size}"
    only = " (above the minimum)" if judged.judged_by == "floor" and judged.verdict is Verdict.PASS else ""
    yield f"{number.verdict(run).value}  {what}: {_say(judged, judged.value)}{only}"
    expected, achievable = judged.expectation.expected, judged.expectation.achievable
    if number.problem is not None:
        yield f"  problem      {number.problem.message}"
    elif expected is not None:
        payload = f"; payload of healthy links {_say(judged, achievable)}" if achievable is not None else ""
        yield f"  link rate    {_say(judged, expected)}{payload} ({judged.expectation.source.partition(';')[0]})"
    rows = [*_rows(judged, run, topology, parts)]
    measured = next((one for one in rows if one[1].alarm_of is None), None)
    if measured is not None:
        of, row = measured
        conditions = row.conditions or f"{row.machines} machines"
        yield f"  measured     {row.value:g} {row.unit}: {conditions} ({of.sources[row.source].source})"
    yard = judged.yardstick
    alarms = [one for one in rows if one[1].alarm_of is not None]
    if yard is not None and yard.alarm:
        yield f"  alert limit  {apart(judged.value, yard.value)} the {yard.source}"
    elif alarms:
        told = "; ".join(f"{row.value:g} {row.unit} ({row.alarm_of})" for _, row in alarms[:3])
        yield f"  alert limits {told}"
    problems = [*([number.problem] if number.problem is not None else []), *run.problems]
    code = next((each.code for each in problems if each.is_problem), judged.code)
    if not code:
        told = "nothing, the value is normal. To test your system: fabricheck init, then fabricheck run"
        if judged.judged_by == "floor":
            told = "no healthy value is known: compare with an equal node, or with this node after an upgrade"
        yield f"  next         {told}"
        return
    yield f"  likely       {CATALOGUE[code].alone}: fabricheck explain {code}"
    if CATALOGUE[code].symptom == SYMPTOMS[0]:  # slow
        yield f"  next         {_MEASURE_AGAIN}"
    elif CATALOGUE[code].steps:
        yield f"  next         {CATALOGUE[code].steps[0].format(system='SYSTEM', node='the node', part='N', file=path)}"


def _rows(
    judged: Judgement, run: RunJudgement, topology: Topology, parts: Sequence[Part]
) -> Iterator[tuple[Part, PartValue]]:
    """What the parts' files say of it."""
    metric = Metric(judged.name, "goodput" if judged.better == "higher" else "latency", judged.samples)
    facts = RunContext(run.run, topology)
    for part in parts:
        if all(part.is_of(each) for each in facts.devices.values()):
            for row in sorted(part.values, key=lambda one: -one.machines):
                known = in_unit(row.value, row.unit, metric, judged.expectation, run.run) is not None
                if known and matches(row.where, metric, facts):
                    yield part, row


def _say(judged: Judgement, value: float) -> str:
    if judged.unit != "Gb/s":
        return f"{value:.4g} {judged.unit}"
    operation, ranks = judged.samples.operation, len(judged.samples.ranks)
    if operation in COLLECTIVES and ranks > 1:
        return f"{value / 8 * bus_factor(operation, ranks):.4g} GB/s busbw"
    return f"{value / 8:.4g} GB/s"


def _of_nic(point: ToolValue, path: str, asked: NodeDescription, nics: Sequence[KnownNic]) -> Normal:
    """Of what crossed a NIC alone."""
    wanted = (asked.part or "").lower().replace(" ", "")
    nic = next(
        (one for one in nics if wanted and one.nic.lower().replace(" ", "") in (wanted, f"connectx-{wanted}")), None
    )
    if nic is None:
        known = ", ".join(one.nic for one in nics)
        raise UserError(f"{path}: is a result of a NIC: give --part, one of {known}")
    rows = [one for one in nic.values if (one.tool, one.memory, one.unit) == (point.what, point.memory, point.unit)]
    better = point.unit != "us"
    bounds = sorted((one for one in rows if one.alarm_of is not None), key=lambda one: one.value, reverse=better)
    broken = [one for one in bounds if (point.value < one.value if better else point.value > one.value)]
    verdict = Verdict.DEGRADED if broken else Verdict.PASS if bounds else Verdict.INCOMPLETE
    size = f", {format_size(point.bytes)}" if point.bytes else ""
    lines = [
        f"{verdict.value}  {path}: {point.what}, {nic.nic}, {point.memory} memory{size}: {point.value:.4g} {point.unit}"
    ]
    if better:
        rate = parse_rate(nic.rate)
        lines.append(f"  link rate    {rate:g} Gb/s a port ({nic.source}); payload {nic.payload}")
    for limit in (broken or bounds)[:1]:
        side = apart(point.value, limit.value)
        required = f"{limit.value:g} {limit.unit} that {limit.alarm_of} requires: {limit.conditions}"
        lines.append(f"  alert limit  {side} the {required} ({limit.source})")
    if broken:
        lines.append("  likely       the NIC, its slot, its cable or the memory: fabricheck explain slow-nic")
        lines.append("  next         lspci -vv: LnkSta of the NIC; ibstat: rate; and the NUMA node of the tool")
    return Normal(verdict, tuple(lines))
