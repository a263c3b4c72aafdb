"""What the readers of vendors' tools share: strict numbers, tables, and problems that name the line.

A reader trusts nothing: it has the form in which the tool prints, and refuses what differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fabricheck.records.finding import Finding
from fabricheck.records.run import Samples, list_ranks
from fabricheck.records.vendor_output import VendorOutput
from fabricheck.records.verdict import Verdict
from fabricheck.results.environment import without_values
from fabricheck.results.printed import Line
from fabricheck.vendor.printed_tables import WORD, Column, Table, TableRow, Test, one_time, products_agree, value_of

# A longer list of the same problem says nothing more.
_LONGEST_LIST = 8
# No tool prints as many sizes; a text that repeats itself must not take all memory.
_MOST_ROWS = 10_000

_NUMBER_LIKE = re.compile(r"[-+]?[0-9][0-9.,]*(?:e[+-]?[0-9]*)?[kmg]?", re.ASCII)
# A log that begins inside the first number of a row.
_GLUED = re.compile(r"[0-9]+[A-Za-z\[]")

# Words of a launcher, library or kernel that say that a run did not end as it should.
_CRASH = re.compile(
    r"segmentation fault|bus error|floating point exception|process received signal|exited on signal|killed by signal"
    r"|caught signal|exit(?:ed)?(?: with)? (?:non-?zero )?(?:status|code) [1-9]|non-?zero (?:status|exit)"
    r"|exit code:? +[1-9]|bad termination|mpi_abort|abort\([0-9-]+\) on node|due to time limit|core dumped|\bkilled\b"
    r"|(?:job|step|process) (?:has been )?(?:aborted|terminated|cancelled)|slurmstepd: error|srun: error"
    r"|assertion .*failed|terminate called|out of memory|oom[- ]kill|(?:cuda|hip) (?:error|failure)"
    r"|nccl (?:failure|error)|test (?:nccl|cuda|hip) failure|fatal error|cannot allocate memory"
    r"|error while loading shared libraries|undefined symbol|test timeout",
    re.IGNORECASE,
)
# One of these is in whatever the above finds, and is found sooner.
_CRASH_WORDS = re.compile(
    r"fault|rror|xcept|ignal|xit|tatus|ermin|bort|ancel|imit|dump|illed|ailed|emory|oom|undef|eout"
)


@dataclass(frozen=True)
class Asked:
    """What the caller knows of an output: how many ranks took part, the program, and the sizes as the tool counts."""

    ranks: int | None = None
    tool: str | None = None
    sizes: Sequence[int] | None = None


def quote(text: str, limit: int = 160) -> str:
    """`text` as a part of a one-line message: no control characters, no values that may be secret, not too long."""
    clean = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", without_values(text[:4096])).split())
    clean = clean.encode("utf-8", "replace").decode("utf-8")
    return repr(clean if len(clean) <= limit else clean[: limit - 1] + "…")


class Block:
    """One output of a tool, read line by line, then checked as a whole. Each tool has one.

    `title`: the tool; `begins`: how its outputs begin, the heading of the table last; `known`: its lines beside rows,
    by their kinds, of which `read_line` takes the match; `own`: what stands in lines of the tool alone, so that one
    which is none of `known` is damaged; `headings`: the columns, by a pattern of their titles; `words`: how many tokens
    of a row may be words; `aligned_from`: the first column that stands under the others of its kind; `several`: whether
    an output has a table for each test; `repeats`: whether messages/s say the rate again.
    """

    title: ClassVar[str]
    begins: ClassVar[tuple[re.Pattern[str], ...]]
    known: ClassVar[Mapping[str, re.Pattern[str]]]
    own: ClassVar[re.Pattern[str]]
    headings: ClassVar[Mapping[str, Column]] = {}
    several: ClassVar[bool] = False
    repeats: ClassVar[bool] = True
    words: ClassVar[int] = 1
    aligned_from: ClassVar[int] = 0
    transport: ClassVar[str] = "ccl"
    memory: Literal["", "gpu", "host"] = ""
    unchecked = -1  # wrong bytes of a row that does not say

    def __init__(self, path: str, asked: Asked) -> None:
        self.path, self.asked = path, asked
        self.problems: list[Finding] = []
        self.facts: dict[str, str] = {}
        self.said: dict[str, str] = {}
        self.tables: list[Table] = []
        self.version: str | None = None
        self.ranks: int | None = None
        self.hosts: list[str] = []
        self.devices: list[str] = []
        self.crash: Line | None = None
        self.cut = False
        self.missing = ""
        self.speaker: str | None = None

    def take(self, line: Line) -> None:
        """Reads a line of the output, or of whatever else was written between its lines."""
        text = line.text.strip()
        tokens = text.split()
        # Most lines are rows: they are not compared with every other kind.
        fits = bool(self.tables) and len(tokens) == len(self.tables[-1].columns)
        if fits and tokens[0].isdecimal() and self.is_row(tokens):
            self.hear(line)
            self.read_row(line, tokens)
            return
        for kind, pattern in self.known.items():
            if (match := pattern.fullmatch(text)) is not None:
                self.hear(line)
                self.read_line(kind, match, line)
                return
        if self.is_row(tokens):
            self.hear(line)
            self.read_row(line, tokens)
        elif self.own.search(text) is not None:
            self.invalid(line, f"not a line of {self.title}: it is damaged, or two outputs are mixed")
        elif self.tables and _GLUED.match(text) is not None:
            self.cut = True
        elif self.crash is None and _CRASH_WORDS.search(text) and _CRASH.search(text):
            self.crash = line

    def hear(self, line: Line) -> None:
        """Takes a line of the tool for one of this output, whose lines have one speaker."""
        if self.speaker is None:
            self.speaker = line.speaker
        elif line.speaker != self.speaker:
            self.invalid(line, f"lines of {quote(self.speaker)} and {quote(line.speaker)} are mixed: give those of one")
            self.speaker = line.speaker

    def read_line(self, kind: str, match: re.Match[str], line: Line) -> None:
        """Keeps what a line of `known` says, which no output says twice."""
        for name, value in match.groupdict().items():
            if value is not None and self.said.setdefault(name, value) != value:
                self.invalid(line, "this was said before: two outputs are in one text")
        if kind == "header":
            self.read_header(line)

    def read_header(self, line: Line) -> None:
        """Begins the one table of an output."""
        columns = self.columns_of(line.text)
        if self.tables or not columns:
            self.invalid(line, f"the columns are not those of {self.title}, or a second table begins")
        self.tables.append(Table(line, columns))

    def columns_of(self, text: str) -> dict[str, Column]:
        """The columns of a heading; none where it has an unknown one, or one twice."""
        columns: dict[str, Column] = {}
        rest = text.strip()
        while rest:
            # A title may be the beginning of a longer one.
            matches = [(re.match(title, rest), column) for title, column in self.headings.items()]
            match, column = max(matches, key=lambda each: each[0].end() if each[0] else 0)
            if match is None or (column.name or match[0]) in columns:
                return {}
            columns[column.name or match[0]] = column
            rest = rest[match.end() :].lstrip()
        return columns

    def is_row(self, tokens: Sequence[str]) -> bool:
        """Whether a line is a row of numbers, also where some of them are damaged."""
        begins = _NUMBER_LIKE.fullmatch(tokens[0]) is not None
        if begins or not self.tables:
            return begins
        numbers = sum(_NUMBER_LIKE.fullmatch(token) is not None for token in tokens)
        return numbers >= max(len(tokens) - self.words, 2 * self.words - 1)

    def read_row(self, line: Line, tokens: Sequence[str]) -> None:
        """Adds a row to the last table; one that does not fit its columns is a problem."""
        if not self.tables:
            self.invalid(line, "numbers before the header of a table")
            return
        if self.cut:
            self.invalid(line, "a log line is inside this row")
            return
        columns = self.tables[-1].columns
        if not columns:
            return  # the header was none
        text = line.text.expandtabs()
        if not (text.isascii() and text.isprintable()) or len(tokens) != len(columns):
            self.invalid(line, f"not a row of {len(columns)} columns; a log in the same file damages rows")
            return
        if len(self.tables[-1].rows) >= _MOST_ROWS:
            self.invalid(line, f"more than {_MOST_ROWS:,} rows")
            return
        cells = dict(zip(columns, tokens, strict=True))
        values: dict[str, float] = {}
        for name, column in columns.items():
            if column.cell.fullmatch(cells[name]) is None:
                self.invalid(line, f"{cells[name][:30]!r} is not as {self.title} prints {name}")
                return
            if column.cell is not WORD:
                values[name] = value_of(cells[name]) * column.unit
        units = {name: column.unit for name, column in columns.items()}
        self.tables[-1].rows.append(TableRow(line, cells, values, units))

    def samples(self) -> Iterator[Samples]:
        """Checks all that was read, and gives what was measured."""
        raise NotImplementedError

    @property
    def tool(self) -> str:
        """The program."""
        raise NotImplementedError

    def output(self) -> VendorOutput:
        """The output; damage is a problem of it, and nothing is raised."""
        samples = tuple(self.samples())
        if self.crash is not None:
            self.incomplete(self.crash, "the run ended with an error")
        tool = self.tool
        if self.asked.tool is not None and tool != self.asked.tool:
            self.invalid(None, f"this is the output of {tool} instead of {self.asked.tool}")
        return VendorOutput(
            tool,
            self.version,
            self.path,
            self.ranks,
            self.facts,
            samples,
            tuple(self.problems),
            transport=self.transport,
            memory=self.memory,
            hosts=tuple(self.hosts),
            devices=tuple(self.devices),
            missing=self.missing,
        )

    def outputs(self) -> Iterator[VendorOutput]:
        """The outputs: one, but of tools that print a matrix for each test."""
        yield self.output()

    def add(self, verdict: Verdict, line: Line | None, message: str) -> None:
        """A problem with what stands in `line`, which is quoted (None: with the whole output)."""
        if len(self.problems) >= _LONGEST_LIST and verdict in {known.verdict for known in self.problems}:
            return
        where = self.path or "the output"
        if line is not None:
            message = f"{message}: {quote(line.text)}"
            where += f":{line.number}"
        code = "wrong-bytes" if verdict is Verdict.FAIL else "output-damaged"
        self.problems.append(Finding(code, verdict, f"{where}: {message}"))

    def invalid(self, line: Line | None, message: str) -> None:
        """Adds an INVALID problem, as `add`."""
        self.add(Verdict.INVALID, line, message)

    def incomplete(self, line: Line | None, message: str) -> None:
        """Adds an INCOMPLETE problem, as `add`."""
        self.add(Verdict.INCOMPLETE, line, message)

    def check_alignment(self, rows: Sequence[TableRow]) -> None:
        """Columns stand under each other, unless a number fills its own: a character that was lost or added shows.

        Where all blanks between columns were made one, as by a chat, or are tabs, nothing is known.
        """
        if len(rows) < 2 or all("\t" in row.line.text for row in rows):
            return
        places = [[match.span() for match in re.finditer(r"\S+", row.line.text)] for row in rows]
        if len({len(spans) for spans in places}) > 1:
            return self.invalid(rows[0].line, "the rows have different numbers of columns: some were lost or added")
        ends = np.array(places)
        if (ends[:, 1:, 0] - ends[:, :-1, 1] == 1).all():
            return
        ends = np.concatenate([np.zeros((len(rows), 1, 2), int), ends[:, self.aligned_from :]], axis=1)
        widths, gaps = np.diff(ends[:, :, 1], axis=1), ends[:, 1:, 0] - ends[:, :-1, 1]
        usual = [np.bincount(column).argmax() for column in widths.T]
        bad = (widths < usual) | ((widths > usual) & (gaps > 2))
        for row in np.array(rows, dtype=object)[bad.any(axis=1)]:
            self.invalid(row.line, "the row is not aligned with the others: characters were lost or added")

    def check_sizes(self, table: Table, *, doubling: bool) -> None:
        """The sizes are those that were requested, or else each is twice (more than) the one before."""
        sizes = table.sizes
        if self.asked.sizes is not None:
            if missing := [size for size in self.asked.sizes if size not in sizes]:
                self.incomplete(None, f"rows are missing: {list_ranks(missing)} B")
            if sizes != [size for size in self.asked.sizes if size in sizes]:
                self.invalid(table.line, "rows are repeated, moved or were not requested")
            return
        for row, before, size in zip(table.rows[1:], sizes, sizes[1:], strict=False):
            if size <= before or (doubling and before and size != 2 * before):
                self.invalid(row.line, f"{size} B follow {before} B: rows are missing, repeated or moved")

    def impossible(self, row: TableRow, streams: int = 1) -> str | None:
        """What cannot be true of a row, whatever the tool, where its rate adds up `streams` messages."""
        values = row.values
        if values.get("repetitions", 1) < 1:
            return "zero repetitions"
        measured = row.values[row.time] if row.time is not None else row.message_us()
        if row.size > 0 and (measured <= 0 or values.get("average") == 0):
            return "a time or rate of zero is impossible"
        order = [values[name] for name in ("minimum", "average", "maximum") if name in values]
        if order != sorted(order):
            return "minimum, average and maximum are not in this order"
        if values.get("sent") != values.get("ack"):
            return "not all messages were acknowledged"
        if "rate" in values and row.time is not None:
            sent = (float(streams * row.size), 0.0)
            return None if products_agree(row.rounded(row.time), row.rounded("rate"), sent) else "time and rate differ"
        if self.repeats and values.keys() >= {"rate", "messages"}:
            agree = products_agree(row.rounded("messages"), (float(row.size), 0.0), row.rounded("rate"))
            return None if agree else "the rate and messages/s do not match"
        return None

    def measured(self, table: Table, test: Test, ranks: int) -> Iterator[Samples]:
        """The sample of each row that can be true; another is a problem."""
        for row in table.rows:
            if (reason := self.impossible(row, max(test.streams, 1))) is not None:
                self.invalid(row.line, reason)
            elif row.size > 0:
                yield self.sample(row, test, ranks)

    def wrong_bytes(self, row: TableRow) -> int:
        """How many bytes were wrong, as far as the tool says it: 1 for any, -1 where it did not look."""
        wrong = row.values.get("wrong", self.unchecked)
        if wrong > 0:
            self.facts["validation"] = "failed"
            self.add(Verdict.FAIL, row.line, "the data were wrong")
        else:
            self.facts.setdefault("validation", "off" if wrong < 0 else "passed")
        return int(wrong > 0) if wrong >= 0 else -1

    def sample(self, row: TableRow, test: Test, ranks: int) -> Samples:
        """The sample of a row. A time is that of one message, or of a collective; of a ping-pong it is half."""
        time = row.values[row.time] if row.time is not None else row.message_us() * test.streams
        return one_time(
            test.operation,
            row.size * ranks if test.per_rank else row.size,
            tuple(range(ranks)),
            1e3 * time * (2 if test.operation == "pingpong" else 1),
            implementation="transfers" if test.streams or test.pair else "library",
            wrong_bytes=self.wrong_bytes(row),
        )
