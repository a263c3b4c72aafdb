"""What links carry of data: the measured share of recorded transfers, and nothing where nobody can say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fabricheck.errors import UserError
from fabricheck.judge.system import SystemJudge
from fabricheck.records.judgement import Expectation
from fabricheck.suite import SUITE
from fabricheck.topology.hardware import payload
from fabricheck.topology.model import find_topology
from fabricheck.topology.of_metric import expectation
from tests.support.nodes import ROOT, system

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
    return expectation(system(name), operation=operation, transport=transport, devices=devices, **{**given, **others})


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
        operation="allreduce",
        implementation="library",
        transport="ccl",
        devices=[*range(devices)] * nodes,
        **{**given, **more},
    )
    assert found.achievable is not None
    assert 0.75 * found.achievable < 8 * busbw * ranks / (2 * (ranks - 1)) <= 1.05 * found.achievable


@pytest.mark.parametrize("operation", ["unidirectional", "allreduce"])
def test_shaped_links_are_exact_for_two_ranks_of_two_nodes(operation: str) -> None:
    recipe = ROOT / "docs" / "results" / "two-gpu-nodes" / "recipe" / "site_configs"
    found = expectation(
        find_topology("duo", recipe),
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
    )
    assert found.achievable == pytest.approx(9.57, rel=0.001)
    assert found.achievable_margin == 0.04


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
