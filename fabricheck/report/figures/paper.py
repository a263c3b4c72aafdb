"""A paper's figure as SVG, table and page: what was measured here on common axes, the paper's points in grey."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence

import numpy as np
from markupsafe import Markup

from fabricheck.report.content import number
from fabricheck.report.figures.chart import Axis, ChartLine, ChartPoint, axis_of, line_chart, size_axis
from fabricheck.report.figures.tables import Figure, Rows
from fabricheck.report.paper_figures import UNITS, Cited, Measured, Shown, conclusion, points_by_place
from fabricheck.units import parse_size

_PAGE = Markup(
    "<style>body{font:16px/1.4 system-ui,sans-serif;max-width:60rem;margin:1rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;font-size:14px}th,td{border:1px solid #c9ced4;padding:.1rem .5rem;text-align:left}"
    "td:nth-child(-n+4){white-space:nowrap}</style>"
)
# Of all names along an axis; where they have more, some are left out.
_MOST_CHARACTERS = 100
#: The look of a drawing that stands alone, in the colours of the page.
STYLE = Markup(
    "<style>.chart{font:12px system-ui,sans-serif;background:#fff}.chart .tick{stroke:#c9ced4}"
    ".chart .k0{color:#0072b2}.chart .k1{color:#d55e00}.chart .k2{color:#009e73}.chart .k3{color:#cc79a7}"
    ".chart .k4{color:#e69f00}.chart .k5{color:#56b4e9}.chart .k6{color:#7a6a00}.chart .k7{color:#8f8f8f}"
    '.chart [class^="k"]{stroke:currentColor;stroke-width:2}.chart circle{fill:currentColor;stroke:none}'
    ".chart polygon{fill:currentColor;fill-opacity:.2;stroke:none}.chart .other{stroke:#888;fill:none}"
    ".chart .point{stroke:#888;stroke-width:2;fill:none}</style>"
)


def draw(cited: Cited, shown: Shown, rows: Sequence[Measured]) -> Figure:
    """Return a figure of what was measured, which may be nothing, and of the paper's points."""
    figure = cited.figure
    names = _places(cited, shown, rows)
    x = _x_axis(cited, names)
    points = []
    for point, value, at in cited.points(shown):
        text = f"{point.system}: {value.what}, {number(at)} {UNITS[shown]}"
        points.append(ChartPoint(names[_as_name(point.at)], at, text))
    lines = list(_lines(rows, names, UNITS[shown]))
    values = [value for line in lines for value in (*line.low, *line.high)] + [point.y for point in points]
    is_log = bool(values) and _is_wide(values)
    y = axis_of(f"{shown}, {UNITS[shown]}", values or [1.0], is_log=is_log, from_zero=True)
    chart = line_chart(f"{figure.title}, {shown}", lines, x, y, points=points)
    # What the paper concluded is of the quantity that it shows first.
    summary = conclusion(cited, {shown: rows}) if shown == figure.quantities[0] else ""
    return Figure(shown.capitalize(), summary, chart, _table(cited, shown, rows))


def _is_wide(values: Sequence[float]) -> bool:
    """Whether the values lie further apart than a linear axis can show."""
    return min(values) > 0 and max(values) > 20 * min(values)


def _as_name(at: str | int) -> str:
    return str(at)


def _places(cited: Cited, shown: Shown, rows: Sequence[Measured]) -> dict[str, float]:
    """Where each place lies on the x axis; places without a number in the order in which they come."""
    named = {row.at for row in rows} | {_as_name(point.at) for point, _, _ in cited.points(shown)}
    if cited.figure.over == "size":
        return {name: float(parse_size(name)) for name in named}
    if cited.figure.over in ("ranks", "active"):
        return {name: float(name) for name in named}
    order = {row.at: row.place for row in rows}
    return {name: float(place) for place, name in enumerate(sorted(named, key=lambda name: (order.get(name, 9), name)))}


