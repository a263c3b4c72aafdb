"""Pair matrices: a heat map of the pairs of a group."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import Group, describe_rank, number, percent, plural, share_of_expected, who
from fabricheck.report.figures.plot import COLORS, SCALE, finite, plain, to_json
from fabricheck.report.figures.tables import Cell, Figure, Listing, Matrix

# Above it, numbers in the cells could not be read.
_RANKS_WITH_TEXT = 12
# A matrix with few of its cells measured is shorter as a list.
_SPARSE = 8


def matrix_of(group: Group, judged: RunJudgement) -> Figure:
    """The matrix of a group of pairs: in % of what is expected where that is known of all of them."""
    measured = {(each.samples.ranks[0], each.samples.ranks[1]): each for each in group.judgements}
    planned = _planned_pairs(group, judged)
    pairs = {*measured, *planned}
    ranks = tuple(sorted({rank for pair in pairs for rank in pair}))
    sources, destinations = tuple(sorted({a for a, _ in pairs})), tuple(sorted({b for _, b in pairs}))
    if len(ranks) <= 2 * _RANKS_WITH_TEXT:
        sources = destinations = ranks
    relative = all(share_of_expected(each) is not None for each in measured.values())
    unit = "% of expected" if relative else group.unit

    def cell(pair: tuple[int, int]) -> Cell:
        found = measured.get(pair)
        if found is not None:
            return Cell(_value_text(found, relative), found.verdict)
        if pair in planned:
            return Cell("missing", Verdict.INCOMPLETE)
        return Cell("" if pair[0] == pair[1] else "-", None)

    title = f"{group.name}: pairs, in {unit}"
    cells = tuple(tuple(cell((a, b)) for b in destinations) for a in sources)
    table: Matrix | Listing = Matrix(sources, destinations, cells)
    if len(sources) * len(destinations) > _SPARSE * len(pairs) + 100:
        table = Listing(tuple((f"{a}→{b}", cell((a, b))) for a, b in sorted(pairs)))
    worst, best = group.judgements[0], group.judgements[-1]
    summary = plural(len(measured), "pair")
    if len(planned - measured.keys()):
        summary += f", {len(planned - measured.keys())} missing"
    if len(measured) > 1:
        summary += f"; worst {_pair_text(worst)}, best {_pair_text(best)}"
    else:
        summary += f"; {_pair_text(worst)}"
    if not relative:
        summary += (
            f". The model expects no {group.quantity} here, so these are absolute values in {group.unit}"
            if all(each.expectation.expected is None for each in measured.values())
            else f". For some pairs the model expects nothing, so these are absolute values in {group.unit}"
        )
    plot = _heat_map(group, judged, Matrix(sources, destinations, cells), measured, relative)
    return Figure("matrix", title, summary, plot, table)


def _planned_pairs(group: Group, judged: RunJudgement) -> set[tuple[int, int]]:
    plan = judged.run.header.get("plan", {})
    return {
        (each["ranks"][0], each["ranks"][1])
        for each in plan.get("series", [])
        if (each["operation"], each["implementation"], each["schedule"])
        == (group.operation, group.implementation, group.schedule)
        and group.bytes in each["bytes"]
    }


def _pair_text(judged: Judgement) -> str:
    share = share_of_expected(judged)
    of_expected = f" ({percent(share)} of expected)" if share is not None else ""
    return f"{who(judged.samples, 0)} {number(judged.value)} {judged.unit}{of_expected}, {judged.verdict.value}"


def _value_text(judged: Judgement, relative: bool) -> str:
    return percent(share_of_expected(judged)) if relative else number(judged.value)


def _heat_map(
    group: Group,
    judged: RunJudgement,
    matrix: Matrix,
    measured: dict[tuple[int, int], Judgement],
    relative: bool,
) -> str:
    names = {each.rank: describe_rank(each) for each in judged.run.ranks}

    def hover(a: int, b: int) -> str:
        found = measured.get((a, b))
        route = f"{plain(names.get(a, f'rank {a}'))}<br>→ {plain(names.get(b, f'rank {b}'))}"
        if found is None:
            return f"{route}<br>not measured" if a != b else ""
        low, high = found.interval
        expected = found.expectation.expected
        of = f"<br>{percent(share_of_expected(found))} of expected {number(expected)} {found.unit}" if expected else ""
        return (
            f"{route}<br>{number(found.value)} {found.unit} (95%: {number(low)} to {number(high)}){of}"
            f"<br>{found.verdict.value}"
        )

    def value(a: int, b: int) -> float | None:
        found = measured.get((a, b))
        if found is None:
            return None
        share = share_of_expected(found)
        return finite(100 * share if relative and share is not None else found.value)

    z = [[value(a, b) for b in matrix.destinations] for a in matrix.sources]
    known = [each for row in z for each in row if each is not None]
    small = max(len(matrix.sources), len(matrix.destinations)) <= _RANKS_WITH_TEXT
    text = [[_cell_text(cell) for cell in row] for row in matrix.cells] if small else None
    higher = group.quantity == "goodput"
    low, high = _scale(known, relative=relative, higher=higher)
    destinations, sources = [str(each) for each in matrix.destinations], [str(each) for each in matrix.sources]
    traces: list[Any] = [
        go.Heatmap(
            x=destinations,
            y=sources,
            z=z,
            zmin=low,
            zmax=high,
            colorscale=SCALE,
            reversescale=not higher,
            text=text,
            texttemplate="%{text}" if small else None,
            hovertext=[[hover(a, b) for b in matrix.destinations] for a in matrix.sources],
            hoverinfo="text",
            hoverongaps=True,
            xgap=2,
            ygap=2,
            colorbar={"title": {"text": "%" if relative else group.unit}, "thickness": 12, "outlinewidth": 0},
        )
    ]
    bad = [(a, b) for (a, b), each in measured.items() if each.verdict is not Verdict.PASS]
    if bad and not small:
        traces.append(
            go.Scatter(
                x=[str(b) for _, b in bad],
                y=[str(a) for a, _ in bad],
                mode="markers",
                marker={"symbol": "x-thin", "size": 9, "line": {"width": 2, "color": COLORS[1]}},
                hoverinfo="skip",
                showlegend=False,
            )
        )
    return to_json(traces, _layout(len(matrix.sources)))


def _scale(known: list[float], *, relative: bool, higher: bool) -> tuple[float, float]:
    """The values at both ends of the colours. In % of expected all matrices share them, to be compared at a glance."""
    if higher:
        return 0.0, 100.0 if relative else max(known, default=1.0)
    # From the best to twice that, or to the worst.
    low = 100.0 if relative else min(known, default=1.0)
    return low, max(2 * low, *known, 0.0)


def _layout(sources: int) -> dict[str, Any]:
    size = min(max(sources, 4), 16)
    return {
        "height": 130 + 34 * size,
        "margin": {"l": 60, "r": 10, "t": 10, "b": 50},
        "xaxis": {"title": {"text": "destination rank"}, "type": "category", "showgrid": False, "zeroline": False},
        "yaxis": {
            "title": {"text": "source rank"},
            "type": "category",
            "autorange": "reversed",
            "showgrid": False,
            "zeroline": False,
        },
    }


def _cell_text(cell: Cell) -> str:
    if cell.verdict in (None, Verdict.PASS):
        return cell.text if cell.verdict else ""
    return f"<b>{cell.text}<br>{cell.verdict.value}</b>" if cell.text != "missing" else "<b>missing</b>"
