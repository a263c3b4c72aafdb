"""What the judge is told: conversions to the conventions of result files, ceilings, floors."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial
from typing import Any

import networkx as nx
import pytest

from fabricheck.errors import UserError
from fabricheck.limits.memory import host_link_gbps
from fabricheck.limits.of_metric import TRANSPORTS
from fabricheck.records.judgement import Expectation
from fabricheck.records.operations import COLLECTIVES, PAIRS
from fabricheck.topology.model import Nic
from tests.support.nodes import PAPERS, expected_of, system, two_sockets

GIB = 1 << 30


ask = partial(expected_of, host_copy_gbps=80.0)


def holds(found: Expectation, value: float) -> bool:
    """Whether the judge would let a goodput stand without a reference."""
    assert found.expected is not None and found.ceiling is not None
    return found.floor_fraction * found.expected <= value <= found.ceiling


# Measured on four H200 with NVLink SHARP off (nvbandwidth 0.8, nccl-tests 2.19.6, OSU 7.4, 2026-11-21), GB/s.
H200 = [
    ("pingpong", "copy", (0, 1), 394.1),
    ("unidirectional", "copy", (2, 3), 396.4),
    ("pingpong", "ccl", (0, 1), 354.0),
    ("pingpong", "mpi", (0, 1), 386.0),
    ("allreduce", "ccl", (0, 1, 2, 3), 232.0),
    ("alltoall", "ccl", (0, 1, 2, 3), 421.0),
    ("allgather", "ccl", (0, 1, 2, 3), 421.0),
    ("broadcast", "ccl", (0, 1, 2, 3), 358.0),
    ("pingpong", "staging", (0, 1), 8.0),
]


@pytest.mark.parametrize(("operation", "transport", "devices", "gbytes"), H200)
def test_a_healthy_h200_node_holds(operation: str, transport: str, devices: tuple[int, ...], gbytes: float) -> None:
    found = ask(system("hgx-h200"), operation, devices, transport=transport)
    assert holds(found, 8 * gbytes)
    # and what is broken does not: a fifth of it, or ten times as much
    assert not holds(found, 8 * gbytes / 5)
    assert not holds(found, 8 * gbytes * 10)


def test_a_staged_transfer_that_did_not_stage_is_implausible() -> None:
    found = ask(system("hgx-h200"), "pingpong", (0, 1), transport="staging")
    assert found.ceiling is not None and found.ceiling < 8 * 38


def test_own_shares_are_counted_as_in_result_files() -> None:
    alps = system("alps")
    everyone = (0, 1, 2, 3)
    assert ask(alps, "alltoall", everyone).expected == pytest.approx(3600 * 4 / 3)
    assert ask(alps, "allgather", everyone).expected == pytest.approx(3600 * 4 / 3)
    assert ask(alps, "reduce_scatter", everyone).expected == pytest.approx(3600 * 4 / 3)
    assert ask(alps, "broadcast", everyone).expected == pytest.approx(3600)


def test_an_allreduce_is_held_to_what_an_algorithm_can_reach() -> None:
    """The paper's 3.6 Tb/s would need less than 2(n-1)/n of the buffer to leave each GPU."""
    found = ask(system("alps"), "allreduce", (0, 1, 2, 3))
    assert found.expected == pytest.approx(2400)
    assert found.ceiling == pytest.approx(2400 * 1.05)
    assert ask(system("lumi"), "allreduce", range(8)).expected == pytest.approx(800 * 8 / 7)


def test_reduction_in_the_switch_lifts_the_ceiling_of_an_allreduce_only() -> None:
    with_sharp, without = system("hgx-h200"), system("dgx-a100")
    found = ask(with_sharp, "allreduce", range(4))
    assert found.ceiling == pytest.approx(3600 * 1.05)
    # 480 GB/s of busbw for 8 GPUs with NVLink SHARP (NCCL's maintainers) is algbw x 2(n-1)/n; here 4 GPUs at 370
    assert holds(found, 8 * 370 * 4 / 6)
    plain = ask(without, "allreduce", range(8))
    assert plain.ceiling == pytest.approx(plain.expected * 1.05 if plain.expected else math.nan)
    assert ask(with_sharp, "allgather", range(4)).ceiling == pytest.approx(4800 * 1.05)


