"""What links carry of data: the measured share of recorded transfers, and nothing where nobody can say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricheck.errors import UserError
from fabricheck.judge.system import SystemJudge
from fabricheck.limits.of_metric import expectation
from fabricheck.limits.question import MeasuredSeries
from fabricheck.records.judgement import Expectation
from fabricheck.records.operations import COLLECTIVES, PAIRS
from fabricheck.suite import SUITE
from fabricheck.topology.hardware import payload
from fabricheck.topology.model import Nic, Topology, find_topology
from fabricheck.topology.network import Network, NetworkLink, NetworkSwitch
from tests.support.effort import effort
from tests.support.nodes import PAPERS, ROOT, system

GIB = 1 << 30


def ask(operation: str, transport: str, devices: list[int], *, name: str = "hgx-h200", **others: Any) -> Expectation:
    given: dict[str, Any] = {
        "implementation": "transfers",
        "schedule": "uncontended",
        "nodes": 1,
        "bytes": GIB,
        "quantity": "goodput",
        "host_copy_gbps": 80.0,
    }
    return expectation(
        system(name), MeasuredSeries(operation=operation, transport=transport, devices=devices, **{**given, **others})
    )


# Medians of 28 launches on four H200 (docs/results/h200-2026-11-22).
@pytest.mark.parametrize(
    ("operation", "transport", "devices", "measured", "more"),
    [
        ("unidirectional", "copy", [0, 1], 3165.0, {}),
        ("unidirectional", "kernel", [0, 1], 2958.0, {}),
        ("pingpong", "ccl", [0, 1], 2934.0, {}),
        ("allreduce", "ccl", [0, 1, 2, 3], 1876.0, {"implementation": "library"}),
        ("local_copy", "kernel", [0], 16440.0, {}),
        ("host_to_device", "copy", [0], 439.2, {"bytes": 64 << 20, "host_memory": "pinned"}),
    ],
)
def test_recorded_goodput_is_what_can_be_achieved(
    operation: str, transport: str, devices: list[int], measured: float, more: dict[str, Any]
) -> None:
    found = ask(operation, transport, devices, **more)
    assert found.achievable == pytest.approx(measured, rel=0.05)
    assert found.expected is not None and found.achievable is not None
    assert found.achievable < found.expected
    assert found.achievable_source


# Of published machines: busbw in GB/s (reference_values).
@pytest.mark.parametrize(
    ("name", "devices", "nodes", "busbw", "more"),
    [
        ("dgx-a100", 8, 1, 231.58, {}),
        ("hgx-h200:gpu8", 8, 1, 480.0, {}),
        ("hgx-h200:gpu8", 8, 1, 367.6, {"without_switch": "NCCL_NVLS_ENABLE=0"}),
        ("hgx-h200:gpu8", 4, 1, 363.3, {}),
        ("alps", 4, 8, 91.04, {}),
        ("perlmutter", 4, 2, 66.0, {}),
        ("lumi", 8, 2, 85.0, {}),
        ("lumi", 8, 1, 125.0, {}),
    ],
)
def test_a_published_allreduce_is_what_can_be_achieved(
    name: str, devices: int, nodes: int, busbw: float, more: dict[str, Any]
) -> None:
    site, _, partition = name.partition(":")
    topology = SystemJudge.of(name, ROOT).topology_of(name) if partition else system(site)
    assert topology is not None
    ranks = devices * nodes
    given = {"schedule": "uncontended", "bytes": 8 * GIB, "quantity": "goodput", "host_copy_gbps": 80.0, "nodes": nodes}
    found = expectation(
        topology,
        MeasuredSeries(
            operation="allreduce",
            implementation="library",
            transport="ccl",
            devices=[*range(devices)] * nodes,
            **{**given, **more},
        ),
    )
    assert found.achievable is not None
    assert 0.75 * found.achievable < 8 * busbw * ranks / (2 * (ranks - 1)) <= 1.05 * found.achievable


@pytest.mark.parametrize("operation", ["unidirectional", "allreduce"])
def test_shaped_links_are_exact_for_two_ranks_of_two_nodes(operation: str) -> None:
    found = expectation(
        find_topology("duo", DUO),
        MeasuredSeries(
            operation=operation,
            implementation="library" if operation == "allreduce" else "transfers",
            transport="ccl",
            devices=[0, 0],
            ends=["nid001:hsn0", "nid002:hsn0"] if operation == "unidirectional" else (),
            schedule="uncontended",
            bytes=64 << 20,
            quantity="goodput",
            host_copy_gbps=80.0,
            nodes=2,
        ),
    )
    assert found.achievable == pytest.approx(9.57, rel=0.001)
    assert found.achievable_margin == 0.04


DUO = ROOT / "docs" / "results" / "two-gpu-nodes" / "recipe" / "site_configs"
SMALL = [8, 1024, 16 << 10, 64 << 10]


def of_two_nodes(topology: Topology, operation: str, transport: str, bytes_: int, quantity: str) -> Expectation:
    """Of one GPU a node, on the ports of one switch."""
    pair = operation in PAIRS
    return expectation(
        topology,
        MeasuredSeries(
            operation=operation,
            implementation="transfers" if pair else "library",
            transport=transport,
            devices=[topology.gpus[0].index] * 2,
            ends=["nid001", "nid002"] if pair else (),
            schedule="uncontended",
            bytes=bytes_,
            quantity=quantity,
            host_copy_gbps=80.0,
            nodes=2,
        ),
    )


def on_one_switch(topology: Topology, model: str, rate: float, ccl: str | None, mpi: str | None) -> Topology:
    """The nodes with one port each of this model, and the paths that their file names."""
    port = Nic("hsn0", model, rate, "test")
    cables = tuple(NetworkLink((f"{node}:hsn0", "leaf0"), model, 1, rate, "test") for node in ("nid001", "nid002"))
    ports = ("nid001:hsn0", "nid002:hsn0")
    network = Network(("nid001", "nid002"), ports, (NetworkSwitch("leaf0"),), cables)
    plugged = replace(topology, nics=(port,), nic_scheme="one-to-one", network=network, fabric=None)
    return replace(plugged, ccl_path_between_nodes=ccl, mpi_path_between_nodes=mpi)


RDMA = ["Slingshot-11", "InfiniBand HDR", "RoCE 200 Gb/sec (4X HDR)", "EFA"]


@st.composite
def over_sockets(draw: st.DrawFn) -> Topology:
    """Nodes whose libraries go by sockets: the file says so, or their ports know nothing else; or nobody knows."""
    topology = system(draw(st.sampled_from(PAPERS)))
    rate = draw(st.floats(0.05, 800))
    if draw(st.booleans()):
        return on_one_switch(topology, draw(st.sampled_from(RDMA)), rate, "NET/Socket", "TCP")
    paths = draw(st.sampled_from([(None, None), ("NET/Socket", "TCP"), ("NET/MPI", None)]))
    return on_one_switch(topology, draw(st.sampled_from(["shaped veth", "Ethernet", "NIC"])), rate, *paths)


@settings(deadline=None, max_examples=effort(100))
@given(topology=over_sockets(), data=st.data())
def test_nobody_says_how_long_a_socket_takes(topology: Topology, data: st.DataObject) -> None:
    operation = data.draw(st.sampled_from([*PAIRS, *COLLECTIVES]))
    transport = data.draw(st.sampled_from(["ccl", "mpi", "fabric"]))
    found = of_two_nodes(topology, operation, transport, data.draw(st.sampled_from(SMALL)), "latency")
    assert found.achievable is None


@pytest.mark.parametrize("model", RDMA)
@pytest.mark.parametrize("operation", ["unidirectional", "allreduce"])
def test_how_long_rdma_takes_is_known(model: str, operation: str) -> None:
    topology = on_one_switch(system("alps"), model, 200.0, None, None)
    found = of_two_nodes(topology, operation, "ccl", 8, "latency")
    assert found.achievable is not None and found.achievable > 10
    assert of_two_nodes(topology, operation, "ccl", 1 << 20, "goodput").achievable is not None


@pytest.mark.parametrize("operation", ["unidirectional", "allreduce"])
@pytest.mark.parametrize(("bytes_", "known"), [(8, False), (64 << 10, False), (1 << 20, False), (64 << 20, True)])
def test_a_socket_is_judged_where_its_start_is_a_small_share(operation: str, bytes_: int, known: bool) -> None:
    found = of_two_nodes(find_topology("duo", DUO), operation, "ccl", bytes_, "goodput")
    assert (found.achievable is not None) == known


@pytest.mark.parametrize(
    ("operation", "transport", "devices", "more"),
    [
        ("unidirectional", "staging", [0, 1], {}),
        ("allreduce", "mpi", [0, 1, 2, 3], {"implementation": "library"}),
        ("allreduce", "copy", [0, 1, 2, 3], {}),
        ("host_to_device", "copy", [0], {"host_memory": "pageable"}),
        ("host_to_device", "copy", [0, 1], {"host_memory": "pinned"}),
        ("host_bidirectional", "copy", [0], {"host_memory": "pinned"}),
        ("unidirectional", "mpi", [0, 1], {"buffers": "host-device"}),
        ("unidirectional", "kernel", [0, 1], {"name": "aurora"}),  # nobody measured kernels over Xe Link
    ],
)
def test_nobody_says_where_more_than_the_links_decides(
    operation: str, transport: str, devices: list[int], more: dict[str, Any]
) -> None:
    assert ask(operation, transport, devices, **more).achievable is None


@pytest.mark.parametrize(
    "model",
    [
        *("InfiniBand 100 Gb/sec (4X EDR)", "InfiniBand 100 Gb/sec (2X HDR)", "InfiniBand 200 Gb/sec (4X HDR)"),
        *("InfiniBand 400 Gb/sec (4X NDR)", "RoCE 100 Gb/sec (4X EDR)", "RoCE 200 Gb/sec (4X HDR)"),
        *("RoCE 400 Gb/sec (4X NDR)", "EFA 200 Gb/sec (4X HDR)", "Slingshot (cxi)"),
    ],
)
def test_what_a_nic_carries_is_known_by_the_name_that_init_gives_it(model: str) -> None:
    assert payload(model, "nic") is not None


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [("mover: kernel", "mover: kernels", r"payloads\[1\]\.mover"), ("'gb300'", "'gb300('", r"gpus\[0\]\.model")],
)
def test_a_mistake_in_the_table_of_hardware_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, told: str
) -> None:
    file = tmp_path / "config" / "hardware.yaml"
    file.parent.mkdir()
    (tmp_path / "site_configs").mkdir()
    file.write_text((ROOT / "config" / "hardware.yaml").read_text().replace(old, new, 1))
    monkeypatch.setenv(SUITE, str(tmp_path))
    with pytest.raises(UserError, match=rf"hardware.yaml:\d+: {told}: "):
        payload("NVLink4", "copy")
    file.unlink()
    assert payload("NVLink4", "copy") is not None
