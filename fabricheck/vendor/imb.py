"""Reads the output of the Intel MPI Benchmarks (IMB-MPI1, IMB-MPI1-GPU) and of oneCCL's benchmark, which has
nearly the same tables (docs/vendor-tools.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import ClassVar

from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict
from fabricheck.results.printed import Line
from fabricheck.vendor.block import Asked, Block
from fabricheck.vendor.printed_tables import ANY, ELEMENT_BYTES, FIXED, LARGEST_RANKS, WHOLE, Column, Table, Test

_TESTS = {
    "PingPong": Test("pingpong", streams=1, pair=True),
    "PingPing": Test("bidirectional", streams=1, pair=True),
    "Sendrecv": Test("sendrecv", streams=2),
    "Uniband": Test("unidirectional", streams=1),
    "Biband": Test("bidirectional", streams=2),
    "Allreduce": Test("allreduce"),
    "Reduce": Test("reduce"),
    "Reduce_scatter": Test("reduce_scatter"),
    "Allgather": Test("allgather", per_rank=True),
    "Alltoall": Test("alltoall", per_rank=True),
    "Bcast": Test("broadcast"),
}
_HEADINGS = {
    r"#bytes": Column("bytes", WHOLE),
    r"#elem_count": Column("elements", WHOLE),
    r"#repetitions": Column("repetitions", WHOLE),
    r"t\[usec\]": Column("time", FIXED),
    r"t_min\[usec\]": Column("minimum", FIXED),
    r"t_max\[usec\]": Column("maximum", FIXED),
    r"t_avg\[usec\]": Column("average", FIXED),
    r"Mbytes/sec": Column("rate", FIXED),
    r"Msg/sec": Column("messages", WHOLE, 1e-6),
    r"defects": Column("wrong", FIXED),
    # Of times that are all zero the deviation is no number.
    r"stddev\[%\]": Column("deviation", re.compile(r"-?nan|[0-9]+\.[0-9]{2}", re.ASCII)),
    r"wait_t_avg\[usec\]": Column("wait", ANY),
}


class Imb(Block):
    """One run of IMB, of one benchmark or several. Of the times of the ranks the largest is taken."""

    title = "IMB"
    transport = "mpi"
    headings: ClassVar = _HEADINGS
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
        if kind == "benchmark":
            self.tables.append(Table(line, said={"name": match[1], "waiting": "0"}))
        elif kind == "groups":
            self.invalid(line, "groups that run at the same time (-multi) are not read")
        elif kind in ("processes", "waiting"):
            if table is None or not heading:
                self.invalid(line, "this line is unexpected here")
            else:
                table.said[kind] = match[1]
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
        table, columns = self.tables[-1], self.columns_of(line.text)
        name = table.said["name"]
        if name not in _TESTS:
            self.invalid(table.line, "this benchmark of IMB cannot be read")
        elif "bytes" not in columns or ("rate" in columns) != bool(_TESTS[name].streams):
            self.invalid(line, f"the columns are not those of {name}")
        else:
            table.columns = columns
            return
        table.columns = {word: Column(word, ANY) for word in line.text.split()}
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
            if "unread" not in table.said and table.said["name"] in _TESTS:
                yield from self.samples_of(table, _TESTS[table.said["name"]])

    def samples_of(self, table: Table, test: Test) -> Iterator[Samples]:
        """Checks a table, and gives what was measured."""
        processes = int(table.said.get("processes", 0))
        if not 2 <= processes <= LARGEST_RANKS or (processes > 2 and (test.pair or "messages" in table.columns)):
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
        if test.operation == "sendrecv" and processes == 2:  # with more ranks it is a ring
            test = replace(test, operation="bidirectional")
        yield from self.measured(table, test, processes)


_COLLECTIVES = {
    **{name.lower(): test for name, test in _TESTS.items() if not test.streams},
    "broadcast": _TESTS["Bcast"],
}
_ONECCL_COLUMNS = {"bytes", "elements", "repetitions", "minimum", "maximum", "average", "deviation"}
_OPTIONS = ("processes", "buf_count", "elem_counts", "check", "inplace")


class OneCcl(Block):
    """One collective of oneCCL's benchmark with one datatype. A time is that of the slowest rank."""

    title = "oneCCL's benchmark"
    headings: ClassVar = _HEADINGS
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
        elif kind == "header" and not self.tables[-1].columns.keys() >= _ONECCL_COLUMNS:
            self.invalid(line, "the columns are not those of oneCCL's benchmark")

    def is_row(self, tokens: Sequence[str]) -> bool:
        """Its options have numbers too, and so has the log of its library."""
        return super().is_row(tokens[:1])

    def read_row(self, line: Line, tokens: Sequence[str]) -> None:
        """Reads a row of the table."""
        if "|CCL_" not in line.text:
            super().read_row(line, tokens)

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
        table, element, test = self.tables[0], ELEMENT_BYTES[said["datatype"]], _COLLECTIVES[said["name"]]
        self.unchecked = -1 if said["check"] == "off" else 0
        self.check_alignment(table.rows)
        planned = [element * int(count) for count in said["elem_counts"].strip("[]").split()]
        if table.sizes != planned or not planned or list(self.asked.sizes or planned) != planned:
            self.incomplete(table.line, "rows are missing, or are not those that were requested")
        for row in table.rows:
            if (reason := self.impossible(row)) is not None or row.size != int(row.values["elements"]) * element:
                self.invalid(row.line, reason or "#bytes and #elem_count are not of one datatype")
                continue
            sample = self.sample(row, test, self.ranks)
            # A reduce_scatter leaves out what it cannot share equally.
            whole = element * self.ranks if test.operation == "reduce_scatter" else 1
            if size := sample.bytes // whole * whole:
                yield replace(sample, bytes=size)
