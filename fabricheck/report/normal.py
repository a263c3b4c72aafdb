"""Is a number normal, and if not, why? The answer to a paste, in six lines at most."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.judge.compare_part import KnownParts, NodeDescription, PastedNumber, judge_number
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import CATALOGUE, SYMPTOMS
from fabricheck.records.judgement import Judgement
from fabricheck.records.operations import COLLECTIVES, HOST_PATHS, OPERATIONS
from fabricheck.records.run import Samples
from fabricheck.records.vendor_output import Remark, VendorOutput
from fabricheck.records.verdict import TELLING, Verdict
from fabricheck.report.content import gigabytes
from fabricheck.report.lines import steps
from fabricheck.report.normal_nic import ALERT, Normal, of_nic, worst_problem
from fabricheck.suite import program
from fabricheck.topology.model import Topology
from fabricheck.topology.nic import link_layer
from fabricheck.units import format_size
from fabricheck.yardsticks.nic_values import load_nics
from fabricheck.yardsticks.part_values import Part

# What tools and libraries print of the link layer: perftest; NCCL's choice of adapters, by verbs or a plugin.
_LAYER = re.compile(
    r"Link type *: *(?P<perftest>IB|Ethernet)|NET/IB : Using \[0\][\w:]+/(?P<verbs>IB|RoCE)"
    r"|NET/OFI Selected [Pp]rovider is (?P<provider>efa|cxi)"
)


_LAYER_NAMES = {"IB": "InfiniBand", "RoCE": "Ethernet", "efa": "EFA", "cxi": "Slingshot"}


# What to look at where a value is too low, by the layer that the data crossed; of AMD's GPUs in the second place.
_NEXT = {
    "network": ("ibstat, or ethtool of each NIC: rate and errors; then ib_write_bw between these nodes",) * 2,
    "host": (
        "nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv; numactl -H",
        "amd-smi static --bus: speed and width; numactl -H",
    ),
    "memory": ("nvidia-smi -q -d CLOCK,PERFORMANCE,ECC", "amd-smi metric --clock --ecc --throttle"),
    "links": ("nvidia-smi nvlink -s; nvidia-smi -q -d CLOCK,PERFORMANCE", "amd-smi xgmi; amd-smi metric --clock"),
}


# A rate that falls to less than half where messages grow is that of another protocol.
_CLIFF = 0.5


_SMALL = 64 << 10


def is_normal(
    outputs: Sequence[VendorOutput], text: str, path: str, asked: NodeDescription, root: Path, *, given: str = ""
) -> Normal:
    """What has to be reported of the outputs that were read in a text: the worst of them.

    `given`: the options of the command that are not in `asked`. Raises UserError where none has a number, and for a
    part that is not known.
    """
    command = _command(path, asked, given)
    measured = [output for output in outputs if output.samples]
    problem = worst_problem([problem for output in outputs for problem in output.problems])
    if not measured and problem is None:
        logs = [remark for output in outputs for remark in output.remarks]
        if not logs:
            raise UserError(f"{path}: has no readable result: give an output of {_TOOLS}")
        return Normal(Verdict.INCOMPLETE, (f"INCOMPLETE  {path}: a log, without a result", *_cited(logs[:4])))
    if not measured and problem is not None:
        line = f"{problem.verdict.value}  {path}: {outputs[0].tool}: no number can be judged"
        lines = [line, f"  problem      {problem.message}"]
        if missing := next((output.missing for output in outputs if output.missing), ""):
            lines.append(f"  missing      {command} {missing}")
        return Normal(problem.verdict, tuple(lines))
    layer = _layer_of(text)
    if nic := [output for output in measured if output.transport == "nic"]:
        nics = load_nics(root / "reference_values" / "nics" / "known.yaml")
        of_nics = [of_nic(output, path, asked, layer, nics, command=command) for output in nic]
        return min(of_nics, key=lambda each: TELLING.index(each.verdict))
    on_gpus = [output for output in measured if _on_gpus(output)]
    if not on_gpus:
        line = f"INCOMPLETE  {path}: {_title(measured[0])}: the data were in host memory"
        missing = "  missing      no GPU took part: measure with device buffers (osu_bw D D), or the NIC (ib_write_bw)"
        lines = [line, *_sizes(measured[0]), missing]
        if problem is not None:
            lines = [f"{problem.verdict.value}  {path}: {_title(measured[0])}", f"  problem      {problem.message}"]
        return Normal(problem.verdict if problem is not None else Verdict.INCOMPLETE, tuple(lines))
    known = KnownParts.of(root)
    if asked.nics is not None and layer is not None and len(asked.nics.split()) == 4:
        asked = replace(asked, nics=f"{asked.nics} {layer}")
    devices = "\n".join(device for output in on_gpus for device in output.devices)
    try:
        part = known.part(asked, devices or text)
    except UserError as error:
        if asked.part is not None or asked.gpus is not None or asked.nics is not None:
            raise
        line = f"INCOMPLETE  {path}: {_title(on_gpus[0])}: not judged"
        missing = f"  missing      {command} --part PART  # {error}"
        return Normal(Verdict.INCOMPLETE, (line, *_sizes(on_gpus[0]), *_cited(on_gpus[0].remarks[:2]), missing))
    answers = [answer for output in on_gpus for answer in _answers(output, part, asked, known)]
    if not answers:
        line = f"INCOMPLETE  {path}: {_title(on_gpus[0])}: an operation that is not judged"
        return Normal(Verdict.INCOMPLETE, (line, *_sizes(on_gpus[0])))
    judged = [answer for answer in answers if answer.is_judged] or answers
    worst_answer = min(judged, key=lambda answer: TELLING.index(answer.verdict))
    return Normal(
        worst_answer.verdict, _shortened(_lines(worst_answer, judged, part, asked, path=path, command=command))
    )


def _command(path: str, asked: NodeDescription, given: str) -> str:
    """The command that judges the text again, with the options that it had."""
    words = [program(), "judge", shlex.quote(path)]
    for name in ("part", "gpus", "nodes", "nics"):
        value = getattr(asked, name)
        if value is not None:
            words.append(f"--{name} {shlex.quote(str(value))}")
    return " ".join([*words, *([given] if given else [])])


_TOOLS = "nccl-tests, OMB, IMB, nvbandwidth, TransferBench, perftest, ucx_perftest (docs/vendor-tools.md has all)"


@dataclass(frozen=True)
class _Answer:
    """One number of an output, judged; `placed`: whether it is known on which nodes its ranks were."""

    output: VendorOutput
    number: PastedNumber
    run: RunJudgement
    topology: Topology
    placed: bool

    @property
    def verdict(self) -> Verdict:
        """That of the number; of ranks whose nodes are unknown, only a value that is right anywhere.

        A number that is only above a minimum is not judged.
        """
        verdict = self.number.verdict(self.run)
        if verdict is Verdict.PASS and not any(judged.is_judged for judged in self.run.judgements):
            return Verdict.INCOMPLETE
        if not self.placed and verdict in (Verdict.FAIL, Verdict.DEGRADED) and self.number.problem is None:
            return Verdict.INCOMPLETE
        return verdict

    @property
    def is_judged(self) -> bool:
        """Whether anything but the minimum judged it, or something is wrong with it."""
        judgements = self.run.judgements
        return self.number.problem is not None or any(not each.unjudged for each in judgements)

    @property
    def is_small(self) -> bool:
        """Whether it is a latency."""
        return self.run.judgements[-1].unit == "us"

    @property
    def nodes(self) -> int:
        """On how many nodes its ranks were."""
        return len({rank.host for rank in self.run.run.ranks})

    @property
    def layer(self) -> str:
        """The layer that the data crossed."""
        operation = self.number.samples.operation
        if self.nodes > self.topology.nvlink_domain_nodes:
            return "network"
        if operation in HOST_PATHS:
            return "host"
        return "memory" if operation == "local_copy" else "links"


_MOST_LINES = 6


def _shortened(lines: Iterable[str]) -> tuple[str, ...]:
    """Six lines at most: limits of others are left out first."""
    every = list(lines)
    if len(every) > _MOST_LINES:
        every = [line for line in every if not line.startswith(ALERT)]
    return tuple(every[:_MOST_LINES])


def _on_gpus(output: VendorOutput) -> bool:
    if output.transport != "mpi" or output.memory:
        return output.memory != "host"
    return output.facts.get("accelerator", "none") != "none" or "GPU" in output.tool


def _answers(output: VendorOutput, part: Part, asked: NodeDescription, known: KnownParts) -> Iterator[_Answer]:
    """The largest and the smallest size of each operation, and of pairs the slowest, judged."""
    asked, placed = _placed(output, asked, known, part)
    problem = worst_problem(output.problems)
    environment = {**output.facts, **output.variables}
    environment = {name: value for name, value in environment.items() if name.startswith(("NCCL_", "RCCL_"))}
    library = {} if output.transport != "ccl" else _library(output.facts.get("nccl_library", ""))
    sizes: dict[tuple[str, int], Samples] = {}
    for given in output.samples:
        row = replace(given, operation="bidirectional", ranks=(0, 1)) if given.operation == "sendrecv" else given
        if row.operation in OPERATIONS and row.placement != "in-place":
            before = sizes.get((row.operation, row.bytes))
            if before is None or row.times_ns[0] > before.times_ns[0]:
                sizes[row.operation, row.bytes] = row
    for operation in dict.fromkeys(name for name, _ in sizes):
        measured = sorted(size for name, size in sizes if name == operation)
        # The time of a message in a stream is no latency.
        smallest = [] if operation.endswith("directional") else [size for size in measured[:1] if size < _SMALL]
        for size in dict.fromkeys((measured[-1], *smallest)):
            row = sizes[operation, size]
            number = PastedNumber(
                output.tool, output.transport, output.ranks, row, environment, library, output.access, problem
            )
            yield _Answer(output, number, *judge_number(number, part, asked, known), placed)


def _placed(
    output: VendorOutput, asked: NodeDescription, known: KnownParts, part: Part
) -> tuple[NodeDescription, bool]:
    """Nodes and GPUs of a node by the names of hosts, or as the caller has them; and whether they are known."""
    hosts = len(set(output.hosts))
    collective = output.samples[0].operation in COLLECTIVES
    if asked.nodes is not None or hosts:
        nodes = asked.nodes or hosts
        gpus = asked.gpus or (len(output.devices) // nodes if len(output.devices) >= nodes else None)
        return replace(asked, nodes=nodes, gpus=gpus), True
    ranks, most = output.ranks or 0, len(known.node(part, None, ()).gpus)
    if collective and ranks > most and ranks % most == 0:
        return replace(asked, nodes=ranks // most, gpus=asked.gpus or most), False
    gpus = asked.gpus or (len(output.devices) if 0 < len(output.devices) <= most else None)
    return replace(asked, nodes=1, gpus=gpus), output.transport != "mpi"


def _title(output: VendorOutput) -> str:
    version = f" {output.version}" if output.version else ""
    return f"{output.tool}{version}"


def _sizes(output: VendorOutput) -> Iterator[str]:
    """The smallest and the largest size of an output, with what was measured of them."""
    rows = sorted(output.samples, key=lambda row: row.bytes)
    for row in dict.fromkeys((rows[0].bytes, rows[-1].bytes)):
        sample = max((one for one in rows if one.bytes == row), key=lambda one: int(one.times_ns[0]))
        small = row < _SMALL
        value = f"{float(sample.latency_us[0]):.4g} us" if small else gigabytes(sample, float(sample.goodput_gbps[0]))
        yield f"  {'small' if small else 'large':12} {sample.operation} {format_size(row)}: {value}"


def _cited(remarks: Sequence[Remark]) -> Iterator[str]:
    for remark in remarks:
        yield f"  line {remark.line:<7} {remark.text}"


def _layer_of(text: str) -> str | None:
    match = _LAYER.search(text)
    word = next((each for each in match.groups() if each), "") if match is not None else ""
    return _LAYER_NAMES.get(word, word) or None


def _library(code: str) -> dict[str, str]:
    """`NCCL 2.28.3` of nccl-tests' 22803."""
    if not code.isdecimal() or len(code) < 5:
        return {}
    return {"name": "NCCL", "version": f"{int(code[:-4])}.{int(code[-4:-2])}.{int(code[-2:])}"}


