"""What all plots have in common: colours, lines of which a few are told apart, and plotly's JSON."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Literal

from fabricheck.report.content import printable

# Okabe and Ito's colours without the green one, which only PASS has. Dashes and symbols say the same without colour.
COLORS = ("#0072B2", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross")
GREY = "#888888"

MOST_COLORED = len(COLORS)
Mode = Literal["lines", "lines+markers"]
#: The place of each label among `COLORS`: what has one in a chart of a run has the same in all others.
Colors = dict[str, int]
_LONGEST_EVENT = 200


@dataclass(frozen=True)
class PlotLine:
    """One line of a plot; `hover`: a text for each point, or one for all; `low` and `high`: the edges of its band."""

    label: str
    x: tuple[float | str, ...]
    y: tuple[float | None, ...]
    hover: tuple[str, ...] | str
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


def split(ranked: Sequence[PlotLine]) -> tuple[Sequence[PlotLine], Sequence[PlotLine]]:
    """Lines that are to be told apart, and the others; `ranked`: the worst first."""
    told = len(ranked) if len(ranked) <= MOST_COLORED else MOST_COLORED - 1
    return ranked[:told], ranked[told:]


def line_traces(
    ranked: Sequence[PlotLine], *, mode: Mode, hover: str = "%{text}", colors: Colors | None = None
) -> list[Any]:
    """Lines as traces, the worst first in a reversed legend: a few told apart, the others grey under one name.

    `hover`: what is said of a point, as plotly's template, in which `%{text}` is the line's text for it. `colors`:
    those of charts beside this one; labels that are new get one there.
    """
    told, others = split(ranked)
    template = f"{hover}<extra></extra>"
    traces = _other_traces(others, template) if others else []
    # The worst is drawn last, over the others, and stands first in the legend.
    positions = _positions([line.label for line in told], {} if colors is None else colors)
    for line, position in reversed(list(zip(told, positions, strict=True))):
        traces += _line_traces(line, position, mode, template)
    return traces


def _positions(labels: Sequence[str], colors: Colors) -> list[int]:
    """The places of labels among `COLORS`, each its own; those of labels that are known already come first."""
    own: Colors = {}
    for label in sorted(labels, key=lambda label: label not in colors):
        free = [place for place in range(MOST_COLORED) if place not in own.values()]
        place = colors.get(label, -1)
        if place not in free:
            place = min(free, key=lambda place: list(colors.values()).count(place))
        own[label] = place
        colors.setdefault(label, place)
    return [own[label] for label in labels]


def filled(*, x: list[Any], y: list[Any], color: str, opacity: float, **more: Any) -> Any:
    """The area inside of a closed line, such as a band around a curve; `more` are attributes of plotly's scatter."""
    return scatter(
        x=x,
        y=y,
        fill="toself",
        fillcolor=color,
        opacity=opacity,
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        **more,
    )


def _line_traces(line: PlotLine, position: int, mode: Mode, template: str) -> list[Any]:
    color = COLORS[position]
    traces = []
    if line.low:
        traces.append(
            filled(
                x=list(line.x) + list(reversed(line.x)),
                y=[*map(round_to_4, line.high), *map(round_to_4, reversed(line.low))],
                color=color,
                opacity=0.25,
                legendgroup=plain(line.label),
                showlegend=False,
            )
        )
    traces.append(
        scatter(
            x=list(line.x),
            y=list(map(_short_or_none, line.y)),
            name=plain(line.label),
            legendgroup=plain(line.label),
            mode=mode,
            line={"color": color, "width": 2, "dash": DASHES[position]},
            **({"marker": {"color": color, "symbol": SYMBOLS[position], "size": 7}} if "markers" in mode else {}),
            text=line.hover if isinstance(line.hover, str) else list(line.hover),
            hovertemplate=template,
        )
    )
    return traces


