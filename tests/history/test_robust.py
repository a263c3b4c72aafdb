from __future__ import annotations

import numpy as np
import pytest

from fabricheck.history.robust import centre_and_spread, of_the_others


@pytest.mark.parametrize("number", [3, 4, 5, 8, 11, 20, 21, 64])
@pytest.mark.parametrize("kind", ["normal", "wild", "equal", "two modes", "but one"])
def test_centre_and_spread_of_the_others_are_those_of_the_values_without_one(number: int, kind: str) -> None:
    rng = np.random.default_rng(number)
    noise = {
        "normal": rng.standard_normal((20, number)),
        "wild": rng.standard_t(1.5, (20, number)),
        "equal": rng.integers(2, size=(20, number)),
        "two modes": rng.standard_normal((20, number)) + 20 * (rng.random((20, number)) < 0.15),
        "but one": np.eye(20, number),
    }[kind]
    for values in 6 + 0.01 * noise:
        others = of_the_others(values)
        wanted = [centre_and_spread(np.delete(values, place)) for place in range(number)]
        np.testing.assert_allclose(others.centre, [each.centre for each in wanted], rtol=1e-12)
        np.testing.assert_allclose(others.spread, [each.spread for each in wanted], rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(others.count, [each.count for each in wanted])
