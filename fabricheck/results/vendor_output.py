"""What a vendor's benchmark measured, in the records that fabricbench's results are in, and how its output is read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from fabricheck.records.finding import Finding
from fabricheck.records.run import Samples, list_ranks
from fabricheck.results.vendor_text import (
    Complaints,
    Line,
    crash_line,
    fixed_number,
    is_plain,
    looks_like_number,
    products_agree,
    read_lines,
    unwrapped,
    whole_number,
)


@dataclass(frozen=True)
class VendorOutput:
    """One output of a vendor tool, read and guarded. With `problems` it may still hold samples worth seeing.

    `tool`: `osu_latency`, `all_reduce_perf`, `IMB-MPI1 PingPong`; `version` as the tool prints it, or None. `ranks`:
    how many took part, None where the tool does not state. `facts`: what else the tool said of the run (datatype,
    validation, devices, allow-listed environment variables); nothing that docs/vendor-formats.md does not name.
    """

    tool: str
    version: str | None
    path: str
    ranks: int | None
    facts: Mapping[str, str]
    samples: tuple[Samples, ...]
    problems: tuple[Finding, ...]


def misaligned(rows: Sequence[tuple[int, ...]]) -> list[int]:
    """Indices of the rows whose columns do not stand under those of the others; `rows` are ends of columns.

    The tools print right-aligned columns of fixed width, so the distance between the ends of neighbouring columns is
    the same in all rows: a character that was lost or added shows, even where what is left is a number.
    """
    if len(set(rows)) <= 1:
        return []
    ends = Counter(rows).most_common(1)[0][0]
    return [index for index, row in enumerate(rows) if row != ends]


def token_ends(text: str) -> tuple[int, ...]:
    """Where the tokens of a row end, counted from the start of the line."""
    return tuple(match.end() for match in re.finditer(r"\S+", text))


#: Columns of IMB and of what is like it, by their headings: what they hold, and how their numbers are read.
HEADINGS: Mapping[str, tuple[str, Callable[[str], float | None]]] = {
    "#bytes": ("bytes", whole_number),
    "#repetitions": ("repetitions", whole_number),
    "t[usec]": ("time", fixed_number),
    "t_min[usec]": ("minimum", fixed_number),
    "t_max[usec]": ("maximum", fixed_number),
    "t_avg[usec]": ("average", fixed_number),
    "Mbytes/sec": ("rate", fixed_number),
    "Msg/sec": ("messages", whole_number),
    "defects": ("wrong", fixed_number),
}


@dataclass(frozen=True)
class TextRow:
    """A row of a table: its numbers by column, and where its tokens end."""

    line: Line
    size: int
    values: Mapping[str, float]
    ends: tuple[int, ...]


@dataclass
class ToolReader:
    """Reads what one run of a tool printed: line by line, then as a whole. Each tool has one.

    `ranks`, `tool` and `sizes`: how many ranks were started, which program and which sizes were requested, where the
    caller knows. By class: `title`, what a number that the tool cannot print is none of; `words`, how many tokens of a
    row may be no numbers; `never_zero`, columns that are zero in no row of some size; `messages_half`, half a unit of
    the last digit of messages/s.
    """

    title: ClassVar[str] = ""
    words: ClassVar[int] = 1
    never_zero: ClassVar[tuple[str, ...]] = ()
    messages_half: ClassVar[float] = 0.5

    text: str
    path: str
    ranks: int | None
    tool: str | None = None
    sizes: Sequence[int] | None = None
    version: str | None = None
    facts: dict[str, str] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.complaints = Complaints(self.path)

    def output(self) -> VendorOutput:
        """Reads all lines, then checks them together. Damage becomes a problem of the output; nothing is raised."""
        self.lines = read_lines(self.text)
        for line in self.lines:
            if text := line.text.strip():
                self.read(line, text)
        if (crash := self.crash()) is not None:
            self.complaints.incomplete(crash, "the run ended with an error")
        samples = tuple(self.check())
        name, ranks = self.name_and_ranks()
        return VendorOutput(name, self.version, self.path, ranks, self.facts, samples, tuple(self.complaints.problems))

    def read(self, line: Line, text: str) -> None:
        """Takes what a line says; `text` is it without the blanks around it."""
        raise NotImplementedError

    def check(self) -> Iterable[Samples]:
        """Checks what was read as a whole, and gives what was measured."""
        raise NotImplementedError

    def name_and_ranks(self) -> tuple[str, int | None]:
        """The program and its number of ranks, as far as the output tells them."""
        raise NotImplementedError

    def crash(self) -> Line | None:
        """The line that says that the run went wrong."""
        return crash_line(self.text, self.lines)

    def is_row(self, tokens: Sequence[str]) -> bool:
        """Whether a line is a row of numbers, also where some of them are damaged."""
        numbers = sum(map(looks_like_number, tokens))
        return looks_like_number(tokens[0]) or numbers >= max(len(tokens) - self.words, 2 * self.words - 1)

    def row(
        self, line: Line, tokens: Sequence[str], columns: Mapping[str, Callable[[str], float | None]]
    ) -> TextRow | None:
        """A row of `columns`, which read their numbers, the size first; None for what is none, which is a problem."""
        if not is_plain(line.text) or len(tokens) != len(columns):
            self.complaints.invalid(line, f"this is not a row of {len(columns)} columns")
            return None
        values: dict[str, float] = {}
        for (name, number_of), token in zip(columns.items(), tokens, strict=True):
            number = number_of(token)
            if number is None:
                self.complaints.invalid(line, f"{token[:30]!r} is not a number of {self.title}")
                return None
            values[name] = number
        return TextRow(line, int(next(iter(values.values()))), values, token_ends(line.text))

    def samples_of(
        self,
        rows: Sequence[TextRow],
        sample: Callable[[TextRow], Samples | None],
        mistake: Callable[[TextRow], str | None],
        *,
        aligned_from: int = 0,
    ) -> Iterator[Samples]:
        """What the rows of a table measured, those of some size whose numbers can be true together.

        `mistake`: what cannot be true of a row of this very tool. The columns stand under each other from that of the
        index `aligned_from` on. Data are wrong where the column `wrong` is not zero.
        """
        self.check_alignment([(row.line, row.ends[aligned_from:]) for row in rows])
        wrong = [row.values["wrong"] for row in rows if "wrong" in row.values]
        if self.facts.get("validation") != "failed":
            self.facts["validation"] = "failed" if any(wrong) else "passed" if wrong else "off"
        for row in rows:
            if row.values.get("wrong"):
                self.complaints.fail(row.line, "the data were wrong")
            if (reason := self.impossible(row) or mistake(row)) is not None:
                self.complaints.invalid(row.line, reason)
            elif row.size > 0:
                yield from self.complaints.sample(row.line, sample(row))

    def impossible(self, row: TextRow) -> str | None:
        """What cannot be true of a row, whatever the tool."""
        values = row.values
        lowest, average, highest = (values.get(name, 0.0) for name in ("minimum", "average", "maximum"))
        if values.get("repetitions", 1) < 1:
            return "zero repetitions"
        if row.size > 0 and 0 in [values.get(name) for name in self.never_zero]:
            return "a time or rate of zero is impossible"
        if {"minimum", "average", "maximum"} <= values.keys() and not lowest <= average <= highest:
            return "minimum, average and maximum are not in this order"
        if "messages" in values and not products_agree(
            (values["messages"], self.messages_half), (row.size / 1e6, 0.0), (values["rate"], 0.005)
        ):
            return "the rate and messages/s do not match"
        return None

    def message_ns(self, row: TextRow) -> float:
        """Nanoseconds from message to message, of messages/s and MB/s (10^6 B, two decimals) the one printed finer."""
        messages, megabytes = row.values["messages"], row.values["rate"]
        if self.messages_half * megabytes <= 0.005 * messages:
            return 1e9 / messages
        return 1e3 * row.size / megabytes

    def check_alignment(self, rows: Sequence[tuple[Line, tuple[int, ...]]]) -> None:
        """The distance between the columns of a table is the same in all rows, given by where their tokens end."""
        for index in misaligned([ends for _, ends in rows]):
            text = "the row is not aligned with the others: characters were lost or added"
            self.complaints.invalid(rows[index][0], text)

    def check_planned(self, line: Line | None, sizes: Sequence[int], planned: Sequence[int]) -> None:
        """The sizes have to be the planned ones, in their order."""
        if missing := [size for size in planned if size not in sizes]:
            self.complaints.incomplete(line, f"rows are missing: {list_ranks(missing)} B")
        if list(sizes) != [size for size in planned if size in sizes]:
            self.complaints.invalid(line, "rows are repeated, moved or were not requested")


def wrong_bytes(row: TextRow) -> int:
    """How many bytes of a row were wrong, as far as its tool says it: 1 for any, -1 where it did not look."""
    return int(row.values["wrong"] > 0) if "wrong" in row.values else -1


def read_tool(
    reader: type[ToolReader],
    text: str,
    path: str,
    ranks: int | None,
    *,
    tool: str | None = None,
    sizes: Sequence[int] | None = None,
) -> VendorOutput:
    """What a tool printed; where that has problems, the unwrapped text where that has none."""
    output = reader(text, path, ranks, tool, sizes).output()
    if output.problems and (joined := unwrapped(text)) is not None:
        second = reader(joined, path, ranks, tool, sizes).output()
        if not second.problems:
            return second
    return output