def test_reference_collectives_over_copies() -> None:
    h200 = system("hgx-h200")
    everyone = range(4)
    one = 3600 / 3
    assert ask(h200, "broadcast", everyone, transport="copy").expected == pytest.approx(one)
    assert ask(h200, "reduce", everyone, transport="copy").expected == pytest.approx(one)
    assert ask(h200, "allreduce", everyone, transport="copy").expected == pytest.approx(one / 2)
    assert ask(h200, "allgather", everyone, transport="copy").expected == pytest.approx(4 * one)
    for operation in ("broadcast", "allgather"):
        by_copy = ask(h200, operation, everyone, transport="copy").expected
        assert ask(h200, operation, everyone, transport="kernel").expected == by_copy


def test_staging_is_three_copies() -> None:
    h200 = system("hgx-h200")
    assert ask(h200, "pingpong", (0, 1), transport="staging").expected == pytest.approx(1 / (2 / 512 + 1 / 80))
    unknown = ask(h200, "pingpong", (0, 1), transport="staging", host_copy_gbps=None)
    assert unknown.expected is None and unknown.ceiling is not None


def test_two_gcds_of_one_numa_domain_share_its_staging() -> None:
    lumi = system("lumi")
    near = ask(lumi, "alltoall", (0, 1), transport="staging").expected
    spread = ask(lumi, "alltoall", (0, 2), transport="staging").expected
    assert near is not None and spread is not None and near < spread


def test_between_nodes() -> None:
    alps = system("alps")
    pair = ask(alps, "pingpong", (0, 0), nodes=2)
    assert pair.expected == pytest.approx(200)
    assert holds(pair, 0.95 * 200)
    assert not holds(pair, 0.4 * 200)
    # alltoall: 4 GPUs a node, half of their bytes leave it, own share counted
    found = ask(alps, "alltoall", (0, 1, 2, 3) * 2, nodes=2)
    assert found.expected == pytest.approx(800 / (4 * 0.5))
    many = ask(alps, "alltoall", (0, 1, 2, 3) * 256, nodes=256)
    assert many.expected == pytest.approx(200, rel=0.01)


def test_gpus_on_one_nic_share_it() -> None:
    lumi = system("lumi")
    one_each = ask(lumi, "alltoall", (0, 2) * 2, nodes=2).expected
    shared = ask(lumi, "alltoall", (0, 1) * 2, nodes=2).expected
    assert one_each is not None and shared is not None
    assert one_each == pytest.approx(2 * shared)


def test_a_shaped_link_may_burst() -> None:
    from dataclasses import replace

    alps = system("alps")
    shaped = replace(alps, nics=tuple(replace(one, burst_bytes=256 << 10) for one in alps.nics))
    assert ask(shaped, "pingpong", (0, 0), nodes=2, bytes=256 << 10).ceiling is None
    large = ask(shaped, "pingpong", (0, 0), nodes=2).ceiling
    plain = ask(alps, "pingpong", (0, 0), nodes=2).ceiling
    assert large is not None and plain is not None and plain < large < 1.01 * plain


@pytest.mark.parametrize("operation", [*PAIRS, *COLLECTIVES])
def test_shared_memory_has_wide_bounds(operation: str) -> None:
    local = system("local")
    found = ask(local, operation, (), transport="mpi", ranks=2)
    assert found.expected is not None
    assert holds(found, 0.3 * found.expected)
    assert holds(found, 3 * found.expected)
    assert not holds(found, 100 * found.expected)
    assert not holds(found, found.expected / 200)
    assert ask(local, operation, (), transport="mpi", ranks=2, host_copy_gbps=None).expected is None


