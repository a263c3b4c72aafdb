"""What a figure shows: lines over an axis and bars below it, and the table of the same numbers.

The page's template draws it as SVG and HTML, which need no script and take the page's colours, also on paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fabricheck.units import format_size

#: Lines that have a colour of their own, of the stylesheet (`.k0` to `.k7`); the others are grey.
MOST_COLORED = 8
_WIDTH, _HEIGHT = 640.0, 280.0  # of what the axes enclose, in the units of the drawing
_DASH = 8.0  # half of it
_MOST_TICKS = 6


@dataclass(frozen=True)
class ChartLine:
    """A line: its points (x, y) in the units of the axes, and the outline of the band around it where it has one."""

    label: str
    points: tuple[tuple[float, float], ...]
    band: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Bar:
    """A stretch of the x axis in one of the rows below it."""

    row: str
    begin: float
    end: float
    label: str
    text: str


@dataclass(frozen=True)
class Axis:
    """The ends of an axis in its unit, and the values that it names."""

    title: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    is_log: bool = False

    def share(self, value: float) -> float:
        """Where a value is between the two ends, from 0 to 1."""
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return 0.5 if high <= low else min(max((value - low) / (high - low), 0.0), 1.0)


@dataclass(frozen=True)
class LineChart:
    """Lines, the most important first. `expected`: a level; `marks`: places on the x axis, with a text for each;
    `points`: x, y and text of what was not measured here."""

    x: Axis
    y: Axis
    lines: tuple[ChartLine, ...]
    expected: float | None = None
    marks: tuple[tuple[float, str], ...] = ()
    bars: tuple[Bar, ...] = ()
    points: tuple[tuple[float, float, str], ...] = ()

    @property
    def rows(self) -> tuple[tuple[Bar, ...], ...]:
        """The bars by their rows."""
        names = dict.fromkeys(bar.row for bar in self.bars)
        return tuple(tuple(bar for bar in self.bars if bar.row == name) for name in names)

    def across(self, value: float) -> str:
        """Where a value of the x axis is in the drawing."""
        return f"{_WIDTH * self.x.share(value):.1f}"

    def down(self, value: float) -> str:
        """Where a value of the y axis is in the drawing."""
        return f"{_HEIGHT * (1 - self.y.share(value)):.1f}"

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        """The points as SVG takes them; at one place a dash, since a line of one point is not drawn."""
        dash = _DASH if len({x for x, _ in points}) == 1 else 0.0
        left = [f"{_WIDTH * self.x.share(x) - dash:.1f},{self.down(y)}" for x, y in points]
        right = [f"{_WIDTH * self.x.share(x) + dash:.1f},{self.down(y)}" for x, y in reversed(points) if dash]
        return " ".join([*left, *right])


@dataclass(frozen=True)
class Figure:
    """A chart, one line about it, and a table of the same numbers, whose first column names the row."""

    title: str
    summary: str
    chart: LineChart
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def axis_of(title: str, values: Sequence[float], *, is_log: bool = False, from_zero: bool = False) -> Axis:
    """Return the axis that has all of one or more finite values, with ticks at round ones; above 0 where it is log."""
    low, high = min(values), max(values)
    if is_log:
        first = math.floor(math.log10(low))
        last = max(math.ceil(math.log10(high)), first + 1)
        ticks = [10.0**power for power in range(first, last + 1)]
        return Axis(title, ticks[0], ticks[-1], tuple((tick, f"{tick:g}") for tick in ticks), True)
    low = 0.0 if from_zero else low
    width = (high - low) or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(width / _MOST_TICKS))
    step = next(step * factor for factor in (1, 2, 5, 10) if width / (step * factor) <= _MOST_TICKS)
    first, last = math.floor(low / step), math.ceil(high / step)
    ticks = [place * step for place in range(first, max(last, first + 1) + 1)]
    return Axis(title, ticks[0], ticks[-1], tuple((tick, f"{tick:,g}") for tick in ticks))


def size_axis(sizes: Sequence[int]) -> Axis:
    """Return the axis of one or more sizes in bytes, in ascending order."""
    step = math.ceil(len(sizes) / _MOST_TICKS)
    ticks = tuple((float(size), format_size(size)) for size in sizes[::step])
    return Axis("size of a message", float(sizes[0]), float(sizes[-1]), ticks, is_log=True)
