"""The likelihood of faults, what one more would gain, and the fit of their losses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fabricheck.diagnosis.network.likelihood import Model, State, gain_of, p_value
from fabricheck.diagnosis.network.round_plan import screen
from fabricheck.diagnosis.network.routes import Design, FloatArray, design
from fabricheck_lab.simulated_network import Fault, KnownWays, fat_tree, healthy_share, measure

NETWORK = fat_tree(32, 4, 2, trunk_gbps=400.0)


def readings_of(faults: list[Fault], noise: float) -> tuple[Design, Model, FloatArray]:
    ways = KnownWays(NETWORK)
    made = design(ways, screen(ways, NETWORK.nodes, 8).pairs)
    share = healthy_share(made, faults, np.ones(made.probability.size))
    y = np.log(measure(made, share, noise, np.random.default_rng(1)) / made.expected_gbps)
    return made, Model(made), y


def hypothesis(made: Design, model: Model, name: str) -> int:
    return next(one for one, each in enumerate(model.members) if made.ways.position[name] in each)


@pytest.mark.parametrize("times", [0.5, 1.0, 1.5])
def test_a_fit_ends_at_the_losses_that_the_readings_have(times: float) -> None:
    """Pairs over both lose as much as over the worse one."""
    made, model, y = readings_of([Fault("leaf1", 0.06), Fault("nid00012", 0.12)], noise=0.01)
    faults = tuple(hypothesis(made, model, name) for name in ("leaf1", "nid00012"))
    state = model.fit(y, replace(model.null(y), faults=faults, losses=(0.06 * times, 0.12 * times)))
    assert -np.expm1(-np.array(state.losses)) == pytest.approx([0.06, 0.12], abs=0.01)
    assert np.exp(state.scale) == pytest.approx(0.96, abs=0.003)
    assert state.noise == pytest.approx(0.01, rel=0.15)
    assert state.likelihood == pytest.approx(model.likelihood(y, state))


def test_no_loss_near_those_of_a_fit_is_more_likely() -> None:
    made, model, y = readings_of([Fault("leaf1", 0.05), Fault("leaf2--spine0", 0.05)], noise=0.02)
    faults = tuple(hypothesis(made, model, name) for name in ("leaf1", "leaf2--spine0"))
    best = model.fit(y, replace(model.null(y), faults=faults, losses=(0.05, 0.05)))
    for step in (-0.004, 0.004):
        for losses in ((best.losses[0] + step, best.losses[1]), (best.losses[0], best.losses[1] + step)):
            assert model.likelihood(y, replace(best, losses=losses)) < best.likelihood


def test_the_scan_finds_the_gain_that_a_search_for_the_loss_finds() -> None:
    """Losses between those of its grid included."""
    made, model, y = readings_of([Fault("leaf2", 0.07)], noise=0.02)
    null = replace(model.null(y), scale=float(np.log(0.96)), noise=0.02)
    gains, losses = model.scan(y, null)
    for name in ("leaf2", "leaf2--spine1", "nid00020"):
        fault = hypothesis(made, model, name)
        grid = np.geomspace(0.01, 0.3, 400)
        exact = model.profile(y, null, fault, grid)
        assert gains[fault] == pytest.approx(exact.max(), rel=0.05, abs=0.2)
        assert losses[fault] == pytest.approx(grid[exact.argmax()], rel=0.08)


def test_a_gain_is_known_by_its_p_value() -> None:
    for p in (0.05, 0.01, 1e-4):
        assert p_value(gain_of(p, 250, 90), 250, 90) == pytest.approx(p)


def test_readings_that_are_all_outliers_end_the_fit() -> None:
    _, model, y = readings_of([], noise=0.01)
    state = State((), (), 30.0, 0.01, 1e-3)
    assert model.fit(y, state).scale == 30.0
