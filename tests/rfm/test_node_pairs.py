"""Which ranks, devices and schedule a test of nodes' ports has, on nodes of every shape."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fabricheck.rfm.measure import FabricbenchCheck
from fabricheck.topology.model import find_topology
from fabricheck.topology.nic import gpus_of_ports, nic_of
from tests.support.nodes import PAPERS, ROOT


def test_every_nic_that_gpus_use_has_a_gpu_of_its_own() -> None:
    assert len(PAPERS) > 8
    for system in PAPERS:
        topology = find_topology(system, ROOT / "site_configs")
        chosen = gpus_of_ports(topology)
        used = [nic_of(topology, gpu) for gpu in topology.gpus]
        if None in used:
            assert len(chosen) == len(topology.gpus)
        else:
            assert len(chosen) == len({nic_of(topology, gpu) for gpu in chosen}) == len(set(used))


def laid_out(
    where: str,
    gpus: int,
    nodes: int,
    *,
    backend: str = "cuda",
    extras: dict[str, object] | None = None,
    nic: str = "",
) -> Any:
    """What `set_ranks` makes of a test of ports on `nodes` nodes of a partition."""
    test: Any = SimpleNamespace(
        current_partition=SimpleNamespace(
            fullname=where,
            devices=[SimpleNamespace(device_type="gpu", num_devices=gpus)] if gpus else [],
        ),
        current_environ=SimpleNamespace(name="made", extras=extras or {}),
        backend=backend,
        rank_a_port=True,
        nic=nic,
        num_nodes=nodes,
        schedules=["contended"],
        least_ranks=2,
        leave_out_if=lambda condition, reason, described=True: None,
        rank_devices=(),
    )
    FabricbenchCheck.set_ranks(test)
    return test


@pytest.mark.parametrize(
    ("where", "gpus", "ranks", "devices"),
    [
        ("alps:gpu", 4, 4, (0, 1, 2, 3)),
        ("lumi:gpu", 8, 4, (0, 2, 4, 6)),
        ("summit:gpu", 6, 2, (0, 3)),
        ("delta:gpu", 4, 1, (0,)),
        ("aurora:gpu", 12, 8, (0, 1, 2, 3, 4, 5, 6, 7)),
    ],
)
def test_a_node_has_a_rank_for_each_port(where: str, gpus: int, ranks: int, devices: tuple[int, ...]) -> None:
    test = laid_out(where, gpus, 4)
    assert (test.num_tasks_per_node, test.rank_devices, test.num_tasks) == (ranks, devices, 4 * ranks)
    # Peer copies need all GPUs to be seen, and the job asks for whole nodes.
    assert test.num_gpus_per_node == gpus
    assert test.schedules == ["contended"]


def test_a_rank_that_uses_all_nics_is_alone_on_its_node() -> None:
    test = laid_out("alps:gpu", 4, 4, nic="all")
    assert (test.num_tasks_per_node, test.rank_devices, test.num_tasks) == (1, (0,), 4)
    assert laid_out("emulated:pair", 0, 2, backend="host", nic="all").num_tasks_per_node == 1


def test_without_gpus_only_an_environment_can_say_the_port() -> None:
    assert laid_out("emulated:pair", 0, 2, backend="host").num_tasks_per_node == 1
    bound = laid_out("emulated:pair", 0, 2, backend="host", extras={"rank_nics": "round-robin"})
    assert (bound.num_tasks_per_node, bound.rank_devices) == (2, ())


@pytest.mark.parametrize(
    ("where", "gpus", "nodes", "schedule"),
    [
        ("delta:gpu", 4, 2, "uncontended"),
        ("delta:gpu", 4, 3, "uncontended"),
        ("delta:gpu", 4, 4, "contended"),
        ("alps:gpu", 4, 2, "contended"),
        ("summit:gpu", 6, 3, "contended"),
    ],
)
def test_few_nodes_have_the_schedule_that_fits(where: str, gpus: int, nodes: int, schedule: str) -> None:
    assert laid_out(where, gpus, nodes).schedules == [schedule]
