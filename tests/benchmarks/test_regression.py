"""The oracle beside watch: where its power can be calculated by hand, that is what it gives."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.noise import SHAPES
from benchmarks.regression import CORRELATIONS, oracle

KNOWN = {each.name: each for each in SHAPES}


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
