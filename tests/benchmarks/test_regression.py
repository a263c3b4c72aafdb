"""The oracle beside watch: where its power can be calculated by hand, that is what it gives."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.noise import SHAPES
from benchmarks.regression import CORRELATIONS, GAUSSIAN, oracle, steps_of_innovations, steps_of_values

KNOWN = {each.name: each for each in SHAPES}


def test_the_steps_of_the_oracle_are_the_log_likelihood_ratio_of_gaussian_noise() -> None:
    values = np.array([[-1.0, 0.0, 1.5, 2.5]])
    first, later = steps_of_values(GAUSSIAN, np.random.default_rng(1), 2.0, 142)(values)
    expected = 2 * (values - 1)
    # Its table has bins of a tenth of the spread, whose edges are up to that far away.
    np.testing.assert_allclose(first, expected, atol=0.35)
    np.testing.assert_array_equal(first, later)


def test_what_is_missing_says_nothing_to_the_oracle() -> None:
    first, later = steps_of_values(KNOWN["skewed"], np.random.default_rng(1), 2.0, 20)(np.array([[np.nan, 3.0]]))
    assert first[0, 0] == later[0, 0] == 0 != first[0, 1]


@pytest.mark.parametrize("correlation", [0.5, 0.98])
def test_the_first_session_of_a_loss_stands_out_of_correlated_neighbours_and_the_next_ones_less(
    correlation: float,
) -> None:
    """By the normal densities of the process with and without the loss, from its second session on."""
    loss, before, values = 3.0, 0.4, np.array([2.9, 3.3])

    def log_density(sessions: np.ndarray, levels: np.ndarray) -> float:
        left = np.diff(sessions - levels, prepend=np.nan)[1:] + (1 - correlation) * (sessions - levels)[:-1]
        return float(-(left**2).sum() / (2 * (1 - correlation**2)))

    sessions = np.array([before, *values])
    expected = log_density(sessions, np.array([0, loss, loss])) - log_density(sessions, np.zeros(3))
    first, later = steps_of_innovations(correlation, loss)(sessions[None])
    assert first[0, 1] + later[0, 2] == pytest.approx(expected)


@pytest.mark.parametrize(("name", "loss", "least", "most"), [
    # At one false alarm in 30,000 one session alone has to be 3.99 spreads out, which one of three is in 67%; the mean
    # of three, where the night of the loss is known, is in 98%.
    ("Gaussian", 3.5, 0.67, 0.99),
    # What is never below -1 is never below 2.5 after the loss, and three such sessions are rare by chance.
    ("skewed", 3.5, 0.99, 1),
    # One session of a process whose neighbours are so close differs from the last by a fifth of its spread.
    ("AR 0.98", 2.0, 0.99, 1),
    ("Gaussian", 0.5, 0, 0.02),
])  # fmt: skip
def test_the_oracle_finds_what_can_be_found(name: str, loss: float, least: float, most: float) -> None:
    assert least <= oracle(KNOWN[name], np.random.default_rng(1), loss) <= most


def test_the_oracle_knows_the_correlations_of_the_shapes_that_have_any() -> None:
    for name, correlation in CORRELATIONS.items():
        made = KNOWN[name].make(np.random.default_rng(1), 200, 400)
        fitted = np.sum(made[:, 1:] * made[:, :-1]) / np.sum(made[:, :-1] ** 2)
        assert fitted == pytest.approx(correlation, abs=0.01)
