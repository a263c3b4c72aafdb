from __future__ import annotations

import numpy as np
import pytest

from fabricheck.history.robust import centre_and_spread, of_the_others


@pytest.mark.parametrize("number", [3, 4, 5, 8, 11, 20, 21, 64])
@pytest.mark.parametrize("kind", ["normal", "wild", "equal", "two modes"])
def test_centre_and_spread_of_the_others_are_those_of_the_values_without_one(number: int, kind: str) -> None:
    rng = np.random.default_rng(number)
    shape = (40, number)
    values = (
        6
        + 0.01
        * {
            "normal": rng.standard_normal(shape),
            "wild": rng.standard_t(1.5, shape),
            "equal": rng.integers(2, size=shape).astype(np.float64),
            "two modes": rng.standard_normal(shape) + 20 * (rng.random(shape) < 0.15),
        }[kind]
    )
    found = of_the_others(values)
    for place in range(number):
        wanted = centre_and_spread(np.delete(values, place, axis=-1))
        np.testing.assert_allclose(found.centre[:, place], wanted.centre, rtol=1e-9)
        np.testing.assert_allclose(found.spread[:, place], wanted.spread, rtol=1e-6, atol=1e-9)
        np.testing.assert_array_equal(found.count[:, place], wanted.count)
