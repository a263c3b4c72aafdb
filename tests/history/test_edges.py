"""The least and the most that calibrate, compare and watch can be given: each has one line, and none a traceback."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fabricheck.errors import UserError
from fabricheck.history import calibrate as calibrating
from fabricheck.history.calibrate import calibrate
from fabricheck.history.compare import compare
from fabricheck.history.memory_needed import check_memory
from fabricheck.history.monitor import monitor
from fabricheck.history.reading import count_values
from fabricheck.history.text import calibration_lines, comparison_lines, watch_lines
from fabricheck.history.watch import watch
from fabricheck.history.writing import append
from tests.support.histories import NOW, SYSTEM, Made, history, normal
from tests.support.sessions import NOW as STORED
from tests.support.sessions import make_suite, result_file, session_of

METRIC = "pingpong_uncontended_0_1_1gib_goodput"
LAST = "2026-02-06..2026-02-10"


def calibrated(frame: pl.DataFrame) -> str:
    return "\n".join(calibration_lines(calibrate(frame, SYSTEM, now=NOW)))


def compared(frame: pl.DataFrame) -> str:
    return "\n".join(comparison_lines(compare(frame, SYSTEM, "..2026-02-05", LAST, now=NOW)))


def watched(frame: pl.DataFrame) -> str:
    return "\n".join(watch_lines(watch(frame, SYSTEM, now=NOW)))


ONE_SESSION = [Made(METRIC, [400.0])]
ONE_METRIC = [Made(METRIC, normal(1, 40))]
ALL_EQUAL = [Made(METRIC, [400.0] * 40), Made("latency", [20.0] * 40, better="lower", unit="us")]
NOT_A_NUMBER = [Made(METRIC, [*normal(1, 39), float("nan")])]


@pytest.mark.parametrize(
    ("made", "command", "said"),
    [
        (ONE_SESSION, calibrated, METRIC + ": not enough runs for a useful limit: 7 more"),
        (ONE_SESSION, compared, "no 2026-02-06..2026-02-10: the history is from 2026-01-01 to 2026-01-01"),
        (ONE_SESSION, watched, "alerts start after 25 sessions of a metric: needs 24 more"),
        (ONE_METRIC, calibrated, "1 references from 40 runs"),
        (ONE_METRIC, compared, "1 metrics: 0 regressed, 0 cannot say, 1 same"),
        (ONE_METRIC, watched, "1 metrics: 1 watched"),
        (ALL_EQUAL, calibrated, "400 Gb/s, -0.39% to +0.40%"),
        (ALL_EQUAL, compared, "2 metrics: 0 regressed, 0 cannot say, 2 same"),
        (ALL_EQUAL, watched, "2 metrics: 2 watched"),
        (NOT_A_NUMBER, calibrated, f"{METRIC}: nan in run r039-PingPong %transport=ccl is not a measurement: move"),
        (NOT_A_NUMBER, compared, "is not a measurement: move its session ("),
        (NOT_A_NUMBER, watched, "is not a measurement: move its session ("),
    ],
)
def test_little_and_broken_histories(made: list[Made], command: Callable[[pl.DataFrame], str], said: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            text = command(history(made))
        except UserError as error:
            text = str(error)
            assert "\n" not in text
    assert said in text


def test_a_quiet_metric_that_loses_something_is_found() -> None:
    step = [Made(METRIC, [400.0] * 35 + [390.0] * 5)]
    assert "1 regressed" in compared(history(step))
    assert "400 -> 390 Gb/s, -2.5%" in watched(history(step))


def test_more_metrics_than_a_file_of_references_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrating, "MOST_METRICS", 1)
    with pytest.raises(UserError, match=r"2 metrics of sim are more than a file of references holds \(1\): select"):
        calibrated(history(ALL_EQUAL))


def test_more_values_than_memory_holds_are_refused_before_they_are_read(tmp_path: Path) -> None:
    facts = tmp_path / "meminfo"
    facts.write_text("MemTotal:        8000000 kB\nMemAvailable:    4000000 kB\n")
    check_memory(40, 1_900_000, SYSTEM, facts)
    with pytest.raises(UserError, match=r"10,000,000 values, which need about 19\.2 GB of memory, and 4\.1 GB"):
        check_memory(40, 10_000_000, SYSTEM, facts)
    check_memory(40, 10_000_000, SYSTEM, tmp_path / "none")  # another kernel: nobody knows
    facts.write_text("MemAvailable:    500000 kB\n")
    check_memory(40, 36_500, SYSTEM, facts)
    with pytest.raises(UserError, match=r"36,500 values, which need about 0\.6 GB"):  # 0.49 GB were measured
        check_memory(1000, 36_500, SYSTEM, facts)
    root, store = make_suite(tmp_path / "suite"), tmp_path / "store"
    for night in range(2):
        append(store, session_of(root, night, [result_file(root, night)]), STORED)
    assert count_values(store, "local") == (2, 4)


def one_outlier(number: int) -> list[float | None]:
    values: list[float | None] = [*normal(number, 8, spread=0.002)]
    return [*values[:3], 0.5 * (values[3] or 0.0), *values[4:]]


ODD = {
    "one session": [Made(f"m{each}", [400.0]) for each in range(12)],
    "constant": [Made(f"m{each}", [400.0] * 30) for each in range(12)],
    "constant, of one kind": [
        Made(f"pingpong_uncontended_0_{each}_1gib_goodput", [400.0] * 30) for each in range(1, 13)
    ],
    "alike, of one kind": [Made(f"pingpong_uncontended_0_{each}_1gib_goodput", normal(1, 30)) for each in range(1, 13)],
    "half of the history is missing": [
        Made(f"m{each}", [value if (number + each) % 2 else None for number, value in enumerate(normal(each, 40))])
        for each in range(12)
    ],
    "a size that changes": [
        Made(f"m{each}_{size}_goodput", [*gap[:half], *normal(each, 20), *gap[half:]])
        for each in range(6)
        for size, half in (("1gib", 0), ("2gib", 20))
        for gap in [[None] * 20]
    ],
    "eight sessions with one outlier": [Made(f"m{each}", one_outlier(each)) for each in range(12)],
}


@pytest.mark.parametrize("name", ODD)
def test_odd_histories_come_to_a_result(name: str) -> None:
    made = history(ODD[name])
    found = calibrate(made, SYSTEM, now=NOW)
    assert len(found.references) + len(found.refused) == 12
    seen = watch(made, SYSTEM, now=NOW)
    assert (seen.incidents, len(seen.states)) == ((), 12)
    if name != "one session":
        compared_metrics = compare(made, SYSTEM, "..2026-01-04", "2026-01-05..", now=NOW)
        assert len(compared_metrics.metrics) + len(compared_metrics.new) == 12


@pytest.mark.parametrize("constant", [True, False])
def test_a_loss_of_all_of_few_metrics_is_found_right_after_the_warm_up(constant: bool) -> None:
    values = 0.005 * np.random.default_rng(0).standard_normal((30, 40)) * (not constant)
    values[:, 30:] += 0.1
    alerts = monitor(values).alerts
    assert len({each.metric for each in alerts}) >= 28
    assert all(each.session <= 36 for each in alerts)
