"""What was suspected and is measured again with good partners: healthy, as slow as before, and in between."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from fabricheck.diagnosis.network.cleared import find_cleared
from fabricheck.diagnosis.network.localize import Localization, SlowGroup, locate
from fabricheck.diagnosis.network.round_plan import retest, screen
from fabricheck.diagnosis.network.routes import Ways, design
from fabricheck.records.finding import Finding
from fabricheck_lab.simulated_network import Fault, fat_tree, healthy_share, measure, names_of, taken
from tests.support.effort import effort

NETWORK = fat_tree(32, 4, 2, trunk_gbps=400.0)
WAYS = Ways(NETWORK)
SCREEN = design(WAYS, screen(WAYS, NETWORK.nodes, 8).pairs)
NODE = NETWORK.nodes[3]


def screened(random: np.random.Generator, *faults: Fault) -> Localization:
    share = healthy_share(SCREEN, faults, taken(SCREEN, random))
    return locate(SCREEN, measure(SCREEN, share, 0.02, random))


def measured_again(
    found: Localization, random: np.random.Generator, *faults: Fault, rounds: int = 4, common: float = 1.0
) -> Mapping[SlowGroup, Finding]:
    names = [name for each in found.suspects for name in names_of(each)]
    pairs = retest(WAYS, NETWORK.nodes, names, rounds, seed=1).pairs
    made = design(WAYS, pairs)
    values = iter(common * measure(made, healthy_share(made, faults, taken(made, random)), 0.02, random))
    again = [[(pair, float(next(values))) for pair in one] for one in pairs]
    return find_cleared(WAYS, found, again, duplex=True, least_loss=0.1)


@pytest.mark.parametrize("loss", [0.15, 0.5])
def test_only_who_is_healthy_now_is_cleared(loss: float) -> None:
    """With a fault that is still there, or half of it, nobody is; whether fewer pairs at a time give more or not."""
    for seed in range(effort(20)):
        random = np.random.default_rng(seed)
        found = screened(random, Fault(NODE, loss))
        (suspect,) = found.suspects
        cleared_by = measured_again(found, random)
        (cleared,) = cleared_by
        assert (cleared, cleared_by[cleared].code) == (suspect, "cleared")
        for left in (loss, loss / 2):
            assert not measured_again(found, random, Fault(NODE, left))
        assert not measured_again(found, random, Fault(NODE, loss), common=1.04)


def test_of_two_suspects_each_is_for_itself() -> None:
    random = np.random.default_rng(1)
    other = NETWORK.nodes[20]
    found = screened(random, Fault(NODE, 0.3), Fault(other, 0.3))
    (cleared,) = measured_again(found, random, Fault(other, 0.3))
    assert NODE in names_of(cleared)


def test_a_small_loss_is_compared_with_the_pairs_beside_it() -> None:
    """As chance or a moment's load shows it in a screen; whether fewer pairs at a time give more or not."""
    wrong = 0
    for seed in range(effort(50, share=2)):
        random = np.random.default_rng(seed)
        found = screened(random, Fault(NODE, 0.06))
        (suspect,) = found.suspects
        common = random.choice([1.0, 1.04])
        assert measured_again(found, random, common=common).keys() == {suspect}
        wrong += bool(measured_again(found, random, Fault(NODE, 0.06), common=common))
    assert wrong <= effort(50, share=2) * 0.02


@pytest.mark.parametrize(
    ("fault", "rounds"),
    [(Fault(NODE, 0.3), 2), (Fault(NODE, 0.07), 2), (Fault("leaf1", 0.3), 4)],
    ids=["two pairs are too few", "of a small loss too", "what is over a leaf may be elsewhere"],
)
def test_who_cannot_be_cleared_stays_suspected(fault: Fault, rounds: int) -> None:
    random = np.random.default_rng(2)
    found = screened(random, fault)
    assert found.suspects
    assert not measured_again(found, random, rounds=rounds)
