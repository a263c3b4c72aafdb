"""What a figure is, and the tables that say the same as its plot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from fabricheck.records.verdict import Verdict

# Rows of a table with one for each curve; those that are left out are counted.
MOST_CURVES = 64


@dataclass(frozen=True)
class Cell:
    """One cell of a table; `verdict` is `None` where nothing was judged. `shade`: its colour on a map, 0 to 9 from bad
    to good; `title`: what it says when asked; `link`: the run behind it, by its id on the page."""

    text: str
    verdict: Verdict | None = None
    shade: int | None = None
    title: str = ""
    link: str = ""


@dataclass(frozen=True)
class End:
    """A row or column of a matrix: what it is called, and on which host it is. `edge`: the classes of the line before
    it, where another host, or one at another switch, begins."""

    host: str
    label: str
    edge: str = ""


@dataclass(frozen=True)
class Matrix:
    """Values by source (rows) and destination (columns), coloured. `cells` has the shape (sources, destinations).

    `hosts`: the hosts of the columns with how many columns each has and the `edge` of its first; empty where all are on
    one. `legend`: what the colours stand for.
    """

    sources: tuple[End, ...]
    destinations: tuple[End, ...]
    cells: tuple[tuple[Cell, ...], ...]
    hosts: tuple[tuple[str, int, str], ...]
    legend: str


@dataclass(frozen=True)
class SizeQuartiles:
    """Quartiles of the iterations at one size. `cold`: as in `Samples`, of a latency."""

    bytes: int
    count: int
    low: float
    median: float
    high: float
    cold: float


@dataclass(frozen=True)
class Curve:
    """What one pair or collective gave over the size."""

    label: str
    points: tuple[SizeQuartiles, ...]


@dataclass(frozen=True)
class Curves:
    """The curves of a figure, in `unit`; `hidden` more are in the figure alone, not worse ones."""

    unit: str
    curves: tuple[Curve, ...]
    hidden: int = 0


@dataclass(frozen=True)
class Rows:
    """Any other table: a heading for each column, and rows of as many cells, the first of which names the row.

    `texts`: the columns, by number, that hold no numbers. `note`: what is to be said below it.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    texts: tuple[int, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure: `chart` is its SVG, empty where the table is the figure; `summary` one line that says what is to be
    seen, `table` the same numbers."""

    kind: Literal["matrix", "curves", "history"]
    title: str
    summary: str
    chart: Markup
    table: Matrix | Curves | Rows


def cells(*texts: object) -> tuple[Cell, ...]:
    """A row of which nothing was judged."""
    return tuple(Cell(str(each)) for each in texts)


def omitted_rows_text(count: int, what: str) -> str:
    """What to say of `count` rows that a table has not; nothing of none."""
    return f"More rows, none worse: {count} {what}." if count else ""
