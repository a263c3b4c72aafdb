from __future__ import annotations

import numpy as np
import pytest

from fabricheck.statistics.robust import centre_and_spread, of_the_others


@pytest.mark.parametrize("number", [8, 20, 64])
def test_centre_and_spread_of_the_others_are_nearly_those_of_the_values_without_one(number: int) -> None:
    for values in 6 + 0.01 * np.random.default_rng(number).standard_normal((20, number)):
        others = of_the_others(values)
        wanted = [centre_and_spread(np.delete(values, place)) for place in range(number)]
        spread = np.array([each.spread for each in wanted])
        # They are cut off where all are.
        np.testing.assert_allclose(others.centre, [each.centre for each in wanted], atol=0.01 / number)
        np.testing.assert_allclose(others.spread, spread, rtol=3 / number)
        np.testing.assert_array_equal(others.count, [each.count for each in wanted])


def test_equal_values_have_no_spread() -> None:
    assert of_the_others(np.full(8, 5.0)).spread.tolist() == [0.0] * 8
    alike = of_the_others(np.eye(8)[0])
    assert (alike.spread[0], alike.centre[0]) == (0.0, 0.0)
