"""Figures and the tables that say the same."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.run import Rank
from fabricheck.records.verdict import Verdict
from fabricheck.report.figures.chart import ChartLine, axis_of, line_chart
from fabricheck.report.figures.curves import figures_of
from fabricheck.report.figures.tables import Curves, Figure, Matrix, Rows
from tests.support.nodes import system
from tests.support.pages import render_html
from tests.support.synthetic import GIB, MIB, judged, judgement, pair_run, rank, samples, with_yardstick


def find(run: RunJudgement, title: str) -> Figure:
    (found,) = [each for each in figures_of(run) if each.title.startswith(title)]
    return found


def rows_of(figure: Figure) -> list[tuple[str, ...]]:
    assert isinstance(figure.table, Rows)
    return [tuple(cell.text for cell in row) for row in figure.table.rows]


def test_a_matrix_is_in_percent_of_the_yardstick_and_names_what_is_bad() -> None:
    run = pair_run(bad={(0, 3): Verdict.FAIL})
    run = replace(run, judgements=tuple(with_yardstick(each, "achievable", 1100.0) for each in run.judgements))
    figure = find(run, "pingpong uncontended 1GiB goodput")
    assert "% of the achievable" in figure.title
    assert "worst 0→3 96.00 Gb/s, FAIL" in figure.summary
    assert isinstance(figure.table, Matrix)
    assert figure.table.cells[0][3].text == "8.7 %"
    assert figure.table.cells[0][3].verdict is Verdict.FAIL
    assert figure.table.cells[1][1].text == ""
    assert "nid001 GPU 3" in figure.table.cells[0][3].title and "FAIL" in figure.table.cells[0][3].title
    assert [end.label for end in figure.table.sources] == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
    assert figure.table.hosts == ()
    assert figure.table.legend == "of the achievable"
    shades = [cell.shade for row in figure.table.cells for cell in row if cell.verdict is Verdict.PASS]
    assert figure.table.cells[0][3].shade == 0 and set(shades) == {9}


def test_a_matrix_of_equals_has_no_colour_of_a_fault_and_that_of_nodes_has_their_borders() -> None:
    figure = find(pair_run(), "pingpong uncontended 1GiB goodput")
    assert isinstance(figure.table, Matrix)
    assert all(cell.shade in (None, 9) for row in figure.table.cells for cell in row)
    run = pair_run()
    ranks = [rank(number, f"nid{number // 2}") for number in range(4)]
    figure = find(judged(run.judgements, run.run.samples, ranks=ranks), "pingpong uncontended 1GiB goodput")
    assert isinstance(figure.table, Matrix)
    assert figure.table.hosts == (("nid0", 2, "edge"), ("nid1", 2, "edge"))
    latency = find(pair_run(bad={(0, 1): Verdict.FAIL}), "pingpong uncontended 8B latency").table
    assert isinstance(latency, Matrix)
    # Of a latency more is worse: all maps are the same way round.
    of_bad = latency.cells[0][1]
    others = [cell for row in latency.cells for cell in row if cell.verdict and cell is not of_bad]
    assert float(of_bad.text.split()[0]) <= min(float(cell.text.split()[0]) for cell in others)


def test_a_matrix_parts_nodes_at_other_switches_by_another_line() -> None:
    run = pair_run()
    ranks = [rank(number, host) for number, host in enumerate(("nid001", "nid001", "nid002", "nid005"))]
    known = replace(judged(run.judgements, run.run.samples, ranks=ranks), topology=system("emulated"))
    table = find(known, "pingpong uncontended 1GiB goodput").table
    assert isinstance(table, Matrix)
    assert [end.edge for end in table.sources] == ["edge", "", "edge", "edge rack"]
    assert table.hosts == (("nid001", 2, "edge"), ("nid002", 1, "edge"), ("nid005", 1, "edge rack"))
    assert "double line" in table.legend and "double line" not in render_html([run], title="t", system="s")
    assert 'class="edge rack"' in render_html([known], title="t", system="s")


def test_schedules_and_quantities_have_matrices_of_their_own() -> None:
    run = pair_run(schedules=("uncontended", "contended"))
    matrices = [each.title for each in figures_of(run) if each.kind == "matrix"]
    assert len(matrices) == 4
    for schedule in ("uncontended", "contended"):
        for quantity in ("1GiB goodput", "8B latency"):
            assert sum(title.startswith(f"pingpong {schedule} {quantity}") for title in matrices) == 1


@pytest.mark.parametrize("expected", [None, 1200.0])
def test_where_the_minimum_alone_judged_pairs_are_compared_with_each_other(expected: float | None) -> None:
    figure = find(pair_run(expected=expected), "pingpong uncontended 1GiB goodput")
    assert figure.title.endswith("% of their median")
    assert isinstance(figure.table, Matrix)
    assert figure.table.cells[0][1].text == "99.9 %"
    assert "1,099 Gb/s" in figure.table.cells[0][1].title


def test_one_table_has_one_measure() -> None:
    """Where one of the pairs has no yardstick but the minimum, none is shown by another one."""
    first = with_yardstick(judgement(samples((0, 1), GIB)), "siblings", 500.0)
    run = judged([first, judgement(samples((0, 2), GIB))])
    assert find(run, "pingpong uncontended 1GiB goodput").title.endswith("% of their median")


def test_a_pair_that_was_planned_and_not_measured_is_not_blank() -> None:
    whole = pair_run()
    rest = [each for each in whole.judgements if each.samples.ranks != (2, 1)]
    figure = find(judged(rest, planned=whole.run.samples), "pingpong uncontended 1GiB goodput")
    assert isinstance(figure.table, Matrix)
    assert figure.table.cells[2][1].text == "missing"
    assert figure.table.cells[2][1].verdict is Verdict.INCOMPLETE
    assert "1 missing" in figure.summary


def test_in_a_large_matrix_what_is_bad_has_a_mark() -> None:
    figure = find(pair_run(ranks=34, bad={(4, 7): Verdict.FAIL}), "pingpong uncontended 1GiB goodput")
    assert isinstance(figure.table, Matrix)
    said = [(a, b) for a, row in enumerate(figure.table.cells) for b, cell in enumerate(row) if cell.text]
    assert said == [(4, 7)]


def test_a_sparse_matrix_is_a_list() -> None:
    pairs = [(each, each + 100) for each in range(100)]
    run = judged([judgement(samples(pair, GIB), world=200) for pair in pairs], ranks=[rank(n) for n in range(200)])
    figure = find(run, "pingpong uncontended 1GiB goodput")
    assert isinstance(figure.table, Rows)
    assert len(figure.table.rows) == 100


def test_curves_hold_the_quartiles_of_the_iterations() -> None:
    run = pair_run(sizes=(8, 1024, MIB, GIB))
    table = find(run, "pingpong uncontended: goodput over size").table
    assert isinstance(table, Curves)
    assert len(table.curves) == 12
    first = table.curves[0]
    assert first.label == "0→1"
    assert [point.bytes for point in first.points] == [8, 1024, MIB, GIB]
    for point, line in zip(first.points, run.run.samples[:4], strict=True):
        expected = np.percentile(line.goodput_gbps, [25, 50, 75])
        assert (point.low, point.median, point.high) == pytest.approx(tuple(expected))
        assert point.count == 20


def test_latency_is_shown_for_small_sizes_only_with_the_cold_one() -> None:
    run = pair_run(sizes=(8, 64, 512, 1024, MIB))
    run = replace(run, run=replace(run.run, samples=tuple(replace(each, cold_us=1.5) for each in run.run.samples)))
    table = find(run, "pingpong uncontended: latency over size").table
    assert isinstance(table, Curves)
    points = [point for curve in table.curves for point in curve.points]
    assert {point.bytes for point in points} == {8, 64, 512, 1024}
    assert {point.cold for point in points} == {1.5}


@pytest.mark.parametrize("sizes", [(GIB,), (1024, MIB, GIB)])
def test_few_sizes_make_no_curve(sizes: tuple[int, ...]) -> None:
    assert {each.kind for each in figures_of(pair_run(sizes=sizes))} == {"matrix"}


def test_collectives_share_a_figure() -> None:
    everyone = (0, 1, 2, 3)
    records = [
        samples(everyone, size, operation=operation)
        for operation in ("allreduce", "alltoall")
        for size in (8, MIB, 2 * MIB, GIB)
    ]
    run = judged([judgement(records[1]), judgement(records[5])], records)
    table = find(run, "collectives uncontended: goodput over size").table
    assert isinstance(table, Curves)
    assert [each.label for each in table.curves] == ["allreduce all 4", "alltoall all 4"]


def test_lines_that_have_no_colour_are_counted_and_the_worst_has_the_first() -> None:
    figure = find(pair_run(ranks=8, bad={(6, 2): Verdict.DEGRADED}), "pingpong uncontended: goodput over size")
    chart = ElementTree.fromstring(figure.chart)
    texts = [each.text for each in chart.iter("text")]
    assert texts.count("6→2") == texts.count("48 more lines") == texts.count("expected 1,200") == 1
    worst = next(each for each in chart.iter("g") if each.get("class") == "k0")
    assert worst.findtext("title") == "6→2"
    assert isinstance(figure.table, Curves)
    assert len(figure.table.curves) == 56


def test_what_was_not_finite_is_no_number_in_a_figure() -> None:
    run = judged(
        [
            judgement(samples((0, 1), GIB), value=float("nan"), verdict=Verdict.INVALID),
            judgement(samples((0, 2), GIB), value=float("inf"), verdict=Verdict.INVALID),
        ]
    )
    figure = find(run, "pingpong uncontended 1GiB goodput")
    assert isinstance(figure.table, Matrix)
    assert [each.shade for each in figure.table.cells[0][1:3]] == [None, None]
    assert "nan" in figure.table.cells[0][1].text


def test_names_cannot_be_markup_in_a_figure() -> None:
    evil = '<a href="javascript:alert(1)">host</a>'
    ranks: list[Rank] = [rank(number, evil) for number in range(4)]
    run = pair_run()
    run = judged(run.judgements, run.run.samples, ranks=ranks, operations=[evil])
    drawn = [each for each in figures_of(run) if each.chart]
    assert drawn
    for each in drawn:
        assert "<a " not in each.chart


def test_samples_do_not_travel() -> None:
    """The size of a figure does not depend on the number of iterations."""
    few, many = (sum(len(each.chart) for each in figures_of(pair_run(iterations=n))) for n in (11, 1001))
    assert many == pytest.approx(few, rel=0.05)


POSITIVE = st.floats(1e-3, 1e9)


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=12), st.booleans(), st.booleans())
def test_all_of_a_line_is_inside_its_axes_and_ticks_are_in_order(
    points: list[tuple[float, float]], is_log: bool, from_zero: bool
) -> None:
    values = tuple(y for _, y in points)
    axis = axis_of("y", values, is_log=is_log, from_zero=from_zero and not is_log)
    assert axis.low <= min(values) * (1 + 1e-9) and max(values) <= axis.high * (1 + 1e-9)
    ticks = [tick for tick, _ in axis.ticks]
    assert ticks == sorted(set(ticks)) and 2 <= len(ticks) <= 15
    shares = [axis.share(value) for value in sorted(values)]
    assert shares == sorted(shares) and all(0 <= share <= 1 for share in shares)
    line = ChartLine("line", tuple(x for x, _ in points), values, ("",) * len(points))
    chart = ElementTree.fromstring(line_chart("t", [line], axis_of("x", line.x), axis))
    assert len(list(chart.iter("circle"))) == len(points)
