"""What a figure is, and the table that says the same as its plot."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class Rows:
    """A heading for each column, and rows of as many cells, the first of which names the row.

    `texts`: the columns, by number, that hold no numbers. `note`: what is to be said below it.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: tuple[int, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure: `chart` is its SVG; `summary` one line that says what is to be seen, `table` the same numbers."""

    title: str
    summary: str
    chart: Markup
    table: Rows
