"""The history in figures and tables: a planted change is at its session, and nothing is shown as more than it is."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest

from fabricheck.history.accepted import Accepted
from fabricheck.report.figures.history import incident_figure, overview, short_names, states_table
from tests.report.test_figures import plot, rows_of
from tests.support.histories import Made, normal
from tests.support.pasts import CHANGE, SESSIONS, UPGRADE, pair_metrics, watched

MOMENT = "2026-04-11 02:00"  # of session s100


def test_a_planted_change_shows_at_its_session() -> None:
    found = watched(pair_metrics(), software=UPGRADE)
    (incident,) = found.result.open_incidents
    figure = incident_figure(found, incident)
    assert figure.title.startswith("n2:nic0 or n2 (open)")
    assert "since 2026-04-11 02:00 (s100)" in figure.summary
    assert "last good 2026-04-10 02:00 (s099)".lower() in figure.summary.lower()
    assert "software that changed then: nccl: 2.28.3 -> 2.29.1" in figure.summary
    content = plot(figure)
    lines = {each["name"]: each for each in content["data"]}
    assert lines[f"change {MOMENT}"]["x"] == [MOMENT] * 3
    raised = incident.raised.started.strftime("%Y-%m-%d %H:%M")
    assert lines[f"alert raised {raised}"]["x"][0] == raised >= MOMENT
    # Six metrics, told by their ranks; each is at 100 before and at 90 since.
    named = [name for name in lines if name[0].isdigit()]
    assert sorted(named) == ["0_2", "1_2", "2_0", "2_1", "2_3", "3_2"]
    for name in named:
        values = dict(zip(lines[name]["x"], lines[name]["y"], strict=True))
        before = [value for moment, value in values.items() if moment < MOMENT]
        after = [value for moment, value in values.items() if moment >= MOMENT]
        assert np.median(before) == pytest.approx(100, abs=0.5)
        assert np.median(after) == pytest.approx(90, abs=1.5)
    assert any(name.startswith("baseline ± ") for name in lines)
    # The software is a labelled line at the same session.
    (line,) = content["layout"]["shapes"]
    (label,) = content["layout"]["annotations"]
    assert line["x0"] == line["x1"] == label["x"] == MOMENT
    assert label["text"] == "nccl 2.29.1"
    row = next(each for each in rows_of(figure) if "(s100)" in each[0])
    assert row[-1].startswith("first bad")
    assert "changed: nccl: 2.28.3 -> 2.29.1" in row[-1]
    # So large a loss is an alert on its first session, whose row says both.
    assert "alert raised" in next(each for each in rows_of(figure) if str(incident.raised) == each[0])[-1]


def test_a_latency_that_rises_goes_down_like_a_goodput_that_falls() -> None:
    slower = [1e4 / each for each in normal(1, SESSIONS, spread=0.01, drop=0.1, onset=CHANGE)]
    found = watched([Made("up_8b_latency", slower, better="lower", unit="us")])
    (incident,) = found.result.open_incidents
    (line,) = [each for each in plot(incident_figure(found, incident))["data"] if each["name"] == "up_8b_latency"]
    assert line["y"][-1] == pytest.approx(90, abs=3)
    assert "(+1" in incident_figure(found, incident).summary  # the latency itself rose


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
    content = plot(figure)
    lines = [each for each in content["data"] if "yaxis" not in each]
    assert [each["name"] for each in lines] == ["median of all metrics", "worst decile", "worst"]
    assert [each["text"] for each in content["layout"]["annotations"]] == ["nccl 2.29.1"]
    assert "Software changed in 1 session" in figure.summary


def test_the_versions_of_software_are_bars_under_the_curves() -> None:
    software = {60: {"a": "1", "firmware mlx5_0": "28.1"}, 90: {"a": "1", "firmware mlx5_0": "28.2"}}
    found = watched(pair_metrics(slow=None), software=software)
    content = plot(overview(found))
    bars = [each for each in content["data"] if each.get("yaxis") == "y2"]
    moments = [each.started.strftime("%Y-%m-%d %H:%M") for each in found.series.sessions]
    of_firmware = [(each["text"][0], *each["x"]) for each in bars if each["y"][0] == "firmware mlx5_0"]
    assert of_firmware == [("28.1", moments[60], moments[90]), ("28.2", moments[90], moments[-1])]
    assert {each["y"][0] for each in bars} == {"firmware mlx5_0"}
    assert content["layout"]["yaxis"]["domain"][0] > content["layout"]["yaxis2"]["domain"][1]


def test_labels_of_neighbouring_changes_are_one() -> None:
    software = {60: {"a": "1", "nccl": "2.28.3"}, 61: {"a": "2", "nccl": "2.28.3"}, 90: {"a": "3", "nccl": "2.28.3"}}
    content = plot(overview(watched(pair_metrics(slow=None), software=software)))
    assert len(content["layout"]["shapes"]) == 3
    assert [each["text"] for each in content["layout"]["annotations"]] == ["a 1 (+1)", "a 3"]


def test_a_long_history_is_cut_and_says_so() -> None:
    figure = overview(watched([Made("m", normal(1, 450)), Made("n", [*normal(2, 20), *[None] * 430])]))
    assert len(rows_of(figure)) == 400
    assert "the 50 sessions before them are not shown" in figure.summary
    # A metric that was not measured lately is not counted.
    assert rows_of(figure)[-1][1] == "1"


def test_a_closed_page_says_how_it_ended() -> None:
    values = normal(1, SESSIONS, spread=0.01)
    for session in range(60, 75):
        values[session] *= 0.8
    found = watched([Made("back", values)])
    (incident,) = found.result.incidents
    figure = incident_figure(found, incident)
    assert figure.title.startswith("gpu openmpi PingPong") and "(over)" in figure.title
    # It ends a month after it was over.
    assert len(rows_of(figure)) < SESSIONS - 2
    accepted = Accepted(since=date(2026, 4, 18), reason="seen")
    found = watched(pair_metrics(sessions=SESSIONS), accepted)
    assert "(accepted)" in incident_figure(found, found.result.incidents[0]).title


def test_states_are_sorted_by_what_needs_a_look() -> None:
    gone = Made("gone", [*normal(5, 60, spread=0.01), *[None] * (SESSIONS - 60)])
    young = Made("young", [*[None] * (SESSIONS - 10), *normal(6, 10)])
    table = states_table(watched([*pair_metrics(), gone, young]).result.states)
    rows = [tuple(cell.text for cell in row) for row in table.rows]
    statuses = [row[1] for row in rows]
    assert statuses == ["alert"] * 6 + ["missing", "warming up"] + ["watched"] * 6
    assert rows[6][0] == "gone" and rows[6][-1].startswith("2026-03-01")
    assert rows[7][5] == "-"
    watching = rows[-1]
    assert watching[3].endswith("Gb/s") and watching[4].endswith("%") and watching[5].endswith("%")


def test_many_states_are_counted() -> None:
    table = states_table(watched([Made(f"m{each}", normal(each, 5)) for each in range(70)]).result.states)
    assert len(table.rows) == 64
    assert table.note == "More rows, none worse: 6 metrics."
    assert {row[1].text for row in table.rows} == {"warming up"}


def test_one_session_is_a_history_too() -> None:
    found = watched([Made("m", [100.0]), Made("n", [50.0])])
    assert len(rows_of(overview(found))) == 1
    assert plot(overview(found))["data"]


def test_names_cannot_be_markup() -> None:
    evil = "<b>x</b>"
    metrics = [
        Made(f"{evil}{each}", normal(each, SESSIONS, spread=0.01, drop=0.1, onset=CHANGE), components=[evil])
        for each in range(3)
    ]
    found = watched(metrics, software={CHANGE: {evil: evil}})
    for figure in (overview(found), *(incident_figure(found, each) for each in found.result.incidents)):
        assert "<b>" not in figure.plot
        assert "&lt;b&gt;" in figure.plot


def test_parts_that_all_names_share_are_left_out() -> None:
    found = watched([Made("m", [1.0]), Made("m", [1.0], test="Other")])
    assert short_names(found.series.keys) == ("Other m", "PingPong %transport=ccl m")
    assert short_names(found.series.keys[:1]) == ("m",)
