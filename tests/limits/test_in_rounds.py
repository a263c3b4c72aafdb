"""Pairs that go at the same time: what they share of a node's links and of its NICs, and nothing that they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fabricheck.judge.expectations import expect_from_topology
from fabricheck.records.run import Run
from fabricheck.records.split import Split
from fabricheck.yardsticks.policy import Policy
from tests.support.made_runs import GIB, made_run, made_samples
from tests.support.nodes import system

POLICY = Policy()
NODE = ["nid001"] * 8


def expected(name: str, run: Run, number: int) -> float:
    """What the pair of that number gets, in Gb/s."""
    found = expect_from_topology(run, system(name), POLICY)(run.samples[number], "goodput").expected
    assert found is not None
    return found


def in_one_round(
    pairs: Sequence[tuple[int, int]], operation: str = "unidirectional", hosts: Sequence[str] = NODE
) -> Run:
    samples = [made_samples(operation, pair, GIB, 100.0, schedule="contended", round_=0) for pair in pairs]
    return made_run(hosts, samples, transport="copy", devices=True)


def test_pairs_of_a_round_that_share_no_link_get_all_of_theirs() -> None:
    run = in_one_round([(0, 1), (2, 3), (4, 5), (6, 7)])
    assert [expected("lumi", run, number) for number in range(4)] == pytest.approx([1600] * 4)
    star = in_one_round([(0, 1), (2, 3), (4, 5), (6, 7)], "bidirectional")
    assert [expected("dgx-a100", star, number) for number in range(4)] == pytest.approx([2400] * 4)


def test_pairs_whose_routes_meet_share_the_link() -> None:
    # The widest path from GCD 0 to 7 is 0-6-7, over two links of 400 Gb/s and four; 6 to 7 has those four alone.
    alone = in_one_round([(0, 7), (2, 3)])
    assert expected("lumi", alone, 0) == pytest.approx(800)
    beside = in_one_round([(0, 7), (6, 7)])
    assert [expected("lumi", beside, number) for number in range(2)] == pytest.approx([800, 800])
    assert expected("lumi", in_one_round([(0, 7), (7, 6)]), 1) == pytest.approx(1600)  # the other direction
    assert expected("lumi", in_one_round([(0, 7), (7, 6)], "pingpong"), 1) == pytest.approx(800)


def test_pairs_of_other_rounds_and_of_other_nodes_are_not_beside() -> None:
    hosts = ["nid001"] * 8 + ["nid002"] * 8
    run = in_one_round([(0, 7), (14, 15)], hosts=hosts)
    assert expected("lumi", run, 1) == pytest.approx(1600)
    apart = replace(run, samples=(run.samples[0], replace(run.samples[1], round=1, ranks=(6, 7))))
    assert expected("lumi", apart, 1) == pytest.approx(1600)


def test_a_nic_is_shared_by_the_ranks_that_use_it() -> None:
    # GCDs 0 and 1 have one NIC of 200 Gb/s, 2 the next one.
    hosts = ["nid001"] * 8 + ["nid002"] * 8
    rails = in_one_round([(0, 8), (2, 10)], hosts=hosts)
    assert [expected("lumi", rails, number) for number in range(2)] == pytest.approx([200, 200])
    both = in_one_round([(0, 8), (1, 9)], hosts=hosts)
    assert [expected("lumi", both, number) for number in range(2)] == pytest.approx([100, 100])
    # Nobody knows which NIC a GPU of this system uses.
    dynamic = in_one_round([(0, 8), (1, 9)], hosts=hosts)
    assert expected("dgx-a100", dynamic, 0) == pytest.approx(200)


def test_rails_at_once_have_a_nic_each_or_share_it_and_nodes_at_once_share_nothing() -> None:
    """Allreduce on four nodes of 8 GCDs, two on each NIC of 200 Gb/s: 2 (n - 1) / n of the buffer leave a node."""
    hosts = [f"nid{node:03}" for node in range(4) for _ in range(8)]

    def of(split: Split, schedule: str) -> float:
        made = [made_samples("allreduce", ranks, GIB, 100.0, schedule=schedule, round_=0) for ranks in split.groups(32)]
        return expected("lumi", made_run(hosts, made, transport="ccl", devices=True), 1)

    assert of(Split(4, 8), "uncontended") == pytest.approx(200 / 1.5)
    assert of(Split(4, 8), "contended") == pytest.approx(100 / 1.5)
    assert of(Split(8, 1), "contended") == pytest.approx(of(Split(8, 1), "uncontended"))
    halves = [of(Split(4, 1), schedule) for schedule in ("contended", "uncontended")]
    assert halves[0] == pytest.approx(halves[1] / 2)  # groups inside a node may meet on its links
