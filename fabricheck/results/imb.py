"""Reads the output of the Intel MPI Benchmarks, IMB-MPI1 and IMB-MPI1-GPU (docs/vendor-formats.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath

from fabricheck.records.run import Samples, list_ranks
from fabricheck.results.vendor_output import HEADINGS, TextRow, ToolReader, VendorOutput, read_tool, wrong_bytes
from fabricheck.results.vendor_text import LARGEST_RANKS, Line, one_time, products_agree, whole_number


@dataclass(frozen=True)
class _Benchmark:
    """`scale`: buffers that IMB counts in its rate; `per_rank`: the size is a share, and a buffer has one a rank."""

    operation: str
    scale: int = 0
    pair: bool = False
    per_rank: bool = False
    reduces: bool = False


_BENCHMARKS = {
    "PingPong": _Benchmark("pingpong", scale=1, pair=True),
    "PingPing": _Benchmark("bidirectional", scale=1, pair=True),
    "Sendrecv": _Benchmark("sendrecv", scale=2),
    "Uniband": _Benchmark("unidirectional", scale=1),
    "Biband": _Benchmark("bidirectional", scale=2),
    "Allreduce": _Benchmark("allreduce", reduces=True),
    "Reduce": _Benchmark("reduce", reduces=True),
    "Reduce_scatter": _Benchmark("reduce_scatter", reduces=True),
    "Allgather": _Benchmark("allgather", per_rank=True),
    "Alltoall": _Benchmark("alltoall", per_rank=True),
    "Bcast": _Benchmark("broadcast"),
}
_BANDS = frozenset({"Uniband", "Biband"})
_TABLES = (
    ("bytes", "repetitions", "time", "rate"),
    ("bytes", "repetitions", "minimum", "maximum", "average", "rate"),
    ("bytes", "repetitions", "minimum", "maximum", "average"),
    ("bytes", "repetitions", "rate", "messages"),
)
_DATATYPE_BYTES = {"MPI_BYTE": 1, "MPI_CHAR": 1, "MPI_INT": 4, "MPI_FLOAT": 4, "MPI_DOUBLE": 8}
_DEFAULT_LOG = (0, 22)

_VERSION = re.compile(r"#\s+Intel\(R\) MPI Benchmarks (\S{1,40}),? .*", re.ASCII)
_PROCESSES = re.compile(r"# #processes = ([0-9]{1,9})(?:; rank order .*)?", re.ASCII)
_GROUPS = re.compile(r"# \( ([0-9]{1,6}) groups of ([0-9]{1,6}) processes each running simultaneous \)", re.ASCII)
_GROUP = re.compile(r"# Group +[0-9]+:[ 0-9]+", re.ASCII)
_WAITING = re.compile(r"# \( ([0-9]{1,9}) additional process(?:es)? waiting in MPI_Barrier\)", re.ASCII)
_FACT = re.compile(
    r"# (MPI_Datatype|MPI_Datatype for reductions|MPI_Op|MPI Version)\s*:\s+([A-Za-z0-9_.]{1,40})", re.ASCII
)
_EXTENT = re.compile(r"# (Minimum|Maximum) message length in bytes:\s+([0-9]{1,19})", re.ASCII)
_NAME = re.compile(r"# ([A-Za-z_]{1,40})", re.ASCII)
_LEFT_OUT = re.compile(r"\s*[0-9]+ (?:out-of-mem\.|time-out\.|int-overflow)", re.ASCII)
_LOG = re.compile(r"([0-9]{1,2}):([0-9]{1,2})", re.ASCII)


@dataclass
class _Section:
    """One benchmark with one number of processes; `groups` of so many ran at the same time, with -multi 0."""

    line: Line
    name: str
    processes: int = 0
    waiting: int = 0
    groups: int = 1
    columns: tuple[str, ...] | None = None
    rows: list[TextRow] = field(default_factory=list)


def parse_imb(text: str, path: str = "", *, ranks: int | None = None, tool: str | None = None) -> VendorOutput:
    """The measurements in the standard output of one run of IMB-MPI1 or IMB-MPI1-GPU, of one benchmark or several.

    `ranks` is how many processes were started, where the caller knows, and `tool` what `VendorOutput.tool` has to be
    (`IMB-MPI1 PingPong`). Of the times that IMB prints for the ranks the largest is taken. The two ends of a `Sendrecv`
    by two ranks make it bidirectional; with more it is a ring, `sendrecv`. Whatever the text holds, this returns.
    """
    return read_tool(_Reader, text, path, ranks, tool=tool)


@dataclass
class _Reader(ToolReader):
    title = "IMB"
    never_zero = ("maximum", "time", "messages")

    program: str | None = None
    extent: dict[str, int] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    reading: str = ""  # the part of the preamble: arguments, list
    sections: list[_Section] = field(default_factory=list)
    ended: bool = False

    def name_and_ranks(self) -> tuple[str, int | None]:
        names = ",".join(dict.fromkeys(each.name for each in self.sections))
        tool = f"{self.program or 'IMB-MPI1'} {names}".strip()
        if self.tool not in (None, tool):
            self.complaints.invalid(None, f"this is the output of {tool} instead of {self.tool}")
        return tool, max((each.processes + each.waiting for each in self.sections), default=None)

    def read(self, line: Line, text: str) -> None:
        if text.startswith(("#bytes", "#repetitions")):
            self.read_columns(line, text.split())
        elif text.startswith("#"):
            self.read_comment(line, text)
        elif "Benchmarking " in text or "#bytes" in text or "#processes" in text:
            self.complaints.invalid(line, "this is not a line of IMB-MPI1 that can be read, or two outputs are mixed")
        elif text.startswith("Invalid benchmark name"):
            self.complaints.invalid(line, "a benchmark does not exist")
        elif _LEFT_OUT.match(text) is not None:
            self.complaints.incomplete(line, "sizes from here on were left out")
        elif self.is_row(tokens := text.split()):
            self.read_row(line, tokens)

    def read_comment(self, line: Line, text: str) -> None:
        if text.startswith("#---"):
            self.reading = ""
        elif text.startswith("# Benchmarking "):
            name = text.removeprefix("# Benchmarking ").strip()
            self.sections.append(_Section(line, name.removeprefix("Multi-")))
        elif text.startswith("# All processes entering MPI_Finalize"):
            if self.ended:
                self.complaints.invalid(line, "two outputs are in one text")
            self.ended = True
        elif text.startswith("# !! Benchmark ") and " invalid for " in text:
            self.complaints.invalid(line, "a benchmark did not run")
        elif self.sections and self.sections[-1].columns is None:
            self.read_processes(line, text)
        else:
            self.read_preamble(line, text)

    def read_preamble(self, line: Line, text: str) -> None:
        if text.startswith("# List of Benchmarks to run"):
            self.reading = "list"
        elif text.startswith("# Calling sequence was"):
            self.reading = "arguments"
        elif text.startswith("# Message lengths were user defined"):
            self.reading = ""
        elif (match := _VERSION.fullmatch(text)) is not None:
            if self.version is not None:
                self.complaints.invalid(line, "two outputs are in one text")
            self.version = match[1].rstrip(",")
        elif (match := _EXTENT.fullmatch(text)) is not None:
            self.reading = ""
            self.extent[match[1]] = int(match[2])
        elif (match := _FACT.fullmatch(text)) is not None:
            self.facts[match[1].lower().replace(" ", "_")] = match[2]
        elif self.reading == "arguments":
            self.arguments += text.lstrip("#").split()
        elif self.reading == "list" and (match := _NAME.fullmatch(text)) is not None:
            self.listed.append(match[1])
        elif "processes" in text or "MPI_Barrier" in text or "[usec]" in text:
            self.complaints.invalid(line, "this line is unexpected here")

    def read_processes(self, line: Line, text: str) -> None:
        section = self.sections[-1]
        if (match := _PROCESSES.fullmatch(text)) is not None and not section.processes:
            section.processes = min(int(match[1]), LARGEST_RANKS)
        elif (match := _WAITING.fullmatch(text)) is not None and not section.waiting:
            section.waiting = int(match[1])
        elif (match := _GROUPS.fullmatch(text)) is not None and not section.processes:
            section.groups, section.processes = int(match[1]), min(int(match[2]), LARGEST_RANKS)
            section.waiting = (section.groups - 1) * section.processes
        elif text.strip("# ") and not (section.groups > 1 and _GROUP.fullmatch(text)):
            self.complaints.invalid(line, "this is not part of a heading that can be read")

    def read_columns(self, line: Line, names: list[str]) -> None:
        if not self.sections or self.sections[-1].columns is not None:
            self.complaints.invalid(line, "a table begins without a benchmark")
            return
        section = self.sections[-1]
        columns = tuple(HEADINGS[name][0] if name in HEADINGS else "?" for name in names)
        section.columns = ()
        table = columns[:-1] if columns[-1] == "wrong" else columns
        benchmark = _BENCHMARKS.get(section.name)
        if benchmark is None:
            self.complaints.invalid(section.line, "this benchmark of IMB cannot be read")
        elif (
            table not in _TABLES
            or ("rate" in table) != (benchmark.scale > 0)
            or ("messages" in table) != (section.name in _BANDS)
        ):
            self.complaints.invalid(line, f"the columns are not those of {section.name}")
        else:
            section.columns = columns

    def read_row(self, line: Line, tokens: list[str]) -> None:
        section = self.sections[-1] if self.sections else None
        if section is None or section.columns is None:
            self.complaints.invalid(line, "numbers outside a table")
            return
        if not section.columns:
            return  # the header was no header
        numbers = dict(HEADINGS.values())
        if (row := self.row(line, tokens, {name: numbers[name] for name in section.columns})) is not None:
            section.rows.append(row)

    def check(self) -> Iterator[Samples]:
        complaints = self.complaints
        if self.version is None or not self.arguments:
            complaints.incomplete(
                None, "the heading of IMB is missing: it did not start, or this is another program's output"
            )
            return
        self.program = PurePath(self.arguments[0]).name
        if self.program not in ("IMB-MPI1", "IMB-MPI1-GPU"):
            complaints.invalid(None, "the program is neither IMB-MPI1 nor IMB-MPI1-GPU")
            self.program = None
        if not self.ended:
            complaints.incomplete(None, "not all processes completed: the output was cut off, or the run crashed")
        self.check_sections()
        for section in self.sections:
            benchmark = _BENCHMARKS.get(section.name)
            if benchmark is not None and section.columns:
                yield from self.samples(section, benchmark)

    def check_sections(self) -> None:
        complaints = self.complaints
        names = [each.name for each in self.sections]
        missing = [name for name in self.listed if name not in names]
        if missing or not names:
            complaints.incomplete(None, f"benchmarks are missing: {', '.join(missing) or 'all'}")
        if sorted(set(names) - set(self.listed)) or len(set(self.listed)) != len(self.listed):
            complaints.invalid(None, "the list of benchmarks and the tables differ")
        keys = [(each.name, each.processes) for each in self.sections]
        if len(set(keys)) != len(keys):
            complaints.invalid(None, "a benchmark appears twice")
        totals = {each.processes + each.waiting for each in self.sections}
        if len(totals) > 1 or totals & {LARGEST_RANKS} or (self.ranks is not None and totals - {self.ranks}):
            said = f" instead of {self.ranks}" if self.ranks is not None else ""
            complaints.invalid(None, f"{list_ranks(sorted(totals))} processes were started{said}")
        for name in dict.fromkeys(names):
            benchmark = _BENCHMARKS.get(name)
            counts = [each.processes for each in self.sections if each.name == name]
            if benchmark is None:
                continue
            if benchmark.pair:
                right = counts == [2]
            else:
                # IMB doubles the number of processes until it has all.
                following = [min(2 * count, max(totals)) for count in counts[:-1]]
                right = counts[1:] == following and counts[-1] == max(totals) and counts[0] >= 2
            if not right:
                complaints.invalid(None, f"{name} was run by {', '.join(map(str, counts))} processes")

    def samples(self, section: _Section, benchmark: _Benchmark) -> Iterator[Samples]:
        self.check_sizes(section, benchmark)
        if section.name in _BANDS and section.processes != 2:
            self.complaints.invalid(section.line, "bands of several pairs cannot be read")
            return
        yield from self.samples_of(
            section.rows, lambda row: self.sample(row, section, benchmark), lambda row: self.mistake(row, benchmark)
        )

    def check_sizes(self, section: _Section, benchmark: _Benchmark) -> None:
        sizes = [row.size for row in section.rows]
        planned = self.planned_sizes(benchmark)
        if planned is None:
            if sizes != sorted(set(sizes)) or not sizes:
                self.complaints.invalid(section.line, "the sizes are not ascending")
        else:
            self.check_planned(section.line, sizes, planned)

    def planned_sizes(self, benchmark: _Benchmark) -> list[int] | None:
        """The sizes that the options give, or None where they come from a file."""
        name = "mpi_datatype_for_reductions" if benchmark.reduces else "mpi_datatype"
        element = _DATATYPE_BYTES.get(self.facts.get(name, ""))
        options = dict(zip(self.arguments, self.arguments[1:], strict=False))
        if element is None:
            self.complaints.invalid(None, "the heading has no known datatype")
        if element is None or options.keys() & {"-input", "-msglen"}:
            return None
        if "-msgsize" in options:
            asked = [whole_number(each) for each in options["-msgsize"].split(",")]
            sizes = [each for each in asked if each is not None]
            return sizes if element == 1 or all(each % element == 0 for each in sizes) else None
        first, last = _DEFAULT_LOG
        if "-msglog" in options:
            match = _LOG.fullmatch(options["-msglog"])
            first, last = (int(match[1]), int(match[2])) if match is not None else (1, 0)
        powers = [1 << power for power in range(first, last + 1) if 1 << power >= element]
        smallest, largest = self.extent.get("Minimum"), self.extent.get("Maximum")
        if not powers or smallest is None or largest != powers[-1] or smallest not in (0, 1 << first):
            self.complaints.invalid(None, "the message lengths of the heading and of the options differ")
        return ([0] if smallest == 0 else []) + powers

    def mistake(self, row: TextRow, benchmark: _Benchmark) -> str | None:
        """Whether time and rate of a row do not belong together."""
        time = row.values.get("maximum", row.values.get("time"))
        if time is None or "rate" not in row.values:
            return None
        # MB = 10^6 B since 2018, 2^20 B before.
        units = (1.0,) if (self.version or "")[:4] >= "2018" else (1.0, 1.048576)
        sent = [float(benchmark.scale * row.size) / unit for unit in units]
        fits = (products_agree((time, 0.005), (row.values["rate"], 0.005), (each, 0.0)) for each in sent)
        return None if any(fits) else "time and Mbytes/sec do not match"

    def sample(self, row: TextRow, section: _Section, benchmark: _Benchmark) -> Samples | None:
        values = row.values
        operation = benchmark.operation
        if "messages" in values:
            nanoseconds = self.message_ns(row) * benchmark.scale
        else:
            # The time of a ping-pong is half a round trip.
            nanoseconds = 1e3 * values.get("maximum", values.get("time", 0.0)) * (2 if operation == "pingpong" else 1)
        if operation == "sendrecv" and section.processes == 2:
            operation = "bidirectional"
        return one_time(
            operation,
            row.size * section.processes if benchmark.per_rank else row.size,
            tuple(range(section.processes * section.groups)),
            nanoseconds,
            schedule="contended" if section.groups > 1 else "uncontended",
            implementation="transfers" if benchmark.scale else "library",
            wrong_bytes=wrong_bytes(row),
        )
