"""Healthy sessions, simulated: how many stay DEGRADED after what was slow was launched again."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from benchmarks.launches import degraded
from fabricheck.session.launches import FALSE_ALARMS
from tests.support.effort import effort


@pytest.mark.parametrize(
    ("things", "broad", "slow"),
    [(28_672, 1, 32.0), (1008, 1, 2.0), (1008, 1, 10.0), (512, 56, 1.3), (2048, 14, 5.0)],
    ids=["pairs of a fleet", "metrics", "metrics with tails", "nodes of a fleet", "GPUs of a fleet"],
)
def test_healthy_sessions_keep_their_budget_whatever_is_slow_by_chance(things: int, broad: int, slow: float) -> None:
    """Of so many things each is slow in a launch now and then, `slow` of them on average; by two of three launches
    up to a quarter of such sessions would be DEGRADED."""
    sessions = effort(300)
    red = degraded(np.random.default_rng(things), things, broad, slow / things, sessions)
    assert binom.sf(red - 1, sessions, 2 * FALSE_ALARMS) > 1e-3