@pytest.mark.parametrize(
    ("transport", "devices", "nodes", "impossible", "possible"),
    [
        ("mpi", (), 1, 0.01, 0.1),
        ("mpi", (0, 1), 1, 0.05, 1.0),
        ("copy", (0, 1), 1, 0.1, 2.2),
        ("ccl", (0, 1), 1, 0.1, 22.0),
        ("mpi", (0, 0), 2, 0.2, 1.02),
    ],
)
def test_latency_has_a_least_plausible_time(
    transport: str, devices: tuple[int, ...], nodes: int, impossible: float, possible: float
) -> None:
    topology = system("alps") if devices else system("local")
    found = ask(topology, "pingpong", devices, transport=transport, nodes=nodes, bytes=8, quantity="latency")
    assert found.expected is None and found.nominal is None and found.ceiling is not None
    assert impossible < found.ceiling < possible


def test_latency_is_at_least_the_time_of_the_bytes() -> None:
    # A copy takes the one path that the hardware has; a library may take all paths.
    found = ask(system("alps"), "pingpong", (0, 1), bytes=GIB, quantity="latency", transport="copy")
    assert found.ceiling == pytest.approx(8e-3 * GIB / (1200 * 1.05))


def test_small_transfers_have_lower_floors() -> None:
    h200 = system("hgx-h200")
    floors = [ask(h200, "pingpong", (0, 1), bytes=size).floor_fraction for size in (64 << 10, 1 << 20, 64 << 20, GIB)]
    assert floors == sorted(floors)
    assert floors[0] < 0.01
    assert floors[-1] > 0.45
    assert ask(h200, "pingpong", (0, 1), floor_fraction=0.9).floor_fraction > 0.85


@pytest.mark.parametrize("name", PAPERS)
def test_expected_is_never_above_nominal_or_ceiling(name: str) -> None:
    topology = system(name)
    everyone = [gpu.index for gpu in topology.gpus]
    cases = itertools.product(TRANSPORTS, (*PAIRS, *COLLECTIVES), ("uncontended", "contended"), (1, 2))
    for transport, operation, schedule, nodes in cases:
        case = (transport, operation, schedule, nodes)
        devices = everyone[:2] if operation in PAIRS else everyone * nodes
        found = ask(topology, operation, devices, transport=transport, schedule=schedule, nodes=nodes)
        if found.expected is not None and found.ceiling is not None:
            assert found.expected <= found.ceiling, case
        if found.expected is not None and found.nominal is not None:
            assert found.expected <= found.nominal * (1 + 1e-9), case
        assert 0 <= found.floor_fraction <= 0.5, case


@pytest.mark.parametrize(
    ("operation", "accesses", "measured"), [("host_read", 1, 80), ("host_stream", 2, 80), ("host_triad", 3, 160 / 3)]
)
def test_cores_share_what_their_memory_carries_or_reach_as_much_as_one_of_them_at_least(
    operation: str, accesses: int, measured: float
) -> None:
    known = ask(system("frontier"), operation, (0,), transport="cores", ranks=1)
    assert known.expected == pytest.approx(8 * 204.8 / len(system("frontier").cpus) / accesses)
    unknown = ask(system("hgx-h200"), operation, (0,), transport="cores", ranks=1, host_copy_gbps=80.0)
    assert unknown.nominal is None
    # The cores beside an H100 read at 760 Gb/s where one core copies at 70.
    assert unknown.ceiling is not None
    assert unknown.ceiling > 10_000
    assert unknown.expected == pytest.approx(measured)


@pytest.mark.parametrize("transport", ["copy", "mpi"])
def test_both_directions_inside_a_gpu_share_its_memory(transport: str) -> None:
    """OpenPOWER paper, section 5.2: one direction reaches the peak already."""
    one, both = (ask(system("hgx-h200"), each, (0, 0), transport=transport) for each in ("pingpong", "bidirectional"))
    assert one.expected == pytest.approx(4800 * 8 / 2)
    assert both.expected == pytest.approx(4800 * 8 / 4)
    assert both.ceiling is not None and one.ceiling == pytest.approx(2 * both.ceiling)


