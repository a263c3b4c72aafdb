"""Planted faults in simulated readings: found, named, and nothing else; nothing found where there is none.

Figures: docs/results/simulated/network-faults.md. Here the losses are such that a working locator never misses them.
"""

from __future__ import annotations

import zlib
from copy import copy

import numpy as np
import pytest

from fabricheck.diagnosis.network.localize import Localization, Locator, gain_of, locate, p_value
from fabricheck.diagnosis.network.round_plan import screen
from fabricheck.diagnosis.network.routes import Design, FloatArray, Ways, design
from fabricheck.errors import UserError
from fabricheck_lab.simulated_network import (
    KINDS,
    NOISES,
    Bench,
    Case,
    Fault,
    are_right,
    equivalents,
    fat_tree,
    healthy_share,
    is_right,
    measure,
    names_of,
    taken,
)
from tests.support.effort import effort

NETWORK = fat_tree(32, 4, 2, trunk_gbps=800.0)
RAILS = fat_tree(32, 8, 2, nics=2, trunk_gbps=800.0)


@pytest.fixture(scope="module", params=["known", "unknown", "rails"])
def network_bench(request: pytest.FixtureRequest) -> Bench:
    network, places = (RAILS, RAILS.ports) if request.param == "rails" else (NETWORK, NETWORK.nodes)
    routes = "known" if request.param == "rails" else request.param
    return Bench(Case(request.param, network, places, routes, (10,)), noise=0.02, seed=5)


@pytest.fixture
def bench(network_bench: Bench, request: pytest.FixtureRequest) -> Bench:
    """The draws of a test are its own, whichever tests ran before it."""
    own = copy(network_bench)
    own.random = np.random.default_rng(zlib.crc32(request.node.name.encode()))
    return own


def test_one_fault_is_named(bench: Bench) -> None:
    """It is first. Others beside it come in 1% of the trials at most: more than 1 of 18 has a probability of 1.4%."""
    beside = 0
    for kind in KINDS * 3:
        fault = bench.draw(kind, 0.12, 0.2)
        suspect, *others = bench.trial([fault])[1].suspects
        assert are_right([names_of(suspect)], [fault], bench.alike), (fault, suspect)
        assert suspect.low - 0.02 <= fault.loss <= suspect.high + 0.02
        assert suspect.members
        assert (suspect.p or 0.0) < 0.01
        beside += bool(others)
    assert beside <= 1


@pytest.mark.parametrize("slow", ["0 1 2", "0 3 6", "leaf0--spine0"])
@pytest.mark.parametrize("loss", [0.1, pytest.param(0.3, marks=pytest.mark.full)])
def test_three_of_eight_nodes_or_a_trunk_are_named_though_most_pairs_cross_them(slow: str, loss: float) -> None:
    """The middle pair is a slow one, and of four nodes of a leaf three are nearly the leaf: in most plans of 28
    pairs."""
    network = fat_tree(8, 2, 1, trunk_gbps=400.0)
    ways = Ways(network)
    faults = [Fault(network.nodes[int(each)] if each.isdigit() else each, loss) for each in slow.split()]
    right = []
    for seed in range(8):
        readings = design(ways, screen(ways, network.nodes, 7, seed=seed).pairs)
        random = np.random.default_rng(seed)
        share = healthy_share(readings, faults, taken(readings, random))
        found = locate(readings, measure(readings, share, 0.005, random))
        right.append({min(names_of(each)) for each in found.suspects} == {each.component for each in faults})
    assert sum(right) >= 5, right


def test_a_switch_that_a_quarter_of_all_pairs_go_over_is_not_taken_for_noise() -> None:
    """No pair stays on its leaf, so that the common factor alone explains the mean: the mixture has to be tried."""
    network = fat_tree(64, 8, 4, trunk_gbps=6400.0)
    nodes, random = network.nodes, np.random.default_rng(1)
    rounds = [[(nodes[one], nodes[(one + 8 * turn) % 64]) for one in range(64)] for turn in range(1, 8)]
    readings = design(Ways(network), rounds)
    share = healthy_share(readings, [Fault("spine2", 0.08)], taken(readings, random))
    (suspect,) = locate(readings, measure(readings, share, 0.02, random)).suspects
    assert names_of(suspect) == {"spine0", "spine1", "spine2", "spine3"}
    assert suspect.loss == pytest.approx(0.08, abs=0.015)


def test_a_healthy_network_has_no_suspect(bench: Bench) -> None:
    """The family-wise false alarms are 1% at most: more than 2 of 60 would have a probability of 2%."""
    assert sum(bool(bench.trial([])[1].suspects) for _ in range(60)) <= 2


