"""Who waits for calibrate, compare or watch is told how far they are, from ten seconds on."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import polars as pl
import pytest

from fabricheck.history.calibrate import calibrate
from fabricheck.history.compare import compare
from fabricheck.history.watch import watch
from fabricheck.waiting import PROGRESS_S, listening, steps
from tests.support.histories import NOW, SYSTEM, Made, history, normal


def clock(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    """Each look at the clock is so many seconds after the one before."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: step * next(ticks))


def test_steps_are_told_each_ten_seconds_with_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, 4.0)
    lines: list[str] = []
    with listening(lines.append):
        for _ in steps(range(9), 9, "outer"):
            for _ in steps(range(9), 9, "inner"):
                pass
    # The work began at 0 s and the steps at 4 s; they are looked at 8, 12, ... 40 s.
    assert lines == ["outer: 1 of 9, 64 s left", "outer: 4 of 9, 25 s left", "outer: 7 of 9, 9 s left"]
    assert list(steps([1, 2], 2, "told to nobody")) == [1, 2]
    assert len(lines) == 3


@pytest.mark.parametrize(
    "command",
    [
        lambda frame: calibrate(frame, SYSTEM, now=NOW),
        lambda frame: compare(frame, SYSTEM, "..2026-01-20", "2026-01-21..", now=NOW),
        lambda frame: watch(frame, SYSTEM, now=NOW),
    ],
    ids=["calibrate", "compare", "watch"],
)
@pytest.mark.parametrize("is_slow", [True, False])
def test_a_command_that_takes_long_says_so_and_another_is_quiet(
    monkeypatch: pytest.MonkeyPatch, command: Callable[[pl.DataFrame], object], is_slow: bool
) -> None:
    frame = history([Made(f"m{number}", normal(number, 30)) for number in range(10)])
    clock(monkeypatch, PROGRESS_S if is_slow else 1e-6)
    monkeypatch.setattr("fabricheck.statistics.rows.AT_ONCE", 4)
    lines: list[str] = []
    with listening(lines.append):
        command(frame)
    assert bool(lines) is is_slow
