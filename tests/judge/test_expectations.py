"""What a run should give on the NICs that its ranks were told to use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fabricheck.judge.expectations import expect_from_topology
from fabricheck.records.run import Groups
from fabricheck.yardsticks.policy import Policy
from tests.support.made_runs import MIB, made_run, made_samples
from tests.support.nodes import system

TCP, UCX = "OMPI_MCA_btl_tcp_if_include", "UCX_NET_DEVICES"


@pytest.mark.parametrize(
    ("environment", "differences", "ports"),
    [
        ({}, [], 2),
        ({TCP: "hsn0"}, [], 1),
        ({UCX: "hsn1:1"}, [], 1),
        ({TCP: "hsn0,hsn1"}, [], 2),
        ({TCP: "hsn0"}, [{"rank": 1, "name": TCP, "value": "hsn1"}], 2),
        ({TCP: "hsn0"}, [{"rank": 1, "name": TCP, "value": None}], 1),
        ({TCP: "10.78.0.0/24"}, [], 2),  # nobody knows whose that is
    ],
)
def test_ranks_without_gpus_share_the_ports_that_they_may_use(
    environment: dict[str, str], differences: list[dict[str, Any]], ports: int
) -> None:
    rail = made_samples("rail_unidirectional", range(8), 2 * MIB, 0.09, groups=Groups(2, 4, 4))
    hosts = ["nid001"] * 4 + ["nid002"] * 4
    run = made_run(hosts, [rail], environment=environment, environment_differences=differences)
    found = expect_from_topology(run, system("emulated"), Policy())(rail, "goodput")
    assert found.expected == pytest.approx(0.1 * ports)


def test_what_links_carry_of_nccls_data_says_nothing_of_its_modes() -> None:
    allgather = made_samples("allgather", range(4), 512 * MIB, 4000.0)
    topology = system("hgx-h200")

    def achievable(**plan: Any) -> float | None:
        run = made_run(["vm"] * 4, [allgather], transport="ccl", devices=True, plan=plan)
        return expect_from_topology(run, topology, Policy())(allgather, "goodput").achievable

    assert achievable() is not None
    assert achievable(ccl_mode="symmetric") is None
    assert achievable(datatype="float32") is not None
    assert achievable(datatype="bfloat16") is None


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_latency_of_emulated_gpus_is_that_of_the_machines_cores(nodes: int) -> None:
    """A miniature has the models of the real NICs, and its data go over TCP."""
    allreduce = made_samples("allreduce", range(4 * nodes), 8, 0.001)
    hosts = [f"nid00{node}" for node in range(nodes) for _ in range(4)]

    def achievable(platform: str) -> float | None:
        run = made_run(hosts, [allreduce], transport="ccl", devices=True, platform=platform)
        return expect_from_topology(run, system("alps"), Policy())(allreduce, "latency").achievable

    assert achievable("nvidia") is not None
    assert achievable("emulated") is None


def test_of_ranks_that_a_damaged_header_lost_nothing_is_expected() -> None:
    pairs = [made_samples("unidirectional", ranks, 2 * MIB, 0.09) for ranks in ((0, 1), (2, 3))]
    rounds = [replace(each, schedule="contended", round=0) for each in pairs]
    run = made_run(["nid001", "nid002"], rounds)
    expect = expect_from_topology(run, system("emulated"), Policy())
    assert expect(rounds[0], "goodput").expected is not None
    assert expect(rounds[1], "goodput").source == "its ranks are not in the header"
