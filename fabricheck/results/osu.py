"""Reads the output of the OSU Micro-Benchmarks (docs/vendor-formats.md): MPI, NCCL and RCCL, versions 5 to 7."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fabricheck.records.run import Samples, list_ranks
from fabricheck.results.vendor_output import TextRow, ToolReader, VendorOutput, read_tool, wrong_bytes
from fabricheck.results.vendor_text import LARGEST_RANKS, Line, doubling_mistakes, fixed_number, one_time, whole_number


@dataclass(frozen=True)
class OsuTest:
    """What a title means.

    `pair`: between two ranks; `per_rank`: the size is a share, and a buffer has one a rank; `rate`: the table has MB/s;
    `overlaps`: a non-blocking collective, alone and beside a computation.
    """

    program: str
    operation: str
    rate: bool = False
    pair: bool = False
    per_rank: bool = False
    overlaps: bool = False

    @property
    def time_column(self) -> str:
        """The column that every table of the benchmark has."""
        return "rate" if self.rate else "pure" if self.overlaps else "average"


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

_TITLE = re.compile(
    r"# OSU (?:(?P<library>MPI|NCCL|RCCL|XCCL)|MPI_(?P<call>Put|Get))"
    r"(?:-(?P<accelerator>CUDA|ROCM|OPENACC|MANAGED|SYCL))?"
    r" (?P<words>.*?)(?: v(?P<version>[0-9]+(?:\.[0-9]+)*))?",
    re.ASCII,
)
_COLLECTIVE = re.compile(
    r"(?P<immediate>Non-blocking )?"
    r"(?P<name>Allgatherv?|Allreduce|Reduce_scatter|Broadcast|Reduce|Gatherv?|Scatterv?|All-to-All[vw]?)"
    r"(?: Personalized Exchange)?(?P<persistent> Persistent)? Latency Test",
    re.ASCII,
)


def _test_of(call: str | None, words: str) -> OsuTest | None:
    """What the title names; None for a benchmark that cannot be read."""
    if call is not None and (kind := _ONE_SIDED.get(words.lower())) is not None:
        name = call.lower()
        return OsuTest(f"osu_{name}_{kind[0]}", f"{name}{kind[1]}", rate=kind[2], pair=True)
    match = _COLLECTIVE.fullmatch(words)
    if call is not None or match is None:
        return None if call is not None else _PAIRS.get(words)
    operation, immediate = match["name"].lower().replace("-", ""), match["immediate"] is not None
    name = "bcast" if operation == "broadcast" else operation
    program = f"osu_{'i' if immediate else ''}{name}{'_persistent' if match['persistent'] else ''}"
    return OsuTest(program, operation, per_rank=operation not in _WHOLE_BUFFERS, overlaps=immediate)


# Several pairs at once: the goodput is that of the mean pair.
_MULTI_PAIR = "multi_pair"

_DATATYPE = re.compile(r"# Datatype: ([A-Z_0-9]{1,40})\.?", re.ASCII)
_PAIRS_LINE = re.compile(r"# \[ pairs: ([0-9]{1,9}) \] \[ window size: ([0-9]{1,9}|varied) \]", re.ASCII)
_SETTING = re.compile(
    r"# (Window creation|Synchronization|Number of Sender threads|Number of Receiver threads): ([A-Za-z0-9_/]{1,60})",
    re.ASCII,
)
_HEADER = re.compile(r"#\s+Size\s+(\S.*?)", re.ASCII)
_COLUMNS = re.compile(
    r"(?P<average>(?:Avg )?Latency ?\((?:us)\))|(?P<minimum>Min Latency ?\(us\))|(?P<maximum>Max Latency ?\(us\))"
    r"|(?P<iterations>Iterations)|(?P<wrong>Validation)|(?P<rate>Bandwidth \(MB/s\)|MB/s)"
    r"|(?P<overall>Overall\(us\))|(?P<compute>Compute\(us\))|(?P<init>Coll\. Init\(us\))|(?P<testing>MPI_Test\(us\))"
    r"|(?P<waiting>MPI_Wait\(us\))|(?P<pure>Pure Comm\.\(us\))|(?P<lowest>Min Comm\.\(us\))"
    r"|(?P<highest>Max Comm\.\(us\))"
    r"|(?P<overlap>Overlap\(%\))|(?P<messages>Messages/s)"
    r"|(?P<percentile>P(?P<nth>[1-9][0-9]?) Tail (?:Lat\(us\)|BW\(MB/s\)))",
    re.ASCII,
)
_OF_OVERLAP = ("overall", "compute", "init", "testing", "waiting", "pure", "lowest", "highest", "overlap")
_NUMBERS: Mapping[str, Callable[[str], float | None]] = {
    "iterations": whole_number,
    "wrong": {"Pass": 0.0, "Fail": 1.0}.get,
}
_ORDER = (*_OF_OVERLAP, "average", "rate", "messages", "minimum", "maximum", "iterations", "wrong", "percentile")


def parse_osu(
    text: str,
    path: str = "",
    *,
    ranks: int | None = None,
    sizes: Sequence[int] | None = None,
    tool: str | None = None,
) -> VendorOutput:
    """The measurements in the standard output of one run of one OSU benchmark.

    OSU prints neither the number of ranks nor where its table ends, so the caller says them: `ranks` is how many were
    started (the buffers of alltoall and allgather cannot be told without), `sizes` the sizes that were requested, as
    OSU counts them (without, rows missing at either end cannot be noticed), `tool` the program (`osu_bw`).
    Whatever the text holds, this returns; see `VendorOutput.problems`.
    """
    return read_tool(_Reader, text, path, ranks, tool=tool, sizes=sizes)


@dataclass
class _Reader(ToolReader):
    title = "OSU"
    never_zero = ("average", "rate", "messages", "pure")
    messages_half = 0.005

    test: OsuTest | None = None
    pairs: int = 1
    columns: list[str] = field(default_factory=list)
    header: Line | None = None
    rows: list[TextRow] = field(default_factory=list)
    wrong_data: bool = False  # OSU stops there: rows after it are not missing

    def name_and_ranks(self) -> tuple[str, int | None]:
        if self.test is None:
            return self.tool or "osu", self.ranks
        return self.test.program, 2 if self.test.pair else self.ranks

    def crash(self) -> Line | None:
        return None if self.wrong_data else super().crash()

    def read(self, line: Line, text: str) -> None:
        if text.startswith("#"):
            self.read_comment(line, text)
        elif "# OSU" in text or "# Size" in text:
            self.complaints.invalid(line, "a title or header is inside another line: outputs are mixed")
        elif self.is_row(tokens := text.split()):
            self.read_row(line, tokens)
        elif text.startswith("DATA VALIDATION ERROR"):
            self.wrong_data = True
            self.complaints.fail(line, "the tool found wrong data")

    def read_comment(self, line: Line, text: str) -> None:
        if text.startswith("# OSU"):
            self.read_title(line, text)
        elif (match := _DATATYPE.fullmatch(text)) is not None:
            if self.facts.setdefault("datatype", match[1]) != match[1]:
                self.complaints.invalid(line, "there is a second datatype: run one at a time")
        elif (match := _PAIRS_LINE.fullmatch(text)) is not None:
            self.facts["pairs"], self.facts["window"] = match[1], match[2]
            self.pairs = int(match[1])
            if not 1 <= self.pairs <= LARGEST_RANKS // 2 or match[2] == "varied":
                self.pairs = 1
                self.complaints.invalid(line, "the number of pairs or the window cannot be read")
        elif (match := _SETTING.fullmatch(text)) is not None:
            self.facts[match[1].lower().replace(" ", "_")] = match[2]
        elif (match := _HEADER.fullmatch(text)) is not None:
            self.read_header(line, match[1])
        elif "Size" in text or "/s" in text or "(us)" in text:
            self.complaints.invalid(line, "this is not a header of a table that can be read")

    def read_title(self, line: Line, text: str) -> None:
        match = _TITLE.fullmatch(text)
        test = _test_of(match["call"], match["words"]) if match is not None else None
        if match is None or test is None:
            self.complaints.invalid(line, "this OSU benchmark cannot be read")
        elif self.test is not None:
            self.complaints.invalid(line, "a second benchmark begins: two outputs are in one text")
        else:
            self.test, self.version = test, match["version"]
            self.facts |= {"library": match["library"] or "MPI", "accelerator": match["accelerator"] or "none"}

    def read_header(self, line: Line, text: str) -> None:
        if self.header is not None:
            self.complaints.invalid(line, "a second table begins: two outputs or datatypes are in one text")
            return
        self.header = line
        position = 0
        columns: list[str] = []
        for match in _COLUMNS.finditer(text):
            if text[position : match.start()].strip():
                break
            name = match.lastgroup if match.lastgroup != "nth" else "percentile"
            columns.append(f"p{match['nth']}" if match["percentile"] else str(name))
            position = match.end()
        kinds = [_ORDER.index("percentile" if each[1:].isdigit() else each) for each in columns]
        if text[position:].strip() or not columns or len(set(columns)) != len(columns) or kinds != sorted(kinds):
            self.complaints.invalid(line, "the columns are not those of an OSU benchmark")
        elif self.test is not None and {"rate", "average", "pure"} & {*columns} != {self.test.time_column}:
            self.complaints.invalid(line, f"the columns are not those of {self.test.program}")
        else:
            self.columns = columns

    def read_row(self, line: Line, tokens: list[str]) -> None:
        if not self.columns:
            if self.header is None:
                self.complaints.invalid(line, "numbers before the header")
            return
        columns: dict[str, Callable[[str], float | None]] = {"size": whole_number}
        columns |= {name: _NUMBERS.get(name, fixed_number) for name in self.columns}
        if (row := self.row(line, tokens, columns)) is not None:
            self.rows.append(row)

    def check(self) -> Iterable[Samples]:
        complaints = self.complaints
        if self.test is None:
            complaints.incomplete(
                None, "the title of OSU is missing: it did not start, or this is another program's output"
            )
            return ()
        if self.tool is not None and self.tool != self.test.program:
            complaints.invalid(None, f"this is the output of {self.test.program} instead of {self.tool}")
        if not self.columns:
            if self.header is None:
                complaints.incomplete(None, "there is no table: the benchmark ended before it measured anything")
            return ()
        if not self.rows:
            complaints.incomplete(self.header, "the table has no rows")
            return ()
        if not self.text.endswith("\n"):
            complaints.incomplete(self.lines[-1], "the last line is incomplete: the output was cut off")
        self.check_ranks()
        self.check_sizes()
        slowest = next((name for name in ("maximum", "highest") if name in self.columns), self.test.time_column)
        if self.test.overlaps:
            self.facts["blocking"] = "no"
        if not self.test.rate and not self.test.pair:
            self.facts["time_over_ranks"] = slowest
        samples = tuple(self.samples_of(self.rows, lambda row: self.sample(row, slowest), self.mistake, aligned_from=1))
        if self.test.per_rank and self.ranks is None:
            complaints.invalid(
                None,
                f"OSU does not print the number of ranks, which sets the buffer of {self.test.operation}: --ranks",
            )
            return ()
        return samples

    def check_ranks(self) -> None:
        assert self.test is not None
        if self.test.program == "osu_mbw_mr" and "pairs" not in self.facts:
            self.complaints.invalid(None, "osu_mbw_mr did not print its number of pairs")
        if self.ranks is None:
            return
        needed = 2 if self.test.pair else 2 * self.pairs if self.test.rate else self.ranks
        if self.ranks != needed or self.ranks < 2:
            self.complaints.invalid(None, f"{self.test.program} ran with {needed} ranks instead of {self.ranks}")

    def check_sizes(self) -> None:
        sizes = [row.size for row in self.rows]
        for index in doubling_mistakes(sizes):
            self.complaints.invalid(
                self.rows[index].line,
                f"{sizes[index]} B follow {sizes[index - 1]} B: rows are missing, repeated or moved",
            )
        if self.sizes is None:
            return
        missing = sorted(set(self.sizes) - set(sizes))
        unasked = [row for row in self.rows if row.size not in set(self.sizes)]
        if missing and not self.wrong_data:
            self.complaints.incomplete(None, f"rows are missing: {list_ranks(missing)} B")
        if unasked:
            self.complaints.invalid(unasked[0].line, "this size was not requested")

    def mistake(self, row: TextRow) -> str | None:
        """What cannot be true of a row."""
        if "overlap" in row.values and not _overlap_agrees(row.values):
            return "the overlap does not match the times"
        percentiles = [value for _, value in sorted((int(n[1:]), v) for n, v in row.values.items() if n[1:].isdigit())]
        return "the percentiles are not in order" if percentiles != sorted(percentiles) else None

    def sample(self, row: TextRow, slowest: str) -> Samples | None:
        test = self.test
        assert test is not None
        operation, schedule = test.operation, "uncontended"
        ranks: tuple[int, ...] = (0, 1) if test.pair else tuple(range(self.ranks or 0))
        if test.rate:
            # MB = 10^6 B; the sum of both directions, and of all pairs.
            streams = 2 if test.operation == "bidirectional" else self.pairs
            a_message = self.message_ns(row) if "messages" in row.values else 1e3 * row.size / row.values["rate"]
            nanoseconds = streams * a_message
            if test.program == "osu_mbw_mr":
                ranks = tuple(range(2 * self.pairs))
                if self.pairs > 1:
                    operation, schedule = _MULTI_PAIR, "contended"
        else:
            # The latency of a ping-pong is half a round trip.
            nanoseconds = 1e3 * row.values[slowest] * (2 if test.operation == "pingpong" else 1)
        return one_time(
            operation,
            row.size * self.ranks if test.per_rank and self.ranks is not None else row.size,
            ranks,
            nanoseconds,
            implementation="transfers" if test.pair or test.rate else "library",
            schedule=schedule,
            wrong_bytes=wrong_bytes(row),
        )


def _overlap_agrees(values: Mapping[str, float]) -> bool:
    """Whether the overlap is 100% less what the computation made the whole longer, in % of the communication alone."""
    overall, compute, pure = (values.get(name, 0.0) for name in ("overall", "compute", "pure"))
    if pure <= 0:
        return values["overlap"] == 0
    wanted = 100 - 100 * (overall - compute) / pure
    slack = 0.01 + 100 * (0.01 + 0.005 * abs(overall - compute) / pure) / pure
    return (
        max(wanted - slack, 0) <= values["overlap"] + 0.005 <= max(wanted + slack, 0) + 0.01
        and values["overlap"] <= 100
    )