def test_a_network_so_wide_that_no_part_has_a_tenth_of_the_pairs_is_read() -> None:
    """Nobody knows the routes, so that each pair may have gone over any of eight spines."""
    network = fat_tree(128, 16, 8, trunk_gbps=400.0)
    ways, random = Ways(network), np.random.default_rng(1)
    readings = design(ways, screen(ways, network.nodes, 6).pairs)
    healthy = np.ones(len(readings.places))
    assert not locate(readings, measure(readings, healthy, 0.02, random)).suspects
    share = healthy_share(readings, [Fault(network.nodes[9], 0.15)], taken(readings, random))
    (suspect,) = locate(readings, measure(readings, share, 0.02, random)).suspects
    assert network.nodes[9] in names_of(suspect)


def test_a_common_factor_is_no_fault(bench: Bench) -> None:
    readings = 0.5 * measure(bench.design, np.ones(len(bench.design.places)), 0.02, bench.random)
    found = bench.locator.locate(readings)
    assert not found.suspects
    assert found.scale == pytest.approx(0.48, rel=0.02)
    assert found.noise == pytest.approx(0.02, rel=0.3)


def test_what_cannot_be_told_apart_is_named_together() -> None:
    ways = Ways(NETWORK)
    readings = design(ways, screen(ways, NETWORK.nodes, 6).pairs)
    alike = equivalents(Locator(readings))
    assert alike["nid00004"] == {"nid00004", "nid00004:hsn0", "nid00004:hsn0--leaf0"}
    assert alike["leaf1--spine0"] == {"leaf1--spine0", "leaf1--spine1"}
    assert alike["leaf1"] == {"leaf1"}
    rails = Ways(RAILS)
    readings = design(rails, screen(rails, RAILS.ports, 6).pairs)
    alike = equivalents(Locator(readings))
    assert alike["nid00004"] == {"nid00004"}
    assert alike["nid00004:hsn1"] == {"nid00004:hsn1", "nid00004:hsn1--leaf4"}


def one_pair_again_and_again() -> tuple[Design, FloatArray]:
    pairs = [(NETWORK.nodes[one], NETWORK.nodes[one + 16]) for one in range(0, 8)]
    readings = design(Ways(NETWORK), [pairs] * 4)
    share = healthy_share(readings, [Fault(NETWORK.nodes[2], 0.2)], taken(readings, np.random.default_rng(1)))
    return readings, measure(readings, share, 0.01, np.random.default_rng(2))


def test_a_pair_that_was_never_split_gives_an_ambiguity_set() -> None:
    (suspect,) = locate(*one_pair_again_and_again()).suspects
    assert {"nid00002", "nid00018", "nid00018:hsn0"} <= names_of(suspect)
    assert 0.1 < suspect.low < suspect.loss < suspect.high < 0.3
    assert len(suspect.members) == 4


def alone(pair: tuple[str, str], pairs: list[tuple[str, str]]) -> bool:
    """Whether no other pair has a node of it."""
    return sum(not {*pair}.isdisjoint(other) for other in pairs) == 1


def capacity_lost(loss: float) -> Localization:
    """A trunk that carries two pairs, in rounds in which one or two go over it."""
    network = fat_tree(16, 2, 1, trunk_gbps=200.0)
    nodes, ways = network.nodes, Ways(network)
    rounds = [
        [(nodes[(one + turn) % 8], nodes[8 + (one + 3 * turn) % 8]) for one in range(1 + turn % 2)]
        + [(nodes[(4 + turn) % 8], nodes[(5 + turn) % 8]), (nodes[8 + (5 + turn) % 8], nodes[8 + (6 + turn) % 8])]
        for turn in range(30)
    ]
    rounds = [[pair for pair in pairs if alone(pair, pairs)] for pairs in rounds]
    readings = design(ways, rounds)
    random = np.random.default_rng(3)
    share = healthy_share(readings, [Fault("leaf0--spine0", loss, capacity=True)], taken(readings, random))
    assert {share.round(3).min(), share.max()} == {1 - loss, 1.0}
    return locate(readings, measure(readings, share, 0.01, random))


def test_a_lower_rate_shows_only_where_the_trunk_is_full() -> None:
    (suspect,) = capacity_lost(0.2).suspects
    assert "leaf0--spine0" in names_of(suspect)
    assert suspect.loss == pytest.approx(0.2, abs=0.02)


def test_doubtful_readings_are_left_out() -> None:
    network = fat_tree(32, 2, 2, trunk_gbps=100.0)
    pairs = [(network.nodes[one], network.nodes[one + 16]) for one in range(8)]
    apart = [[pair] for pair in pairs]
    readings = design(Ways(network), [pairs, *apart])
    assert Locator(readings).used.size == 8
    with pytest.raises(UserError, match="0 usable readings"):
        Locator(design(Ways(network), [pairs]))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_reading_that_is_no_goodput_is_refused(bench: Bench, value: float) -> None:
    readings = bench.design.expected_gbps.copy()
    readings[3] = value
    with pytest.raises(UserError, match="not a positive number"):
        bench.locator.locate(readings)


