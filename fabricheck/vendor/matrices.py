"""Reads matrices of bandwidths between devices: nvbandwidth (text and JSON), p2pBandwidthLatencyTest, nvloom,
TransferBench and rocm_bandwidth_test. Each matrix is an output of its own (docs/vendor-tools.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import ClassVar

from fabricheck.records.finding import Finding
from fabricheck.records.run import Samples
from fabricheck.records.vendor_output import VendorOutput
from fabricheck.records.verdict import Verdict
from fabricheck.results.printed import Line
from fabricheck.vendor.block import Asked, Block, quote
from fabricheck.vendor.printed_tables import one_time

_SAMPLE = "p2pBandwidthLatencyTest"
# Default buffers: --bufferSize of nvbandwidth and nvloom, numElems of CUDA's sample, TransferBench's, and that of
# rocm_bandwidth_test -A and -a (rocm_bandwidth_test_parse.cpp).
_SIZES = {
    "nvbandwidth": 512 << 20,
    "nvloom_cli": 512 << 20,
    _SAMPLE: 160_000_000,
    "TransferBench": 64 << 20,
    "RocmBandwidthTest": 64 << 20,
}
# Less and more than any link or memory has, in GB/s.
_LEAST, _MOST = 1e-3, 1e7
_TEST = re.compile(
    r"(?:(?:multinode_)?device_to_device_(?P<both>bidirectional_)?(?:memcpy|unidir)_(?P<access>read|write)"
    r"|(?P<host>host_to_device|device_to_host)_memcpy)_(?P<by>ce|sm)|(?P<local>device_local_copy).*"
)
_PART = re.compile(r"\b(?:Read|Write)[12]\b")
_OTHER_UNIT = re.compile(r"\((?!GB/s)\w+/\w+\)")
_MOVERS = {"ce": "copy", "sm": "kernel", "DMA": "copy", "GFX": "kernel"}
# What stands in the corner, between racks, and after a row's own end.
_BESIDE = re.compile(r"\bD[\\/]D\b|\bSRC(?:\+EXE)?\\(?:EXE\+)?DST\b|\||(?<!<)->")
_END = re.compile(r"\b([CG])PU 0?(\d+)\b")
_LABEL = re.compile(r"[CG]?\d{1,4}", re.ASCII)
_CELL = re.compile(r"N/A|[0-9]{1,7}\.[0-9]{2,6}|[CG]?\d{1,4}", re.ASCII)


@dataclass
class _Matrix:
    """A matrix: what a cell of it is, its cells by row and column, and the sum that the tool prints.

    `operation`: of pairs of GPUs, or of each GPU by itself; "" where it is not known, or not of one transfer. `both`: a
    cell is the sum of both directions. `transfers`: those that TransferBench prints one by one.
    """

    line: Line
    test: str
    operation: str = ""
    mover: str = "copy"
    access: str = "write"
    both: bool = False
    size: int = 0
    title: str = ""
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[str, list[str]]] = field(default_factory=list)
    transfers: list[tuple[str, str, float]] = field(default_factory=list)
    lengths: set[int] = field(default_factory=set)
    sum: float | None = None

    def set_test(self, name: str) -> None:
        """Takes what is measured from the name of a test of nvbandwidth or nvloom."""
        self.test = name
        match = _TEST.fullmatch(name)
        if match is None:
            self.operation = self.operation if not name else ""
            return
        pairs = "bidirectional" if match["both"] else "unidirectional"
        self.operation = match["host"] or ("local_copy" if match["local"] else pairs)
        self.mover, self.access = _MOVERS[match["by"] or "ce"], match["access"] or "write"
        summed = self.operation == "bidirectional" and _PART.search(self.title) is None
        if self.title and (summed or _OTHER_UNIT.search(self.title) is not None):
            self.operation = ""

    @property
    def height(self) -> int:
        """How many rows it has when it is whole."""
        return 1 if self.operation in ("host_to_device", "device_to_host", "local_copy") else len(self.columns)

    @property
    def cells(self) -> list[tuple[str, str, float]]:
        """Row, column and GB/s."""
        cells = list(self.transfers)
        for label, row in self.rows:
            cells += [(label, end, float(cell)) for end, cell in zip(self.columns, row, strict=True) if cell != "N/A"]
        return cells


class Matrices(Block):
    """The matrices of a tool."""

    title = "nvbandwidth"
    several = True
    begins: ClassVar = (
        re.compile(
            r"nvbandwidth Version: |nvloom_cli \S+$|\[P2P \(Peer-to-Peer\) GPU|TransferBench v|RocmBandwidthTest Ver"
        ),
        re.compile(r"P2P Connectivity Matrix|Test [0-9]+:"),
        re.compile(
            r"Running \w+_(?:ce|sm|copy)\.?$|(?:Uni|Bi?)directional (?:P2P=|copy peak)|mem\w+ .*bandwidth \(GB/s\)$"
        ),
    )
    known: ClassVar = {
        "version": re.compile(
            r"(?P<program>nvbandwidth|nvloom_cli|TransferBench|RocmBandwidthTest)(?: Version:)? v?(?P<version>\S+).*"
        ),
        "device": re.compile(
            r"Device:? ([0-9]+)[:,] +(.+?)(?: \([0-9a-f]{8}:.*|, pciBusID.*|,(?: +GPU-\w+,)? +\w+:\w+\.\d)", re.ASCII
        ),
        "processor": re.compile(r"Device: +([0-9]+), [^,]*\b(?:EPYC|Ryzen|Xeon|CPU|Processor)\b[^,]*"),
        "process": re.compile(r"Process +([0-9]+) \((\S+)\): device [0-9]+: (.+?) \([0-9a-f]{8}:.*", re.ASCII),
        "size": re.compile(r"(?:Buffer size|bufferSize): (?P<mebibytes>[0-9]{1,6}) MiB"),
        "bytes": re.compile(r"Bytes Per Direction (?P<bytes>[0-9]{1,12})", re.ASCII),
        "running": re.compile(r"Running (\w+)\.?"),
        "p2p": re.compile(r"(Uni|Bi)directional P2P=(Enabled|Disabled) .*\(GB/s\)"),
        "amd": re.compile(r"(Uni|Bi?)directional copy peak bandwidth GB/s(?: .*\(GPU-Executor: (GFX|DMA)\))?"),
        "other": re.compile(r"P2P(?:=\w+)? (?:Connectivity|Latency).*Matrix.*|Inter-Device .*|Test [0-9]+:.*"),
        "transfer": re.compile(
            r"Transfer +[0-9]+ *\| *([0-9]+(?:\.[0-9]+)?) GB/s *\|.*?\| *([0-9]+) bytes *\| *"
            r"\(?([CGHFBMN])([0-9]+)\)? *-> *(GFX|DMA|CPU|G|D|C)\w*:?[0-9]*[^>]*-> *\(?([CGHFBMN])([0-9]+)\)?",
            re.ASCII,
        ),
        "matrix": re.compile(r"(?:memcpy|memory|multicast|Device to Device|Bisect) .*"),
        "sum": re.compile(r"SUM (\w+) ([0-9]+(?:\.[0-9]+)?)", re.ASCII),
        "backward": re.compile(r"[CG]PU [0-9]{2} +<-.*"),
        "failed": re.compile(r"(?:\[\S*\] )?(?:ERROR|Error).*"),
        # It stands where the test would have begun.
        "waived": re.compile(r"(?:testcase )?(?:Waived|WAIVED).*"),
        "done": re.compile(r"(?:ExecutionTime|Done) .*"),
        "can": re.compile(r"Device=[0-9]+ CAN(?:NOT)? Access Peer Device=[0-9]+"),
    }
    own = re.compile(
        r"^SUM |directional P2P|GPU\((?:row|column)\)|Matrix|D[\\/]D [^0-9]*$|Transfer +[0-9]+.*GB/s|SRC\+EXE"
    )

    def __init__(self, path: str, asked: Asked) -> None:
        super().__init__(path, asked)
        self.matrices: list[_Matrix] = []
        self.ends: dict[str, str] = {}  # of tools that count processors among the devices

    @property
    def tool(self) -> str:
        """The program."""
        return self.said.get("program", self.title)

    def read_line(self, kind: str, match: re.Match[str], line: Line) -> None:
        """Begins a matrix, ends it by its sum, or keeps what the line says of the devices."""
        super().read_line(kind, match, line)
        last = self.matrices[-1] if self.matrices else _Matrix(line, "")
        if kind == "device":
            self.ends[match[1]] = f"G{len(self.devices)}"
            self.devices.append(match[2])
        elif kind == "processor":
            self.ends[match[1]] = f"C{match[1]}"
        elif kind == "process":
            self.hosts.append(match[2])
            self.devices.append(match[3])
        elif kind == "running":
            self.begin(line, match[1])
        elif kind == "p2p":
            self.said["program"] = _SAMPLE
            operation = f"{match[1].lower()}directional" if match[2] == "Enabled" else ""
            self.matrices.append(_Matrix(line, f"{match[1]}directional P2P={match[2]}", operation, both=True))
        elif kind == "amd":
            self.said.setdefault("program", "TransferBench" if match[2] else "RocmBandwidthTest")
            operation = "unidirectional" if match[1] == "Uni" else "bidirectional"
            mover = _MOVERS[match[2] or "DMA"]
            self.matrices.append(_Matrix(line, f"{operation} by {mover}", operation, mover, both=match[2] is None))
        elif kind == "transfer":
            self.read_transfer(match, line)
        elif kind == "other":
            self.matrices.append(_Matrix(line, match[0]))
        elif kind == "matrix":
            self.name(line.text.strip(), line)
        elif kind == "sum":
            last.sum = float(match[2])
            last.set_test(match[1])
        elif kind == "failed" and self.matrices:
            self.incomplete(line, f"{last.test} did not run")

    def begin(self, line: Line, test: str) -> None:
        """Begins the matrix of a test of nvbandwidth or nvloom."""
        self.matrices.append(_Matrix(line, ""))
        self.matrices[-1].set_test(test)

    def name(self, title: str, line: Line) -> None:
        """Takes the title of a matrix, or of the next one, of which the test stands below it, with its sum.

        Both directions at the same time have a matrix each, and one of their sum, which adds nothing. Old versions
        have one alone, and do not say of which it is.
        """
        if not self.matrices or self.matrices[-1].title or self.matrices[-1].columns:
            self.matrices.append(_Matrix(line, "", "of its sum"))
        self.matrices[-1].title = title
        self.matrices[-1].set_test(self.matrices[-1].test)

    def read_transfer(self, match: re.Match[str], line: Line) -> None:
        """Adds a transfer of TransferBench to those of one executor and size."""
        mover, size = "copy" if match[5].startswith("D") else "kernel", int(match[2])
        if not self.matrices or (self.matrices[-1].mover, self.matrices[-1].size) != (mover, size):
            self.matrices.append(_Matrix(line, f"transfers by {mover}", "unidirectional", mover, size=size))
        source, target = (f"{'G' if end[0] in 'GF' else 'C'}{end[1]}" for end in (match.group(3, 4), match.group(6, 7)))
        self.matrices[-1].transfers.append((source, target, float(match[1])))

    def take(self, line: Line) -> None:
        """Rows have numbers and N/A alone, but for their ends."""
        tokens = line.text.split()
        cells = [token for token in tokens if _CELL.fullmatch(token)]
        if len(cells) < len(tokens) and "<-" not in line.text:
            tokens = _BESIDE.sub(" ", _END.sub(r"\1\2", line.text)).split()
            cells = [token for token in tokens if _CELL.fullmatch(token)]
        if self.matrices and tokens and len(cells) == len(tokens):
            self.hear(line)
            self.read_cells(self.matrices[-1], line, tokens)
        elif self.matrices and self.matrices[-1].columns and len(tokens) - 1 <= len(cells) and tokens[0] in cells:
            self.invalid(line, "not a row of a matrix")
        else:
            super().take(line)

    def is_row(self, tokens: list[str]) -> bool:  # type: ignore[override]
        """None but those that `take` has."""
        return False

    def read_cells(self, matrix: _Matrix, line: Line, tokens: list[str]) -> None:
        """The labels of the columns, or a row with its own."""
        label = self.ends.get(tokens[0], tokens[0])
        if not matrix.operation:
            return
        if not matrix.columns:
            matrix.columns = [self.ends.get(token, token) for token in tokens]
            unknown = self.tool == "RocmBandwidthTest" and not self.ends.keys() >= set(tokens)
            if unknown or len(set(tokens)) != len(tokens) or not all(map(_LABEL.fullmatch, tokens)):
                self.invalid(line, "these are not the numbers of the columns, or of devices that are listed")
        elif (
            len(tokens) != len(matrix.columns) + 1
            or label not in matrix.columns[len(matrix.rows) :][:1]
            or not all("." in cell or cell == "N/A" for cell in tokens[1:])
        ):
            self.invalid(line, f"not the next row of {len(matrix.columns)} columns")
        else:
            matrix.rows.append((label, tokens[1:]))
            matrix.lengths.add(len(line.text.rstrip()))

    def outputs(self) -> Iterator[VendorOutput]:
        """An output for each matrix of which it is known what was measured; the others are named in the facts."""
        read = {matrix.test for matrix in self.matrices if matrix.operation}
        unread = dict.fromkeys(matrix.test for matrix in self.matrices if matrix.test not in read)
        self.facts |= {"not read": ", ".join(unread)} if unread else {}
        measured: list[tuple[_Matrix, list[Samples]]] = []
        for matrix in self.matrices:
            samples = list(self.samples_of(matrix)) if matrix.operation else []
            for operation in dict.fromkeys(sample.operation for sample in samples):
                measured.append((matrix, [sample for sample in samples if sample.operation == operation]))
        if not measured and not self.problems:
            self.incomplete(None, "no matrix with one meaning: give the output of a test of two devices, or of one")
        base = VendorOutput(
            self.tool,
            self.said.get("version"),
            self.path,
            len(self.devices) or None,
            self.facts,
            (),
            tuple(self.problems),
            memory="gpu",
            hosts=tuple(self.hosts),
            devices=tuple(self.devices),
        )
        for matrix, samples in measured:
            ranks = base.ranks or len(matrix.columns) or None
            name = f"{self.tool} {matrix.test}"
            output = replace(base, tool=name, ranks=ranks, samples=tuple(samples))
            yield replace(output, transport=matrix.mover, access=matrix.access)
        if not measured:
            yield base

    def samples_of(self, matrix: _Matrix) -> Iterator[Samples]:
        """Each cell, where the matrix is whole."""
        cells = matrix.cells
        total = sum(rate for _, _, rate in cells)
        if len(matrix.rows) != matrix.height or not cells:
            self.incomplete(matrix.line, f"{len(matrix.rows)} rows instead of {matrix.height}: the output was cut off")
        elif matrix.sum is None and self.tool == "nvbandwidth":
            self.incomplete(matrix.line, "the sum is missing: the output was cut off")
        elif matrix.sum is not None and abs(matrix.sum - total) > 0.01 * (len(cells) + 1) + 1e-5 * total:
            self.invalid(matrix.line, "the cells do not add up to SUM")
        elif self.tool == _SAMPLE and len(matrix.lengths) > 1:
            self.invalid(matrix.line, "the rows are not aligned: characters were lost or added")
        elif not all(_LEAST <= rate <= _MOST for _, _, rate in cells):
            self.invalid(matrix.line, "a bandwidth in it is impossible")
        else:
            said = int(self.said.get("bytes", 0)) or int(self.said.get("mebibytes", 0)) << 20
            size = matrix.size or said or _SIZES[self.tool]
            ends = between if matrix.height > 1 or matrix.transfers else alone
            for source, target, rate in cells:
                operation, ranks = ends(source, target, matrix.operation)
                if operation:
                    streams = 2 if matrix.both and operation == "bidirectional" else 1
                    yield one_time(operation, size, ranks, streams * size / rate)


def alone(_: str, target: str, operation: str) -> tuple[str, tuple[int, ...]]:
    """The operation of one GPU by itself, or with its host."""
    return operation, (int(target.lstrip("GC")),)


@cache
def between(source: str, target: str, operation: str) -> tuple[str, tuple[int, ...]]:
    """The operation between two ends, and their GPUs; none within one end or without a GPU."""
    gpus = [end for end in (source, target) if not end.startswith("C")]
    if source == target or not gpus or (len(gpus) == 1 and operation == "bidirectional"):
        return "", ()
    if len(gpus) == 1:
        operation = "device_to_host" if gpus[0] == source else "host_to_device"
    return operation, tuple(int(end.lstrip("G")) for end in gpus)


def text_of_json(text: str) -> str:
    """What nvbandwidth prints instead of a file of `--json`. Raises ValueError for another file."""
    try:
        content = json.loads(text)["nvbandwidth"]
        lines = [f"nvbandwidth Version: {content.get('version', '-')}"]
        for name in next((content[name] for name in content if name.casefold() == "gpu device list"), []):
            lines.append(f"Device {str(name).split(' (')[0]} (00000000:0)")
        for test in content["testcases"]:
            cells = [
                [cell if cell == "N/A" else f"{float(cell):.2f}" for cell in row] for row in test["bandwidth_matrix"]
            ]
            total = sum(float(cell) for row in cells for cell in row if cell != "N/A")
            lines += [f"Running {test['name']}.", f"memcpy {test.get('bandwidth_description', '')}"]
            lines.append(" ".join(map(str, range(len(cells[0])))))
            lines += [f"{index} {' '.join(row)}" for index, row in enumerate(cells)]
            lines.append(f"SUM {test['name']} {float(test.get('sum', total)):.2f}")
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is not as nvbandwidth writes it: {quote(str(error), 60)}") from None
    return "\n".join(lines)


def refusal(tool: str, path: str, why: str, code: str = "output-damaged") -> VendorOutput:
    """An output that cannot be read."""
    problem = Finding(code, Verdict.INVALID, f"{path or 'the text'}: {why}")
    return VendorOutput(tool, None, path, None, {}, (), (problem,))
