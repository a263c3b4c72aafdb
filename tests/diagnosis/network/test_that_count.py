"""Which suspects count: by the policy, alike for the judge and for a screen that measures them again."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from fabricheck.diagnosis.network.localize import Localization, locate
from fabricheck.diagnosis.network.pair_findings import counted_suspects
from fabricheck.diagnosis.network.round_plan import screen
from fabricheck.diagnosis.network.routes import Design, Ways, design
from fabricheck.suite import suite_root
from fabricheck.yardsticks.policy import Policy, load_policy
from fabricheck_lab.simulated_network import (
    NOISES,
    Bench,
    Case,
    Fault,
    fat_tree,
    healthy_share,
    measure,
    names_of,
    taken,
)

NETWORK = fat_tree(32, 4, 2, trunk_gbps=400.0)
WAYS = Ways(NETWORK)
PAIRS = screen(WAYS, NETWORK.nodes, 8).pairs
SCREEN = design(WAYS, PAIRS)
POLICY = Policy(smallest_loss=0.15, smallest_loss_of_distance=0.25)
STANDARD = load_policy(suite_root() / "config" / "policy.yaml")


@pytest.mark.parametrize(("loss", "counts"), [(0.08, False), (0.3, True)])
def test_a_loss_counts_from_the_policys_on(loss: float, counts: bool) -> None:
    random = np.random.default_rng(3)
    faults = (Fault(NETWORK.nodes[3], loss),)
    found = locate(SCREEN, measure(SCREEN, healthy_share(SCREEN, faults, taken(SCREEN, random)), 0.02, random))
    assert len(found.suspects) == 1
    assert counted_suspects(found, SCREEN, POLICY) == (found.suspects if counts else ())


def measured(nodes: int, level: dict[frozenset[int], float]) -> tuple[Localization, Design]:
    """All pairs of nodes on one switch, each way and twice; those in `level` by the numbers of their nodes."""
    network = fat_tree(nodes, 1, 1)
    pairs = [pair for pair in permutations(range(nodes), 2) for _ in range(2)]
    made = design(Ways(network), [[(network.nodes[one], network.nodes[two])] for one, two in pairs], duplex=False)
    noise = 1 + 0.002 * np.random.default_rng(1).standard_normal(len(pairs))
    return locate(made, [83.3 * level.get(frozenset(pair), 1.0) for pair in pairs] * noise), made


@pytest.mark.parametrize("nodes", [4, 5])
def test_one_pair_a_little_faster_does_not_make_the_other_nodes_slow(nodes: int) -> None:
    """A healthy cluster gave 87.5 Mb/s both ways between two nodes and 83.3 elsewhere: headers of other lengths."""
    fast = {frozenset({0, 1}): 87.5 / 83.3}
    assert not counted_suspects(*measured(nodes, fast), STANDARD)
    slow = {frozenset({other, 3}): 0.75 for other in range(nodes)}
    (suspect,) = counted_suspects(*measured(nodes, fast | slow), STANDARD)
    assert NETWORK.nodes[3] in names_of(suspect)


def test_skewed_noise_accuses_no_trunk() -> None:
    """Where nobody knows the routes, the slow side of the noise may be the pairs that went over a slow trunk."""
    network = fat_tree(64, 8, 4, trunk_gbps=400.0)
    bench = Bench(Case("skewed", network, network.nodes, "unknown"), 0.02, 11, NOISES["skewed"])
    assert sum(bool(counted_suspects(bench.trial([])[1], bench.design, STANDARD)) for _ in range(20)) <= 1
