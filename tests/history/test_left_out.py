"""A base with a past incident gives what it gives without it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from benchmarks.noise import ALL, SHAPES, Shape
from fabricheck.history.calibrate import calibrate
from fabricheck.history.compare import ChangeVerdict, compare
from fabricheck.history.left_out import without_incidents
from tests.support.effort import is_full
from tests.support.histories import NOW, SYSTEM, Made, history

Floats = npt.NDArray[np.float64]

METRICS, AFTER, SPREAD = 24, 12, 0.005


def values_of(shape: Shape, seed: int, sessions: int) -> Floats:
    return np.asarray(400 * np.exp(-SPREAD * shape.make(np.random.default_rng(seed), METRICS, sessions)))


def made(values: Floats, base: int) -> pl.DataFrame:
    """The history of `values`, (metrics, sessions), whose first sessions are the base; NaN was not measured."""
    metrics = [Made(f"m{row:02}", [None if np.isnan(each) else each for each in own]) for row, own in enumerate(values)]
    return history(metrics, tags={number: ["base" if number < base else "new"] for number in range(values.shape[1])})


def references(values: Floats, base: int) -> dict[str, tuple[float, float]]:
    found = calibrate(made(values[:, :base], base), SYSTEM, now=NOW)
    return {each.key.metric: (each.value, np.log1p(each.lower)) for each in found.references}


def regressed(values: Floats, base: int) -> set[str]:
    found = compare(made(values, base), SYSTEM, "tag:base", "tag:new", now=NOW)
    return {each.key.metric for each in found.metrics if each.verdict is ChangeVerdict.REGRESSED}


def with_incident(values: Floats, hit: int, first: int, sessions: int) -> tuple[Floats, Floats]:
    """Values with so many sessions at -26%, and the same without these sessions; of the first `hit` metrics."""
    place = slice(first, first + sessions)
    worse, without = values.copy(), values.copy()
    worse[:hit, place] *= 0.74
    without[: METRICS if 2 * hit > METRICS else hit, place] = np.nan
    return worse, without


@pytest.mark.parametrize("sessions", [12, 60, pytest.param(100, marks=pytest.mark.full)])
@pytest.mark.parametrize(("hit", "lasts"), [(METRICS, 4), (METRICS // 3, 4), (METRICS, 1)])
def test_a_base_with_an_incident_gives_what_it_gives_without(sessions: int, hit: int, lasts: int) -> None:
    for seed, shape in enumerate(SHAPES[:: 1 if is_full() else 3]):
        rng = np.random.default_rng(seed + sessions)
        values = values_of(shape, seed, sessions + AFTER)
        values[: METRICS // 4, sessions:] *= 0.97
        worse, without = with_incident(values, hit, int(rng.integers(sessions - 3)), lasts)
        kept, expected = references(worse, sessions), references(without, sessions)
        assert kept.keys() == expected.keys(), shape.name
        ratios = np.array([kept[name] for name in kept]) / np.array([expected[name] for name in kept])
        assert np.median(ratios, axis=0) == pytest.approx([1, 1], rel=0.1), shape.name
        assert regressed(worse, sessions) == regressed(without, sessions), shape.name


@pytest.mark.parametrize("sessions", [8, 12, 60, 365])
def test_a_healthy_history_loses_one_session_in_a_hundred_at_most(sessions: int) -> None:
    for seed, shape in enumerate(ALL):
        frame = made(values_of(shape, seed, sessions), sessions)
        kept, _ = without_incidents(frame)
        assert frame.height - kept.height <= 0.01 * frame.height + 2, shape.name
