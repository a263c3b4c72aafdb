"""Reads the output of the Intel MPI Benchmarks (IMB-MPI1, IMB-MPI1-GPU) and of oneCCL's benchmark, which has
nearly the same tables (docs/vendor-formats.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import ClassVar

from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict
from fabricheck.results.printed import Line
from fabricheck.vendor.block import (
    ANY,
    ELEMENT_BYTES,
    FIXED,
    LARGEST_RANKS,
    WHOLE,
    Asked,
    Block,
    Table,
    TableRow,
    message_ns,
    one_time,
    products_agree,
)


@dataclass(frozen=True)
class _Benchmark:
    """`scale`: buffers that IMB counts in its rate; `per_rank`: the size is a share, and a buffer has one a rank."""

    operation: str
    scale: int = 0
    pair: bool = False
    per_rank: bool = False


_BENCHMARKS = {
    "PingPong": _Benchmark("pingpong", scale=1, pair=True),
    "PingPing": _Benchmark("bidirectional", scale=1, pair=True),
    "Sendrecv": _Benchmark("sendrecv", scale=2),
    "Uniband": _Benchmark("unidirectional", scale=1),
    "Biband": _Benchmark("bidirectional", scale=2),
    "Allreduce": _Benchmark("allreduce"),
    "Reduce": _Benchmark("reduce"),
    "Reduce_scatter": _Benchmark("reduce_scatter"),
    "Allgather": _Benchmark("allgather", per_rank=True),
    "Alltoall": _Benchmark("alltoall", per_rank=True),
    "Bcast": _Benchmark("broadcast"),
}
_COLUMNS = {
    "#bytes": ("bytes", WHOLE),
    "#elem_count": ("elements", WHOLE),
    "#repetitions": ("repetitions", WHOLE),
    "t[usec]": ("time", FIXED),
    "t_min[usec]": ("minimum", FIXED),
    "t_max[usec]": ("maximum", FIXED),
    "t_avg[usec]": ("average", FIXED),
    "Mbytes/sec": ("rate", FIXED),
    "Msg/sec": ("messages", WHOLE),
    "defects": ("wrong", FIXED),
    # Of times that are all zero the deviation is no number.
    "stddev[%]": ("deviation", re.compile(r"-?nan|[0-9]+\.[0-9]{2}", re.ASCII)),
    "wait_t_avg[usec]": ("wait", ANY),
}
_TABLES = {
    "bytes repetitions time rate",
    "bytes repetitions minimum maximum average rate",
    "bytes repetitions minimum maximum average",
    "bytes repetitions rate messages",
}


def columns_of(line: Line) -> dict[str, re.Pattern[str]]:
    """The columns of a heading; none where it has an unknown one, or one twice."""
    names = line.text.split()
    if len(set(names)) != len(names) or not _COLUMNS.keys() >= set(names):
        return {}
    return dict(_COLUMNS[name] for name in names)


class Imb(Block):
    """One run of IMB, of one benchmark or several. Of the times of the ranks the largest is taken."""

    title = "IMB"
    transport = "mpi"
    begins: ClassVar = (re.compile(r"#\s+Intel\(R\) MPI Benchmarks "),)
    known: ClassVar = {
        "rule": re.compile(r"#[- ]*"),
        "version": re.compile(r"#\s+Intel\(R\) MPI Benchmarks (?P<version>[^\s,]{1,40}),? .*", re.ASCII),
        "benchmark": re.compile(r"# Benchmarking (?:Multi-)?(\S+)"),
        "processes": re.compile(r"# #processes = ([0-9]{1,9})(?:; rank order .*)?", re.ASCII),
        "groups": re.compile(r"# \( [0-9]{1,6} groups of .*"),
        "group": re.compile(r"# Group +[0-9]+:[ 0-9]+", re.ASCII),
        "waiting": re.compile(r"# \( ([0-9]{1,9}) additional process(?:es)? waiting in MPI_Barrier\)", re.ASCII),
        "end": re.compile(r"# All processes entering MPI_Finalize"),
        "header": re.compile(r"#(?:bytes|repetitions)\s.*"),
        "mpi": re.compile(r"# MPI Version\s*:\s+(?P<mpi_version>\S{1,40})", re.ASCII),
        "smallest": re.compile(r"# Minimum message length in bytes:\s+(?P<smallest>[0-9]{1,19})", re.ASCII),
        "largest": re.compile(r"# Maximum message length in bytes:\s+(?P<largest>[0-9]{1,19})", re.ASCII),
        "did not run": re.compile(r"# !! Benchmark .* invalid for .*|Invalid benchmark name.*"),
        "left out": re.compile(r"[0-9]+ (?:out-of-mem\.|time-out\.|int-overflow).*", re.ASCII),
        "call": re.compile(r"# (\S*IMB-\S+)( .*)?"),
        "listed": re.compile(r"# ([A-Z][A-Za-z_]{1,40})"),
        "preamble": re.compile(r"# (?:MPI_|Date|Machine|System|Release|Version|MPI Thread Environment|Number of).*"),
        "other": re.compile(r"# (?:Calling sequence|List of Benchmarks|Message lengths|Max bench|!!).*|#+ .*:|# +\S+"),
    }
    own = re.compile(r"#.*processes|Benchmarking|\[usec\]|MPI_Barrier|#bytes")

    def __init__(self, path: str, asked: Asked) -> None:
        super().__init__(path, asked)
        self.program = "IMB-MPI1"
        self.options = ""
        self.listed: list[str] = []
        self.ended = False

    @property
    def tool(self) -> str:
        """The program, and the benchmarks that it ran."""
        return f"{self.program} {','.join(dict.fromkeys(table.said['name'] for table in self.tables))}".strip()

    def read_line(self, kind: str, match: re.Match[str], line: Line) -> None:
        """Keeps what a line says of the run, or of the table that follows."""
        super().read_line(kind, match, line)
        table = self.tables[-1] if self.tables else None
        heading = table is not None and not table.columns
        if kind == "version" and self.tables:
            self.invalid(line, "two outputs are in one text")
        elif kind == "benchmark":
            self.tables.append(Table(line, said={"name": match[1], "waiting": "0"}))
        elif kind == "groups":
            self.invalid(line, "groups that run at the same time (-multi) are not read")
        elif kind in ("processes", "waiting"):
            if table is None or not heading:
                self.invalid(line, "this line is unexpected here")
            else:
                table.said[kind] = match[1]
        elif kind == "header":
            self.read_header(line)
        elif kind == "end":
            if self.ended:
                self.invalid(line, "two outputs are in one text")
            self.ended = True
        elif kind in ("did not run", "left out"):
            missing = self.invalid if kind == "did not run" else self.incomplete
            missing(line, "a benchmark, or sizes of it, did not run")
        elif kind == "call":
            self.program, self.options = PurePath(match[1]).name, match[2] or ""
        elif kind == "listed" and not self.tables:
            self.listed.append(match[1])

    def read_header(self, line: Line) -> None:
        """Takes the columns of the benchmark that was announced before."""
        if not self.tables or self.tables[-1].columns:
            self.invalid(line, "a table begins without a benchmark")
            return
        table = self.tables[-1]
        columns = columns_of(line)
        benchmark = _BENCHMARKS.get(table.said["name"])
        names = " ".join(name for name in columns if name != "wrong")
        if benchmark is None:
            self.invalid(table.line, "this benchmark of IMB cannot be read")
        elif names not in _TABLES or ("rate" in columns) != (benchmark.scale > 0):
            self.invalid(line, f"the columns are not those of {table.said['name']}")
        else:
            table.columns = columns
            return
        table.columns = dict.fromkeys(line.text.split(), ANY)
        table.said["unread"] = "yes"

    def samples(self) -> Iterator[Samples]:
        """Checks the tables together, then each."""
        self.version = self.said.get("version")
        if "mpi_version" in self.said:
            self.facts["mpi_version"] = self.said["mpi_version"]
        if not self.ended:
            self.incomplete(None, "not all processes completed: the output was cut off, or the run crashed")
        if self.program not in ("IMB-MPI1", "IMB-MPI1-GPU"):
            self.invalid(None, "the program is neither IMB-MPI1 nor IMB-MPI1-GPU")
            self.program = "IMB-MPI1"
        names = [table.said["name"] for table in self.tables]
        if set(names) != set(self.listed) or len(set(self.listed)) != len(self.listed) or not names:
            self.invalid(None, "the list of benchmarks and the tables differ")
        keys = [(table.said["name"], table.said.get("processes")) for table in self.tables]
        totals = {int(table.said.get("processes", 0)) + int(table.said["waiting"]) for table in self.tables}
        self.ranks = max(totals, default=None)
        if len(set(keys)) != len(keys) or len(totals) > 1 or (self.asked.ranks and totals != {self.asked.ranks}):
            self.invalid(None, f"a benchmark appears twice, or processes differ: {sorted(totals)}")
        for table in self.tables:
            benchmark = _BENCHMARKS.get(table.said["name"])
            if benchmark is not None and "unread" not in table.said:
                yield from self.samples_of(table, benchmark)

    def samples_of(self, table: Table, benchmark: _Benchmark) -> Iterator[Samples]:
        """Checks a table, and gives what was measured."""
        processes = int(table.said.get("processes", 0))
        if not 2 <= processes <= LARGEST_RANKS or (processes > 2 and (benchmark.pair or "messages" in table.columns)):
            self.invalid(table.line, f"{processes} processes cannot be read")
            return
        self.check_alignment(table.rows)
        free = any(option in self.options for option in ("-msglen", "-msgsize", "-input"))
        self.check_sizes(table, doubling=not free)
        first = re.search(r"-msglog ([0-9]{1,2}):", self.options)
        # A reduction has no less than an element.
        beginnings = {1 << int(first[1]) if first else 1, 4}
        some = [size for size in table.sizes if size]
        ends = table.sizes[:1] + table.sizes[-1:]
        said = [int(self.said.get(name, ends[-1] if ends else 0)) for name in ("smallest", "largest")]
        if not some or (
            not free and (some[0] not in beginnings or ends[0] not in {said[0], *beginnings} or ends[1] != said[1])
        ):
            self.incomplete(table.line, "rows are missing")
        for row in table.rows:
            if (reason := self.impossible(row) or self.mistake(row, benchmark)) is not None:
                self.invalid(row.line, reason)
            elif row.size > 0:
                yield self.sample(row, benchmark, processes)

    def mistake(self, row: TableRow, benchmark: _Benchmark) -> str | None:
        """Whether time and rate of a row do not belong together."""
        name = "maximum" if "maximum" in row.values else "time"
        if name not in row.values or "rate" not in row.values:
            return None
        # MB = 10^6 B since 2018, 2^20 B before.
        units = (1.0,) if (self.version or "")[:4] >= "2018" else (1.0, 1.048576)
        sent = benchmark.scale * row.size
        fits = [products_agree(row.rounded(name), row.rounded("rate"), (sent / unit, 0.0)) for unit in units]
        return None if any(fits) else "time and Mbytes/sec do not match"

    def sample(self, row: TableRow, benchmark: _Benchmark, processes: int) -> Samples:
        """The sample of a row."""
        operation = benchmark.operation
        if "messages" in row.values:
            nanoseconds = message_ns(row) * benchmark.scale
        else:
            # The time of a ping-pong is half a round trip.
            time = row.values.get("maximum", row.values.get("time", 0.0))
            nanoseconds = 1e3 * time * (2 if operation == "pingpong" else 1)
        # With more than two ranks it is a ring.
        operation = "bidirectional" if operation == "sendrecv" and processes == 2 else operation
        return one_time(
            operation,
            row.size * processes if benchmark.per_rank else row.size,
            tuple(range(processes)),
            nanoseconds,
            implementation="transfers" if benchmark.scale else "library",
            wrong_bytes=self.wrong_bytes(row),
        )


#: By its own name: the operation, and whether a size is the share of one rank.
_COLLECTIVES = {
    "allreduce": ("allreduce", False),
    "reduce": ("reduce", False),
    "reduce_scatter": ("reduce_scatter", False),
    "bcast": ("broadcast", False),
    "broadcast": ("broadcast", False),
    "allgather": ("allgather", True),
    "alltoall": ("alltoall", True),
}
_ONECCL_COLUMNS = "bytes elements repetitions minimum maximum average deviation"
_OPTIONS = ("processes", "buf_count", "elem_counts", "check", "inplace")


class OneCcl(Block):
    """One collective of oneCCL's benchmark with one datatype. A time is that of the slowest rank."""

    title = "oneCCL's benchmark"
    begins: ClassVar = (re.compile(r"options:$"), re.compile(r"# Benchmarking: "))
    known: ClassVar = {
        "rule": re.compile(r"[#-]+"),
        "benchmark": re.compile(r"# Benchmarking: (?P<name>\S+)"),
        "ranks": re.compile(r"# #processes: (?P<ranks>[0-9]{1,9})", re.ASCII),
        "header": re.compile(r"#bytes\s.*"),
        "end": re.compile(r"# All done"),
        "datatype": re.compile(r"datatype: (?P<datatype>\w+)"),
        "redop": re.compile(r"reduction: (?P<redop>\w+)"),
        # With several buffers, or one for both directions, #bytes mean something else.
        "option": re.compile(
            r"backend:\s+(?P<backend>\w+)|processes:\s+(?P<processes>[0-9]{1,9})|buf_count:\s+(?P<buf_count>1)|inplace:\s+(?P<inplace>0)"
            r"|check:\s+(?P<check>off|last|all)|elem_counts:\s+(?P<elem_counts>\[[0-9 ]*\])",
            re.ASCII,
        ),
        "wrong": re.compile(r"FAILED|.*unexpected value.*|.*expected.* got .*"),
    }
    own = re.compile(
        r"^#|\[usec\]|Benchmarking|^(?:processes|buf_count|elem_counts|check|inplace|datatype|reduction)\b.*:"
    )
    ended = False

    @property
    def tool(self) -> str:
        """The program, and its collective."""
        return f"benchmark {self.said.get('name', '')}".strip()

    def read_line(self, kind: str, match: re.Match[str], line: Line) -> None:
        """Keeps what a line says, and begins the table."""
        super().read_line(kind, match, line)
        if self.ended and kind != "rule":
            self.invalid(line, "two outputs are in one text")
        if kind == "wrong":
            self.add(Verdict.FAIL, line, "the data were wrong")
        elif kind == "end":
            self.ended = True
        elif kind == "header":
            columns = columns_of(line)
            if self.tables or " ".join(name for name in columns if name != "wait") != _ONECCL_COLUMNS:
                self.invalid(line, "the columns are not those of oneCCL's benchmark")
                columns = {}
            self.tables.append(Table(line, columns))

    def is_row(self, tokens: Sequence[str]) -> bool:
        """Its options have numbers too, and so has the log of its library."""
        return super().is_row(tokens[:1])

    def read_row(self, line: Line, tokens: Sequence[str]) -> None:
        """Reads a row of the table."""
        if "|CCL_" not in line.text:
            super().read_row(line, tokens)
            if self.ended:
                self.invalid(line, "two outputs are in one text")

    def samples(self) -> Iterator[Samples]:
        """Checks the table as a whole."""
        said = self.said
        self.ranks = int(said["ranks"]) if "ranks" in said else None
        self.facts |= {name: said[name] for name in ("datatype", "redop") if name in said}
        self.memory = "host" if said.get("backend") == "host" else ""
        if not self.tables or self.ranks is None or not said.keys() >= {*_OPTIONS, "name", "datatype"}:
            self.incomplete(None, "the heading of oneCCL's benchmark is not whole: it did not start, or is another's")
            return
        if not self.ended:
            self.incomplete(None, "'# All done' is missing: the output was cut off, or the run crashed")
        if self.asked.ranks not in (None, self.ranks) or said["processes"] != said["ranks"] or self.ranks < 2:
            self.invalid(None, f"options and table have {said['processes']} and {self.ranks} processes")
        if said["name"] not in _COLLECTIVES or said["datatype"] not in ELEMENT_BYTES:
            self.invalid(None, f"{said['name']!r} of {said['datatype']} cannot be read")
            return
        table, element = self.tables[0], ELEMENT_BYTES[said["datatype"]]
        self.check_alignment(table.rows)
        planned = [element * int(count) for count in said["elem_counts"].strip("[]").split()]
        if table.sizes != planned or not planned or list(self.asked.sizes or planned) != planned:
            self.incomplete(table.line, "rows are missing, or are not those that were requested")
        self.facts["validation"] = "off" if said["check"] == "off" else "passed"
        for row in table.rows:
            if (reason := self.impossible(row)) is not None or row.size != int(row.values["elements"]) * element:
                self.invalid(row.line, reason or "#bytes and #elem_count are not of one datatype")
            elif (sample := self.sample(row, element)).bytes > 0:
                yield sample

    def sample(self, row: TableRow, element: int) -> Samples:
        """The sample of a row."""
        operation, shares = _COLLECTIVES[self.said["name"]]
        ranks = self.ranks or 1
        size = row.size * ranks if shares else row.size
        if operation == "reduce_scatter":
            # What it cannot share equally it leaves out.
            size = int(row.values["elements"]) // ranks * ranks * element
        wrong = -1 if self.said["check"] == "off" else 0
        nanoseconds = 1e3 * row.values["maximum"]
        return one_time(operation, size, tuple(range(ranks)), nanoseconds, implementation="library", wrong_bytes=wrong)
