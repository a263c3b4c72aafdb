"""A paper's figure: what was measured here on common axes, the paper's points beside it, and a table of both."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fabricheck.report.content import number
from fabricheck.report.figures.chart import Axis, ChartLine, Figure, LineChart, axis_of, size_axis
from fabricheck.report.paper_figures import UNITS, Cited, Measured, Shown, answer
from fabricheck.units import parse_size
from fabricheck.wholefile import csv_text

# Of all names along an axis; where they have more, some are left out.
_MOST_CHARACTERS = 100


def draw(cited: Cited, shown: Shown, rows: Sequence[Measured]) -> Figure:
    """Return a figure of what was measured, which may be nothing, and of the paper's points."""
    figure = cited.figure
    places = _places(cited, shown, rows)
    points = [
        (places[str(point.at)], height, f"{point.system}: {value.what}, {number(height)} {UNITS[shown]}")
        for point, value, height in cited.points(shown)
    ]
    lines = [*_measured_lines(rows, places), *_level_lines(cited, shown, rows, places)]
    values = [value for line in lines for _, value in (*line.points, *line.band)] + [height for _, height, _ in points]
    # Lines of small and large sizes are powers of ten apart.
    is_log = bool(values) and 0 < 20 * min(values) < max(values)
    y = axis_of(f"{shown} in {UNITS[shown]}", values or [1.0], is_log=is_log, from_zero=True)
    chart = LineChart(_x_axis(figure.over, places), y, tuple(lines), points=tuple(points))
    summary = f"The paper: {figure.concluded}. {answer(figure, rows)}" if shown == figure.quantities[0] else ""
    head = ("measured by", "at", f"here, {UNITS[shown]}", "of expected", "paper")
    return Figure(f"{shown} by {figure.over}", summary, chart, head, tuple(_table(cited, shown, rows)))


def _places(cited: Cited, shown: Shown, rows: Sequence[Measured]) -> dict[str, float]:
    """Where each place lies on the x axis; places without a number in the order in which they come."""
    named = {row.at for row in rows} | {str(point.at) for point, _, _ in cited.points(shown)}
    if cited.figure.over == "size":
        return {name: float(parse_size(name)) for name in named}
    if cited.figure.over in ("ranks", "active"):
        return {name: float(name) for name in named}
    order = {row.at: row.place for row in rows}
    names = sorted(named, key=lambda name: (order.get(name, 9), name))
    return dict(zip(names, map(float, range(len(names))), strict=True))


def _x_axis(over: str, places: Mapping[str, float]) -> Axis:
    named = sorted((place, name) for name, place in places.items())
    if over == "size":
        return size_axis([int(place) for place, _ in named] or [1])
    step = math.ceil(sum(map(len, places)) / _MOST_CHARACTERS)
    margin = 0.0 if over in ("ranks", "active") else 0.5  # where names stand in the middle of their places
    ends = (named[0][0] - margin, named[-1][0] + margin) if named else (0.0, 1.0)
    titles = {"ranks": "GPUs", "active": "GPUs of a group that take part", "pair": "GPUs", "way": "measured by"}
    return Axis(titles.get(over, over), *ends, tuple(named[:: max(step, 1)]), not margin and ends[1] > 20 * ends[0] > 0)


def _measured_lines(rows: Sequence[Measured], places: Mapping[str, float]) -> Iterator[ChartLine]:
    """A line for each series: the median of its pairs or groups, in the band from the least to the most of them."""
    for series in dict.fromkeys(row.series for row in rows):
        own = sorted((row for row in rows if row.series == series), key=lambda row: places[row.at])
        middle = tuple((places[row.at], float(np.median(row.medians))) for row in own)
        upper = [(places[row.at], max(row.medians)) for row in own]
        lower = [(places[row.at], min(row.medians)) for row in reversed(own)]
        yield ChartLine(series, middle, (*upper, *lower))


def _level_lines(
    cited: Cited, shown: Shown, rows: Sequence[Measured], places: Mapping[str, float]
) -> Iterator[ChartLine]:
    """What the model expects and what it calls nominal, of the best series at each place, and what the paper's points
    are shares of."""
    known = [(of, row.at, row.of_model(of)) for of in ("expected", "nominal") for row in rows]
    for point, value, _ in cited.points(shown):
        known.append((f"{value.unit.removeprefix('share of ')} ({point.system})", str(point.at), point.of))
    levels: dict[str, dict[float, float]] = defaultdict(dict)
    for label, at, level in known:
        if level is not None:
            levels[label][places[at]] = max(level, levels[label].get(places[at], 0.0))
    for label, points in levels.items():
        yield ChartLine(label, tuple(sorted(points.items())))


def _table(cited: Cited, shown: Shown, rows: Sequence[Measured]) -> Iterator[tuple[str, ...]]:
    texts: dict[str, list[str]] = defaultdict(list)
    for point, value, _ in cited.points(shown):
        ends = " to ".join(f"{end:g}" for end in dict.fromkeys(value.ends))
        relation = "" if value.relation in ("is", "from_to") else f"{value.relation.replace('_', ' ')} "
        text = f"{point.system}, {value.what}: {relation}{ends} {value.unit} ({value.source})"
        texts[str(point.at)].append(text)
    for row in rows:
        least, most = number(min(row.medians)), number(max(row.medians))
        here = least if least == most else f"{least} to {most}"
        expected = row.of_model("expected")
        share = f"{np.median(row.medians) / expected:.0%}" if expected else ""
        yield row.series, row.at, here, share, "; ".join(texts.pop(row.at, ()))
    for at, values in texts.items():
        yield "", at, "", "", "; ".join(values)


def as_csv(figures: Sequence[Figure]) -> str:
    """Return the tables of a figure as one CSV text."""
    rows: list[tuple[str, ...]] = []
    for figure in figures:
        rows.append(("figure", *figure.head))
        rows += [(figure.title, *row) for row in figure.rows]
    return csv_text(rows)
