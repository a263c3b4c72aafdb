"""Reads the output of the OSU Micro-Benchmarks (docs/vendor-tools.md): MPI, NCCL and RCCL, versions 5 to 7, and those
in Python and Java.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from fabricheck.records.run import Samples
from fabricheck.records.vendor_output import VendorOutput
from fabricheck.records.verdict import Verdict
from fabricheck.results.printed import Line
from fabricheck.vendor.block import Block
from fabricheck.vendor.printed_tables import FIXED, LARGEST_RANKS, WHOLE, Column, Table, Test

_BOTH = Test("bidirectional", "osu_bibw", streams=2, pair=True)
_PAIRS = {
    "Latency Test": Test("pingpong", "osu_latency", pair=True),
    "Multi-threaded Latency Test": Test("pingpong", "osu_latency_mt", pair=True),
    "Multi-process Latency Test": Test("pingpong", "osu_latency_mp", pair=True),
    "Bandwidth Test": Test("unidirectional", "osu_bw", streams=1, pair=True),
    "Bi-Directional Bandwidth Test": _BOTH,
    "Bi-Bandwidth Test": _BOTH,  # Java
    "Multiple Bandwidth / Message Rate Test": Test("unidirectional", "osu_mbw_mr", streams=1),
}
# A window of puts or gets is a stream, as that of sends is; but it is another operation.
_ONE_SIDED = {
    "latency test": Test("", "latency", pair=True),
    "bandwidth test": Test("_stream", "bw", streams=1, pair=True),
    "bi-directional bandwidth test": Test("_bidirectional", "bibw", streams=2, pair=True),
}
_WHOLE_BUFFERS = frozenset({"allreduce", "reduce_scatter", "broadcast", "reduce"})
_COLLECTIVE = re.compile(
    r"(?P<name>Allgatherv?|Allreduce|Reduce_?[sS]catter|Broadcast|Bcast|Reduce|Gatherv?|Scatterv?|All-?to-?[aA]ll[vw]?)"
    r"(?: Personalized Exchange)?(?P<persistent> Persistent)?(?: Latency)? Test",
    re.ASCII,
)


def test_of(call: str | None, words: str) -> Test | None:
    """The test of a title; None for one that cannot be read."""
    if call is not None:
        kind = _ONE_SIDED.get(words.lower())
        name = call.lower()
        return replace(kind, operation=name + kind.operation, program=f"osu_{name}_{kind.program}") if kind else None
    match = _COLLECTIVE.fullmatch(words)
    if match is None:
        return _PAIRS.get(words)
    name = match["name"].lower().replace("-", "")
    operation = {"bcast": "broadcast", "reducescatter": "reduce_scatter"}.get(name, name)
    name = "bcast" if operation == "broadcast" else operation
    program = f"osu_{name}{'_persistent' if match['persistent'] else ''}"
    return Test(operation, program, per_rank=operation not in _WHOLE_BUFFERS)


class Osu(Block):
    """One OSU benchmark. It prints neither the number of ranks nor where its table ends: the caller says them."""

    title = "OSU"
    transport = "mpi"
    begins: ClassVar = (re.compile(r"# (?:OSU|OMB-Py|OMB Python) "), re.compile(r"# Size\s+\S"))
    aligned_from = 1
    headings: ClassVar = {
        r"# *Size(?: \(B\)| \[B\])?": Column("bytes", WHOLE),
        r"(?:Avg )?Latency ?(?:\(us\)|\[us\])|Lat Avg\[us\]": Column("average", FIXED),
        r"Min Latency ?\(us\)|Lat Min\[us\]": Column("minimum", FIXED),
        r"Max Latency ?\(us\)|Lat Max\[us\]": Column("maximum", FIXED),
        r"Iterations": Column("repetitions", WHOLE),
        r"Validation": Column("wrong", re.compile("Pass|Fail")),
        r"Bandwidth \(MB/s\)|Bandwidth \[MB/s\]|MB/s": Column("rate", FIXED),
        r"Bandwidth \[Gb/s\]": Column("", FIXED),
        r"Messages/s": Column("messages", FIXED, 1e-6),
        r"P[1-9][0-9]? Tail (?:Lat\(us\)|BW\(MB/s\))": Column("", FIXED),
    }
    known: ClassVar = {
        "title": re.compile(
            r"# (?:OSU|OMB-Py|OMB Python)(?: (?P<library>(?:Open )?MPI|NCCL|RCCL|XCCL)| MPI_(?P<call>Put|Get))?"
            r"(?:-(?P<accelerator>CUDA|ROCM|OPENACC|MANAGED|SYCL))?"
            r" (?P<words>.*?)(?: v(?P<version>[0-9]+(?:\.[0-9]+)*))?",
            re.ASCII,
        ),
        "datatype": re.compile(r"# Datatype: (?P<datatype>[A-Z_0-9]{1,40})\.?", re.ASCII),
        "pairs": re.compile(
            r"# \[ pairs: (?P<pairs>[0-9]{1,9}) \] \[ window size: (?P<window>[0-9]{1,9}) \]", re.ASCII
        ),
        # Where Python keeps its arrays, only the command says.
        "arrays": re.compile(r".*--benchmark .*--buffer[ =](?P<arrays>cupy|pycuda|numba)\b.*"),
        "buffers": re.compile(r"# Send Buffer on \w+ \((?P<send>\w)\) and Receive Buffer on \w+ \((?P<receive>\w)\)"),
        "overall": re.compile(r"# (?:Overall|Window|Synchronization|Number of|Running)\b.*|#[ -]*"),
        "header": re.compile(r"# *Size\s+\S.*"),
        "wrong": re.compile(r"DATA VALIDATION ERROR.*"),
    }
    own = re.compile(r"# ?(?:OSU|OMB)|Size  |\(us\)|\(MB/s\)|Datatype:|# *\[|pairs:")

    test: Test | None = None
    wrong_data = False  # OSU stops there: rows after it are not missing

    @property
    def tool(self) -> str:
        """The program."""
        return self.test.program if self.test is not None else self.asked.tool or "osu"

    def read_line(self, kind: str, match: re.Match[str], line: Line) -> None:
        """Keeps what a line says, and begins the table."""
        super().read_line(kind, match, line)
        if kind == "title":
            self.test = test_of(match["call"], match["words"])
            if self.test is None:
                self.invalid(line, "this OSU benchmark cannot be read")
        elif kind == "wrong":
            self.wrong_data = True
            self.add(Verdict.FAIL, line, "the tool found wrong data")

    def samples(self) -> Iterator[Samples]:
        """Checks the table as a whole."""
        test = self.test
        if test is None or not self.tables:
            self.incomplete(None, "the title or the table of OSU is missing: it did not start, or is another program's")
            return
        self.read_facts(test)
        table = self.tables[0]
        if not self.said.keys() & {"library", "call"} and "[" not in table.line.text:
            self.invalid(None, "the title is not whole: only Java's names no library")
        if not table.rows:
            self.incomplete(table.line, "the table has no rows")
        self.check_alignment(table.rows)
        self.check_sizes(table, doubling=True)
        if ("rate" in table.columns) != bool(test.streams):
            self.invalid(table.line, f"the columns are not those of {test.program}")
            return
        if not test.streams and not test.pair:
            self.facts["time_over_ranks"] = "maximum" if "maximum" in table.columns else "average"
        if self.ranks is None and (test.per_rank or not self.wrong_data):
            self.missing = "--ranks N  # as many as took part"
            self.invalid(None, f"OSU does not print the number of ranks of the {test.operation}: --ranks")
            return
        pairs, schedule = int(self.said.get("pairs", 1)), "uncontended"
        if pairs > 1 and test.streams:
            # The rate is that of all pairs, and the goodput that of the mean one.
            test, schedule = replace(test, operation="multi_pair", streams=pairs), "contended"
        yield from (replace(sample, schedule=schedule) for sample in self.measured(table, test, self.ranks or 2))

    def read_facts(self, test: Test) -> None:
        """The facts of the output, and its number of ranks."""
        said = self.said
        self.version = said.get("version")
        self.facts |= {name: said[name] for name in ("datatype", "pairs", "window") if name in said}
        accelerator = said.get("accelerator", said.get("arrays", "none"))
        self.facts |= {"library": said.get("library", "MPI"), "accelerator": accelerator}
        pairs = int(said.get("pairs", 1))
        needed = 2 if test.pair else 2 * pairs if test.streams else self.asked.ranks
        if test.program == "osu_mbw_mr" and ("pairs" not in said or not 1 <= pairs <= LARGEST_RANKS // 2):
            self.invalid(None, "osu_mbw_mr did not print its number of pairs, or its window is varied")
            needed = None
        if self.asked.ranks not in (None, needed) or (needed is not None and needed < 2):
            self.invalid(None, f"{test.program} ran with {needed} ranks instead of {self.asked.ranks}")
        self.ranks = needed

    def check_sizes(self, table: Table, *, doubling: bool) -> None:
        """Rows after wrong data are not missing."""
        if not self.wrong_data:
            super().check_sizes(table, doubling=doubling)

    def output(self) -> VendorOutput:
        """Of wrong data OSU itself ends with an error."""
        if self.wrong_data:
            self.crash = None
        return super().output()
