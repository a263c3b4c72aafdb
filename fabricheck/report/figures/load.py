"""A burn-in over time: one figure a node, its GPUs as lines in rows below each other that share the time axis.

All nodes have the same axes, so that the same moment and the same level are at the same place in each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.burn_in import BurnIn, Floats, ReportedError
from fabricheck.records.run import Rank
from fabricheck.report.content import number
from fabricheck.report.figures.plot import Colors, PlotLine, finite, line_traces, plain, round_to_4, scatter, to_json
from fabricheck.report.figures.tables import Figure, Rows, cells, omitted_rows_text
from fabricheck.units import few, plural

# All nodes together have so many points for each quantity, and a line not fewer than these.
_MOST_POINTS, _FEWEST, _MOST_OF_LINE = 6000, 40, 200
_PANEL_PX, _ABOVE_PX, _BELOW_PX, _GAP = 58, 30, 42, 0.18
_MOST_MARKS, _MOST_ROWS, _MINUTES_FROM_S = 100, 64, 300
_MARK = "#000000"


@dataclass(frozen=True, eq=False)
class _Quantity:
    """`values`: by window and rank, NaN where they are unknown; `lowest`: whether low is what tells of trouble."""

    name: str
    unit: str
    values: Floats
    lowest: bool = True


def load_figures(judged: RunJudgement) -> Iterator[Figure]:
    """A figure for each node of a run that had a burn-in, in their order."""
    load, ranks = judged.run.burn_in, judged.run.ranks
    if load is None:
        return
    quantities = list(_quantities(judged, load))
    rates = quantities[0].values
    for host in dict.fromkeys(rank.host for rank in ranks):
        own = [rank for rank in ranks if rank.host == host]
        # The slowest first: these are told apart where there are more than colours.
        low = {rank.rank: _lowest(rates[load.together, rank.rank]) for rank in own}
        own.sort(key=lambda rank: (low[rank.rank], rank.rank))
        marks = [mark for mark in load.marks if mark.host == host]
        slowest = f"slowest {_name(own[0])} with {number(low[own[0].rank])} {quantities[0].unit} in its slowest window"
        what = "GPU" if own[0].device is not None else "rank"
        summary = f"{plural(len(own), what)}; {slowest}; {plural(len(marks), 'error')}"
        summary += f": {few([f'{mark.part} {mark.text}' for mark in marks])}" if marks else ""
        yield Figure(
            "load",
            f"{host} under load, over time",
            summary,
            _plot(load, quantities, own, marks),
            _table(load, quantities, sorted(own, key=lambda rank: rank.rank), marks),
        )


def _lowest(values: Floats) -> float:
    return float(np.nanmin(values)) if np.isfinite(values).any() else np.inf


def _name(rank: Rank) -> str:
    return f"GPU {rank.device.index}" if rank.device is not None else f"rank {rank.rank}"


def _quantities(judged: RunJudgement, load: BurnIn) -> Iterator[_Quantity]:
    """Those of which anything is known; the rate of products first."""
    run = judged.run
    bytes_of = {samples.operation: samples.bytes for samples in run.samples}

    def rate(of: str, amount: float) -> Floats:
        times = load.medians[of].astype(np.float64)
        return np.asarray(amount / np.where(times > 0, times, np.nan))

    operations = run.product.operations if run.product is not None else 0
    yield _Quantity("products", "Tflop/s", rate("products", operations / 1e3))
    yield _Quantity("traffic", "Gb/s", rate("traffic", 8.0 * bytes_of.get("traffic", 0)))
    yield _Quantity("copies", "Gb/s", rate("copies", 8.0 * bytes_of.get("copies", 0)))
    gauges = (("clock", "MHz", "clock_mhz"), ("power", "W", "power_w"), ("temperature", "°C", "temperature_c"))
    for name, unit, gauge in gauges:
        values = np.full((len(load.phases), len(run.ranks)), np.nan)
        for rank, gpu in run.loaded_gpus.items():
            values[:, rank] = gpu.gauges[gauge]
        if np.isfinite(values).any():
            yield _Quantity(name, unit, values, lowest=name == "clock")


def _range(values: Floats) -> list[float]:
    """What an axis shows of all nodes, with room for marks at its foot."""
    known = values[np.isfinite(values)]
    if not known.size:
        return [0.0, 1.0]
    low, high = float(known.min()), float(known.max())
    room = _GAP * max(high - low, 0.02 * abs(high))
    return [round_to_4(low - room), round_to_4(high + room)]


def _plot(load: BurnIn, quantities: Sequence[_Quantity], ranks: Sequence[Rank], marks: Sequence[ReportedError]) -> str:
    unit, per = ("minutes", 60.0) if load.end_s[-1] > _MINUTES_FROM_S else ("seconds", 1.0)
    middles = (load.begin_s + load.end_s) / 2 / per
    points = min(max(_MOST_POINTS // len(load.wrong), _FEWEST), _MOST_OF_LINE, middles.size)
    chunks = np.array_split(np.arange(middles.size), points)
    times = tuple(round_to_4(float(middles[chunk].mean())) for chunk in chunks)
    layout: dict[str, Any] = {
        "height": len(quantities) * _PANEL_PX + _ABOVE_PX + _BELOW_PX,
        "margin": {"l": 80, "r": 15, "t": _ABOVE_PX, "b": _BELOW_PX},
        "hovermode": "closest",
        "legend": {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "traceorder": "reversed"},
        "xaxis": {
            "title": {"text": f"{unit} since the load began", "standoff": 5},
            "range": [0, float(load.end_s[-1] / per)],
        },
    }
    traces: list[Any] = []
    colors: Colors = {}
    for place, quantity in enumerate(quantities):
        axis = "" if place == 0 else str(place + 1)
        top = 1 - place / len(quantities)
        domain = [round_to_4(top - (1 - _GAP) / len(quantities)), round_to_4(top)]
        title = {"text": f"{quantity.name}<br>{quantity.unit}", "font": {"size": 10}}
        layout[f"yaxis{axis}"] = {"title": title, "domain": domain, "range": _range(quantity.values), "nticks": 4}
        layout["xaxis"]["anchor"] = f"y{axis}"
        lines = [
            PlotLine(
                plain(_name(rank)), times, _worst(quantity, rank.rank, chunks), plain(f"{_name(rank)}, {quantity.name}")
            )
            for rank in ranks
        ]
        own = line_traces(lines, mode="lines", hover=f"%{{text}}<br>%{{x}}: %{{y}} {quantity.unit}", colors=colors)
        for trace in own:
            trace |= {"yaxis": f"y{axis}", "showlegend": place == 0}
        traces += own
    if marks:
        shown = marks[:_MOST_MARKS]
        traces.append(
            scatter(
                x=[round_to_4(float(middles[mark.window])) for mark in shown],
                y=[_range(quantities[0].values)[0]] * len(shown),
                text=[plain(f"{mark.part}: {mark.text}") for mark in shown],
                name="errors",
                mode="markers",
                cliponaxis=False,
                marker={"symbol": "x", "size": 9, "color": "#D55E00", "line": {"color": _MARK, "width": 1}},
                hovertemplate="%{text}<extra></extra>",
            )
        )
    return to_json(traces, layout)


def _worst(quantity: _Quantity, rank: int, chunks: Sequence[np.ndarray[Any, Any]]) -> tuple[float | None, ...]:
    """What stands for each stretch of windows: the value that tells of trouble, if there was any."""
    values = quantity.values[:, rank]
    pick = np.nanmin if quantity.lowest else np.nanmax
    return tuple(finite(float(pick(own))) if np.isfinite(own := values[chunk]).any() else None for chunk in chunks)


def _table(
    load: BurnIn, quantities: Sequence[_Quantity], ranks: Sequence[Rank], marks: Sequence[ReportedError]
) -> Rows:
    """By rank: medians with everything at the same time, the share of their own speed that products keep, and by how
    many ms the rank holds up the others."""
    alone = np.array([phase == "compute" for phase in load.phases])
    rows = []
    for rank in ranks[:_MOST_ROWS]:
        medians = [_median(each.values[load.together, rank.rank]) for each in quantities]
        kept = medians[0] / _median(quantities[0].values[alone, rank.rank])
        late = [
            number(_median(times[name][load.together, rank.rank] / 1e6))
            for name in ("ring", "allreduce")
            for times in (load.medians, load.tails)
        ]
        errors = [mark.text for mark in marks if rank.device is not None and mark.part == rank.device.address]
        rows.append(cells(_name(rank), *map(number, medians), f"{kept:.0%}", *late, few(errors) or "none"))
    head = (
        "rank",
        *(f"{each.name}, {each.unit}" for each in quantities),
        "products, of alone",
        *(f"late in {name}, ms{tail}" for name in ("ring", "allreduce") for tail in ("", " (p99)")),
        "errors",
    )
    return Rows(head, tuple(rows), texts=(len(head) - 1,), note=omitted_rows_text(len(ranks[_MOST_ROWS:]), "ranks"))


def _median(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else float("nan")