def test_a_part_of_the_node() -> None:
    lumi = system("lumi")
    # The two GCDs of a package have four links of 400 Gb/s, and each sends all of an allreduce of two to the other.
    assert ask(lumi, "allreduce", (0, 1)).expected == pytest.approx(1600)
    # 0 and 5 are not linked: data pass the GCDs between them, by one path (400 Gb/s) or by all there are.
    links: nx.Graph[str] = nx.Graph()
    for link in lumi.links:
        if set(link.ends) <= {gpu.name for gpu in lumi.gpus}:
            links.add_edge(*link.ends, capacity=link.count * link.rate_gbps)
    all_paths = nx.maximum_flow_value(links, lumi.gpus[0].name, lumi.gpus[5].name)
    apart = ask(lumi, "broadcast", (0, 5)).expected
    assert apart is not None and 400 <= apart <= all_paths


def test_a_single_rank_of_a_collective_has_no_rate() -> None:
    found = ask(replace(system("alps"), gpu_memory_gbps=None), "allreduce", (0,))
    assert found.expected is None


@pytest.mark.parametrize(
    "others",
    [
        {"operation": "gossip"},
        {"transport": "pigeon"},
        {"schedule": "sometimes"},
        {"quantity": "beauty"},
        {"implementation": "magic"},
        {"nodes": 0},
        {"bytes": 0},
    ],
)
def test_unknown_names(others: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        ask(system("alps"), others.pop("operation", "pingpong"), (0, 1), **others)


@pytest.mark.parametrize("devices", [(0, 9), (0, 1, 2)])
def test_devices_that_do_not_fit(devices: tuple[int, ...]) -> None:
    with pytest.raises(UserError):
        ask(system("alps"), "pingpong", devices)


@pytest.mark.parametrize("operation", ["local_copy", "host_to_device", "unidirectional"])
def test_what_comes_back_to_a_node_by_a_nic_is_as_fast_as_the_nic(operation: str) -> None:
    """CSCS requires 187 of 200 Gb/s -2% of cxi_gpu_loopback_bw (cscs-reframe-tests, cxi_gpu_loopback_bw.py)."""
    devices = (0, 1) if operation in PAIRS else (0,)
    found = ask(system("alps"), operation, devices, transport="fabric", ranks=len(devices), host_memory="pinned")
    assert (found.nominal, found.expected) == (200.0, 200.0)
    assert holds(found, 187.0)
    assert found.achievable is not None
    assert 0.88 * found.achievable < 0.98 * 187.0 < 200.0


def test_no_gpu_is_faster_to_a_nic_than_its_link() -> None:
    summit = system("summit")
    fast = replace(summit, nics=tuple(replace(nic, rate_gbps=4000.0) for nic in summit.nics))
    found = ask(fast, "local_copy", (0,), transport="fabric", ranks=1)
    assert found.expected == host_link_gbps(fast, fast.gpus[0])


@pytest.mark.parametrize(
    ("operation", "devices", "nics", "gbps", "link"),
    [
        ("local_copy", (0,), [["mlx0"]], 200.0, ""),
        ("local_copy", (0,), [["mlx1"]], 150.0, "cpu0"),  # by the other socket
        ("host_to_device", (1,), [["mlx0"]], 150.0, "cpu1"),
        ("unidirectional", (0, 1), [["mlx0"], ["mlx1"]], 200.0, ""),
        ("unidirectional", (0, 0), [["mlx0"], ["mlx1"]], 150.0, "cpu0"),
        ("unidirectional", (0, 0), [["mlx0", "mlx1"]] * 2, 256.0, "gpu0"),  # in stripes, of which each gets half
        ("local_copy", (0,), [["mlx5_7"]], 200.0, ""),  # a name that the topology does not have
    ],
)
def test_a_gpu_behind_another_socket_than_the_nic_gets_what_joins_the_sockets(
    operation: str, devices: tuple[int, ...], nics: list[list[str]], gbps: float, link: str
) -> None:
    nodes = {"nodes": 2} if operation in PAIRS else {"ranks": 1, "host_memory": "pinned"}
    found = ask(two_sockets(150.0), operation, devices, transport="fabric", nics=nics, **nodes)
    assert (found.nominal, found.expected) == (gbps, gbps)
    assert (f"the link from {link}" in found.source) == bool(link)


def test_where_nothing_is_known_to_join_the_sockets_nothing_is_expected() -> None:
    found = ask(two_sockets(None), "local_copy", (0,), transport="fabric", ranks=1, nics=[["mlx1"]])
    assert (found.nominal, found.expected) == (200.0, None)
    assert "gpu0" in found.source and "mlx1" in found.source
    near = ask(two_sockets(None), "local_copy", (0,), transport="fabric", ranks=1, nics=[["mlx0"]])
    assert near.expected == 200.0
    # Data from and to the host do not pass the GPU's links.
    hosts = ask(
        two_sockets(None), "pingpong", (0, 0), transport="fabric", nodes=2, nics=[["mlx1"]] * 2, buffers="host-host"
    )
    assert hosts.expected == 200.0


def test_libfabric_does_not_go_by_nvlink_between_nodes() -> None:
    rack = replace(system("hgx-h200"), nvlink_domain_nodes=2, nics=(Nic("ib0", "ConnectX-7", 400.0, "made"),))
    found = ask(rack, "unidirectional", (0, 0), transport="fabric", nodes=2, nics=[["ib0"]] * 2)
    assert (found.nominal, found.expected) == (400.0, 400.0)
    assert (ask(rack, "unidirectional", (0, 0), nodes=2).nominal or 0) > 400.0


def test_sockets_and_shared_memory_keep_data_away_from_the_nics_of_their_node() -> None:
    alps = system("alps")
    omni_path = replace(alps, nics=tuple(replace(nic, model="Omni-Path HFI") for nic in alps.nics))
    assert ask(omni_path, "local_copy", (0,), transport="fabric", ranks=1).nominal is None
    assert ask(system("emulated"), "local_copy", (), transport="fabric", ranks=1).nominal is None
    assert ask(system("alps"), "allgather", (0, 1, 2, 3), transport="fabric").expected is None


def test_stripes_are_as_fast_as_all_nics_together_or_the_link_of_the_gpu() -> None:
    alps = system("alps")
    alps_nics = ["hsn0", "hsn1", "hsn2", "hsn3"]
    striped = ask(alps, "unidirectional", (0, 0), transport="fabric", nodes=2, nics=[alps_nics] * 2)
    assert (striped.nominal, striped.expected) == (800.0, 800.0)
    narrow = replace(alps, nics=tuple(replace(nic, rate_gbps=4000.0) for nic in alps.nics))
    limited = ask(narrow, "unidirectional", (0, 0), transport="fabric", nodes=2, nics=[alps_nics] * 2)
    assert limited.expected == host_link_gbps(alps, alps.gpus[0])
    assert (
        ask(narrow, "unidirectional", (), transport="fabric", nodes=2, ranks=2, nics=[alps_nics] * 2).expected
        == 16000.0
    )


def test_stripes_take_all_cables_of_a_node() -> None:
    """Two ports of 100 Mb/s a node; between the leaves 400 Mb/s."""
    emulated, asked = (
        system("emulated"),
        {"transport": "fabric", "nodes": 2, "ranks": 2, "nics": [["hsn0", "hsn1"]] * 2},
    )
    for ends in (("nid001", "nid002"), ("nid001", "nid005")):
        found = ask(emulated, "unidirectional", (), schedule="contended", ends=ends, **asked)
        assert [found.nominal, found.expected] == pytest.approx([0.2, 0.2])
        assert found.ceiling is not None and 0.2 <= found.ceiling < 0.22
