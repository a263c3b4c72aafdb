"""Rounds of pairs: each pair once, no node twice, leaves in turn, no trunk with more than it carries."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricheck.diagnosis.network.round_plan import RoundsPlan, retest, screen, write_rounds
from fabricheck.diagnosis.network.routes import Ways, design
from fabricheck.errors import UserError
from fabricheck.topology.network import node_of
from fabricheck_lab.simulated_network import KnownWays, fat_tree
from tests.support.effort import effort

SMALL = fat_tree(24, 6, 2)


def no_node_twice(plan: RoundsPlan) -> bool:
    """No rank twice in a round, and each node with one other node only."""
    for pairs in plan.pairs:
        met = {(node_of(one), node_of(other)) for one, other in pairs}
        nodes = Counter(node for pair in met for node in pair)
        places = Counter(place for pair in pairs for place in pair)
        if max(nodes.values()) > 1 or max(places.values()) > 1 or any(one == other for one, other in met):
            return False
    return True


def test_the_text_is_that_of_fabricbench() -> None:
    plan = RoundsPlan(("a", "b", "c", "d"), (np.array([[2, 3], [0, 1]]), np.array([[0, 2]])))
    assert write_rounds(plan) == "2-3 0-1\n0-2\n"


@settings(max_examples=effort(40), deadline=None)
@given(st.sets(st.integers(0, 23), min_size=2), st.integers(1, 6), st.integers(0, 2**31), st.booleans())
def test_a_screen_of_any_nodes(chosen: set[int], rounds: int, seed: int, is_known: bool) -> None:
    """Nothing is ever planned that needs luck: with unknown routes each pair gets its whole rate."""
    ways = KnownWays(SMALL, salt=seed) if is_known else Ways(SMALL)
    plan = screen(ways, [SMALL.nodes[one] for one in sorted(chosen)], rounds, seed=seed)
    assert len(plan.rounds) == rounds
    assert no_node_twice(plan)
    assert all(len(pairs) > 0 for pairs in plan.rounds)
    readings = design(ways, plan.pairs)
    assert not readings.doubtful.any()
    assert set(readings.expected_gbps) == {100.0}


def test_a_screen_is_a_perfect_matching_and_meets_all_leaves_as_often() -> None:
    network = fat_tree(64, 8, 4, trunk_gbps=800.0)
    ways = Ways(network)
    plan = screen(ways, network.nodes, 8, seed=3)
    assert no_node_twice(plan)
    assert all(len(pairs) == 32 for pairs in plan.rounds)
    assert set(design(ways, plan.pairs).expected_gbps) == {100.0}
    pairs = [pair for one in plan.pairs for pair in one]
    leaves = Counter(frozenset(network.leaf_of(network.ports_of(node)[0]) for node in pair) for pair in pairs)
    between = [count for pair, count in leaves.items() if len(pair) == 2]
    assert len(between) == 28
    assert max(between) - min(between) <= 2
    # Few pairs meet again, and each trunk is seen.
    assert len({tuple(pair) for pairs in plan.rounds for pair in pairs.tolist()}) >= 0.95 * sum(map(len, plan.rounds))
    assert Counter(ways.kinds)["trunk"] == len(
        {each for each in design(ways, plan.pairs).component.tolist() if ways.kinds[each] == "trunk"}
    )


def test_another_seed_is_another_screen_and_the_same_seed_the_same() -> None:
    ways = Ways(SMALL)
    first, again, other = (write_rounds(screen(ways, SMALL.nodes, 4, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_contention_is_expected_where_it_cannot_be_avoided() -> None:
    """Four pairs over one trunk that carries one: a quarter for each; the pair that stays on its leaf has all."""
    network = fat_tree(10, 2, 1, trunk_gbps=100.0)
    ways = Ways(network)
    pairs = [(network.nodes[one], network.nodes[one + 5]) for one in range(3)] + [network.nodes[3:5]]
    readings = design(ways, [[(one, other) for one, other in pairs]])
    assert readings.expected_gbps == pytest.approx([100 / 3] * 3 + [100])
    room = dict(zip(readings.component.tolist(), readings.headroom.tolist(), strict=True))
    assert room[ways.position["leaf0--spine0"]] == pytest.approx(0)
    assert room[ways.position["nid00004:hsn0--leaf0"]] == pytest.approx(0)
    assert room[ways.position["nid00000:hsn0--leaf0"]] == pytest.approx(1.0986, abs=1e-3)


def test_unknown_routes_that_may_collide_are_doubtful() -> None:
    network = fat_tree(12, 2, 2, trunk_gbps=100.0)
    crossing = [(network.nodes[one], network.nodes[one + 6]) for one in range(2)]
    assert design(Ways(network), [crossing]).doubtful.all()
    assert not design(Ways(network), [crossing[:1], crossing[1:]]).doubtful.any()


@settings(max_examples=effort(40), deadline=None)
@given(st.integers(0, 23), st.integers(0, 23), st.integers(0, 2**31))
def test_suspects_meet_good_nodes_on_other_leaves(one: int, other: int, seed: int) -> None:
    bad = {SMALL.nodes[one], SMALL.nodes[other]}
    suspects = {SMALL.nodes[one], f"{SMALL.nodes[other]}:hsn0"}
    plan = retest(Ways(SMALL), SMALL.nodes, suspects, 5, seed=seed)
    assert no_node_twice(plan)
    for pairs in plan.pairs:
        assert bad <= {node for pair in pairs for node in pair}
        for pair in pairs:
            assert len(bad & set(pair)) == (SMALL.distance(*pair) != "same-switch")
        # And good ones beside them.
        assert any(not bad & set(pair) for pair in pairs)
    for node in bad:
        met = [set(pair) - {node} for pairs in plan.pairs for pair in pairs if node in pair]
        assert len(set().union(*met)) >= 4


@pytest.mark.parametrize("suspect", ["leaf2--spine1", "leaf2", "spine1"])
def test_other_suspects_are_crossed_by_good_pairs(suspect: str) -> None:
    ways = Ways(SMALL)
    plan = retest(ways, SMALL.nodes, [suspect], 4)
    assert no_node_twice(plan)
    for pairs in plan.pairs:
        crossing = [one for one in pairs if any(ways.position[suspect] in way for way in ways.routes(*one))]
        assert crossing
        assert not design(ways, [pairs]).doubtful.any()


@pytest.mark.parametrize(
    ("places", "says"),
    [(["nid00000"], "a pair needs two nodes"), (["nid00000", "nid00000"], "twice"), (["nid00000", "x"], "no node 'x'")],
)
def test_mistakes(places: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        screen(Ways(SMALL), places, 2)
    with pytest.raises(UserError, match="not a part of the network"):
        retest(Ways(SMALL), SMALL.nodes, ["nid7"], 2)
    with pytest.raises(UserError, match="no healthy node"):
        retest(Ways(SMALL), SMALL.nodes[:2], SMALL.nodes[:2], 2)