def _lines(
    answer: _Answer, every: Sequence[_Answer], part: Part, asked: NodeDescription, *, path: str, command: str
) -> Iterator[str]:
    """The answer: what was read, shares, the likely cause with its line, the next command, and what was missing."""
    output, run, topology = answer.output, answer.run, answer.topology
    sizes = [sample.bytes for sample in output.samples]
    where = f"{answer.nodes} x {len(topology.gpus)} {part.part}" if answer.placed else f"{part.part}"
    span = (
        format_size(max(sizes))
        if min(sizes) == max(sizes)
        else f"{format_size(min(sizes))} to {format_size(max(sizes))}"
    )
    outputs = len({id(one.output) for one in every})
    more = f", worst of {outputs} results" if outputs > 1 else ""
    yield f"{answer.verdict.value}  {path}: {_title(output)}, {where}, {span}{more}"
    if not run.judgements:
        yield (
            f"  problem      {answer.number.problem.message}"
            if answer.number.problem
            else "  unknown      no large message"
        )
        return
    same = [one for one in every if one.output is output and one is not answer and one.run.judgements][:1]
    for shown in (answer, *same):
        yield from _share(shown)
    if not same:
        yield from [line for line in _sizes(output) if line.split()[0] != ("small" if answer.is_small else "large")]
    if answer.number.problem is not None:
        yield f"  problem      {answer.number.problem.message.removeprefix(f'{path}: ')}"
    judged = run.judgements[-1]
    problems = [*([answer.number.problem] if answer.number.problem is not None else []), *run.problems]
    code = next((each.code for each in problems if each.is_problem), judged.code)
    if judged.alarms:
        yield ALERT + "; ".join(limit.source for limit in judged.alarms[:2])
    missing = _missing(answer, asked)
    if not code:
        told = "nothing, the value is normal. To test your system: fabricheck init, then fabricheck run"
        if not judged.is_judged:
            told = "no healthy value is known: compare with an equal node, or with this node after an upgrade"
        yield f"  next         {told}"
    else:
        yield f"  likely       {_cause(answer, code)}"
        if answer.number.problem is not None or judged.yardstick is not None or not missing:
            yield f"  next         {_next_step(answer, code, part, path)}"
    if missing and answer.verdict is not Verdict.PASS:
        named = "" if asked.part is not None else f" --part {_word(part)}"
        yield f"  missing      {command}{named}{missing}"


