"""Thresholds of CUSUM charts against the Markov chain of a chart, and against simulated ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import ndtr

from fabricheck.statistics.charts import _DEVIATIONS, _EDGES, CHARTS, Chart, shares_of_deviations
from fabricheck.statistics.constants import CLIP

Floats = npt.NDArray[np.float64]
NORMAL: Floats = np.diff(ndtr(_EDGES), prepend=0.0, append=1.0)


def with_dips(rate: float) -> Floats:
    return np.asarray((1 - rate) * NORMAL + rate * (_DEVIATIONS[-1] == _DEVIATIONS))


def with_modes(rate: float, width: float) -> Floats:
    """Two modes of equal width around 0 with a standard deviation of 1; a share `rate` is in the worse one."""
    depth = np.sqrt((1 - width**2) * (1 - rate) / rate)
    parts = ((1 - rate, -rate * depth / (1 - rate)), (rate, depth))
    below = np.sum([share * ndtr((_EDGES - mean) / width) for share, mean in parts], axis=0)
    return np.asarray(np.diff(below, prepend=0.0, append=1.0))


def false_alarm_rate(chart: Chart, shares: Floats, threshold: float) -> float:
    """Of a chart that has run for long, a session: what the largest eigenvalue of its Markov chain without its alerts
    is short of 1 (Brook and Evans, Biometrika 59, 1972). A grid of 0.2, the step between deviations."""
    step = float(_DEVIATIONS[1] - _DEVIATIONS[0])
    states = round(threshold / step) + 1
    moves = np.round((_DEVIATIONS - chart.allowance) / step).astype(int)
    chain = np.zeros((states, states))
    for move, share in zip(moves.tolist(), shares.tolist(), strict=True):
        after = np.maximum(np.arange(states) + move, 0)
        stays = np.flatnonzero(after < states)
        np.add.at(chain, (stays, after[stays]), share)
    return float(1 - np.abs(np.linalg.eigvals(chain)).max())


@pytest.mark.parametrize("chart", CHARTS)
@pytest.mark.parametrize(
    "shares",
    [NORMAL, *map(with_dips, (0.002, 0.01, 0.05, 0.1)), with_modes(0.07, 0.6), with_modes(0.15, 0.5)],
    ids=("normal", "dips 0.2%", "dips 1%", "dips 5%", "dips 10%", "modes 7%", "modes 15%"),
)
def test_false_alarms_are_as_rare_as_a_chart_has_to_have_them(chart: Chart, shares: Floats) -> None:
    """At most, and no rarer than is lost by a constant for all noise."""
    threshold = float(chart.thresholds(shares[None])[0])
    rate = false_alarm_rate(chart, shares, threshold) / chart.false_alarms_per_session
    assert 0.05 < rate < 1.35  # a step of the chain changes it by up to a third


def test_a_metric_that_dips_has_a_higher_threshold_than_its_quiet_peers() -> None:
    rng = np.random.default_rng(1)
    dipping = rng.standard_normal((100, 150)) + 6 * (rng.random((100, 150)) < 0.05)
    limits = CHARTS[0].thresholds(shares_of_deviations(np.concatenate([rng.standard_normal((200, 150)), dipping])))
    assert np.median(limits[200:]) > 1.2 * np.median(limits[:200])


def test_few_sessions_are_judged_by_what_peers_do() -> None:
    """Of a metric alone, by a tail that is heavier than a normal one."""
    quiet = np.random.default_rng(2).standard_normal((500, 20))
    among, alone = (CHARTS[0].thresholds(shares_of_deviations(values))[0] for values in (quiet, quiet[:1]))
    assert CLIP - CHARTS[0].allowance < among < alone


def test_sums_that_do_not_end_raise_no_alert() -> None:
    always_bad = np.where(_DEVIATIONS[-1] == _DEVIATIONS, 1.0, 0.0)[None]
    assert CHARTS[0].thresholds(always_bad)[0] == np.inf