def test_the_score_of_the_benchmark_can_fail(bench: Bench) -> None:
    fault = Fault("nid00003", 0.2)
    _, found = bench.trial([fault])
    assert is_right(found, [fault], bench.alike)
    assert not is_right(found, [], bench.alike)
    assert not is_right(found, [Fault("nid00004", 0.2)], bench.alike)
    assert not is_right(found, [fault, Fault("leaf0", 0.2)], bench.alike)


@pytest.mark.parametrize("kind", ["outliers", "collapses", "t3"])
def test_outliers_accuse_nobody(bench: Bench, kind: str) -> None:
    """Where what a reading can prove has no bound, one in three healthy networks with unknown routes is accused."""
    for _ in range(effort(30)):
        readings = measure(bench.design, np.ones(len(bench.design.places)), 0.02, bench.random, NOISES[kind])
        assert bench.locator.locate(readings).suspects == ()


@pytest.mark.parametrize("digits", [None, 3])
def test_readings_without_noise_name_the_fault_and_nothing_else(bench: Bench, digits: int | None) -> None:
    """A grid of losses is coarser than such noise, and steps of rounding are larger."""
    for faults in ([], [Fault("nid00003", 0.5)], [Fault("nid00003", 0.05)]):
        share = healthy_share(bench.design, faults, taken(bench.design, bench.random))
        readings = measure(bench.design, share, 1e-6, bench.random)
        if digits is not None:
            readings = bench.design.expected_gbps * np.round(readings / bench.design.expected_gbps, digits)
        assert is_right(bench.locator.locate(readings), faults, bench.alike)


def of_four_leaves(faults: list[Fault], seed: int) -> tuple[bool, Localization]:
    network = fat_tree(64, 4, 2, trunk_gbps=800.0)
    bench = Bench(Case("four leaves", network, network.nodes, "known"), noise=0.02, seed=1)
    bench.random = np.random.default_rng(seed)
    return bench.trial(faults)


@pytest.mark.parametrize(
    "names",
    [
        ("spine0", "spine1"),
        pytest.param(("leaf0", "leaf2", "spine1"), marks=pytest.mark.full),
        pytest.param(("leaf1", "leaf3", "spine0"), marks=pytest.mark.full),
    ],
    ids="-".join,
)
def test_faults_of_most_pairs_are_named_though_none_explains_anything_alone(names: tuple[str, ...]) -> None:
    """The middle pair is a slow one, and 2.5 times the noise is too little for the fastest to stand apart."""
    for seed in range(5):
        _, found = of_four_leaves([Fault(name, 0.05) for name in names], seed)
        assert len(found.suspects) == len(names)
        assert all(any(name in names_of(each) for each in found.suspects) for name in names), found.suspects


@pytest.mark.parametrize(
    "faults",
    [
        (Fault("nid00002:hsn0", 0.131), Fault("spine1", 0.061)),
        pytest.param((Fault("leaf6--spine2", 0.157), Fault("leaf1--spine2", 0.136)), marks=pytest.mark.full),
    ],
)
def test_two_faults_are_named_where_nobody_knows_the_routes(faults: tuple[Fault, ...]) -> None:
    """A spine beside a node shows in the shape of what is left; two of its trunks are first taken for the spine."""
    network = fat_tree(64, 8, 4, trunk_gbps=800.0)
    case = Case("two", network, network.nodes, "unknown")
    right = [Bench(case, 0.02, seed).trial(faults)[0] for seed in range(8)]
    assert sum(right) >= 7


@pytest.mark.parametrize(("number", "seed"), [(16, 2), (30, 1)])
def test_a_node_is_told_from_its_port_where_their_readings_are_far_apart(number: int, seed: int) -> None:
    """A port at fault would not be as near to its node as that, though nearer than the furthest of all distances."""
    network = fat_tree(32, 8, 2, nics=2, trunk_gbps=400.0)
    bench = Bench(Case("rails", network, network.ports, "known"), noise=0.02, seed=5)
    bench.random = np.random.default_rng(seed)
    right, found = bench.trial([Fault(network.nodes[number], 0.05), Fault("spine0", 0.05)])
    assert right, found.suspects


def test_what_is_at_fault_is_seldom_left_out_of_what_is_named() -> None:
    """1 of 100 at most, where a node and its port differ in few readings: 3 of 60 would have a probability of 2%."""
    network = fat_tree(32, 8, 2, nics=2, trunk_gbps=400.0)
    bench = Bench(Case("rails", network, network.ports, "known", (4,)), noise=0.02, seed=5)
    missed = 0
    for _ in range(60):
        port = bench.draw("port", 0.08, 0.08)
        _, found = bench.trial([port])
        missed += bool(found.suspects) and not any(port.component in names_of(each) for each in found.suspects)
    assert missed <= 2


def test_a_gain_is_known_by_its_p_value() -> None:
    for p in (0.05, 0.01, 1e-4):
        assert p_value(gain_of(p, 250, 90), 250, 90) == pytest.approx(p)
