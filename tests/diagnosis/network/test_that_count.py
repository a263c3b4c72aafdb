"""Which suspects count: by the policy, alike for the judge and for a screen that measures them again."""

from __future__ import annotations

import numpy as np
import pytest

from fabricheck.diagnosis.network.judge import counted_suspects
from fabricheck.diagnosis.network.localize import locate
from fabricheck.diagnosis.network.plan import screen
from fabricheck.diagnosis.network.routes import Ways, design
from fabricheck.judge.policy import Policy
from fabricheck_lab.simulated_network import Fault, fat_tree, healthy_share, measure, taken

NETWORK = fat_tree(32, 4, 2, trunk_gbps=400.0)
WAYS = Ways(NETWORK)
PAIRS = screen(WAYS, NETWORK.nodes, 8).pairs
SCREEN = design(WAYS, PAIRS)
POLICY = Policy(smallest_loss=0.15, smallest_loss_of_distance=0.25)


@pytest.mark.parametrize(("loss", "counts"), [(0.08, False), (0.3, True)])
def test_a_loss_counts_from_the_policys_on(loss: float, counts: bool) -> None:
    random = np.random.default_rng(3)
    faults = (Fault(NETWORK.nodes[3], loss),)
    found = locate(SCREEN, measure(SCREEN, healthy_share(SCREEN, faults, taken(SCREEN, random)), 0.02, random))
    assert len(found.suspects) == 1
    assert counted_suspects(found, SCREEN, POLICY) == (found.suspects if counts else ())