def _share(answer: _Answer) -> Iterator[str]:
    """How much of what the links allow, or of what others measured, a value is."""
    judged = answer.run.judgements[-1]
    yard, expectation = judged.yardstick, judged.expectation
    size = format_size(judged.samples.bytes)
    value = _say(judged, judged.value) + _where(answer)
    if judged.unit == "us" and (yard is None or yard.kind in ("floor", "achievable")):
        share = f"limit {_say(judged, yard.bound)}" if yard is not None else "no value of healthy parts is known"
    elif yard is not None and yard.kind in ("part", "published"):
        share = f"{_percent(judged, yard.value)} of {_say(judged, yard.value)}: {yard.source}"
    elif expectation.achievable is not None or expectation.expected is not None:
        of = expectation.achievable if expectation.achievable is not None else expectation.expected
        assert of is not None
        links = expectation.source.partition(";")[0]
        share = f"{_percent(judged, of)} of {_say(judged, of)}, what the links carry ({links})"
    else:
        share = "no value of healthy parts is known"
    only = "" if judged.is_judged else " (not judged: only above the minimum)"
    yield f"  {'small' if answer.is_small else 'large':12} {size}: {value}, {share}{only}"


def _where(answer: _Answer) -> str:
    """The GPUs of the slowest of several pairs, or the slowest of several GPUs."""
    shown = answer.number.samples
    cells = [row for row in answer.output.samples if (row.operation, row.bytes) == (shown.operation, shown.bytes)]
    if answer.output.transport not in ("copy", "kernel") or len(cells) == 1:
        return ""
    return f" (the slowest, GPU {' to '.join(map(str, shown.ranks))})"


