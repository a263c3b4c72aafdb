"""The history in figures and tables: a planted change is at its session, and nothing is shown as more than it is."""

from __future__ import annotations

import pytest

from fabricheck.report.figures.history import overview
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
    assert "_2_" in after[5]
    assert [row[0] for row in rows if row[6]] == ["2026-04-11 02:00 (s100)"]
    assert [text for _, text in figure.chart.marks] == ["nccl: 2.28.3 -> 2.29.1"]


def test_the_versions_of_software_are_bars_under_the_curves() -> None:
    software = {60: {"a": "1", "firmware mlx5_0": "28.1"}, 90: {"a": "1", "firmware mlx5_0": "28.2"}}
    found = watched(pair_metrics(slow=None), software=software)
    sessions, bars = found.series.sessions, overview(found).chart.bars
    assert [bar.text for bar in bars] == [
        f"firmware mlx5_0 28.1: {sessions[60]} to {sessions[89]}",
        f"firmware mlx5_0 28.2: {sessions[90]} to {sessions[-1]}",
    ]
    assert bars[0].end == bars[1].begin


def test_a_long_history_is_cut_and_says_so() -> None:
    figure = overview(watched([Made("m", normal(1, 450)), Made("n", [*normal(2, 20), *[None] * 430])]))
    assert len(rows_of(figure)) == 400
    assert "50 earlier sessions" in figure.summary
    # A metric that was not measured lately is not counted.
    assert rows_of(figure)[-1][1] == "1"


def test_one_session_is_a_history_too() -> None:
    found = watched([Made("m", [100.0]), Made("n", [50.0])])
    assert len(rows_of(overview(found))) == 1
