from __future__ import annotations

import polars as pl
import pytest

from fabricheck.errors import UserError
from fabricheck.history.select import select_runs
from fabricheck.history.series import check_history, series_of
from tests.support.histories import NOW, START, Made, history, normal

TWO = [Made("a_goodput", [1.0, 2.0, 3.0]), Made("b_latency", [9.0, None, 7.0], better="lower", unit="us")]


def refused(frame: pl.DataFrame, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        check_history(frame, now=NOW)
    assert len(str(error.value).splitlines()) == 1


def test_a_series_is_metrics_by_sessions() -> None:
    series = series_of(check_history(history(TWO), now=NOW))
    assert [key.metric for key in series.keys] == ["a_goodput", "b_latency"]
    assert series.values[0].tolist() == [1, 2, 3]
    assert series.values[1][[0, 2]].tolist() == [9, 7]
    assert str(series.sessions[0]) == "2026-01-01 02:00 (s000)"
    # More is worse for the one, less for the other.
    assert series.worse[0, 2] < series.worse[0, 0]
    assert series.worse[1, 2] < series.worse[1, 0]


def test_several_runs_of_a_session_count_as_one_session() -> None:
    frame = history([Made("a", [1.0, 3.0, 8.0])]).with_columns(session=pl.lit("one"))
    assert series_of(check_history(frame, now=NOW)).values.tolist() == [[3.0]]


def test_what_is_no_measurement_is_left_out() -> None:
    bad = [Made("b", [0.0, float("nan")], verdict="INVALID"), Made("c", [1.0], verdict="INCOMPLETE")]
    assert check_history(history([Made("a", [1.0, 1.0]), *bad]), now=NOW)["metric"].unique().to_list() == ["a"]


def test_a_history_that_is_not_right_is_refused() -> None:
    good = history(TWO)
    refused(
        good.with_columns(unit=pl.Series(["Gb/s", "us", "GB/s", "Gb/s", "us"])),
        "has unit Gb/s, and GB/s since session s001",
    )
    refused(good.with_columns(value=pl.lit(0.0)), "0.0 in run r000-.* is not a measurement")
    refused(good.with_columns(value=pl.lit(float("inf"))), "is not a measurement")
    with pytest.raises(UserError, match="in the future"):
        check_history(good, now=START)


def test_a_selection() -> None:
    frame = history([Made("a", normal(1, 40))], software={20: {"nccl": "2.29.1"}}, tags={3: ["golden"]})

    def sessions(text: str) -> list[str]:
        return select_runs(frame, text)["session"].to_list()

    assert sessions("s004") == sessions("session:s004") == ["s004"]
    assert sessions("2026-01-02..2026-01-03") == ["s001", "s002"]
    assert len(sessions("..2026-01-10")) == 10
    assert sessions("2026-02-08..") == ["s038", "s039"]
    assert sessions("tag:golden") == ["s003"]
    assert len(sessions("software:nccl=2.29.1")) == len(sessions("software:NCCL=2.29.1")) == 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "no session 'nothing' in the history: give a session, FROM..TO"),
        ("", "no session ''"),
        ("s00", "10 sessions begin with 's00', s000 and s001"),
        ("2027-01-01..", "no 2027-01-01..: the history is from 2026-01-01 to 2026-02-09"),
        ("yesterday..", "'yesterday' is not a date"),
        ("tag:x", "no run with the tag 'x'"),
        ("software:nccl", "is not software:NAME=VERSION"),
        ("software:nccl=1", "no run with nccl '1' in the history: the latest are 2.28.3"),
        ("software:rccl=1", "no run has the software 'rccl': the history has .*nccl"),
    ],
)
def test_a_selection_of_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        select_runs(history([Made("a", normal(1, 40))]), text)
