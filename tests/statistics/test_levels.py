"""Levels that wander, and those that only seem to."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.noise import SHAPES, Floats, autocorrelated
from fabricheck.history.calibrate import calibrate
from fabricheck.statistics.levels import TRIED, Autocorrelation, persistence_of, restricted, whitened
from tests.support.histories import NOW, SYSTEM, Made, history

SETTLED = [shape for shape in SHAPES if shape.name != "AR 0.98"]


def walk(rng: np.random.Generator, metrics: int, sessions: int) -> Floats:
    return np.asarray(np.cumsum(rng.standard_normal((metrics, sessions)), axis=1))


@pytest.mark.parametrize("sessions", [8, 20, 40])
@pytest.mark.parametrize("shape", SETTLED, ids=lambda shape: shape.name)
def test_what_settles_is_not_said_to_wander(shape: object, sessions: int) -> None:
    for seed in range(20):
        values = 0.02 * shape.make(np.random.default_rng(seed), 56, sessions)  # type: ignore[attr-defined]
        assert not persistence_of(values).wanders


@pytest.mark.parametrize("make", [walk, autocorrelated(0.98)])
def test_a_level_that_wanders_is_told_by_its_kind_and_by_how_much(make: object) -> None:
    found = [persistence_of(0.02 * make(np.random.default_rng(seed), 56, 20)) for seed in range(20)]  # type: ignore[operator]
    assert sum(each.wanders for each in found) >= 19


@pytest.mark.parametrize("sessions", [20, 40])
def test_noise_of_launches_does_not_hide_a_level_that_wanders(sessions: int) -> None:
    rngs = [np.random.default_rng(seed) for seed in range(20)]
    found = [persistence_of(0.02 * (walk(rng, 56, sessions) + rng.standard_normal((56, sessions)))) for rng in rngs]
    assert sum(each.wanders for each in found) >= 19


def test_correlated_neighbours_make_bounds_as_wide_as_sessions_to_come_will_stray() -> None:
    values = autocorrelated(0.5)(np.random.default_rng(1), 2000, 21)
    found = persistence_of(values[:, :20])
    assert found.correlation == pytest.approx(0.5, abs=0.05)  # those that are tried are 0.29, 0.46 and 0.61
    seen = values[:, :20]
    stray = np.std(values[:, 20] - seen.mean(axis=1))
    # The next session is still like the last; those far on stray by more.
    assert 0.9 * stray / seen.std(axis=1, ddof=1).mean() < found.widening * np.sqrt(1 + 1 / 20) < 1.3 * stray
    assert persistence_of(np.random.default_rng(2).standard_normal((2000, 20))).widening == pytest.approx(1, abs=0.01)


def test_what_metrics_have_in_common_is_told_once() -> None:
    level = np.cumsum(np.random.default_rng(5).standard_normal((1, 8)), axis=1)
    found = persistence_of(0.02 * np.repeat(level, 56, axis=0))
    assert found.correlation < 0.9 * persistence_of(0.02 * walk(np.random.default_rng(5), 56, 8)).correlation


def test_what_sessions_have_in_common_is_taken_out() -> None:
    """Beside matrices of covariances, of sessions in two sides, of which some are missing."""
    rng = np.random.default_rng(6)
    when, there = np.arange(7), np.array([[True, True, False, True, True, False, True]])
    kept = there[0]
    common = Autocorrelation(np.array([0.8]), np.array([0.7]))
    covariance = 0.3 * np.eye(7) + 0.7 * 0.8 ** np.abs(np.subtract.outer(when, when))
    values = np.where(there, rng.standard_normal((1, 7)), 0.0)
    white = np.linalg.solve(np.linalg.cholesky(covariance[np.ix_(kept, kept)]), values[0, kept])
    made = np.ravel([each for (each,), _ in whitened([values], there, common)])
    np.testing.assert_allclose(made[kept], white)
    sides = [there * np.array(first) for first in ([1.0, 1, 1, 1, 1, 1, 1], [0.0, 0, 0, 1, 1, 1, 1])]
    fitted = restricted(values, sides, there)
    x = np.vstack(sides).T
    for place in (0, 7, 40):
        of = np.where(
            np.eye(7), 1.0, TRIED.share[place] * TRIED.of_levels[place] ** np.abs(np.subtract.outer(when, when))
        )
        inverse = np.linalg.inv(of[np.ix_(kept, kept)])
        moment = x[kept].T @ inverse @ x[kept]
        means = np.linalg.solve(moment, x[kept].T @ inverse @ values[0, kept])
        rest = values[0, kept] - x[kept] @ means
        assert fitted.squares[place, 0] == pytest.approx(rest @ inverse @ rest)
        assert (fitted.last[place, 0], fitted.variance[place, 0]) == pytest.approx(
            (means[1], np.linalg.inv(moment)[1, 1])
        )
        assert fitted.determinant[place, 0] == pytest.approx(
            np.linalg.slogdet(moment)[1] - np.linalg.slogdet(inverse)[1]
        )


@pytest.mark.parametrize("values", [np.zeros((5, 20)), np.full((3, 20), np.nan), np.zeros((0, 0)), np.ones((4, 5))])
def test_values_that_say_nothing_make_nothing_wider(values: Floats) -> None:
    found = persistence_of(values)
    assert (found.wanders, found.correlation) == (False, 0.0)


def test_calibrate_refuses_what_wanders_and_says_by_how_much_and_what_to_do() -> None:
    rng = np.random.default_rng(3)
    pairs = [f"pingpong_uncontended_{a}_{b}_1gib_goodput" for a in range(6) for b in range(6) if a != b]
    made = [Made(name, 400 * np.exp(0.01 * one)) for name, one in zip(pairs, walk(rng, len(pairs), 20), strict=True)]
    quiet = [
        Made(name.replace("goodput", "latency"), 20 * np.exp(0.01 * one), better="lower", unit="us")
        for name, one in zip(pairs, rng.standard_normal((len(pairs), 20)), strict=True)
    ]
    found = calibrate(history([*made, *quiet]), SYSTEM, now=NOW)
    assert {each.key.metric for each in found.refused} == set(pairs)
    assert len(found.references) == len(quiet)
    reason = found.refused[0].reason
    assert reason.startswith("its level wanders: 20 sessions vary by ") and "watch it" in reason
