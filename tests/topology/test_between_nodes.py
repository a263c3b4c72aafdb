"""What the network between nodes lets a message, a round of pairs and a collective have, and how runs are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricheck.errors import UserError
from fabricheck.judge.expectations import expect_from_topology
from fabricheck.limits.of_metric import expectation
from fabricheck.limits.question import MeasuredSeries
from fabricheck.records.run import Run, Samples
from fabricheck.topology.between_nodes import alltoall_gbps, least_cut_gbps, link_loads, pair_rates
from fabricheck.topology.model import Topology, load_topology
from fabricheck.topology.network import Network
from fabricheck.topology.placement import ends_of_ranks
from fabricheck.yardsticks.policy import load_policy
from tests.support.effort import effort
from tests.support.made_runs import MIB, made_run, made_samples
from tests.support.nodes import ROOT, system

# Two leaves, one or two spines, two ports a node of 0.2 Gb/s each.
TWO_LEAVES = (ROOT / "tests/data/topologies/two_leaves.yaml").read_text(encoding="utf-8")
ALL = frozenset(f"nid{number:03d}" for number in range(1, 9))
LEFT = frozenset(sorted(ALL)[:4])


def made(tmp_path: Path, *, trunk: float = 800, spines: str = "0", cable: float = 200) -> Topology:
    file = tmp_path / "topology.yaml"
    file.write_text(TWO_LEAVES.format(trunk=trunk, spines=spines, cable=cable), encoding="utf-8")
    return load_topology(file)


def network(tmp_path: Path, **others: Any) -> Network:
    found = made(tmp_path, **others).network
    assert found is not None
    return found


def test_a_pair_is_limited_by_the_slowest_link_of_its_way(tmp_path: Path) -> None:
    slow_trunk = network(tmp_path, trunk=100)
    near = pair_rates(slow_trunk, "nid001", "nid004")
    assert (near.nominal, near.expected, near.ceiling) == pytest.approx((0.2, 0.2, 0.4))
    far = pair_rates(slow_trunk, "nid001:hsn0", "nid005:hsn0")
    assert (far.nominal, far.expected, far.ceiling) == pytest.approx((0.1, 0.1, 0.1))
    # Both trunks are alike, so neither is pointed at.
    assert far.slowest_link is None and near.slowest_link is None
    here = made(tmp_path).network
    assert here is not None
    loads = link_loads(here, [("nid001:hsn0", "nid002:hsn0"), ("nid001:hsn0", "nid003:hsn0")])
    assert pair_rates(here, "nid001:hsn0", "nid002:hsn0", loads).slowest_link == "nid001:hsn0--leaf0"
    # Both spines together let two messages pass, one message takes one of them.
    two = pair_rates(network(tmp_path, trunk=100, spines="0-1"), "nid001", "nid005")
    assert (two.nominal, two.ceiling) == pytest.approx((0.1, 0.2))


def test_pairs_of_a_round_share_the_trunk(tmp_path: Path) -> None:
    across = [(f"nid00{a}", f"nid00{a + 4}") for a in (1, 2, 3, 4)]
    thin = network(tmp_path, trunk=400)
    loads = link_loads(thin, across)
    assert loads["leaf0--spine0"] == pytest.approx(4)
    assert pair_rates(thin, "nid001", "nid005", loads).expected == pytest.approx(0.1)
    assert pair_rates(thin, "nid001", "nid005", loads).nominal == pytest.approx(0.2)
    # The healthy emulated cluster does not block, and two spines halve the load of each.
    wide = network(tmp_path, trunk=800)
    assert pair_rates(wide, "nid001", "nid005", link_loads(wide, across)).expected == pytest.approx(0.2)
    spread = network(tmp_path, trunk=400, spines="0-1")
    assert pair_rates(spread, "nid001", "nid005", link_loads(spread, across)).expected == pytest.approx(0.2)


def test_two_messages_of_a_port_share_its_cable(tmp_path: Path) -> None:
    here = network(tmp_path)
    loads = link_loads(here, [("nid001:hsn0", "nid002:hsn0"), ("nid001:hsn0", "nid003:hsn0")])
    assert loads["nid001:hsn0--leaf0"] == pytest.approx(2)
    assert pair_rates(here, "nid001:hsn0", "nid002:hsn0", loads).expected == pytest.approx(0.1)


def test_alltoall_over_a_trunk_and_inside_a_leaf(tmp_path: Path) -> None:
    # Of what each of four nodes sends, 4/7 crosses: 4 x 4/7 of a node's rate is what the trunk has to carry.
    assert alltoall_gbps(network(tmp_path, trunk=400), ALL) == pytest.approx(0.4 * 7 / 16)
    assert alltoall_gbps(network(tmp_path, trunk=400), LEFT) == float("inf")
    assert alltoall_gbps(network(tmp_path, trunk=400, spines="0-1"), ALL) == pytest.approx(0.8 * 7 / 16)


def test_least_cut(tmp_path: Path) -> None:
    assert least_cut_gbps(network(tmp_path, trunk=100), ALL) == pytest.approx(0.1)
    assert least_cut_gbps(network(tmp_path, trunk=100), LEFT) == pytest.approx(0.4)
    assert least_cut_gbps(network(tmp_path, trunk=800), ALL) == pytest.approx(0.4)


RAILS = (ROOT / "tests/data/topologies/node_on_both_rails.yaml").read_text(encoding="utf-8")


def test_nodes_do_not_forward(tmp_path: Path) -> None:
    (tmp_path / "rails.yaml").write_text(RAILS, encoding="utf-8")
    here = load_topology(tmp_path / "rails.yaml").network
    assert here is not None
    assert least_cut_gbps(here, frozenset(("nid1", "nid3"))) == 10
    assert least_cut_gbps(here, frozenset(("nid1", "nid2", "nid3"))) == 10
    assert least_cut_gbps(here, frozenset(("nid1", "nid2"))) == 100


@settings(deadline=None, max_examples=effort(25))
@given(trunk=st.integers(1, 2000), count=st.integers(1, 3))
def test_no_message_alone_is_expected_above_what_all_ways_carry(
    tmp_path_factory: pytest.TempPathFactory, trunk: int, count: int
) -> None:
    here = network(tmp_path_factory.mktemp("made"), trunk=trunk, spines=f"0-{count}")
    for source, destination in permutations(("nid001", "nid002", "nid005"), 2):
        found = pair_rates(here, source, destination)
        assert 0 < found.expected <= found.nominal <= found.ceiling * (1 + 1e-9)
        shared = pair_rates(here, source, destination, link_loads(here, [(source, destination)] * 4))
        assert shared.expected <= found.expected


# What the judge is told of a run ------------------------------------------------------------------------------------


def samples(operation: str, ranks: Sequence[int], round_: int, schedule: str = "contended") -> Samples:
    return made_samples(operation, ranks, 2 * MIB, 0.2, schedule=schedule, round_=round_)


def run_on(hosts: list[str], *measured: Samples) -> Run:
    return made_run(hosts, measured)


POLICY = load_policy(ROOT / "config" / "policy.yaml")


def test_a_pair_is_asked_for_by_its_nodes_and_named(tmp_path: Path) -> None:
    one = samples("pingpong", (0, 1), -1, "uncontended")
    found = expect_from_topology(run_on(["nid001", "nid005"], one), made(tmp_path, trunk=100), POLICY)(one, "goodput")
    assert (found.nominal, found.expected) == pytest.approx((0.1, 0.1))
    assert "from nid001 to nid005" in found.source
    assert found.ceiling == pytest.approx(0.105)
    near = expect_from_topology(run_on(["nid001", "nid002.cluster"], one), made(tmp_path, trunk=100), POLICY)
    assert near(one, "goodput").expected == pytest.approx(0.2)


@pytest.mark.parametrize("operation", ["allreduce", "allgather", "broadcast"])
def test_nccl_cannot_achieve_more_than_the_trunk_lets_through(tmp_path: Path, operation: str) -> None:
    found = expectation(
        replace(system("alps"), network=network(tmp_path, trunk=100)),
        MeasuredSeries(
            operation=operation,
            implementation="library",
            transport="ccl",
            devices=[*range(4)] * 2,
            ends=["nid001"] * 4 + ["nid005"] * 4,
            schedule="uncontended",
            bytes=1 << 30,
            quantity="goodput",
            host_copy_gbps=80.0,
            nodes=2,
        ),
    )
    assert found.expected is not None and found.achievable is not None
    assert 0.9 * found.expected < found.achievable < found.expected < 1


def test_collectives_know_the_trunk(tmp_path: Path) -> None:
    hosts = sorted(ALL)
    for operation, expected in (("alltoall", 0.4 * 7 / 16 / (7 / 8)), ("allreduce", 0.2 / (14 / 8))):
        one = samples(operation, tuple(range(8)), -1, "uncontended")
        found = expect_from_topology(run_on(hosts, one), made(tmp_path, trunk=400), POLICY)(one, "goodput")
        assert found.expected == pytest.approx(expected)
    one = samples("allreduce", tuple(range(8)), -1, "uncontended")
    thin = expect_from_topology(run_on(hosts, one), made(tmp_path, trunk=50), POLICY)(one, "goodput")
    assert thin.expected == pytest.approx(0.05 / (14 / 8))
    assert thin.ceiling == pytest.approx(0.05 * 1.05)


def test_one_rank_uses_one_nic_and_two_ranks_two(tmp_path: Path) -> None:
    given_: dict[str, Any] = {
        **{"operation": "allreduce", "implementation": "library", "transport": "mpi", "schedule": "uncontended"},
        **{"devices": (), "nodes": 2, "bytes": 2 << 20, "quantity": "goodput", "host_copy_gbps": 80.0},
    }
    assert expectation(made(tmp_path), MeasuredSeries(ranks=2, **given_)).expected == pytest.approx(0.2)
    assert expectation(made(tmp_path), MeasuredSeries(ranks=4, **given_)).expected == pytest.approx(0.4)


def test_a_host_that_is_no_node_is_a_mistake_that_is_named(tmp_path: Path) -> None:
    one = samples("pingpong", (0, 1), -1, "uncontended")
    with pytest.raises(UserError, match=r"a rank ran on 'nid9', which is not a node .* nid\[001-008\]"):
        expect_from_topology(run_on(["nid001", "nid9"], one), made(tmp_path), POLICY)
    # On one node alone the network plays no part: a laptop may check a node of the cluster.
    assert ends_of_ranks(run_on(["anything", "anything"], one), made(tmp_path)) == {}
    # Nor where two hosts have the name of one node: nobody knows which of them is it.
    assert ends_of_ranks(run_on(["nid001", "nid001.site"], one), made(tmp_path)) == {}
