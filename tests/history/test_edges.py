"""The least and the most that calibrate, compare and watch can be given: each has one line, and none a traceback."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fabricheck.errors import UserError
from fabricheck.history import calibrate as calibrating
from fabricheck.history.calibrate import calibrate
from fabricheck.history.compare import compare
from fabricheck.history.memory_needed import check_memory
from fabricheck.history.text import calibration_lines, comparison_lines, watch_lines
from fabricheck.history.watch import watch
from fabricheck.statistics.monitor import monitor
from fabricheck.store.reading import count_values
from fabricheck.store.writing import append
from tests.support.histories import NOW, SYSTEM, Made, history, normal
from tests.support.sessions import NOW as STORED
from tests.support.sessions import make_suite, result_file, session_of

METRIC = "pingpong_uncontended_0_1_1gib_goodput"
ALL_EQUAL = [Made(METRIC, [400.0] * 40), Made("latency", [20.0] * 40, better="lower", unit="us")]


def test_more_metrics_than_a_file_of_references_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrating, "MOST_METRICS", 1)
    with pytest.raises(UserError, match=r"2 metrics of sim are more than a file of references holds \(1\): select"):
        calibrate(history(ALL_EQUAL), SYSTEM, now=NOW)


def test_more_values_than_memory_holds_are_refused_before_they_are_read(tmp_path: Path) -> None:
    facts = tmp_path / "meminfo"
    facts.write_text("MemTotal:        8000000 kB\nMemAvailable:    4000000 kB\n")
    check_memory(3_000_000, SYSTEM, facts)
    with pytest.raises(UserError, match="10,000,000 values"):
        check_memory(10_000_000, SYSTEM, facts)
    check_memory(10_000_000, SYSTEM, tmp_path / "none")  # another kernel: nobody knows
    root, store = make_suite(tmp_path / "suite"), tmp_path / "store"
    for night in range(2):
        append(store, session_of(root, night, [result_file(root, night)]), STORED)
    assert count_values(store, "local") == 4


def one_outlier(number: int) -> list[float | None]:
    values: list[float | None] = [*normal(number, 8, spread=0.002)]
    return [*values[:3], 0.5 * (values[3] or 0.0), *values[4:]]


ODD = {
    "one metric": [Made(METRIC, normal(1, 40))],
    "a goodput and a latency that are constant": ALL_EQUAL,
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
        Made(f"m{each}_{size}_goodput", [*[None] * half, *normal(each, 20), *[None] * (20 - half)])
        for each in range(6)
        for size, half in (("1gib", 0), ("2gib", 20))
    ],
    "eight sessions with one outlier": [Made(f"m{each}", one_outlier(each)) for each in range(12)],
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ODD)
def test_odd_histories_come_to_a_result_that_can_be_printed(name: str) -> None:
    made = history(ODD[name])
    metrics = made["metric"].n_unique()
    found = calibrate(made, SYSTEM, now=NOW)
    assert len(found.references) + len(found.refused) == metrics
    seen = watch(made, SYSTEM, now=NOW)
    assert (seen.incidents, len(seen.states)) == ((), metrics)
    assert [*calibration_lines(found)] and [*watch_lines(seen)]
    if name != "one session":
        both = compare(made, SYSTEM, "..2026-01-04", "2026-01-05..", now=NOW)
        assert len(both.metrics) + len(both.new) == metrics
        assert [*comparison_lines(both)]


@pytest.mark.parametrize("constant", [True, False])
def test_a_loss_of_all_of_few_metrics_is_found_right_after_the_warm_up(constant: bool) -> None:
    values = 0.005 * np.random.default_rng(0).standard_normal((30, 40)) * (not constant)
    values[:, 30:] += 0.1
    alerts = monitor(values).alerts
    assert len({each.metric for each in alerts}) >= 28
    assert all(each.session <= 36 for each in alerts)