def _other_traces(lines: Sequence[PlotLine], template: str) -> list[Any]:
    """Lines that need no names: one trace, all grey, with one entry in the legend."""
    name = f"{len(lines)} {'others' if len(lines) > 1 else 'other'}"

    def gapped(part: Callable[[PlotLine], Sequence[Any]]) -> list[Any]:
        return [value for line in lines for value in (*part(line), None)]

    traces = []
    if any(line.low for line in lines):
        traces.append(
            filled(
                x=gapped(lambda line: [*line.x, *reversed(line.x)]),
                y=gapped(lambda line: [*map(round_to_4, line.high), *map(round_to_4, reversed(line.low))]),
                color=GREY,
                opacity=0.15,
                legendgroup=name,
                showlegend=False,
            )
        )
    traces.append(
        scatter(
            x=gapped(lambda line: line.x),
            y=gapped(lambda line: [*map(_short_or_none, line.y)]),
            name=name,
            legendgroup=name,
            mode="lines",
            connectgaps=False,
            opacity=0.6,
            line={"color": GREY, "width": 1},
            text=gapped(lambda line: [line.hover] * len(line.x) if isinstance(line.hover, str) else line.hover),
            hovertemplate=template,
        )
    )
    return traces


def legend_below() -> dict[str, Any]:
    """Where the legend of lines stands: below the title of the axis."""
    return {"orientation": "h", "y": -0.25, "yanchor": "top", "x": 0, "traceorder": "reversed"}


def scatter(**attributes: Any) -> dict[str, Any]:
    """A trace of plotly's scatter. A plain dictionary: building plotly's own objects takes as long as all the rest of a
    page; that they would take these attributes is tested."""
    return {"type": "scatter", **attributes}


def to_json(traces: Sequence[dict[str, Any]], layout: dict[str, Any]) -> str:
    """A plot as plotly's JSON; ValueError where a number in it is not finite."""
    return json.dumps({"data": list(traces), "layout": layout}, separators=(",", ":"), allow_nan=False)


def plain(text: str) -> str:
    """Plotly shows a few HTML tags in its texts as such."""
    return html.escape(printable(text), quote=False)


def clipped(text: str, longest: int) -> str:
    """A name that has room: its end says more than its beginning."""
    if len(text) <= longest:
        return text
    start = longest // 5
    return f"{text[:start]}…{text[len(text) - (longest - start - 1) :]}"


def shortened(text: str) -> str:
    """What happened, where there is one for each row: lists of nodes and of versions can be of any length."""
    return text if len(text) <= _LONGEST_EVENT else f"{text[:_LONGEST_EVENT]}…"


def short_labels(names: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Short labels for names of metrics: what differs between them, and what they share around it (`…` for that).

    Names of one group mostly differ in their ranks: `pingpong_0_1_1gib` and `pingpong_0_2_1gib` are `0_1` and `0_2`.
    """
    words = [name.split("_") for name in names]
    shortest = min(map(len, words), default=0)
    start = next((n for n in range(shortest) if len({each[n] for each in words}) > 1), shortest)
    rest = shortest - start
    end = next((n for n in range(rest) if len({each[-1 - n] for each in words}) > 1), rest)
    if len(names) < 2 or start + end in (0, shortest):
        return tuple(names), ""
    labels = tuple("_".join(each[start : len(each) - end]) for each in words)
    return labels, "_".join([*words[0][:start], "…", *words[0][len(words[0]) - end :]])


def finite(value: float) -> float | None:
    """The value with few digits; None for what JSON cannot hold (nan, inf)."""
    return round_to_4(value) if math.isfinite(value) else None


def round_to_4(value: float) -> float:
    """Four significant digits are what a screen shows, and what tables say."""
    return float(f"{value:.4g}")


def _short_or_none(value: float | None) -> float | None:
    return None if value is None else finite(value)


# Namespaces of XML are no addresses, and a licence is passed on as it stands.
_LICENCE_OR_ADDRESS = re.compile(rb"""/\*[!*].*?\*/|https?://(?!www\.w3\.org/)[^\s"'`<>()\\]*""", re.DOTALL)


# The permission notice of the MIT licence, which has to be in every copy of what has it.
_MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to
permit persons to whom the Software is furnished to do so, subject to the following conditions:
The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.
THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS
OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


def plotly_notice() -> str:
    """Whose plotly.js is, and its licence: a page carries it packed, where it could not be read."""
    banner = plotly_js().partition(b"*/")[0].removeprefix(b"/**").decode()
    lines = [line.strip(" *") for line in banner.splitlines()]
    return "\n".join([*filter(None, lines), _MIT.rstrip()])


@lru_cache(maxsize=1)
def plotly_js() -> bytes:
    """The JavaScript of plotly, in which map tiles, fonts and the cloud that figures can be sent to have no address."""
    script = (resources.files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    return _LICENCE_OR_ADDRESS.sub(lambda match: match[0] if match[0].startswith(b"/*") else b"", script)
