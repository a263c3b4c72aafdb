"""The rule for pairs, here and in fabricbench: two definitions of the same."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricheck.records.pair_rule import PairRule, planned_groups
from tests.support.bench import built
from tests.support.effort import effort

Rounds = list[tuple[int, list[list[int]]]]


def made(groups: int, group: int, directions: int, turns: int | None) -> PairRule:
    """`turns`: None for pairs by themselves, 0 for all; as many as there are, or more, are all too."""
    rule = PairRule(groups * group, group, directions, turns is not None)
    return replace(rule, turns=turns if turns is not None and turns < rule.all_turns else 0)


rules = st.builds(made, st.integers(2, 12), st.integers(1, 4), st.sampled_from((1, 2)), st.none() | st.integers(0, 12))


def of_fabricbench(rule: PairRule) -> tuple[Rounds, str]:
    """The rounds that the benchmark lists for the same question, and their hash."""
    options = [
        f"--operations={'bidirectional' if rule.directions == 1 else 'unidirectional'}",
        f"--schedules={'contended' if rule.in_rounds else 'uncontended'}",
        *(["--pairs=rails", f"--group-size={rule.group}"] if rule.group > 1 else []),
        *([f"--turns={rule.turns}"] if rule.turns else []),
        f"--list-pairs={rule.ranks}",
    ]
    program = built("openmpi").program
    said = subprocess.run([program, *options], capture_output=True, text=True, check=True).stdout
    *lines, digest = map(json.loads, said.splitlines())
    return [(line["round"], line["pairs"]) for line in lines], digest


def rounds_of(rule: PairRule) -> Rounds:
    return [(number, pairs.tolist()) for number, pairs in rule.rounds()]


@settings(max_examples=effort(25), deadline=None)
@given(rules)
def test_fabricbench_evaluates_the_same_rule(rule: PairRule) -> None:
    if rule.in_rounds and rule.ranks < 4:
        return  # a pair by itself is not contended: there is no such series
    assert of_fabricbench(rule) == (rounds_of(rule), rule.hash_text())


@given(rules)
def test_every_pair_is_there_once_and_no_rank_twice_in_a_round(rule: PairRule) -> None:
    rounds = rounds_of(rule)
    pairs = [tuple(pair) for _, together in rounds for pair in together]
    place = np.arange(rule.ranks) % rule.group
    wanted = {
        (a, b)
        for a in range(rule.ranks)
        for b in range(rule.ranks)
        if a != b and place[a] == place[b] and (rule.directions == 2 or a < b)
    }
    assert len(rounds) == rule.round_count
    assert len(pairs) == len(rule) == len(set(pairs))
    assert set(pairs) <= wanted
    assert rule.turns or set(pairs) == wanted
    for _, together in rounds:
        ends = [rank for pair in together for rank in pair]
        assert len(set(ends)) == len(ends)


def test_a_plan_is_written_out_in_its_order() -> None:
    same = {"operation": "pingpong", "implementation": "transfers", "bytes": [8]}
    listed = {**same, "schedule": "uncontended", "round": -1, "ranks": [2, 0]}
    rule = {"ranks": 4, "group": 2, "directions": 2, "hash": "0" * 16}
    ruled: dict[str, Any] = {**same, "schedule": "contended", "rule": rule}
    foreign = {**ruled, "rule": {**rule, "ranks": 1 << 20}}  # which would take hours
    header = {"plan": {"series": [listed, ruled, foreign]}, "ranks": [{}] * 4}
    written_out = list(planned_groups(header))
    assert written_out[0] == listed
    assert [(each["round"], each["ranks"]) for each in written_out[1:]] == _numbered(
        [[[0, 2], [1, 3]], [[2, 0], [3, 1]]]
    )
    assert all({"rule", *each} - {*each} for each in written_out[1:])


def _numbered(rounds: Sequence[Sequence[list[int]]]) -> list[tuple[int, list[int]]]:
    return [(number, pair) for number, together in enumerate(rounds) for pair in together]


def test_a_rule_that_no_run_can_have_is_told() -> None:
    fine = PairRule(8, 2, 2, True)
    assert fine.is_possible
    others = (("ranks", 7), ("group", 8), ("group", 5), ("directions", 3), ("turns", 3))
    assert not any(replace(fine, **{name: value}).is_possible for name, value in others)  # type: ignore[arg-type]
