"""Before and after: what regressed stands first, and what nobody can say is not shown as fine."""

from __future__ import annotations

import math

from fabricheck.report.figures.comparison import changes_figure
from fabricheck.report.figures.plot import short_labels
from fabricheck.report.figures.tables import Figure, Rows
from tests.report.test_figures import plot, rows_of
from tests.support.histories import Made, normal
from tests.support.pasts import CHANGE, SESSIONS, UPGRADE, compared, pair_metrics


def figure_of(*arguments: object, **more: object) -> Figure:
    found = changes_figure(compared(*arguments, **more))  # type: ignore[arg-type]
    assert found is not None
    return found


def test_what_regressed_is_first_with_its_interval() -> None:
    faster = Made("faster", normal(50, SESSIONS, spread=0.01, drop=-0.1, onset=CHANGE))
    figure = figure_of([*pair_metrics(), faster], software=UPGRADE)
    assert figure.summary.startswith("13 metrics: 6 regressed, 6 same, 1 improved. The worst is pingpong_uncontended_")
    rows = rows_of(figure)
    assert [row[1] for row in rows] == ["regressed"] * 6 + ["same"] * 6 + ["improved"]
    name, _, before, after, change, interval, smallest, runs, unequal = rows[0]
    assert "_2_" in name or "_2" in name
    assert before.endswith(" Gb/s") and float(before.split()[0]) > float(after.split()[0])
    assert change.startswith(("-9", "-10", "-8")) and " to -" in interval
    assert smallest.endswith("%") and float(smallest[:-1]) < 5
    assert (runs, unequal) == ("10 and 10", "")
    traces = {each["name"]: each for each in plot(figure)["data"]}
    assert list(traces) == ["regressed (6)", "cannot say (0)", "same (6)", "improved (1)"]
    assert traces["regressed (6)"]["y"] == list(range(6))
    assert len({(each["marker"]["symbol"], each["marker"]["color"]) for each in traces.values()}) == 4
    for x, up, down in zip(
        traces["regressed (6)"]["x"],
        traces["regressed (6)"]["error_x"]["array"],
        traces["regressed (6)"]["error_x"]["arrayminus"],
        strict=True,
    ):
        assert x + up < 0 and down > 0


def test_a_comparison_that_cannot_say_shows_what_is_not_known() -> None:
    figure = figure_of([Made("a", [100.0, 50.0])], "s000", "s001")
    assert figure.summary.startswith("1 metric: 1 cannot say.")
    ((name, verdict, *_, smallest, runs, _),) = rows_of(figure)
    assert (name, verdict, smallest, runs) == ("a", "cannot say", "unknown", "1 and 1")
    (trace,) = [each for each in plot(figure)["data"] if each["name"] == "cannot say (1)"]
    # An interval without ends goes out of the figure on both sides.
    low, high = plot(figure)["layout"]["xaxis"]["range"]
    assert trace["x"][0] - trace["error_x"]["arrayminus"][0] < low
    assert trace["x"][0] + trace["error_x"]["array"][0] > high


def test_no_metric_in_common_makes_no_figure() -> None:
    a, b = Made("a", [1.0, None]), Made("b", [None, 1.0])
    found = compared([a, b], "s000", "s001")
    assert changes_figure(found) is None
    assert (len(found.vanished), len(found.new)) == (1, 1)


def test_many_metrics_are_counted() -> None:
    figure = figure_of([Made(f"m_{each}", normal(each, SESSIONS, spread=0.01)) for each in range(70)])
    assert "The worst 40 are drawn" in figure.summary
    assert "the part … of m_…" in figure.summary
    assert sum(len(each["y"]) for each in plot(figure)["data"]) == 40
    assert len(rows_of(figure)) == 64
    assert isinstance(figure.table, Rows)
    assert figure.table.note == "More rows, none worse: 6 metrics."


def test_unequal_conditions_are_in_the_row() -> None:
    tuning = {0: {"a": "1"}, CHANGE: {"a": "2"}}
    assert "other tuning" in rows_of(figure_of(pair_metrics(), tuning=tuning))[0][-1]
    tuning[CHANGE]["a"] = 1000 * "x"
    assert len(rows_of(figure_of(pair_metrics(), tuning=tuning))[0][-1]) == 201


def test_names_cannot_be_markup() -> None:
    figure = figure_of([Made("<i>x</i>", normal(1, SESSIONS, spread=0.01))])
    assert "<i>" not in figure.plot and "&lt;i&gt;" in figure.plot


def test_names_are_told_apart_by_what_differs() -> None:
    assert short_labels(["p_0_1_x", "p_0_2_x"]) == (("1", "2"), "p_0_…_x")
    assert short_labels(["p_0_x", "p_0_1_x"]) == (("p_0_x", "p_0_1_x"), "")
    assert short_labels(["a", "b"]) == (("a", "b"), "")
    assert short_labels(["a_1"]) == (("a_1",), "")
    assert short_labels([]) == ((), "")
    assert math.isfinite(len(short_labels(["a_1", "a_1"])[0]))
