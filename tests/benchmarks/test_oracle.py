"""The oracle beside the locator: of all sets of at most three faults it names the most probable."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.oracle import MOST, Oracle
from fabricheck.diagnosis.network.routes import FloatArray
from fabricheck_lab.simulated_network import Bench, Case, Fault, are_right, fat_tree, healthy_share

LOSS, SCALE = 0.05, 0.96


def bench_with(noise: float) -> Bench:
    network = fat_tree(8, 2, 2, trunk_gbps=400.0)
    return Bench(Case("small", network, network.nodes, "known", (6,)), noise=noise, seed=1)


def oracle_of(bench: Bench) -> Oracle:
    return Oracle(bench.design, bench.noise, "normal", LOSS, SCALE)


def best_by_hand(bench: Bench, readings: FloatArray, number: int) -> FloatArray:
    """What the pairs get without noise by the most probable faults, where sets with the same of it are one."""
    ways = bench.ways
    probability = {name: 1 / ways.kinds.count(kind) for name, kind in zip(ways.components, ways.kinds, strict=True)}
    classes = sorted({tuple(sorted(each)) for each in bench.alike.values()})
    weights: dict[bytes, float] = defaultdict(float)
    for faults in itertools.combinations(classes, number):
        share = healthy_share(bench.design, [Fault(each[0], LOSS) for each in faults], np.ones(readings.size))
        weights[share.tobytes()] += float(np.prod([sum(map(probability.__getitem__, each)) for each in faults]))
    shares = [np.frombuffer(each) for each in weights]
    expected = [bench.design.expected_gbps * SCALE * each for each in shares]
    likely = [norm.logpdf(np.log(readings / each), scale=bench.noise).sum() for each in expected]
    best = int(np.argmax(np.array(likely) + np.log(list(weights.values()))))
    return shares[best]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_oracle_names_the_most_probable_of_all_sets(number: int) -> None:
    """In noise as large as the losses the most probable is often wrong: the prior and the likelihood both count."""
    bench = bench_with(0.05)
    oracle, right = oracle_of(bench), 0
    for _ in range(15):
        faults = [bench.draw(str(kind), LOSS, LOSS) for kind in bench.random.choice(["node", "leaf", "trunk"], number)]
        readings, seen, alike = bench.simulate(faults)
        ((named,),) = oracle.name(readings[np.newaxis], np.eye(MOST + 1)[number].tolist())
        share = healthy_share(bench.design, [Fault(min(each), LOSS) for each in named], np.ones(readings.size))
        assert np.array_equal(share, best_by_hand(bench, readings, number))
        right += are_right(named, seen, alike)
    assert right < 15


def test_a_node_is_its_one_port_where_the_leaf_of_the_other_loses_as_much() -> None:
    """No reading tells them from each other: whoever names both is right, and so is the oracle."""
    network = fat_tree(16, 4, 2, nics=2, trunk_gbps=400.0)
    bench = Bench(Case("rails", network, network.ports, "known", (8,)), noise=0.002, seed=1)
    node = bench.case.network.nodes[0]
    faults = [Fault("leaf0", LOSS), Fault(node, LOSS)]
    readings, seen, alike = bench.simulate(faults)
    both = frozenset({node, f"{node}:hsn1", f"{node}:hsn1--leaf2"})
    assert (alike[node], alike["leaf0"]) == (both, frozenset({"leaf0"}))
    ((named,),) = oracle_of(bench).name(readings[np.newaxis], [0, 0, 1, 0])
    assert sorted(named, key=len) == [{"leaf0"}, both]
    assert are_right(named, seen, alike)
    assert not are_right(named, seen, bench.alike)
    assert bench.trial(faults)[0]
