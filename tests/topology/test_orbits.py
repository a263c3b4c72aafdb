"""What a node's symmetries make equal, counted by hand for the systems of the papers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest

from fabricheck.topology.model import Topology
from fabricheck.topology.orbits import orbit
from tests.support.nodes import node, system


def sizes(topology: Topology, many: int = 2, **which: bool) -> list[int]:
    return sorted(Counter(orbit(topology, each, **which) for each in permutations(topology.gpus, many)).values())


@pytest.mark.parametrize(
    ("name", "pairs"),
    [("hgx-h200", [12]), ("alps", [12]), ("dgx-a100", [56]), ("summit", [12, 18]), ("sierra", [4, 8])],
)
def test_pairs_of_a_node(name: str, pairs: list[int]) -> None:
    assert sizes(system(name)) == pairs


def test_the_gcds_of_lumi_have_two_kinds_of_places() -> None:
    assert sizes(system("lumi"), 1) == [4, 4]
    assert sum(sizes(system("lumi"))) == 56


def test_the_tiles_of_aurora_are_equal_until_nics_count() -> None:
    assert sizes(system("aurora"), 1) == [12]
    assert sizes(system("aurora"), 1, nics=True) == [4, 8]


def test_one_narrow_link_parts_what_was_equal() -> None:
    whole = node(4, [(a, b, 1, 100.0) for a in range(4) for b in range(a)])
    assert sizes(whole) == [12]
    narrow = replace(whole, links=(replace(whole.links[0], rate_gbps=50.0), *whole.links[1:]))
    # Over it, between the other two, and from or to those at its ends.
    assert sizes(narrow) == [2, 2, 4, 4]


def test_direction_counts_in_a_chain() -> None:
    chain = node(3, [(0, 1, 1, 100.0), (1, 2, 1, 100.0)])
    # From the middle, to the middle, and from end to end.
    assert sizes(chain) == [2, 2, 2]


def test_numbers_of_many_systems_in_one_process_are_not_mixed() -> None:
    """What is kept of a node is kept for some nodes at a time: half of its tuples before, half of them after others."""
    topology = replace(system("sierra"))
    pairs = list(permutations(topology.gpus, 2))
    for each in pairs[::2]:
        orbit(topology, each)
    for _ in range(100):
        orbit(other := replace(topology), (other.gpus[0], other.gpus[1]))
    assert sizes(topology) == [4, 8]
