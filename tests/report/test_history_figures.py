"""The history in figures and tables: a planted change is at its session, and nothing is shown as more than it is."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from fabricheck.report.figures.history import overview, short_names
from tests.report.test_figures import rows_of
from tests.support.histories import Made, normal
from tests.support.pasts import CHANGE, SESSIONS, UPGRADE, pair_metrics, watched


def test_the_overview_has_all_metrics_and_names_the_worst() -> None:
    figure = overview(watched(pair_metrics(), software=UPGRADE))
    rows = rows_of(figure)
    assert len(rows) == SESSIONS
    before, after = rows[CHANGE - 1], rows[-1]
    assert (before[1], after[1]) == ("12", "12")
    assert float(before[2]) == pytest.approx(100, abs=1)
    assert float(after[4]) == pytest.approx(89, abs=3)
    assert "_2_" in after[5] or after[5].startswith("pingpong_uncontended_2")
    assert [row[0] for row in rows if row[6]] == ["2026-04-11 02:00 (s100)"]
    chart = ElementTree.fromstring(figure.chart)
    (mark,) = [each for each in chart.iter("line") if each.get("class") == "mark"]
    assert mark.findtext("title") == "nccl: 2.28.3 -> 2.29.1"
    assert "Software changed in 1 session" in figure.summary


def test_the_versions_of_software_are_bars_under_the_curves() -> None:
    software = {60: {"a": "1", "firmware mlx5_0": "28.1"}, 90: {"a": "1", "firmware mlx5_0": "28.2"}}
    found = watched(pair_metrics(slow=None), software=software)
    chart = ElementTree.fromstring(overview(found).chart)
    bars = [each for each in chart.iter("rect") if each.get("class") == "bar"]
    sessions = found.series.sessions
    assert [each.findtext("title") for each in bars] == [
        f"firmware mlx5_0 28.1: {sessions[60]} to {sessions[89]}",
        f"firmware mlx5_0 28.2: {sessions[90]} to {sessions[-1]}",
    ]
    first, second = ((float(each.attrib["x"]), float(each.attrib["width"])) for each in bars)
    assert sum(first) == pytest.approx(second[0], abs=2)


def test_a_long_history_is_cut_and_says_so() -> None:
    figure = overview(watched([Made("m", normal(1, 450)), Made("n", [*normal(2, 20), *[None] * 430])]))
    assert len(rows_of(figure)) == 400
    assert "the 50 sessions before them are not shown" in figure.summary
    # A metric that was not measured lately is not counted.
    assert rows_of(figure)[-1][1] == "1"


def test_one_session_is_a_history_too() -> None:
    found = watched([Made("m", [100.0]), Made("n", [50.0])])
    assert len(rows_of(overview(found))) == 1
    assert "<circle" in overview(found).chart


def test_names_cannot_be_markup() -> None:
    evil = "<b>x</b>"
    metrics = [
        Made(f"{evil}{each}", normal(each, SESSIONS, spread=0.01, drop=0.1, onset=CHANGE), components=[evil])
        for each in range(3)
    ]
    found = watched(metrics, software={CHANGE: {evil: evil}})
    assert "<b>" not in overview(found).chart
    assert "&lt;b&gt;" in overview(found).chart


def test_parts_that_all_names_share_are_left_out() -> None:
    found = watched([Made("m", [1.0]), Made("m", [1.0], test="Other")])
    assert short_names(found.series.keys) == ("Other m", "PingPong %transport=ccl m")
    assert short_names(found.series.keys[:1]) == ("m",)
