"""What the parsers of vendor tools share: lines without a launcher's tags, strict numbers, tables, complaints.

A parser trusts nothing: it knows how the tool prints (number of decimals, alignment of a column, order of sizes) and
takes whatever differs for a damaged output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fabricheck.records.finding import Finding
from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict
from fabricheck.results.environment import without_values

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
    """What all lines begin with that is not from a tool. A host's name is the same on all of them."""
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