def _x_axis(cited: Cited, names: dict[str, float]) -> Axis:
    over = cited.figure.over
    if over == "size":
        return size_axis([int(value) for value in names.values()] or [1])
    titles = {"ranks": "GPUs", "active": "GPUs of a group that take part", "pair": "GPUs", "way": "measured by"}
    named = sorted(names.items(), key=lambda item: item[1])
    step = math.ceil(sum(map(len, names)) / _MOST_CHARACTERS)
    ticks = tuple((value, name) for name, value in named[:: max(step, 1)])
    margin = 0.0 if over in ("ranks", "active") else 0.5  # where names stand in the middle of their places
    ends = (min(names.values(), default=0.0) - margin, max(names.values(), default=1.0) + margin)
    return Axis(titles.get(over, over), *ends, ticks)


def _lines(rows: Sequence[Measured], names: dict[str, float], unit: str) -> Iterator[ChartLine]:
    """A line for each series, and those of the most that the model expects and calls nominal."""
    for series in dict.fromkeys(row.series for row in rows):
        own = sorted((row for row in rows if row.series == series), key=lambda row: names[row.at])
        middle = [float(np.median(row.medians)) for row in own]
        yield ChartLine(
            series,
            tuple(names[row.at] for row in own),
            tuple(middle),
            tuple(f"{series}, {row.at}: {number(value)} {unit}" for row, value in zip(own, middle, strict=True)),
            tuple(min(row.medians) for row in own),
            tuple(max(row.medians) for row in own),
        )
    drawn: set[tuple[float, ...]] = set()
    for of in ("expected", "nominal"):
        known: dict[float, float] = {}
        for row in rows:
            value = _of_model(row, of)
            if value is not None:
                known[names[row.at]] = max(value, known.get(names[row.at], 0.0))
        level = tuple(known[place] for place in sorted(known))
        if level and level not in drawn:
            drawn.add(level)
            yield ChartLine(of, tuple(sorted(known)), level, tuple(f"{of} {number(value)} {unit}" for value in level))


def _of_model(row: Measured, of: str) -> float | None:
    values = [value for model in row.models.values() if (value := getattr(model, of)) is not None]
    return float(np.median(values)) if values else None


def _table(cited: Cited, shown: Shown, rows: Sequence[Measured]) -> Rows:
    texts = points_by_place(cited, shown)
    cells = []
    for row in rows:
        least, most = min(row.medians), max(row.medians)
        here = number(least) if number(least) == number(most) else f"{number(least)} to {number(most)}"
        expected = _of_model(row, "expected")
        share = f"{np.median(row.medians) / expected:.0%}" if expected else ""
        cells.append((row.series, row.at, here, share, "; ".join(texts.pop(row.at, ()))))
    cells += [("", at, "", "", "; ".join(found)) for at, found in texts.items()]
    return Rows(("measured by", "at", f"here, {UNITS[shown]}", "of expected", "paper"), tuple(cells), (1, 4))


def as_csv(figures: Sequence[Figure]) -> str:
    """Return the tables of a figure as one text with commas."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for figure in figures:
        writer.writerow(("figure", *figure.table.head))
        writer.writerows((figure.title, *row) for row in figure.table.rows)
    return out.getvalue()


def as_svg(figure: Figure) -> Markup:
    """Return the drawing as a file of its own."""
    return Markup(str(figure.chart).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)).replace(
        ">", f">{STYLE}", 1
    )


def as_page(cited: Cited, figures: Sequence[Figure], note: str) -> Markup:
    """Return a page with the drawings and their tables; `note`: what is to be said of them first, may be empty."""
    text = Markup(
        "<!doctype html><html lang=en><meta charset=utf-8><title>{0}</title>{1}{2}<h1>{0}</h1><p>{3}</p>"
    ).format(cited.figure.title, _PAGE, STYLE, f"{cited.paper}, {cited.figure.section}")
    text += Markup("<p>{}</p>").format(note) if note else Markup()
    for figure in figures:
        text += Markup("<h2>{}</h2><p>{}</p>{}<table><tr>").format(figure.title, figure.summary, figure.chart)
        text += Markup().join(Markup("<th>{}</th>").format(cell) for cell in figure.table.head)
        for row in figure.table.rows:
            text += Markup("<tr>") + Markup().join(Markup("<td>{}</td>").format(cell) for cell in row)
        text += Markup("</table>")
    return text
