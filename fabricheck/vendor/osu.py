"""Reads the output of the OSU Micro-Benchmarks (docs/vendor-formats.md): MPI, NCCL and RCCL, versions 5 to 7."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from fabricheck.records.run import Samples
from fabricheck.records.vendor_output import VendorOutput
from fabricheck.records.verdict import Verdict
from fabricheck.results.printed import Line
from fabricheck.vendor.block import CHECKED, FIXED, LARGEST_RANKS, WHOLE, Block, Table, TableRow, message_ns, one_time


@dataclass(frozen=True)
class OsuTest:
    """What a title means.

    `pair`: between two ranks; `per_rank`: the size is a share, and a buffer has one a rank; `rate`: the table has MB/s.
    """

    program: str
    operation: str
    rate: bool = False
    pair: bool = False
    per_rank: bool = False

    @property
    def time_column(self) -> str:
        """The column that every table of the benchmark has."""
        return "rate" if self.rate else "average"


_PAIRS = {
    "Latency Test": OsuTest("osu_latency", "pingpong", pair=True),
    "Multi-threaded Latency Test": OsuTest("osu_latency_mt", "pingpong", pair=True),
    "Multi-process Latency Test": OsuTest("osu_latency_mp", "pingpong", pair=True),
    "Bandwidth Test": OsuTest("osu_bw", "unidirectional", rate=True, pair=True),
    "Bi-Directional Bandwidth Test": OsuTest("osu_bibw", "bidirectional", rate=True, pair=True),
    "Multiple Bandwidth / Message Rate Test": OsuTest("osu_mbw_mr", "unidirectional", rate=True),
}
# A window of puts or gets is a stream, as that of sends is; but it is another operation.
_ONE_SIDED = {
    "latency test": ("latency", "", False),
    "bandwidth test": ("bw", "_stream", True),
    "bi-directional bandwidth test": ("bibw", "_bidirectional", True),
}
_WHOLE_BUFFERS = frozenset({"allreduce", "reduce_scatter", "broadcast", "reduce"})
_COLLECTIVE = re.compile(
    r"(?P<name>Allgatherv?|Allreduce|Reduce_scatter|Broadcast|Reduce|Gatherv?|Scatterv?|All-to-All[vw]?)"
    r"(?: Personalized Exchange)?(?P<persistent> Persistent)? Latency Test",
    re.ASCII,
)
_COLUMNS = re.compile(
    r"(?P<average>(?:Avg )?Latency ?\(us\))|(?P<minimum>Min Latency ?\(us\))|(?P<maximum>Max Latency ?\(us\))"
    r"|(?P<iterations>Iterations)|(?P<wrong>Validation)|(?P<rate>Bandwidth \(MB/s\)|MB/s)"
    r"|(?P<messages>Messages/s)"
    r"|P(?P<percentile>[1-9][0-9]?) Tail (?:Lat\(us\)|BW\(MB/s\))",
    re.ASCII,
)
_CELLS = {"iterations": WHOLE, "wrong": CHECKED}


def test_of(call: str | None, words: str) -> OsuTest | None:
    """The test of a title; None for one that cannot be read."""
    if call is not None:
        kind = _ONE_SIDED.get(words.lower())
        name = call.lower()
        return OsuTest(f"osu_{name}_{kind[0]}", f"{name}{kind[1]}", rate=kind[2], pair=True) if kind else None
    match = _COLLECTIVE.fullmatch(words)
    if match is None:
        return _PAIRS.get(words)
    operation = match["name"].lower().replace("-", "")
    name = "bcast" if operation == "broadcast" else operation
    program = f"osu_{name}{'_persistent' if match['persistent'] else ''}"
    return OsuTest(program, operation, per_rank=operation not in _WHOLE_BUFFERS)


class Osu(Block):
    """One OSU benchmark. It prints neither the number of ranks nor where its table ends: the caller says them."""

    title = "OSU"
    transport = "mpi"
    begins: ClassVar = (re.compile(r"# OSU "), re.compile(r"# Size\s+\S"))
    aligned_from = 1
    known: ClassVar = {
        "title": re.compile(
            r"# OSU (?:(?P<library>MPI|NCCL|RCCL|XCCL)|MPI_(?P<call>Put|Get))"
            r"(?:-(?P<accelerator>CUDA|ROCM|OPENACC|MANAGED|SYCL))?"
            r" (?P<words>.*?)(?: v(?P<version>[0-9]+(?:\.[0-9]+)*))?",
            re.ASCII,
        ),
        "datatype": re.compile(r"# Datatype: (?P<datatype>[A-Z_0-9]{1,40})\.?", re.ASCII),
        "pairs": re.compile(
            r"# \[ pairs: (?P<pairs>[0-9]{1,9}) \] \[ window size: (?P<window>[0-9]{1,9}) \]", re.ASCII
        ),
        "buffers": re.compile(r"# Send Buffer on \w+ \((?P<send>\w)\) and Receive Buffer on \w+ \((?P<receive>\w)\)"),
        "overall": re.compile(r"# (?:Overall|Window|Synchronization|Number of|Running)\b.*|#[ -]*"),
        "header": re.compile(r"# *Size\s+(\S.*)"),
        "wrong": re.compile(r"DATA VALIDATION ERROR.*"),
    }
    own = re.compile(r"# ?OSU|Size  |\(us\)|\(MB/s\)|Datatype:|# *\[|pairs:")

    test: OsuTest | None = None
    wrong_data = False  # OSU stops there: rows after it are not missing

    @property
    def tool(self) -> str:
        """The program."""
        return self.test.program if self.test is not None else self.asked.tool or "osu"

    def read_line(self, kind: str, match: re.Match[str], line: Line) -> None:
        """Keeps what a line says, and begins the table."""
        if kind == "header":
            self.read_header(line, match[1])
            return
        if kind == "title" and "words" in self.said:
            self.invalid(line, "a second benchmark begins: two outputs are in one text")
        super().read_line(kind, match, line)
        if kind == "title":
            self.test = test_of(match["call"], match["words"])
            if self.test is None:
                self.invalid(line, "this OSU benchmark cannot be read")
        elif kind == "wrong":
            self.wrong_data = True
            self.add(Verdict.FAIL, line, "the tool found wrong data")

    def read_header(self, line: Line, text: str) -> None:
        """Begins the table; its columns have to be those of the benchmark."""
        if self.tables:
            self.invalid(line, "a second table begins: two outputs or datatypes are in one text")
            return
        matches = list(_COLUMNS.finditer(text))
        columns = [f"p{match['percentile']}" if match["percentile"] else str(match.lastgroup) for match in matches]
        self.tables.append(Table(line))
        known = not _COLUMNS.sub("", text).strip() and len(set(columns)) == len(columns)
        has = {"rate", "average"} & {*columns}
        if not known or not has or (self.test is not None and has != {self.test.time_column}):
            self.invalid(line, "the columns are not those of this benchmark")
            return
        self.tables[0].columns = {"size": WHOLE} | {name: _CELLS.get(name, FIXED) for name in columns}

    def samples(self) -> Iterator[Samples]:
        """Checks the table as a whole."""
        test = self.test
        if test is None or not self.tables:
            self.incomplete(None, "the title or the table of OSU is missing: it did not start, or is another program's")
            return
        self.read_facts(test)
        table = self.tables[0]
        if not table.rows:
            self.incomplete(table.line, "the table has no rows")
        self.check_alignment(table.rows)
        self.check_sizes(table, doubling=True)
        slowest = "maximum" if "maximum" in table.columns else test.time_column
        if not test.rate and not test.pair:
            self.facts["time_over_ranks"] = slowest
        if test.per_rank and self.ranks is None:
            self.missing = "--ranks N  # as many as took part"
            text = f"OSU does not print the number of ranks, which sets the buffer of {test.operation}: --ranks"
            self.invalid(None, text)
            return
        for row in table.rows:
            if (reason := self.impossible(row) or mistake_of(row)) is not None:
                self.invalid(row.line, reason)
            elif row.size > 0:
                yield self.sample(row, test, slowest)

    def read_facts(self, test: OsuTest) -> None:
        """The facts of the output, and its number of ranks."""
        said = self.said
        self.version = said.get("version")
        self.facts |= {name: said[name] for name in ("datatype", "pairs", "window") if name in said}
        self.facts |= {"library": said.get("library", "MPI"), "accelerator": said.get("accelerator", "none")}
        pairs = int(said.get("pairs", 1))
        needed = 2 if test.pair else 2 * pairs if test.rate else self.asked.ranks
        if test.program == "osu_mbw_mr" and ("pairs" not in said or not 1 <= pairs <= LARGEST_RANKS // 2):
            self.invalid(None, "osu_mbw_mr did not print its number of pairs, or its window is varied")
            needed = None
        if self.asked.ranks not in (None, needed) or (needed is not None and needed < 2):
            self.invalid(None, f"{test.program} ran with {needed} ranks instead of {self.asked.ranks}")
        self.ranks = needed

    def sample(self, row: TableRow, test: OsuTest, slowest: str) -> Samples:
        """The sample of a row."""
        operation, schedule, ranks = test.operation, "uncontended", self.ranks or 2
        pairs = int(self.said.get("pairs", 1))
        if test.rate:
            # MB = 10^6 B; the sum of both directions, and of all pairs.
            streams = 2 if operation.endswith("bidirectional") else pairs
            a_message = message_ns(row) if "messages" in row.values else 1e3 * row.size / row.values["rate"]
            nanoseconds = streams * a_message
            if pairs > 1:
                # The goodput is that of the mean pair.
                operation, schedule = "multi_pair", "contended"
        else:
            # The latency of a ping-pong is half a round trip.
            nanoseconds = 1e3 * row.values[slowest] * (2 if operation == "pingpong" else 1)
        return one_time(
            operation,
            row.size * ranks if test.per_rank else row.size,
            tuple(range(ranks)),
            nanoseconds,
            implementation="transfers" if test.pair or test.rate else "library",
            schedule=schedule,
            wrong_bytes=self.wrong_bytes(row),
        )

    def check_sizes(self, table: Table, *, doubling: bool) -> None:
        """Rows after wrong data are not missing."""
        if not self.wrong_data:
            super().check_sizes(table, doubling=doubling)

    def output(self) -> VendorOutput:
        """Of wrong data OSU itself ends with an error."""
        if self.wrong_data:
            self.crash = None
        return super().output()


def mistake_of(row: TableRow) -> str | None:
    """What cannot be true of the percentiles of a row."""
    percentiles = [
        row.values[name] for name in sorted(row.values, key=lambda name: name[1:].zfill(2)) if name[1:].isdigit()
    ]
    return None if percentiles == sorted(percentiles) else "the percentiles are not in order"
