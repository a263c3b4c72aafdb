"""Line charts as SVG, drawn here: a page needs no script for them, and they take its colours, also on paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from markupsafe import Markup

from fabricheck.report.content import number
from fabricheck.topology.drawing import add
from fabricheck.units import format_size, plural

#: Lines that have a colour of their own, of the stylesheet (`.k0` to `.k7`); the others are grey.
MOST_COLORED = 8
_WIDTH, _LEFT, _RIGHT, _TOP, _HEIGHT = 720.0, 66.0, 14.0, 12.0, 280.0
_AXIS_PX, _ROW_PX, _LEGEND_COLUMNS, _LONGEST_LABEL = 44.0, 20.0, 3, 34
_CHARACTER_PX = 6.5
_MOST_TICKS, _MOST_WITH_DOTS = 6, 30


@dataclass(frozen=True)
class ChartLine:
    """A line: its points in the units of the axes, a text for each, and the band around it where it has one."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    texts: tuple[str, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Bar:
    """A stretch of the x axis in one of the rows below it."""

    row: str
    begin: float
    end: float
    label: str
    text: str


@dataclass(frozen=True)
class ChartPoint:
    """A point that was not measured here, in the units of the axes."""

    x: float
    y: float
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
        """Where a value lies between the two ends, from 0 to 1."""
        ends = (self.low, self.high)
        if self.is_log:
            value, ends = math.log(value), (math.log(self.low), math.log(self.high))
        width = ends[1] - ends[0]
        return 0.5 if width <= 0 else min(max((value - ends[0]) / width, 0.0), 1.0)


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
    last = max(last, first + 1)
    ticks = [place * step for place in range(first, last + 1)]
    return Axis(title, ticks[0], ticks[-1], tuple((tick, f"{tick:,g}") for tick in ticks))


def size_axis(sizes: Sequence[int]) -> Axis:
    """Return the axis of sizes in bytes, one at least: a tick for each power of two, or every few, at most six."""
    first, last = math.floor(math.log2(min(sizes))), math.ceil(math.log2(max(sizes)))
    step = max(1, math.ceil((last - first + 1) / _MOST_TICKS))
    ticks = [1 << exponent for exponent in range(first, last + 1, step)]
    named = tuple((float(tick), format_size(tick)) for tick in ticks)
    return Axis("size of a message", float(1 << first), float(1 << last), named, is_log=True)


