"""Reads what nccl-tests and rccl-tests print and write as JSON (docs/vendor-tools.md), whatever their version.

They say much twice, and that is checked: the sizes follow from the options, algbw from size and time, busbw from algbw
and the number of ranks, the footer's average from all rows.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import ClassVar, Literal

import numpy as np

from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict
from fabricheck.results.printed import Line
from fabricheck.vendor.block import Asked, Block
from fabricheck.vendor.printed_tables import (
    ELEMENT_BYTES,
    LARGEST_RANKS,
    NUMBER,
    WHOLE,
    WORD,
    Column,
    Table,
    TableRow,
    one_time,
    products_agree,
)


@dataclass(frozen=True)
class NcclTest:
    """`shared`: the buffer has one share a rank; bandwidths are size / time, times the factors of n ranks."""

    operation: str
    shared: bool = False
    transfers: bool = False
    reduces: bool = False
    rooted: bool = False

    def busbw_factor(self, n: int) -> float:
        """busbw divided by algbw, of `n` ranks (nccl-tests, PERFORMANCE.md)."""
        if self.operation == "allreduce":
            return 2 * (n - 1) / n
        return (n - 1) / n if self.shared else 1.0


TESTS = {
    "all_reduce_perf": NcclTest("allreduce", reduces=True),
    "all_gather_perf": NcclTest("allgather", shared=True),
    "alltoall_perf": NcclTest("alltoall", shared=True),
    "alltoallv_perf": NcclTest("alltoallv", shared=True, transfers=True),
    "broadcast_perf": NcclTest("broadcast", rooted=True),
    "gather_perf": NcclTest("gather", shared=True, transfers=True, rooted=True),
    "reduce_perf": NcclTest("reduce", reduces=True, rooted=True),
    "reduce_scatter_perf": NcclTest("reduce_scatter", shared=True, reduces=True),
    "scatter_perf": NcclTest("scatter", shared=True, transfers=True, rooted=True),
    # It takes an operation among its options and prints it.
    "sendrecv_perf": NcclTest("sendrecv", transfers=True, reduces=True),
}
# There the tool cannot check a result in place, and prints N/A.
_UNCHECKED_IN_PLACE = frozenset({"sendrecv", "alltoall", "alltoallv"})
# From here on alltoall is the library's own collective (nccl-tests, src/alltoall.cu).
_OWN_ALLTOALL = 22800
# A time has two decimals below 100, none from 100,000 on: fitted to its column since 2.17, by magnitude before.
_TIME = re.compile(r"[1-9]?\d\.\d\d|[1-9]\d{2,3}\.\d\d?|[1-9]\d{4}(?:\.\d)?|[1-9]\d{5,8}|\d(?:\.\d)?e\+\d\d", re.ASCII)
_RATE = re.compile(r"(?:0|[1-9]\d{0,2})\.\d\d|[1-9]\d{3,6}(?:\.\d\d?)?", re.ASCII)
COLUMNS = {
    "size": WHOLE,
    "count": WHOLE,
    "type": WORD,
    "redop": WORD,
    "root": re.compile(r"-1|[0-9]{1,9}", re.ASCII),
    "time": _TIME,
    "algbw": _RATE,
    "busbw": _RATE,
    "#wrong": re.compile(r"N/A|(?:0|[1-9][0-9]{0,5})|[1-9](?:\.[0-9]{1,5})?e\+[0-9]{2}", re.ASCII),
    "error": re.compile(r"N/A|[0-9]e[+-][0-9]{2}", re.ASCII),
    "date": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII),
    "clock": re.compile(r"[0-9]{2}:[0-9]{2}:[0-9]{2}", re.ASCII),
    **dict.fromkeys(("i_min", "i_max", "i_p99", "i_cv%"), NUMBER),
}
_NAMES = {"size": "bytes", "error": "#wrong"}
_HEADER = re.compile(
    r"size count type( redop)?( root)?((?: time algbw busbw (?:#wrong|error))(?: i_min i_max i_p99 i_cv%)?)"
    r"( time algbw busbw (?:#wrong|error)(?: i_min i_max i_p99 i_cv%)?)?( timestamp)?"
)
HALVES: tuple[tuple[str, Literal["out-of-place", "in-place"]], ...] = (("", "out-of-place"), ("'", "in-place"))


def program_of(path: str) -> str:
    """The name of a test; packages call those that were built with MPI by names of their own."""
    return PurePath(path).name.removesuffix("_mpi")


class NcclTests(Block):
    """The table of nccl-tests, of text or JSON."""

    title = "nccl-tests"
    words = 3
    begins: ClassVar = (
        re.compile(r"# nccl-tests version |#? ?rccl-tests:? [Vv]ersion"),
        re.compile(r"# Collective test starting: "),
        re.compile(r"(?:# ?)?nThread [0-9]+ nGpus "),
        re.compile(r"(?:#\s*)?size +count +type "),
    )
    # A web page takes the sign of some lines for that of a heading.
    known: ClassVar = {
        "rank": re.compile(
            r"#?\s*Rank\s+([0-9]{1,9})\s+(?:Group\s+([0-9]{1,9})\s+)?Pid\s+[0-9]+\s+on\s+(\S+)\s+device\s+([0-9]+)"
            r"\s+\[[^\]]*\]\s*(.*)",
            re.ASCII,
        ),
        "config": re.compile(
            r"#?\s*nThread (?P<threads>[0-9]{1,9}) nGpus (?P<gpus>[0-9]{1,9}) minBytes (?P<minimum>[0-9]{1,19}) "
            r"maxBytes (?P<maximum>[0-9]{1,19}) step: (?P<step>[0-9]{1,19})\((?P<by>factor|bytes)\) "
            r"warmup iters: [0-9]{1,9} iters: (?P<iterations>[0-9]{1,9})"
            r"(?: agg iters: (?P<aggregated_iterations>[0-9]{1,9}))?"
            r" validation: (?P<validated>[0-9]{1,9})(?: graph: (?P<graph_launches>[0-9]{1,9}))?.*",
            re.ASCII,
        ),
        "version": re.compile(
            r"# nccl-tests version (?P<version>\S+)(?: \([0-9a-f]{4,40}\))? nccl-headers=(?P<nccl_headers>[0-9]{1,9}) "
            r"nccl-library=(?P<nccl_library>[0-9]{1,9})",
            re.ASCII,
        ),
        "rccl": re.compile(r"#? ?rccl-tests:? [Vv]ersion:? (?P<version>\S{1,60})(?: .*)?", re.ASCII),
        "starting": re.compile(r"# Collective test starting: (?P<started>\S+)"),
        "concluded": re.compile(r"# Collective test concluded: (?P<concluded>\S+)"),
        "reducing": re.compile(r"# Reducing maxBytes to ([0-9]{1,19}) due to memory limitation", re.ASCII),
        "bounds": re.compile(r"#?\s*Out of bounds values\s+: (?P<bounds>[0-9]{1,9}) (OK|FAILED)", re.ASCII),
        "average": re.compile(
            r"#?\s*Avg bus bandwidth\s+: (?P<average>[0-9]+(?:\.[0-9]+)?(?:e[+-][0-9]{2})?)(?: (OK|FAILED))?", re.ASCII
        ),
        "placements": re.compile(
            r"#?\s*(?:out-of-place)?(?:[ (+]*per-iteration\))?(?:\s*in-place)?(?:[ (+]*per-iteration\))?"
        ),
        "units": re.compile(
            r"#?\s*(?P<units>\(B\))\s+\(elements\)(?:\s+\(us\)\s+\(GB/s\)\s+\(GB/s\)(?:(?:\s+\(us\)){3}\s+\(%\))?){1,2}(?:\s+%Y.*)?"
        ),
        "header": re.compile(r"#?\s*size\s.*"),
        "elided": re.compile(r"#?\s*(?:\.\.\.|…|\[\.\.\.\]|\.)+"),
        "devices": re.compile(r"#?\s*(?:Using devices|Errors with asterisks .*)?"),
    }
    own = re.compile(r"nThread|Rank +[0-9]+ .*Pid|size  |Out of bounds|Avg bus|\(GB/s\)|-place|algbw|Collective test")

    def __init__(self, path: str, asked: Asked) -> None:
        asked = replace(asked, tool=program_of(asked.tool)) if asked.tool is not None else asked
        super().__init__(path, asked)
        self.groups: list[int] = []
        self.name: str | None = None
        self.fitting: list[str] = []
        self.suite = self.title
        self.iterations: dict[tuple[int, str], list[float]] = {}

    @property
    def tool(self) -> str:
        """The program, or the suite where that is unknown."""
        return self.name or self.suite

    def read_line(self, kind: str, match: re.Match[str], line: Line) -> None:
        """Keeps what a line says of the run, its ranks and its table."""
        super().read_line(kind, match, line)
        if kind == "rank":
            if int(match[1]) > len(self.devices):
                self.facts["ranks"] = "some left out"
            elif int(match[1]) < len(self.devices):
                twice = " (without MPI, each rank is rank 0 of its own)" if match[1] == "0" else ""
                self.invalid(line, f"rank {len(self.devices)} is expected here{twice}")
            self.groups.append(int(match[2] or 0))
            self.hosts.append(match[3])
            self.devices.append(match[5].strip())
            if "ranks" in self.facts:  # how many a node has is unknown
                for known in (self.groups, self.hosts, self.devices):
                    known.clear()
        elif kind in ("bounds", "average"):
            if len(self.tables) != 1:
                self.invalid(line, "a footer without its table: two outputs are in one text")
            if match[2] == "FAILED":
                self.add(Verdict.FAIL, line, "data were wrong, or slower than NCCL_TESTS_MIN_BW")
            elif kind == "bounds" and match[1] != "0":
                self.invalid(line, "the footer contradicts itself")
        elif kind == "rccl":
            self.suite = "rccl-tests"
        elif kind == "reducing":
            self.incomplete(line, "the largest sizes were left out: not enough memory")
        elif kind == "elided":
            self.facts["rows"] = "some left out"

    def read_header(self, line: Line) -> None:
        """Begins the table; its columns have to be those of some version."""
        if self.tables:
            self.invalid(line, "a second table begins: two outputs are in one text")
            return
        self.tables.append(Table(line))
        names = line.text.replace("# ", " ").lstrip("# ").split()
        if _HEADER.fullmatch(" ".join(names)) is None:
            self.invalid(line, "the columns are not those of nccl-tests (with -C the times are CPU times)")
            return
        if names[-1] == "timestamp":
            names[-1:] = ["date", "clock"]
        columns = {}
        for name in names:
            key = _NAMES.get(name, name)
            columns[f"{key}'" if key in columns else key] = Column(key, COLUMNS[name])
        self.tables[0].columns = columns

    def read_row(self, line: Line, tokens: Sequence[str]) -> None:
        """Old versions print a blank for the operation of what reduces nothing."""
        columns = self.tables[-1].columns if self.tables else {}
        if "redop" in columns and len(tokens) == len(columns) - 1:
            tokens = [*tokens[:3], "none", *tokens[3:]]
        super().read_row(line, tokens)

    def samples(self) -> Iterator[Samples]:
        """Checks the table as a whole; what does not agree with options and footer is a problem."""
        self.version = self.said.get("version", self.version)
        names = ("nccl_headers", "nccl_library", "iterations", "aggregated_iterations", "graph_launches")
        self.facts |= {name: self.said[name] for name in names if name in self.said}
        if self.devices:
            models = dict.fromkeys(self.devices)
            self.facts["devices"] = ", ".join(f"{self.devices.count(model)} x {model}" for model in models)
        table = self.tables[0] if self.tables else None
        if table is None or not table.rows:
            self.incomplete(None, "the table has no rows: the run ended before it measured anything")
            return
        self.read_ranks()
        self.name_test(table)
        test = TESTS.get(self.name or "")
        if test is None:
            if self.name is None:
                ranks = "" if self.ranks is not None else " --ranks N"
                self.missing = f"--tool TEST{ranks}  # one of {', '.join(self.fitting or TESTS)}"
            what = "does not name its test: give --tool" if self.name is None else "is of a test that is not known here"
            self.invalid(None, f"the output {what}")
        elif self.ranks is None:
            self.missing = "--ranks N  # as many as took part"
            self.incomplete(None, "the output does not state its number of ranks: give --ranks, or --nodes and --gpus")
        elif not 2 <= self.ranks <= LARGEST_RANKS:
            alone = ": nothing was sent (nccl-tests without MPI, make MPI=1?)" if self.ranks == 1 else " are impossible"
            self.invalid(None, f"ranks {self.ranks}{alone}")
        else:
            self.facts["datatype"] = table.rows[0].tokens["type"]
            self.facts["redop"] = table.rows[0].tokens.get("redop", "none")
            self.check_whole(table)
            self.check_rows(table, test)
            for row in table.rows:
                yield from self.samples_of(row, test, self.ranks)

    def read_ranks(self) -> None:
        """Takes the number of ranks from the lines of devices, or from the caller; and the program."""
        counts = {self.groups.count(group) for group in set(self.groups)}
        asked, listed = self.asked.ranks, len(self.devices)
        self.ranks = max(counts, default=asked)
        per_process = int(self.said.get("threads", 1)) * int(self.said.get("gpus", 1))
        if len(counts) > 1 or (listed and per_process and listed % per_process):
            self.invalid(None, f"{listed} ranks are listed: some are missing, or groups differ")
        if listed and asked not in (None, listed):
            self.invalid(None, f"{listed} ranks took part instead of {asked}")
        started = self.said.get("started")
        self.name = self.name or (program_of(started) if started else self.asked.tool)
        if self.said.get("concluded", started) != started:
            self.invalid(None, "the test that concluded is not the one that started")

    def name_test(self, table: Table) -> None:
        """Takes the one test that the table can be of, where nothing names it (before 2.16.7)."""
        if self.name is None and self.ranks is not None:
            self.fitting = [name for name, test in TESTS.items() if fits(table, test, self.ranks)]
            if len(self.fitting) == 1:
                self.name = self.fitting[0]
                self.facts["test"] = "by its numbers"

    def check_whole(self, table: Table) -> None:
        """Options, units and footer have to be there, but for rows that were copied alone."""
        self.check_alignment(table.rows)
        if "units" not in self.said:
            self.invalid(table.line, "the units of the columns are missing, or are others")
        average, excerpt = self.said.get("average"), not self.said.keys() & {"minimum", "average", "bounds", "started"}
        if excerpt:
            self.facts["options"] = "not said"
        elif average is None or "bounds" not in self.said:
            self.incomplete(None, "the footer is missing: the output was cut off, or the run did not end")
        if average is not None and "rows" not in self.facts:
            rates = [row.rounded(name) for row in table.rows for name in ("busbw", "busbw'") if name in row.tokens]
            value, mean = float(average), sum(rate for rate, _ in rates) / len(rates)
            # %g prints six significant digits, JSON six decimals.
            digit = 0.5 * 10.0 ** (math.floor(math.log10(value)) - 5) if value > 0 else 0.0
            slack = sum(half for _, half in rates) / len(rates) + max(digit, 0.5e-6)
            if abs(mean - value) > slack * (1 + 1e-6):
                self.invalid(None, f"the footer's average busbw of {value:g} differs from that of the rows ({mean:g})")

    def check_rows(self, table: Table, test: NcclTest) -> None:
        """Of each root the sizes are ascending, and made of elements; the footer's average shows what is missing."""
        first, shares = table.rows[0].tokens, self.ranks if test.shared and self.ranks else 1
        element = ELEMENT_BYTES.get(first["type"], 0)
        for before, row in itertools.pairwise(table.rows):
            now, then = (row.values.get("root", -1), row.size), (before.values.get("root", -1), before.size)
            if now < then or (now == then and row.size):
                self.invalid(row.line, "roots and sizes are not ascending: rows are repeated or moved")
        for row in table.rows:
            if any(row.tokens.get(name) != first.get(name) for name in ("type", "redop")):
                self.invalid(row.line, "there are several datatypes or operations: run one at a time")
            elif test.operation != "alltoallv" and row.size != row.values["count"] * element * shares:
                # The sizes of alltoallv follow from a matrix that the output does not show.
                self.invalid(row.line, "size and count do not match")

    def samples_of(self, row: TableRow, test: NcclTest, ranks: int) -> Iterator[Samples]:
        """Both placements of a row whose numbers belong together; what does not is a problem."""
        root = int(row.values.get("root", -1))
        if root >= ranks:
            self.invalid(row.line, f"there is no root {root} in {ranks} ranks")
            return
        for mark, placement in HALVES:
            if f"time{mark}" not in row.tokens:
                continue
            wrong = int(row.values[f"#wrong{mark}"])
            option = self.said.get("validated")
            checkable = not (mark and test.operation in _UNCHECKED_IN_PLACE)
            if option is not None and checkable and (wrong >= 0) != (option != "0"):
                self.invalid(row.line, "the number of wrong elements does not fit the option of validation")
            if wrong > 0:
                self.facts["validation"] = "failed"
                self.add(Verdict.FAIL, row.line, f"the data were wrong in {wrong} elements ({placement})")
            elif not mark:
                self.facts.setdefault("validation", "off" if wrong < 0 else "passed")
            if (mistake := mistake_of(row, mark, test, ranks)) is not None:
                self.invalid(row.line, f"{mistake} ({placement})")
            elif row.size > 0:
                yield self.placed(row, mark, placement, test, wrong)

    def placed(
        self, row: TableRow, mark: str, placement: Literal["out-of-place", "in-place"], test: NcclTest, wrong: int
    ) -> Samples:
        """The sample of one placement: a mean, or with `-I 1` of JSON each iteration."""
        first = max(int(row.values.get("root", -1)), 0)
        ranks = range(self.ranks or 0)
        library = min(int(self.said.get(name, 0)) for name in ("nccl_headers", "nccl_library"))
        own = self.suite == "rccl-tests" or library >= _OWN_ALLTOALL
        transfers = test.transfers or (test.operation == "alltoall" and not own)
        mean = one_time(
            "bidirectional" if test.operation == "sendrecv" and len(ranks) == 2 else test.operation,
            row.size,
            (first, *(rank for rank in ranks if rank != first)),
            1e3 * row.values[f"time{mark}"],
            implementation="transfers" if transfers else "library",
            # Elements are counted; each has at least one wrong byte.
            wrong_bytes=wrong,
            placement=placement,
        )
        iterations = self.iterations.get((row.line.number, mark))
        if iterations is None:
            return mean
        times = np.maximum(np.rint(1e3 * np.array(iterations)), 1).astype(np.int64)
        times.flags.writeable = False
        return replace(mean, times_ns=times, statistic="iterations")