def _percent(judged: Judgement, value: float) -> str:
    return f"{100 * judged.value / value:.3g}%" if value > 0 else "-"


def _cause(answer: _Answer, code: str) -> str:
    """What the text itself says of a low value, with its line; else what is likely of such a finding."""
    remarks = answer.output.remarks
    inside = answer.layer == "links"
    paths = [
        one
        for one in remarks
        if one.kind == "path"
        and (
            one.text.startswith("NET/Socket")
            or (inside and one.text.startswith(("SHM", "NET")))
            or "GDRDMA" not in one.text
        )
    ]
    named = [one for one in remarks if one.kind == "variable" and "DEBUG" not in one.text]
    said = [one for one in remarks if one.kind == "library"]
    cited = [*paths[:1], *said[:1], *named[:2]]
    if cited:
        told = "; ".join(f"line {one.line}: {one.text}" for one in cited)
        what = "the data took another path" if paths else "the text says"
        return f"{what}: {told}"
    if (cliff := _cliff(answer)) is not None:
        return f"another protocol from {format_size(cliff)} on, where the rate falls (eager to rendezvous)"
    return f"{CATALOGUE[code].alone}: fabricheck explain {code}"


def _cliff(answer: _Answer) -> int | None:
    """The size from which on a rate is less than half of that of the next smaller size."""
    rows = [row for row in answer.output.samples if row.operation == answer.number.samples.operation]
    for before, row in itertools.pairwise(rows):
        if before.bytes < row.bytes and float(row.goodput_gbps[0]) < _CLIFF * float(before.goodput_gbps[0]):
            return row.bytes
    return None


