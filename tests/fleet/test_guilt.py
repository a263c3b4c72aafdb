"""Nodes with which nothing starts are found by starts alone, whichever they are."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from fabricheck.fleet.screen import find_guilty

NAMES = [f"nid{number:03}" for number in range(1, 65)]


class Machine:
    """Starts over any nodes without a bad one; of a pair of bad ones the other is no help."""

    def __init__(self, bad: Sequence[str]) -> None:
        self.bad, self.starts = set(bad), 0

    def __call__(self, nodes: Sequence[str]) -> bool:
        assert len(set(nodes)) == len(nodes) > 1
        self.starts += 1
        return self.bad.isdisjoint(nodes)


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Of a few nodes any are bad, of many an eighth."""
    nodes = draw(st.lists(st.sampled_from(NAMES), min_size=3, unique=True))
    most = len(nodes) if len(nodes) <= 16 else len(nodes) // 8
    return nodes, draw(st.lists(st.sampled_from(nodes), max_size=most, unique=True))


@given(fleets(), st.lists(st.sampled_from(NAMES)))
def test_the_guilty_are_named_where_they_are_fewer_than_half(
    fleet: tuple[list[str], list[str]], suspects: list[str]
) -> None:
    """Whatever something else has suspected before. Where as many fail as start, it may be anything."""
    nodes, bad = fleet
    assert set(find_guilty(nodes, Machine(bad), suspects)) == (set(bad) if 2 * len(bad) < len(nodes) else set())


def test_one_of_many_takes_few_starts() -> None:
    machine = Machine(["nid041"])
    assert find_guilty(NAMES, machine) == ("nid041",)
    # A half of each half, and the proof.
    assert machine.starts <= 2 * math.log2(len(NAMES)) + 3


def test_what_starts_the_second_time_is_not_named() -> None:
    alone_with_others: list[bool] = []

    def starts(nodes: Sequence[str]) -> bool:
        if "nid002" not in nodes:
            return True
        alone_with_others.append(nodes[-1] == "nid002" and len(nodes) > 2)
        return sum(alone_with_others) > 1

    assert find_guilty(NAMES[:8], starts) == ()
    assert sum(alone_with_others) == 2