def fits(table: Table, test: NcclTest, ranks: int) -> bool:
    """Whether every row can be of `test`: its reduction, root, busbw and sizes, and where its data are checked."""
    unchecked, shares = test.operation in _UNCHECKED_IN_PLACE, ranks if test.shared else 1
    elements = [row.values["count"] * ELEMENT_BYTES.get(row.tokens["type"], 0) for row in table.rows]
    whole = all(row.size == shares * size for row, size in zip(table.rows, elements, strict=True))
    return whole != (test.operation == "alltoallv") and all(
        (row.values["#wrong"] < 0 or (row.values.get("#wrong'", -1) < 0) == unchecked)
        and (row.tokens.get("redop", "none") != "none") == test.reduces
        and (row.values.get("root", -1.0) >= 0) == test.rooted
        and mistake_of(row, "", test, ranks) is None
        for row in table.rows
    )


def mistake_of(row: TableRow, mark: str, test: NcclTest, ranks: int) -> str | None:
    """What cannot be true of the numbers of a row, of one placement."""
    time, kilobytes = row.rounded(f"time{mark}"), row.size / 1e3  # us times GB/s
    if time[0] <= 0:
        return "a time of zero is impossible"
    if not products_agree(time, row.rounded(f"algbw{mark}"), (kilobytes, 0.0)):
        return "size, time and algbw do not match"
    if not products_agree(time, row.rounded(f"busbw{mark}"), (kilobytes * test.busbw_factor(ranks), 0.0)):
        return f"busbw does not match {ranks} ranks and its time"
    return None
