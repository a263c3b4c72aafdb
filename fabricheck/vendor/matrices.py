"""Reads matrices of bandwidths between devices: nvbandwidth (text and JSON), p2pBandwidthLatencyTest, nvloom, and those
of TransferBench. Each matrix is an output of its own (docs/vendor-formats.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from fabricheck.records.finding import Finding
from fabricheck.records.run import Samples
from fabricheck.records.vendor_output import VendorOutput
from fabricheck.records.verdict import Verdict
from fabricheck.results.printed import Line
from fabricheck.vendor.block import Asked, Block, one_time, quote

# Default buffers: --bufferSize of nvbandwidth and nvloom, numElems of CUDA's sample, and of TransferBench.
_BUFFER, _P2P_BUFFER, _AMD_BUFFER = 512 << 20, 160_000_000, 64 << 20
# Less and more than any link or memory has, in GB/s.
_LEAST, _MOST = 1e-3, 1e7
_PAIR = re.compile(
    r"(?:multinode_)?device_to_device_(?P<both>bidirectional_)?(?:memcpy|unidir)_(?P<access>read|write)_(?P<by>ce|sm)"
)
_OTHERS = re.compile(
    r"(?P<operation>host_to_device|device_to_host)_memcpy_(?P<by>ce|sm)|(?P<local>device_local_copy).*"
)
_PART = re.compile(r"\b(?:Read|Write)[12]\b")
_CELL = re.compile(r"N/A|[0-9]{1,7}\.[0-9]{2}", re.ASCII)
_OTHER_UNIT = re.compile(r"\((?!GB/s)\w+/\w+\)")
_MOVERS = {"ce": "copy", "sm": "kernel"}


@dataclass
class _Matrix:
    """A matrix: the test that it is of, its cells by row, and the sum that the tool prints."""

    line: Line
    test: str
    title: str = ""
    width: int = 0
    rows: list[tuple[str, list[str]]] = field(default_factory=list)
    sum: float | None = None


class Matrices(Block):
    """The matrices of nvbandwidth, nvloom and p2pBandwidthLatencyTest."""

    title = "nvbandwidth"
    begins: ClassVar = (
        re.compile(r"nvbandwidth Version: |nvloom_cli \S+$|\[P2P \(Peer-to-Peer\) GPU Bandwidth"),
        re.compile(r"P2P Connectivity Matrix"),
        re.compile(r"Running \w+_(?:ce|sm|copy)\.?$|(?:Uni|Bi)directional P2P="),
    )
    known: ClassVar = {
        "version": re.compile(r"(?P<program>nvbandwidth|nvloom_cli)(?: Version:)? v?(?P<version>\S+)"),
        "device": re.compile(r"Device:? ([0-9]+)[:,] (.+?)(?: \([0-9a-f]{8}:.*|, pciBusID.*)", re.ASCII),
        "process": re.compile(r"Process +([0-9]+) \((\S+)\): device [0-9]+: (.+?) \([0-9a-f]{8}:.*", re.ASCII),
        "size": re.compile(r"(?:Buffer size|bufferSize): (?P<mebibytes>[0-9]{1,6}) MiB"),
        "running": re.compile(r"Running (\w+)\.?"),
        "p2p": re.compile(r"(Uni|Bi)directional P2P=(Enabled|Disabled) .*Matrix \(GB/s\)"),
        "other p2p": re.compile(r"P2P(?:=\w+)? (?:Connectivity|Latency).*Matrix.*"),
        "matrix": re.compile(r"(?:memcpy|memory|multicast|Device to Device|Bisect) .*"),
        "sum": re.compile(r"SUM (\w+) ([0-9]+(?:\.[0-9]+)?)", re.ASCII),
        "failed": re.compile(r"(?:\[\S*\] )?(?:ERROR|Error|Waived|WAIVED).*"),
        "done": re.compile(r"(?:ExecutionTime|Done) .*"),
        "can": re.compile(r"Device=[0-9]+ CAN(?:NOT)? Access Peer Device=[0-9]+"),
    }
    own = re.compile(r"^SUM |GPU\((?:row|column)\)|Matrix|D\\D [^0-9]*$")

    def __init__(self, path: str, asked: Asked) -> None:
        super().__init__(path, asked)
        self.matrices: list[_Matrix] = []

    def read_line(self, kind: str, match: re.Match[str], line: Line) -> None:
        """Begins a matrix, ends it by its sum, or keeps what the line says of the devices."""
        if kind == "device":
            self.devices.append(match[2])
        elif kind == "process":
            self.hosts.append(match[2])
            self.devices.append(match[3])
        elif kind == "running":
            self.matrices.append(_Matrix(line, match[1]))
        elif kind in ("p2p", "other p2p"):
            name = f"p2p_{match[1]}directional_{match[2]}" if kind == "p2p" else "p2p_other"
            self.matrices.append(_Matrix(line, name))
        elif kind == "matrix" and self.matrices:
            if self.matrices[-1].title:
                self.matrices.append(_Matrix(line, self.matrices[-1].test))
            self.matrices[-1].title = line.text.strip()
        elif kind == "sum" and self.matrices:
            self.matrices[-1].sum = float(match[2])
        elif kind == "failed" and self.matrices:
            self.incomplete(line, f"{self.matrices[-1].test} did not run")
        else:
            super().read_line(kind, match, line)

    def take(self, line: Line) -> None:
        """Rows have numbers and N/A alone, but for bars between racks."""
        tokens = line.text.replace("D\\D", " ").replace("|", " ").split()
        cells = [token for token in tokens if _CELL.fullmatch(token) or token.isdecimal()]
        if self.matrices and tokens and len(cells) == len(tokens):
            self.hear(line)
            self.read_cells(line, tokens)
        elif (
            self.matrices and cells and len(cells) >= len(tokens) - 1 and self.matrices[-1].width and tokens[0] in cells
        ):
            self.invalid(line, "not a row of a matrix")
        else:
            super().take(line)

    def is_row(self, tokens: list[str]) -> bool:  # type: ignore[override]
        """None but those that `take` has."""
        return False

    def read_cells(self, line: Line, tokens: list[str]) -> None:
        """The numbers of the columns, or a row with its own."""
        matrix = self.matrices[-1]
        if not matrix.width:
            matrix.width = len(tokens)
            if not matrix.test.startswith("p2p_other") and tokens != [str(index) for index in range(len(tokens))]:
                self.invalid(line, "these are not the numbers of the columns")
        elif len(tokens) != matrix.width + 1 or tokens[0] != str(len(matrix.rows)):
            if not matrix.test.startswith("p2p_other"):
                self.invalid(line, f"not a row of {matrix.width} columns")
        else:
            matrix.rows.append((line.text, tokens[1:]))

    def outputs(self) -> Iterator[VendorOutput]:
        """An output for each matrix of which it is known what was measured; the others are named in the facts."""
        judged = [(matrix, meaning) for matrix in self.matrices if (meaning := meaning_of(matrix)) is not None]
        known = {matrix.test for matrix, _ in judged}
        unread = dict.fromkeys(matrix.test for matrix in self.matrices if matrix.test not in known)
        self.facts |= {"not read": ", ".join(unread)} if unread else {}
        self.version = self.said.get("version")
        if not judged:
            self.incomplete(
                None, "no matrix with one meaning: give the output of a test between two devices, or of one"
            )
            yield self.base(None)
        for matrix, (operation, mover, access) in judged:
            samples = tuple(self.samples_of(matrix, operation))
            yield replace(self.base(matrix), samples=samples, transport=mover, access=access)

    def base(self, matrix: _Matrix | None) -> VendorOutput:
        """The output of a matrix without its samples."""
        tool = self.said.get("program", self.title)
        if matrix is not None and matrix.test.startswith("p2p"):
            tool = "p2pBandwidthLatencyTest"
        name = f"{tool} {matrix.test}" if matrix is not None else tool
        ranks = len(self.devices) or (len(matrix.rows) if matrix is not None else None)
        return VendorOutput(
            name,
            self.version,
            self.path,
            ranks,
            self.facts,
            (),
            tuple(self.problems),
            memory="gpu",
            hosts=tuple(self.hosts),
            devices=tuple(self.devices),
        )

    def samples_of(self, matrix: _Matrix, operation: str) -> Iterator[Samples]:
        """Each cell, where the matrix is whole."""
        p2p = matrix.test.startswith("p2p")
        height = 1 if operation in ("host_to_device", "device_to_host", "local_copy") else matrix.width
        cells = [float(cell) for _, row in matrix.rows for cell in row if cell != "N/A"]
        if len(matrix.rows) != height:
            self.incomplete(matrix.line, f"{len(matrix.rows)} rows instead of {height}: the output was cut off")
            return
        if matrix.sum is None and self.said.get("program") == "nvbandwidth":
            self.incomplete(matrix.line, "the sum is missing: the output was cut off")
            return
        if matrix.sum is not None and abs(matrix.sum - sum(cells)) > 0.01 * (len(cells) + 1) + 1e-5 * sum(cells):
            self.invalid(matrix.line, "the cells do not add up to SUM")
            return
        if p2p and len({len(text.rstrip()) for text, _ in matrix.rows}) > 1:
            self.invalid(matrix.line, "the rows are not aligned: characters were lost or added")
            return
        buffer = int(self.said["mebibytes"]) << 20 if "mebibytes" in self.said else _P2P_BUFFER if p2p else _BUFFER
        shared = 2 if p2p and operation == "bidirectional" else 1
        for row, (_, texts) in enumerate(matrix.rows):
            for column, text in enumerate(texts):
                if text == "N/A" or (p2p and row == column):
                    continue
                if not _LEAST <= float(text) <= _MOST:
                    self.invalid(matrix.line, f"{text} GB/s is impossible")
                    return
                ranks = (row, column) if height > 1 else (column,)
                yield one_time(operation, buffer, ranks, shared * buffer / float(text))


def meaning_of(matrix: _Matrix) -> tuple[str, str, str] | None:
    """Operation, mover and access of a matrix; None where it is not known, or not one transfer by itself.

    Both directions at the same time have a matrix each, and one of their sum, which adds nothing. Old versions
    have one alone, and do not say of which it is.
    """
    if _OTHER_UNIT.search(matrix.title) is not None:
        return None
    if matrix.test.startswith("p2p"):
        kinds = {"p2p_Unidirectional_Enabled": "unidirectional", "p2p_Bidirectional_Enabled": "bidirectional"}
        return (kinds[matrix.test], "copy", "write") if matrix.test in kinds else None
    if (match := _PAIR.fullmatch(matrix.test)) is not None:
        if match["both"] and _PART.search(matrix.title) is None:
            return None
        return "bidirectional" if match["both"] else "unidirectional", _MOVERS[match["by"]], match["access"]
    if (match := _OTHERS.fullmatch(matrix.test)) is not None:
        return match["operation"] or "local_copy", _MOVERS[match["by"] or "ce"], "write"
    return None


def read_nvbandwidth_json(text: str, path: str, asked: Asked) -> Iterator[VendorOutput]:
    """The outputs in a file of `nvbandwidth --json`; damage is a problem, and nothing is raised."""
    block = Matrices(path, asked)
    try:
        fill(block, json.loads(text)["nvbandwidth"])
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        block.invalid(None, f"the file is not as nvbandwidth writes it: {quote(str(error), 60)}")
        block.matrices.clear()
    yield from block.outputs()


def fill(block: Matrices, content: Any) -> None:
    """Reads the file. Raises LookupError, TypeError or ValueError for what is not as the tool writes it."""
    block.said = {"version": str(content.get("version", ""))}
    names: list[str] = next((content[name] for name in content if name.casefold() == "gpu device list"), [])
    block.devices = [str(name).split(": ", 1)[-1].split(" (")[0] for name in names]
    for test in content["testcases"]:
        matrix = _Matrix(Line(1, str(test["name"])), str(test["name"]), str(test.get("bandwidth_description", "")))
        cells = [[str(cell) for cell in row] for row in test.get("bandwidth_matrix", ())]
        matrix.width = len(cells[0]) if cells else 0
        matrix.rows = [("", row) for row in cells]
        rates = [float(cell) for row in cells for cell in row if cell != "N/A"]
        if any(len(row) != matrix.width for row in cells) or not all(rate > 0 for rate in rates):
            raise ValueError(f"a cell of {test['name']} is not a bandwidth")
        matrix.sum = float(test["sum"]) if "sum" in test else None
        block.matrices.append(matrix)


class TransferBench(Block):
    """Transfers of TransferBench, and its matrices of pairs."""

    title = "TransferBench"
    transport = "copy"
    begins: ClassVar = (
        re.compile(r"TransferBench v"),
        re.compile(r"Test [0-9]+:"),
        re.compile(r"(?:Uni|Bi)directional copy peak"),
    )
    known: ClassVar = {
        "version": re.compile(r"TransferBench v(?P<version>\S+).*"),
        "size": re.compile(r"Bytes Per Direction (?P<bytes>[0-9]{1,12})", re.ASCII),
        "matrix": re.compile(r"(Uni|Bi)directional copy peak bandwidth GB/s .*\(GPU-Executor: (GFX|DMA)\)"),
        "header": re.compile(r"SRC(?:\+EXE)?\\(?:EXE\+)?DST +(.*)"),
        "row": re.compile(r"([CG])PU ([0-9]{2}) +(->|<-|<->)((?: +(?:N/A|[0-9]+\.[0-9]{2}))+)", re.ASCII),
        "transfer": re.compile(
            r"Transfer +[0-9]+ *\| *([0-9]+(?:\.[0-9]+)?) GB/s *\|.*?\| *([0-9]+) bytes *\| *"
            r"\(?([CGHFBMN])([0-9]+)\)? *-> *(GFX|DMA|CPU|G|D|C)\w*:?[0-9]*[^>]*-> *\(?([CGHFBMN])([0-9]+)\)?",
            re.ASCII,
        ),
    }
    own = re.compile(r"Transfer +[0-9]+.*GB/s|SRC\+EXE|^[CG]PU [0-9]{2} +(?:->|<)")

    def __init__(self, path: str, asked: Asked) -> None:
        super().__init__(path, asked)
        self.targets: list[str] = []
        self.rowless: set[str] = set()
        self.kind, self.mover = "Uni", "kernel"
        self.found: list[tuple[str, Samples]] = []

    def is_row(self, tokens: list[str]) -> bool:  # type: ignore[override]
        """Its rows are among the known lines."""
        return False

    def read_line(self, kind: str, match: re.Match[str], line: Line) -> None:
        """Adds the transfers of a line."""
        if kind == "matrix":
            self.kind, self.mover = match[1], "copy" if match[2] == "DMA" else "kernel"
        elif kind == "header":
            self.check_rows()
            self.targets = [f"{end[0]}{int(end[4:])}" for end in re.findall(r"[CG]PU [0-9]{2}", match[1])]
            self.rowless = set(self.targets)
        elif kind == "row" and match[3] == "->":
            cells = match[4].split()
            self.rowless.discard(f"{match[1]}{int(match[2])}")
            if len(cells) != len(self.targets):
                self.invalid(line, f"not a row of {len(self.targets)} columns")
                return
            for target, cell in zip(self.targets, cells, strict=True):
                if cell != "N/A":
                    size = int(self.said.get("bytes", _AMD_BUFFER))
                    self.add_transfer((f"{match[1]}{int(match[2])}", target), size, float(cell), self.mover)
        elif kind == "transfer":
            ends = f"{match[3]}{int(match[4])}", f"{match[6]}{int(match[7])}"
            self.kind = "Uni"
            mover = "copy" if match[5].startswith("D") else "kernel"
            self.add_transfer(ends, int(match[2]), float(match[1]), mover)
        elif kind not in ("row", "transfer"):
            super().read_line(kind, match, line)

    def check_rows(self) -> None:
        """Each end that a matrix has a column for has a row."""
        if self.rowless:
            self.incomplete(None, f"a matrix has no row of {', '.join(sorted(self.rowless))}")

    def add_transfer(self, ends: tuple[str, str], size: int, rate: float, mover: str) -> None:
        """Adds a transfer between two ends, such as G0 and C1, in GB/s."""
        of_gpus = tuple(end[0] in "GF" for end in ends)
        ranks = tuple(int(end[1:]) for end in ends if end[0] in "GF")
        names = {(True, True): "unidirectional", (True, False): "device_to_host", (False, True): "host_to_device"}
        operation = names.get((of_gpus[0], of_gpus[1]))
        if operation is None or ends[0] == ends[1] or not _LEAST <= rate <= _MOST:
            return
        if self.kind == "Bi":
            if operation != "unidirectional":
                return
            operation = "bidirectional"
        self.found.append((mover, one_time(operation, size, ranks, size / rate)))

    def outputs(self) -> Iterator[VendorOutput]:
        """An output for each kind of transfer, mover and size."""
        self.check_rows()
        kinds: dict[tuple[str, str, int], list[Samples]] = {}
        for mover, sample in self.found:
            kinds.setdefault((sample.operation, mover, sample.bytes), []).append(sample)
        if not kinds:
            self.incomplete(None, "no transfer between two GPUs, or a GPU and the host")
        problems = tuple(self.problems)
        version = self.said.get("version")
        for (operation, mover, _), samples in (kinds or {("", "copy", 0): []}).items():
            tool = f"{self.title} {operation} by {mover}" if operation else self.title
            yield VendorOutput(
                tool, version, self.path, None, self.facts, tuple(samples), problems, transport=mover, memory="gpu"
            )


def unread(name: str, path: str) -> VendorOutput:
    """An output of a tool that is known by name and not read."""
    message = f"{path or 'the text'}: is an output of {name}, which is not read"
    return VendorOutput(name, None, path, None, {}, (), (Finding("other-tool", Verdict.INVALID, message),))
