"""Tables as vendors' tools print them: columns with their units, rows of numbers, and what a test measures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from fabricheck.records.run import Samples
from fabricheck.results.printed import Line

LARGEST_SIZE = (1 << 63) - 1
LARGEST_RANKS = 1 << 20
_LONGEST_NS = 10**18  # 30 years
#: Of the datatypes of the libraries.
ELEMENT_BYTES = {
    **dict.fromkeys(("int8", "uint8", "char", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "int", "float", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "double", "float64"), 8),
}
WHOLE = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
FIXED = re.compile(r"(?:0|[1-9][0-9]{0,14})\.[0-9]{2}", re.ASCII)
NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?", re.ASCII)
WORD = re.compile(r"[a-z0-9_]{1,20}", re.ASCII)
ANY = re.compile(r"\S+")
_WORDS = {"Pass": 0.0, "Fail": 1.0, "N/A": -1.0}
_MULTIPLE = re.compile(r"=?([0-9]+(?:\.[0-9])?)([kmg])|=?([0-9]+)")
_MULTIPLES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
# Some tools compute with single precision.
_PRECISION = 2.0**-23


class Column(NamedTuple):
    """A column of a table. `unit`: what a number in it is multiplied by to have B, us, B/us, or messages in a us.

    Of the names, `bytes`, `time`, `minimum`, `average`, `maximum`, `rate`, `messages`, `repetitions` and `wrong` have a
    meaning in every table.
    """

    name: str
    cell: re.Pattern[str] = NUMBER
    unit: float = 1.0


@dataclass(frozen=True)
class Test:
    """A test of a vendor's tool.

    `streams`: how many messages are under way together whose rate the tool adds up, 0 where it prints no rate;
    `per_rank`: the size is a share, and a buffer has one a rank; `pair`: it is between two ranks.
    """

    operation: str
    program: str = ""
    streams: int = 0
    per_rank: bool = False
    pair: bool = False


@dataclass(frozen=True)
class TableRow:
    """A row of a table: its tokens and numbers by column; -1 where the tool has no number."""

    line: Line
    tokens: Mapping[str, str]
    values: Mapping[str, float]
    units: Mapping[str, float] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The column of sizes, in bytes."""
        return int(self.values["bytes"])

    @property
    def time(self) -> str | None:
        """The column of the time that counts: that of the slowest rank, where it is known."""
        return next((name for name in ("maximum", "time", "average") if name in self.values), None)

    def rounded(self, name: str) -> tuple[float, float]:
        """A number, and half a unit of its last printed digit."""
        mantissa, _, power = self.tokens[name].partition("e")
        decimals = len(mantissa.partition(".")[2])
        return self.values[name], 0.5 * 10.0 ** (int(power or 0) - decimals) * self.units.get(name, 1.0)

    def message_us(self) -> float:
        """Microseconds from message to message, of messages/s and rate the one that is printed finer; 0 of neither."""
        rate = self.rounded("rate") if "rate" in self.values else (0.0, 0.0)
        if "messages" in self.values:
            messages = self.rounded("messages")
            if messages[0] > 0 and messages[1] * rate[0] <= rate[1] * messages[0]:
                return 1 / messages[0]
        return self.size / rate[0] if rate[0] > 0 else 0.0


@dataclass
class Table:
    """A table of an output; `said`: what the lines before it say of it alone."""

    line: Line
    columns: Mapping[str, Column] = field(default_factory=dict)
    rows: list[TableRow] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)

    @property
    def sizes(self) -> list[int]:
        """Those of its rows, in their order."""
        return [row.size for row in self.rows]


def value_of(token: str) -> float:
    """The number of a cell, such as 64k or Pass; 0 for one that is none."""
    if token in _WORDS:
        return _WORDS[token]
    if (match := _MULTIPLE.fullmatch(token)) is not None:
        return float(match[3] or float(match[1]) * _MULTIPLES[match[2]])
    try:
        return float(token)
    except ValueError:
        return 0.0


def products_agree(factors: tuple[float, float], other: tuple[float, float], product: tuple[float, float]) -> bool:
    """Whether one times other can be `product`, each given as (value, half a unit of its last printed digit)."""
    low = max(factors[0] - factors[1], 0.0) * max(other[0] - other[1], 0.0)
    high = (factors[0] + factors[1]) * (other[0] + other[1])
    slack = _PRECISION * high
    return low - slack <= product[0] + product[1] and product[0] - product[1] <= high + slack


def one_time(
    operation: str,
    size: int,
    ranks: tuple[int, ...],
    nanoseconds: float,
    *,
    implementation: str = "transfers",
    wrong_bytes: int = -1,
    schedule: str = "uncontended",
    placement: Literal["", "out-of-place", "in-place"] = "",
) -> Samples:
    """The record of a mean, rounded to the nearest whole nanosecond and at least 1, and no more than is possible."""
    times = np.array([min(max(round(nanoseconds), 1), _LONGEST_NS)], dtype=np.int64)
    times.flags.writeable = False
    return Samples(
        operation=operation,
        implementation=implementation,
        schedule=schedule,
        round=-1,
        ranks=ranks,
        bytes=min(size, LARGEST_SIZE),
        warmup=-1,
        stopped="fixed",
        wrong_bytes=wrong_bytes,
        times_ns=times,
        statistic="mean",
        placement=placement,
    )
