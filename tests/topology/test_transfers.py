"""Expected goodput of patterns that are lists of messages: the paper's equations come out of the loads of NICs."""

from __future__ import annotations

from typing import Any

import pytest

from fabricheck.errors import UserError
from fabricheck.limits.of_metric import expectation
from fabricheck.limits.question import MeasuredSeries
from fabricheck.records.judgement import Expectation
from fabricheck.records.metrics import parse_metric_name
from fabricheck.records.operations import LISTED, SHAPED, STRIPING
from fabricheck.records.run import Groups
from fabricheck.topology import nic
from fabricheck.topology.transfers import network_gbps, steps_of
from tests.support.nodes import system

GIB = 1 << 30


def ask(name: str, operation: str, groups: Groups | None, *, nodes: int, **others: Any) -> Expectation:
    topology = system(name)
    gpus = [gpu.index for gpu in sorted(topology.gpus, key=lambda gpu: gpu.index)]
    per_node = others.pop("per_node", None) or (groups.count * groups.size // nodes if groups else 0)
    given: dict[str, Any] = {
        "implementation": "transfers",
        "transport": "mpi",
        "schedule": "uncontended",
        "bytes": GIB,
        "quantity": "goodput",
        "host_copy_gbps": 80.0,
        "devices": gpus[:per_node] * nodes,
    }
    return expectation(topology, MeasuredSeries(operation=operation, nodes=nodes, groups=groups, **{**given, **others}))


@pytest.mark.parametrize("name", ["delta", "perlmutter", "summit", "frontier", "aurora"])
@pytest.mark.parametrize("pattern", ["rail_unidirectional", "asymmetric_unidirectional", "symmetric_bidirectional"])
def test_between_nodes_the_equations_of_the_paper_come_out(name: str, pattern: str) -> None:
    size = len(system(name).gpus)
    for active in range(1, size + 1):
        found = ask(name, pattern, Groups(2, size, active), nodes=2)
        # Equations (1) and (2), CommBench §5.2.1, for the node that sends and, of an asymmetric one, for all of
        # the one that receives: the twelve GPUs of Aurora share eight NICs unevenly.
        receiving = size if "asymmetric" in pattern else active
        rates = [nic.node_gbps(system(name), k) for k in (active, receiving)]
        assert found.expected == pytest.approx(min(rates))


@pytest.mark.parametrize("direction", ["unidirectional", "bidirectional", "omnidirectional"])
def test_goodput_of_one_direction_does_not_depend_on_the_number_of_groups(direction: str) -> None:
    for count in (2, 4, 8):
        found = ask("frontier", f"rail_{direction}", Groups(count, 8, 8), nodes=count)
        assert found.expected == pytest.approx(8 * 100)  # figure 12: 100 GB/s a node and direction


def test_groups_inside_a_node_are_bound_by_their_links() -> None:
    injection = ask("hgx-h200", "rail_unidirectional", Groups(2, 2, 1), nodes=1).expected
    assert injection is not None
    for pattern, active, gpus in (("rail", 2, 2), ("symmetric", 2, 2), ("asymmetric", 1, 1)):
        found = ask("hgx-h200", f"{pattern}_unidirectional", Groups(2, 2, active), nodes=1)
        assert found.expected == pytest.approx(gpus * injection)
        assert found.ceiling == pytest.approx(1.05 * gpus * injection)


def test_steps_of_striping_add_up() -> None:
    groups = Groups(2, 8, 8)
    found = {name: ask("frontier", name, groups, nodes=2).expected for name in STRIPING}
    parts = [found[f"striping_{part}"] for part in ("split", "translate", "assemble")]
    assert all(parts)
    assert found["striping"] == pytest.approx(1 / sum(1 / part for part in parts if part))
    assert found["striping_translate"] == pytest.approx(nic.node_gbps(system("frontier"), 8))
    assert found["striping_direct"] == pytest.approx(200)
    pipelined = ask("frontier", "striping_pipelined", groups, nodes=2)
    assert pipelined.ceiling is not None
    assert pipelined.ceiling > (ask("frontier", "striping", groups, nodes=2).ceiling or 0)


def test_a_step_of_striping_may_go_by_another_transport() -> None:
    groups = Groups(2, 4, 4)

    def floor(operation: str, *transports: str) -> float:
        found = ask("frontier", operation, groups, nodes=2, transport="mpi", step_transports=transports)
        assert found.expected is not None
        return found.floor_fraction * found.expected

    # Copies through the host are slower, and asked for less, in the step that goes that way and in the whole.
    mixed = ("staging", "mpi", "mpi")
    assert floor("striping_split", *mixed) < floor("striping_split")
    assert floor("striping", *mixed) < floor("striping")
    for operation in ("striping_translate", "striping_assemble", "striping_direct", "striping_pipelined"):
        assert floor(operation, *mixed) == floor(operation)


def test_messages_of_a_matrix_share_nics() -> None:
    messages = [(0, 8, GIB // 4), (1, 9, GIB // 4), (2, 8, GIB // 2)]
    found = ask("frontier", "sparse", None, nodes=2, per_node=8, messages=messages)
    # GPUs 0 and 1 of a node share its first NIC; what arrives at ranks 8 and 9 is all for one.
    assert found.expected == pytest.approx(200)
    with pytest.raises(UserError, match="its ranks are unknown"):
        ask("frontier", "sparse", None, nodes=2, per_node=8)


def test_steps_of_matrices_follow_one_another() -> None:
    there = [(0, 8, GIB // 4), (1, 9, GIB // 4)]
    back = [(8, 0, GIB // 4, 1), (9, 1, GIB // 4, 1)]
    at_once = ask("frontier", "sparse", None, nodes=2, per_node=8, messages=[*there, *(each[:3] for each in back)])
    in_steps = ask("frontier", "sparse", None, nodes=2, per_node=8, messages=[*there, *back])
    assert at_once.expected == pytest.approx(400)  # both directions of the NIC that GPUs 0 and 1 share
    assert in_steps.expected == pytest.approx(200)
    assert in_steps.ceiling == at_once.ceiling  # ranks that are done with a step do not wait for others


def test_a_training_step_loads_links_and_nics_at_the_same_time() -> None:
    def expected(count: int, size: int, nodes: int) -> float:
        found = ask("alps", "training_step", Groups(count, size, size), nodes=nodes, per_node=count * size // nodes)
        assert found.expected is not None and found.ceiling is not None and found.ceiling >= found.expected
        return found.expected

    # Between n nodes a GPU sends 9/22 of the bytes twice, less its own n-th, by a NIC of 200 Gb/s.
    assert expected(2, 4, 2) == pytest.approx(200 / (9 / 22))
    assert expected(4, 4, 4) == pytest.approx(200 / (9 / 22 * 3 / 2))
    # On one node the other of the group and the one across groups are reached over links of 1,200 Gb/s of their own.
    assert expected(2, 2, 1) == pytest.approx(1200 / (9 / 22))


def test_a_victim_beside_others_may_be_slower_and_never_faster() -> None:
    def victim(**others: Any) -> Expectation:
        return ask("frontier", "victim_alltoall_incast", None, nodes=2, per_node=4, **others)

    alone, beside = victim(), victim(schedule="contended", company=8)
    assert (alone.expected, alone.ceiling) == (beside.expected, beside.ceiling)
    assert beside.floor_fraction == pytest.approx(alone.floor_fraction / 2)


def test_without_gpus_ranks_are_dealt_out_to_nics_by_the_scheme() -> None:
    for name in ("summit", "aurora"):
        for active in (1, 2, 4):
            size = len(system(name).gpus)
            found = ask(name, "rail_unidirectional", Groups(2, size, active), nodes=2, devices=(), ranks=2 * size)
            assert found.expected == pytest.approx(nic.node_gbps(system(name), active))


def test_host_memory_has_a_floor_for_every_pattern() -> None:
    groups = Groups(2, 2, 2)
    for operation in LISTED:
        others: dict[str, Any] = {"messages": [(0, 1, GIB // 2), (2, 3, GIB // 2)]} if "sparse" in operation else {}
        shape = groups if operation in SHAPED else None
        ranks = 2 if "victim_pingpong" in operation else 4
        found = ask("local", operation, shape, nodes=1, devices=(), ranks=ranks, per_node=ranks, **others)
        assert found.expected is not None, operation
        assert found.ceiling is not None, operation
        assert 0 < found.floor_fraction < 0.5
        assert found.floor_fraction * found.expected < found.expected < found.ceiling


@pytest.mark.parametrize(
    ("name", "ranks", "groups"),
    [
        ("rail_bidirectional_uncontended_2x4x1_64mib_goodput", tuple(range(8)), Groups(2, 4, 1)),
        ("striping_pipelined_uncontended_2x2x2_1gib_goodput", tuple(range(4)), Groups(2, 2, 2)),
        ("victim_pingpong_incast_contended_0_7_8b_latency", (0, 7), None),
        ("pingpong_contended_0_1_round3_8b_latency", (0, 1), None),
        ("sparse_intra_uncontended_all4_123456b_goodput", (), None),
    ],
)
def test_names_of_metrics_are_taken_apart(name: str, ranks: tuple[int, ...], groups: Groups | None) -> None:
    found = parse_metric_name(name)
    assert (found.ranks, found.groups) == (ranks, groups)
    assert name.startswith(f"{found.operation}_{found.schedule}_")


@pytest.mark.parametrize(
    "name", ["rail_bidirectional_uncontended_all8_8b_latency", "alltoall_uncontended_2x4x1_8b_latency"]
)
def test_only_patterns_between_groups_have_groups(name: str) -> None:
    with pytest.raises(UserError, match="groups"):
        parse_metric_name(name)


def test_a_rank_without_a_gpu_uses_one_nic_where_nobody_says_which() -> None:
    """As in collectives between nodes: two ranks of a node can use both of its ports, one alone cannot."""
    emulated = system("emulated")
    alone = steps_of("victim_pingpong_incast", ranks=2, bytes=1 << 20, groups=None)[0]
    assert network_gbps(emulated, (), (0, 1), alone) == pytest.approx(0.1)
    rails = steps_of("rail_unidirectional", ranks=4, bytes=1 << 20, groups=Groups(2, 2, 2))[0]
    assert network_gbps(emulated, (), (0, 0, 1, 1), rails) == pytest.approx(0.2)