def _next_step(answer: _Answer, code: str, part: Part, path: str) -> str:
    if _cliff(answer) is not None and answer.number.transport == "mpi":
        return "UCX_PROTO_INFO=y of the same run: which protocol and lanes it takes; try UCX_RNDV_SCHEME and UCX_TLS"
    possible = steps(Finding(code, answer.verdict, "", (Component.of_node("the node"),), files=(path,)))
    if CATALOGUE[code].symptom == SYMPTOMS[0] or not possible:  # slow
        return _NEXT[answer.layer]["AMD" in part.part or part.part.startswith("MI")]
    return possible[0]


def _missing(answer: _Answer, asked: NodeDescription) -> str:
    """The options that the answer lacked."""
    options = ""
    if not answer.placed and answer.number.samples.operation in COLLECTIVES:
        options += f" --nodes {answer.nodes} --gpus {len(answer.topology.gpus)}"
    elif not answer.placed:
        options += " --nodes 2"
    elif asked.nodes is None and answer.nodes > 1:
        options += f" --nodes {answer.nodes}"
    unknown = any(link_layer(nic.model) is None for nic in answer.topology.nics) or not answer.topology.nics
    crosses = answer.nodes > max(answer.topology.nvlink_domain_nodes, 1) or not answer.placed
    if crosses and unknown and asked.nics is None:
        options += " --nics '8 x 400 Gb/s InfiniBand'"
    return options if not answer.placed or (crosses and unknown) else ""


def _word(part: Part) -> str:
    return part.part.split()[-1] if len(part.part.split()) < 3 else shlex.quote(part.part)


def _say(judged: Judgement, value: float) -> str:
    return gigabytes(judged.samples, value) if judged.unit == "Gb/s" else f"{value:.4g} {judged.unit}"
