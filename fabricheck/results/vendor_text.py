"""What the parsers of vendor tools share: lines without a launcher's tags, strict numbers, tables, complaints.

A parser trusts nothing: it knows how the tool prints (number of decimals, alignment of a column, order of sizes) and
takes whatever differs for a damaged output.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from fabricheck.records.finding import Finding
from fabricheck.records.run import Samples, list_ranks
from fabricheck.records.verdict import Verdict
from fabricheck.results.environment import without_values
from fabricheck.results.vendor_output import VendorOutput

LARGEST_SIZE = (1 << 63) - 1
LARGEST_RANKS = 1 << 20
_LONGEST_NS = 10**18  # 30 years
# A longer list of the same complaint says nothing more.
_LONGEST_LIST = 8
# Of a line that is no line of a tool, more need not be looked at.
_LONGEST_QUOTED = 4096

_WHOLE = re.compile(r"(?:0|[1-9][0-9]{0,18})", re.ASCII)
_FIXED2 = re.compile(r"(?:0|[1-9][0-9]{0,14})\.[0-9]{2}", re.ASCII)
_NUMBER_LIKE = re.compile(r"[-+]?[0-9][0-9.,eE+-]*", re.ASCII)

_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_CLOCK = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?"
# What launchers and pipes put before a line, each with its own separator so that a table keeps its alignment.
_TAG = re.compile(
    rf"""(?:
      \[[^\]\s]*?\[?[0-9]+,[0-9]+\]?\]\ ?<std(?:out|err|diag)>:?\ ?     # Open MPI --tag-output: [1,0]<stdout>:
    | \[{_DAY}\ {_MONTH}\ [ 0-9]{{2}}\ {_CLOCK}\ [0-9]{{4}}\]<std(?:out|err|diag)>:\ ?   # --timestamp-output
    | \[[0-9]+\]\                                                        # Hydra -prepend-rank: [0]
    | \ *[0-9]+:\                                                        # srun --label: 0:, and 10: beside \  9:
    | {_DAY}\ {_MONTH}\ [ 0-9]{{2}}\ {_CLOCK}\ [0-9]{{4}}(?=\[[0-9]+,[0-9]+\]<std)   # both options
    | \[?[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T\ ]{_CLOCK}(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})?\]?\   # ISO 8601
    | {_MONTH}\ [ 0-9][0-9]\ {_CLOCK}\                                   # ts
    )""",
    re.VERBOSE | re.ASCII,
)
# What pdsh, Kubernetes and Docker put before each line.
_PREFIXES = (
    re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}:(?: |$)", re.ASCII),  # pdsh, the same on all lines: `host: `
    re.compile(r"\[pod/[^\]\s]{1,200}\] ?", re.ASCII),  # kubectl logs --prefix
    re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99} *\| ?", re.ASCII),  # docker compose logs
    re.compile(r"[a-z0-9][a-z0-9.-]{0,99}-[a-z0-9]{4,10} [a-z0-9][a-z0-9-]{0,62} (?=$|[# ])", re.ASCII),  # stern
)
_HYDRA_TAG = re.compile(r"\[[0-9]+\] ", re.ASCII)
_EMPTY_TAG = re.compile(r"(?:\[[0-9]+\]|[0-9]+:)", re.ASCII)
# Blanks that a browser or a word processor put in place of plain ones.
_BLANKS = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f\u3000"), " ")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

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
# One of these is in whatever the above finds, and searching for a plain word is quick.
_CRASH_WORDS = (
    *(
        "fault",
        "error",
        "exception",
        "signal",
        "exit",
        "status",
        "terminat",
        "abort",
        "cancelled",
        "limit",
        "core dumped",
    ),
    *("killed", "failed", "memory", "oom", "failure", "undefined symbol", "timeout"),
)


@dataclass(frozen=True)
class Line:
    """A line as the tool wrote it and its number in the text, counted from 1."""

    number: int
    text: str


def read_lines(text: str) -> list[Line]:
    """The lines of `text` without the tags of launchers, colours, carriage returns and blanks of web pages (U+00A0)."""
    lines = text.translate(_BLANKS).split("\n")
    prefix = _common_prefix(lines)
    if prefix is not None:
        lines = [prefix.sub("", line, count=1) if (prefix.match(line)) else line for line in lines]
    return [Line(number, _untagged(each)) for number, each in enumerate(lines, start=1)]


def _common_prefix(lines: Sequence[str]) -> re.Pattern[str] | None:
    """What all lines begin with that is no tool's. A host's name is the same on all of them."""
    said = [line for line in lines if line.strip()]
    for how in _PREFIXES:
        match = how.match(said[0]) if said else None
        if match is None or not all(how.match(line) for line in said):
            continue
        if how is not _PREFIXES[0] or all(line.startswith(match[0].rstrip()) for line in said):
            return how
    return None


def _untagged(text: str) -> str:
    text = text.rstrip("\r")
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    if not text or text[0] not in "[0123456789JFMASONDTW ":
        return text
    for _ in range(2):  # a time and a rank
        match = _TAG.match(text)
        if match is None:
            break
        text = text[match.end() :]
        if _HYDRA_TAG.fullmatch(match[0]):
            # Hydra tags each write and not each line.
            text = text.replace(match[0], "")
    return "" if _EMPTY_TAG.fullmatch(text) else text


def unwrapped(text: str) -> str | None:
    """`text` with the lines joined that a terminal of fixed width broke; None where nothing looks broken."""
    lines = text.split("\n")
    width = max(map(len, lines))
    if width < 40 or sum(len(line) == width for line in lines) < 2:
        return None
    joined, whole = [], True
    for line in lines:
        if whole:
            joined.append(line)
        else:
            joined[-1] += line
        whole = len(line) < width
    return "\n".join(joined)


def quote(text: str, limit: int = 160) -> str:
    """`text` as a part of a one-line message: no control characters, no values that may be secret, not too long."""
    clean = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", without_values(text[:_LONGEST_QUOTED])).split())
    clean = clean.encode("utf-8", "replace").decode("utf-8")
    return repr(clean if len(clean) <= limit else clean[: limit - 1] + "…")


@dataclass
class Complaints:
    """Collects the problems of one output."""

    path: str
    problems: list[Finding] = field(default_factory=list)

    def add(self, verdict: Verdict, line: Line | None, message: str) -> None:
        """A problem with what stands in `line` (None: with the whole output), which is quoted."""
        where = self.path or "the output"
        if line is not None:
            message = f"{message}: {quote(line.text)}"
            where += f":{line.number}"
        if len(self.problems) < _LONGEST_LIST or verdict not in {each.verdict for each in self.problems}:
            self.problems.append(Finding("output-damaged", verdict, f"{where}: {message}"))

    def sample(self, line: Line, sample: Samples | None) -> list[Samples]:
        """The sample, or none where `one_time` made none: then the line is INVALID."""
        if sample is None:
            self.invalid(line, "the time or the size is larger than any can be")
            return []
        return [sample]

    def invalid(self, line: Line | None, message: str) -> None:
        """Adds an INVALID problem, as `add`."""
        self.add(Verdict.INVALID, line, message)

    def incomplete(self, line: Line | None, message: str) -> None:
        """Adds an INCOMPLETE problem, as `add`."""
        self.add(Verdict.INCOMPLETE, line, message)

    def fail(self, line: Line | None, message: str) -> None:
        """Adds a FAIL problem, as `add`."""
        self.add(Verdict.FAIL, line, message)


def crash_line(text: str, lines: Iterable[Line]) -> Line | None:
    """The first of the `lines` of `text` in which a launcher, a library or the tool says that the run went wrong."""
    folded = text.casefold()
    if not any(word in folded for word in _CRASH_WORDS):
        return None
    return next((line for line in lines if _CRASH.search(line.text)), None)


def whole_number(token: str) -> int | None:
    """A whole number without sign, leading zeros or separators; None for anything else."""
    if _WHOLE.fullmatch(token) is None:
        return None
    value = int(token)
    return value if value <= LARGEST_SIZE else None


def fixed_number(token: str) -> float | None:
    """A number with exactly two decimals, as `%.2f` prints it; None for anything else (cut, `nan`, `inf`, signs)."""
    return float(token) if _FIXED2.fullmatch(token) is not None else None


def is_plain(text: str) -> bool:
    """Whether `text` is of printable ASCII only, as all rows are; a tab or a zero byte stands where something was."""
    return text.isascii() and text.isprintable()


def looks_like_number(token: str) -> bool:
    """Whether a token has the form of a number, also of one that is cut or damaged."""
    return _NUMBER_LIKE.fullmatch(token) is not None


def products_agree(factors: tuple[float, float], other: tuple[float, float], product: tuple[float, float]) -> bool:
    """Whether one times other can be `product`, each given as (value, half a unit of its last printed digit)."""
    low = max(factors[0] - factors[1], 0.0) * max(other[0] - other[1], 0.0)
    high = (factors[0] + factors[1]) * (other[0] + other[1])
    slack = 1e-9 * high
    return low - slack <= product[0] + product[1] and product[0] - product[1] <= high + slack


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


def one_time(
    operation: str,
    size: int,
    ranks: tuple[int, ...],
    nanoseconds: float,
    *,
    implementation: str,
    wrong_bytes: int,
    schedule: str = "uncontended",
    warmup: int = -1,
    placement: Literal["", "out-of-place", "in-place"] = "",
) -> Samples | None:
    """The record of a mean, rounded to the nearest whole nanosecond and at least 1; None for a time that cannot be."""
    if not 0 <= nanoseconds <= _LONGEST_NS or size > LARGEST_SIZE:
        return None
    times = np.array([max(round(nanoseconds), 1)], dtype=np.int64)
    times.flags.writeable = False
    return Samples(
        operation=operation,
        implementation=implementation,
        schedule=schedule,
        round=-1,
        ranks=ranks,
        bytes=size,
        warmup=warmup,
        stopped="fixed",
        wrong_bytes=wrong_bytes,
        times_ns=times,
        statistic="mean",
        placement=placement,
    )


def doubling_mistakes(sizes: Sequence[int]) -> Iterator[int]:
    """Indices of the sizes that are not twice the size before (0 is followed by any): a row is missing or doubled."""
    for index in range(1, len(sizes)):
        before = sizes[index - 1]
        if sizes[index] != 2 * before and not (before == 0 and sizes[index] > 0):
            yield index


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

    `ranks`, `tool` and `sizes`: how many ranks were started, which program and which sizes were asked for, where the
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