def line_chart(
    title: str,
    lines: Sequence[ChartLine],
    x: Axis,
    y: Axis,
    *,
    expected: float | None = None,
    marks: Sequence[tuple[float, str]] = (),
    bars: Sequence[Bar] = (),
    points: Sequence[ChartPoint] = (),
) -> Markup:
    """Return the SVG of lines, the most important first. `expected`: a level; `marks`: places on the x axis, with a
    text for each; `bars` stand in rows below the axis; `points` are crosses in grey."""
    rows = list(dict.fromkeys(bar.row for bar in bars))
    colored, others = lines[:MOST_COLORED], lines[MOST_COLORED:]
    legend = [(f"k{place}", line.label) for place, line in enumerate(colored)]
    legend += [("other", plural(len(others), "more line"))] if others else []
    legend += [("expected", f"expected {number(expected)}")] if expected is not None else []
    legend_rows = math.ceil(len(legend) / _LEGEND_COLUMNS)
    foot = _TOP + _HEIGHT
    height = foot + _AXIS_PX + _ROW_PX * (len(rows) + legend_rows)
    top = add(None, "svg", viewBox=f"0 0 {_WIDTH:g} {height:g}", role="img", aria_label=title, class_="chart")
    _axes(top, x, y, foot)
    for place, text in marks:
        at = f"{_x(x, place):.1f}"
        add(add(top, "line", x1=at, x2=at, y1=f"{_TOP}", y2=f"{foot}", class_="mark"), "title", text)
    if expected is not None:
        at = f"{_y(y, expected):.1f}"
        add(top, "line", x1=f"{_LEFT}", x2=f"{_WIDTH - _RIGHT}", y1=at, y2=at, class_="expected")
    # The most important is drawn last, over the others.
    for line in reversed(others):
        _line(top, line, x, y, "other")
    for place, line in reversed(list(enumerate(colored))):
        _line(top, line, x, y, f"k{place}")
    for point in points:
        _point(top, point, x, y)
    for bar in bars:
        _bar(top, bar, x, foot + _AXIS_PX + _ROW_PX * rows.index(bar.row))
    for place, (look, label) in enumerate(legend):
        at_x = _LEFT + (place % _LEGEND_COLUMNS) * (_WIDTH - _LEFT) / _LEGEND_COLUMNS
        at_y = foot + _AXIS_PX + _ROW_PX * (len(rows) + place // _LEGEND_COLUMNS) + 10
        add(top, "line", x1=f"{at_x:.1f}", x2=f"{at_x + 18:.1f}", y1=f"{at_y}", y2=f"{at_y}", class_=look)
        add(top, "text", clipped(label, _LONGEST_LABEL), x=f"{at_x + 23:.1f}", y=f"{at_y + 4}")
    return Markup(ElementTree.tostring(top, encoding="unicode"))


def clipped(text: str, longest: int) -> str:
    """Return a name that has room: its end says more than its beginning."""
    if len(text) <= longest:
        return text
    start = longest // 5
    return f"{text[:start]}…{text[len(text) - (longest - start - 1) :]}"


def _x(axis: Axis, value: float) -> float:
    return _LEFT + axis.share(value) * (_WIDTH - _LEFT - _RIGHT)


def _y(axis: Axis, value: float) -> float:
    return _TOP + (1 - axis.share(value)) * _HEIGHT


def _axes(top: ElementTree.Element, x: Axis, y: Axis, foot: float) -> None:
    for value, label in y.ticks:
        at = _y(y, value)
        add(top, "line", x1=f"{_LEFT}", x2=f"{_WIDTH - _RIGHT}", y1=f"{at:.1f}", y2=f"{at:.1f}", class_="tick")
        add(top, "text", label, x=f"{_LEFT - 6}", y=f"{at + 4:.1f}", text_anchor="end")
    for value, label in x.ticks:
        at = _x(x, value)
        add(top, "line", x1=f"{at:.1f}", x2=f"{at:.1f}", y1=f"{_TOP}", y2=f"{foot}", class_="tick")
        add(top, "text", label, x=f"{at:.1f}", y=f"{foot + 15}", text_anchor="middle")
    middle = f"{_TOP + _HEIGHT / 2:.1f}"
    add(top, "text", y.title, x="12", y=middle, text_anchor="middle", transform=f"rotate(-90 12 {middle})")
    add(top, "text", x.title, x=f"{(_LEFT + _WIDTH - _RIGHT) / 2:.1f}", y=f"{foot + 33}", text_anchor="middle")


def _line(top: ElementTree.Element, line: ChartLine, x: Axis, y: Axis, look: str) -> None:
    group = add(top, "g", class_=look)
    add(group, "title", line.label)
    if line.low:
        upper = [f"{_x(x, at):.1f},{_y(y, value):.1f}" for at, value in zip(line.x, line.high, strict=True)]
        lower = [f"{_x(x, at):.1f},{_y(y, value):.1f}" for at, value in zip(line.x, line.low, strict=True)]
        add(group, "polygon", points=" ".join([*upper, *reversed(lower)]))
    points = [(f"{_x(x, at):.1f}", f"{_y(y, value):.1f}") for at, value in zip(line.x, line.y, strict=True)]
    add(group, "polyline", points=" ".join(",".join(point) for point in points), fill="none")
    if look != "other":
        radius = "3" if len(points) <= _MOST_WITH_DOTS else "1.5"
        for (at_x, at_y), text in zip(points, line.texts, strict=True):
            add(add(group, "circle", cx=at_x, cy=at_y, r=radius), "title", text)


def _point(top: ElementTree.Element, point: ChartPoint, x: Axis, y: Axis) -> None:
    at_x, at_y = _x(x, point.x), _y(y, point.y)
    cross = f"M{at_x - 5:.1f},{at_y - 5:.1f}l10,10m0,-10l-10,10"
    add(add(top, "path", d=cross, class_="point"), "title", point.text)


def _bar(top: ElementTree.Element, bar: Bar, x: Axis, y: float) -> None:
    begin, end = _x(x, bar.begin), _x(x, bar.end)
    width = max(end - begin - 1, 2.0)
    box = add(top, "rect", x=f"{begin:.1f}", y=f"{y:.1f}", width=f"{width:.1f}", height=f"{_ROW_PX - 4}", class_="bar")
    add(box, "title", bar.text)
    if len(bar.label) * _CHARACTER_PX < width:
        add(top, "text", bar.label, x=f"{begin + 4:.1f}", y=f"{y + 12:.1f}")
