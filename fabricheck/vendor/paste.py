"""The one reader of a paste: every output of a tool in a text, and every log, whoever launched them.

A text is read once, line by line: what a launcher put before the lines is taken off, a line with which outputs begin
begins the next one, and the lines of libraries' logs say which way the data went and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from fabricheck.records.finding import Finding
from fabricheck.records.vendor_output import Remark, VendorOutput
from fabricheck.records.verdict import Verdict
from fabricheck.results.environment import names_a_secret, redacted
from fabricheck.results.printed import Line, read_lines
from fabricheck.results.proof_logs import FALL_BACKS, read_log
from fabricheck.vendor.block import Asked, Block
from fabricheck.vendor.imb import Imb, OneCcl
from fabricheck.vendor.matrices import Matrices, refusal, text_of_json
from fabricheck.vendor.nccl import NcclTests
from fabricheck.vendor.nccl_json import read_nccl_json
from fabricheck.vendor.osu import Osu
from fabricheck.vendor.points import Cxi, Libfabric, NixlBench, Perftest, UcxPerftest

#: The largest text that is read, in bytes.
LARGEST = 8 << 20

_READERS: tuple[type[Block], ...] = (
    *(NcclTests, Osu, Imb, OneCcl, Matrices),
    *(Perftest, Cxi, Libfabric, UcxPerftest, NixlBench),
)
_BEGINNINGS = [(reader, place, how) for reader in _READERS for place, how in enumerate(reader.begins)]
_BEGINNING = re.compile("|".join(f"(?P<b{index}>{how.pattern})" for index, (_, _, how) in enumerate(_BEGINNINGS)))

# Tools whose outputs people paste, and that are not read here, by what they print.
_UNREAD = (
    ("gdrcopy (gdrcopy_copybw, gdrcopy_copylat)", r"^GPU id:\d+; name:|gdr_copy_(?:to|from)_mapping"),
    ("bandwidthTest (CUDA samples)", r"^\[CUDA Bandwidth Test\]"),
    ("dcgmi diag", r"\"DCGM (?:GPU )?Diagnostic\"|Successfully ran diagnostic for group"),
    ("fabtests (ubertest, fi_rdm_atomic)", r"^ *name +bytes +iters +total +time "),
    ("the tests of atomics of libcxi", r"^ *CXI Atomic "),
    ("IMB without its beginning", r"^ *#bytes +#repetitions |^# All processes entering MPI_Finalize"),
    ("perftest in JSON (give its text)", r"\"test_info\"\s*:"),
    ("iperf3", r"\"version\"\s*:\s*\"iperf |^Connecting to host .*, port \d+"),
    ("HPL", r"^HPLinpack |^HPL-NVIDIA |^T/V +N +NB +P +Q "),
    ("nvidia-smi topo", r"^[ \t]*(?:\x1b\[4m)?GPU0\t.*CPU Affinity|^Legend:"),
)
# Variables of the libraries that carry the data, as logs, shells and launchers name them.
_VARIABLE = re.compile(
    r"(?<![A-Za-z0-9_])((?:NCCL|RCCL|UCX|FI|OMPI|MPICH|HSA|I_MPI)_[A-Za-z0-9_]{1,60})"
    r"(?: set (?:by environment )?to |=[\"']?)([^\s\"';]{1,300})"
)
_LIBRARIES = ("NCCL ", "UCX ", " via ")


@dataclass
class _Part:
    """An output and the lines of logs beside it."""

    block: Block | None
    log: list[Line] = field(default_factory=list)
    variables: dict[str, tuple[Line, str]] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)


def read_paste(text: str, path: str = "", asked: Asked | None = None) -> tuple[VendorOutput, ...]:
    """Every output of a tool in a text; none where nothing in it is of one that is known.

    A log by itself is an output without samples. Whatever the text holds, this returns.
    """
    asked = asked or Asked()
    kind, file = _json_in(text)
    if kind == "nccl":
        return (read_nccl_json(file, path, asked),)
    if kind == "nvbandwidth":
        try:
            text = text_of_json(file)
        except ValueError as error:
            return (refusal(kind, path, f"cannot be read: {error}"),)
    return _read(text, path, asked) or tuple(_unread(text, path))


def _unread(text: str, path: str) -> Iterator[VendorOutput]:
    """The refusal of an output of a tool that is not read."""
    plain = "\n".join(line.text for line in read_lines(text))
    for name, how in _UNREAD:
        if re.search(how, plain, re.MULTILINE) is not None:
            yield refusal(name, path, f"is an output of {name}, which is not read", "other-tool")
            return


def _json_in(text: str) -> tuple[str, str]:
    """The tool whose file of JSON is in a text, and the file; "" for none."""
    first = re.search(r"^[ \t]*\{", text, re.MULTILINE)
    if first is None:
        return "", text
    begin = first.start()
    for kind, word in (("nvbandwidth", '"nvbandwidth"'), ("nccl", '"nccl_version"'), ("nccl", '"nccl')):
        if word in text[begin : begin + 100_000]:
            return kind, text[begin:]
    return "", text


def _read(text: str, path: str, asked: Asked) -> tuple[VendorOutput, ...]:
    parts = list(_parts(read_lines(text), path, asked))
    blocks = [part for part in parts if part.block is not None]
    if not blocks:
        return tuple(_of_log(part, path) for part in parts if part.log)
    outputs: list[VendorOutput] = []
    for number, part in enumerate(blocks, start=1):
        where = f"{path or 'the text'}, output {number}" if len(blocks) > 1 else path
        assert part.block is not None
        outputs += [_with_log(_numbered(output, where), part) for output in part.block.outputs()]
    return tuple(outputs)


def _parts(lines: Sequence[Line], path: str, asked: Asked) -> Iterator[_Part]:
    """The outputs. What stands before the first belongs to it, such as a launcher's complaints.

    Each line that tells of a beginning is there once, in an order that differs between versions; the table's heading is
    the last.
    """
    part, seen = _Part(None), set[int]()
    for line in lines:
        match = _BEGINNING.match(line.text.strip())
        if match is not None and match.lastgroup is not None:
            reader, place, _ = _BEGINNINGS[int(match.lastgroup[1:])]
            other = not isinstance(part.block, reader) or place in seen or len(reader.begins) - 1 in seen
            if reader.several and isinstance(part.block, reader):
                other = place == 0 and 0 in seen
            if part.block is None or other:
                before = part
                part, seen = _Part(reader(path, asked)), set()
                if before.block is None:
                    part.log, part.variables, early = before.log, before.variables, before.lines
                    for earlier in early:
                        part.block.take(earlier)  # type: ignore[union-attr]
                else:
                    yield before
            seen.add(place)
        _take(part, line)
    yield part


def _take(part: _Part, line: Line) -> None:
    if any(word in line.text for word in _LIBRARIES):
        part.log.append(line)
    for match in _VARIABLE.finditer(line.text) if "_" in line.text else ():
        if not names_a_secret(match[1]):
            part.variables.setdefault(match[1], (line, redacted(match[2].rstrip("."))))
    if part.block is not None:
        part.block.take(line)
    elif len(part.lines) < 10_000:
        part.lines.append(line)


def _numbered(output: VendorOutput, where: str) -> VendorOutput:
    """The output with its number in the file."""
    problems = [
        replace(problem, message=problem.message.replace(output.path or "the output", where or "the output", 1))
        for problem in output.problems
    ]
    return replace(output, path=where, problems=tuple(problems))


def _of_log(part: _Part, path: str) -> VendorOutput:
    return _with_log(VendorOutput("a log of NCCL", None, path, None, {}, (), ()), part)


def _with_log(output: VendorOutput, part: _Part) -> VendorOutput:
    """With what the logs say; sockets and the like are a fall-back wherever there is RDMA."""
    if not part.log and not part.variables:
        return output
    proof = read_log("nccl", "\n".join(line.text for line in part.log))
    remarks = [*_remarks(part, list(proof.paths))]
    facts = {**output.facts, **({"paths": ", ".join(proof.paths)} if proof.paths else {})}
    variables = {name: value for name, (_, value) in part.variables.items()}
    output = replace(output, facts=facts, variables=variables, remarks=tuple(remarks))
    fallen = [path for path in proof.paths if any(re.search(pattern, path) for pattern in FALL_BACKS)]
    if not fallen:
        return output
    why = next((f": {remark.text}" for remark in remarks if remark.kind == "library"), "")
    text = f"the data took {', '.join(fallen)}, says the log: a fall-back where RDMA exists{why}"
    problem = Finding("path-forbidden", Verdict.INVALID, f"{output.path or 'the output'}: {text}")
    return replace(output, problems=(*output.problems, problem))


# What a library says of itself when it takes another path, or fails.
_SAID = re.compile(
    r"NET/(?:IB|OFI) : No device found.*|(?:GPU Direct RDMA|GDRDMA|DMA-BUF) (?:\(\w+\) )?(?:Disabled|is not available)"
    r".*|NVLS multicast support is not available.*|NCCL WARN .*",
    re.IGNORECASE,
)


def _remarks(part: _Part, paths: Sequence[str]) -> Iterator[Remark]:
    """The first line of each path but NVLink's, of each variable, and of what the library said of itself."""
    for path in paths:
        line = next((line for line in part.log if path.split(" ")[-1] in line.text), None)
        if line is not None and not path.startswith("P2P"):
            yield Remark(line.number, "path", path)
    for name, (line, value) in part.variables.items():
        yield Remark(line.number, "variable", f"{name}={value}")
    said: dict[str, Remark] = {}
    for line in part.log:
        if (match := _SAID.search(line.text)) is not None:
            text = re.sub(r"NCCL WARN (?:\[[^\]]*\] )?", "", match[0]).strip()
            said.setdefault(re.sub(r"\d+", "", text), Remark(line.number, "library", text[:200]))
    yield from said.values()
