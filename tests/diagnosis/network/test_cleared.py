"""What was suspected and is measured again with good partners: healthy, as slow as before, and in between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from fabricheck.diagnosis.network.pair_findings import SlowParts, find_slow_parts
from fabricheck.diagnosis.network.results import Rounds
from fabricheck.diagnosis.network.round_plan import RoundsPlan, retest, screen
from fabricheck.diagnosis.network.routes import Ways, design
from fabricheck.yardsticks.policy import Policy
from fabricheck_lab.simulated_network import Fault, fat_tree, healthy_share, measure, names_of, taken
from tests.support.effort import effort

NETWORK = fat_tree(32, 4, 2, trunk_gbps=800.0)
WAYS = Ways(NETWORK)
SCREEN = screen(WAYS, NETWORK.nodes, 8)
NODE, OTHER = NETWORK.nodes[3], NETWORK.nodes[20]
POLICY = Policy(smallest_loss=0.03, smallest_loss_of_distance=0.1)


def measured(plan: RoundsPlan, random: np.random.Generator, *faults: Fault, common: float = 1.0) -> Rounds:
    made = design(WAYS, plan.pairs)
    values = iter(common * measure(made, healthy_share(made, faults, taken(made, random)), 0.02, random))
    return [[(pair, float(next(values))) for pair in pairs] for pairs in plan.pairs]


@dataclass
class Screened:
    """A screen in which `faults` are there, and what comes of it with the suspects measured again."""

    seed: int
    faults: tuple[Fault, ...]

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.rounds = measured(SCREEN, self.random, *self.faults)
        self.first = find_slow_parts(WAYS, self.rounds, (), POLICY, duplex=True)

    def again(self, *faults: Fault, rounds: int = 4, common: float = 1.0) -> SlowParts:
        names = [name for suspect in self.first.suspects for name in names_of(suspect)]
        plan = retest(WAYS, NETWORK.nodes, names, rounds, seed=1)
        second = measured(plan, self.random, *faults, common=common)
        return find_slow_parts(WAYS, self.rounds, second, POLICY, duplex=True)


def suspected(parts: SlowParts, name: str) -> bool:
    return any(name in names_of(suspect) for suspect in parts.suspects)


_FULL = pytest.mark.full


@pytest.mark.parametrize("loss", [pytest.param(0.06, marks=_FULL), 0.15, pytest.param(0.5, marks=_FULL)])
def test_who_is_healthy_now_is_not_suspected_and_who_is_as_slow_stays(loss: float) -> None:
    """Whether fewer pairs at a time give more or not; a loss of 6% is a moment's load, or chance, in a screen. Who has
    half of a large loss left is not healthy."""
    wrong, number = 0, effort(12, share=2)
    for seed in range(number):
        screened = Screened(seed, (Fault(NODE, loss),))
        assert suspected(screened.first, NODE)
        for common in (1.0, 1.04):
            wrong += bool(screened.again(common=common).suspects)
            wrong += not suspected(screened.again(Fault(NODE, loss), common=common), NODE)
        assert loss < 0.1 or suspected(screened.again(Fault(NODE, loss / 2)), NODE)
    assert wrong <= 1


def test_of_two_suspects_each_is_for_itself() -> None:
    parts = Screened(1, (Fault(NODE, 0.3), Fault(OTHER, 0.3))).again(Fault(OTHER, 0.3))
    (healthy,) = parts.healthy
    assert NODE in names_of(healthy)
    share, pairs = parts.healthy[healthy]
    assert share == pytest.approx(1.0, abs=0.03)
    assert pairs == 4
    assert suspected(parts, OTHER)
    assert not suspected(parts, NODE)


def test_two_pairs_are_too_few_to_clear_a_node() -> None:
    assert suspected(Screened(2, (Fault(NODE, 0.3),)).again(rounds=2), NODE)


def test_what_is_not_of_a_node_stays_suspected() -> None:
    """Fewer pairs do not show a lost capacity: of a leaf whose own pairs are healthy now its trunks are left."""
    parts = Screened(2, (Fault("leaf1", 0.3),)).again()
    assert parts.suspects and not parts.healthy
    assert all("leaf1" in name for suspect in parts.suspects for name in names_of(suspect))
