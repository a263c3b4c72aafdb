"""What nodes say of themselves, judged: each fault is named with its part, and a healthy machine says nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fabricheck.judge.evidence_of_nics import evidence_of_association
from fabricheck.judge.judge import judge_run
from fabricheck.judge.node_state import (
    beside_metrics,
    evidence_of,
    evidence_without_run,
    findings_of,
    with_problems_of_nodes,
)
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Expectation
from fabricheck.records.node_state import GpuLink, GpuProcess, NodeState, States
from fabricheck.records.rehearsal import as_rehearsal
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.suite import suite_root
from fabricheck.topology.model import Topology, find_topology
from tests.support.findings import bad_finding
from tests.support.made_runs import MIB, made_ranks, made_run, made_samples
from tests.support.states import LINKS, gpu, nic, node, run_with

PYTHON = GpuProcess(4242, "python", 1 << 30)
HOSTS = ("nid001", "nid002", "nid003", "nid004")
ALPS = find_topology("alps", suite_root() / "site_configs")


def judged(run: Run) -> RunJudgement:
    """By a model that allows 100 Gb/s."""
    alone = judge_run(run, lambda *_: Expectation(100, 100, 120, 0.5, "made"), {})
    (run_with_reasons,) = beside_metrics([with_problems_of_nodes(alone, None)])
    return run_with_reasons


Changes = Mapping[str, Mapping[str, Any]]


def run_of(*hosts: str, before: Changes | None = None, after: Changes | None = None, **more: Any) -> Run:
    """A run on these nodes, HOSTS where none is named; `before` and `after`: what a node then has otherwise."""
    nodes = [
        [node(host, when, **(changes or {}).get(host, {})) for host in hosts or HOSTS]
        for when, changes in (("before", before), ("after", after))
    ]
    return run_with(*nodes, **more)


def told(run: Run, topology: Topology | None = None) -> list[tuple[Verdict | None, str]]:
    return [(each.verdict, each.short) for each in evidence_of(run, topology)]


Found = tuple[str, str, str | int, Verdict | None]


def found_in(run: Run, topology: Topology | None = None) -> list[Found]:
    """Code, host, part and verdict of all evidence."""
    return [(each.code, each.host, each.part, each.verdict) for each in evidence_of(run, topology)]


def links(down: Sequence[int] = (), **rise: int) -> tuple[GpuLink, ...]:
    usual = {"replay": 1, "crc_flit": 7}
    counters = {name: value + rise.get(name, 0) for name, value in usual.items()}
    return tuple(GpuLink(each, each not in down, counters if each == 3 else usual) for each in range(LINKS))


def counted(**rise: int) -> Mapping[str, int]:
    return {name: value + rise.get(name, 0) for name, value in gpu().counters.items()}


@pytest.mark.parametrize("gpus", [True, False])
def test_healthy_nodes_say_nothing(gpus: bool) -> None:
    run = run_of(gpus=gpus)
    assert told(run) == []
    assert judged(run).verdict is Verdict.PASS


def test_nodes_that_nobody_asked_say_nothing() -> None:
    assert told(replace(run_with([], [node("nid001", "after")]), states=States())) == []


D, V, P = Verdict.DEGRADED, Verdict.INVALID, Verdict.PASS
#: What a GPU reports before and after a test, and the code and verdict of it.
GPU_FAULTS: tuple[tuple[dict[str, Any], dict[str, Any], str, Verdict | None], ...] = (
    ({"processes": (PYTHON,)}, {}, "gpu-in-use", V),
    ({}, {"processes": (PYTHON,)}, "gpu-in-use", V),
    ({}, {"processes": (GpuProcess(7, "nvidia-cuda-mps-server"),)}, "gpu-shared", P),
    ({"busy_percent": 98, "memory_used_bytes": 1_600_000_000}, {}, "gpu-in-use", V),
    ({}, {"pcie_generation": 3}, "pcie-reduced", D),
    ({}, {"pcie_width": 8, "performance_state": 8}, "pcie-reduced", D),
    # At rest a GPU lowers its link by itself: that counts beside a slow metric alone.
    ({}, {"pcie_generation": 1, "performance_state": 8}, "pcie-reduced", None),
    ({}, {"links": links([7])}, "gpu-links-down", D),
    ({"links": links([7])}, {"links": links([7])}, "gpu-links-down", D),
    ({}, {"links": links(replay=2)}, "gpu-link-errors", D),
    ({}, {"links": links(crc_flit=90)}, "gpu-link-errors", None),
    ({}, {"links": links(crc_flit=9000)}, "gpu-link-errors", D),
    ({}, {"throttle": ("sw_thermal_slowdown",), "clock_mhz": 1188, "temperature_c": 92}, "gpu-throttled", D),
    ({}, {"counters": counted(throttled_ns_thermal=4_000_000)}, "gpu-throttled", P),
    ({}, {"counters": counted(throttled_ns_thermal=4_000_000_000)}, "gpu-throttled", D),
    ({}, {"throttle": ("sw_power_cap",)}, "gpu-setting", None),
    ({}, {"counters": counted(ecc_uncorrected=2)}, "gpu-memory-errors", D),
    ({}, {"counters": counted(ecc_corrected=2)}, "gpu-memory-errors", P),
    ({}, {"counters": counted(pcie_replays=8)}, "pcie-errors", None),
    ({}, {"counters": counted(pcie_replays=9)}, "pcie-errors", D),
    ({}, {"rows_failed": True}, "gpu-memory-errors", D),
    ({}, {"settings": {**gpu().settings, "ECC": "off"}}, "nodes-differ", D),
    ({}, {"power_limit_w": 400.0}, "nodes-differ", D),
)


@pytest.mark.parametrize("before, after, code, verdict", GPU_FAULTS)
def test_a_fault_of_a_gpu(before: dict[str, Any], after: dict[str, Any], code: str, verdict: Verdict | None) -> None:
    first, last = ({"nid001": {"gpus": (gpu(0), gpu(1, **changes))}} for changes in (before, after))
    run = run_of("nid001", "nid002", before=first, after=last)
    found = found_in(replace(run, ranks=made_ranks(["nid001", "nid001", "nid002", "nid002"], devices=True)))
    assert (code, "nid001", 1, verdict) in found
    assert {(host, part) for _, host, part, _ in found} == {("nid001", 1)}


@pytest.mark.parametrize(
    ("busy", "used"),
    [(0, 90 << 30), (100, 0), (100, 1 << 20), (None, None)],
    ids=["memory of the system", "the driver's own", "no context", "not told"],
)
def test_a_gpu_that_rests_or_has_no_context_is_nobodys(busy: int | None, used: int | None) -> None:
    at_work = {"gpus": (gpu(0, busy_percent=busy, memory_used_bytes=used),)}
    assert told(run_of("nid001", before={"nid001": at_work})) == []


def test_a_gpu_that_no_rank_drove_is_told_and_not_judged() -> None:
    before, after = (
        {"nid001": {"gpus": (gpu(0), gpu(1), third)}} for third in (gpu(2), gpu(2, processes=(PYTHON,), pcie_width=8))
    )
    run = run_of("nid001", before=before, after=after)
    assert [verdict for verdict, _ in told(run)] == [Verdict.PASS, Verdict.PASS]
    lines = [each.message for each in findings_of([(run, None), (run, None)])]
    assert len(lines) == 2
    assert lines[0] == "nid001: GPU 2: is in use by process 4242 (python, 1.07 GB), at 0000:02:00.0"


def test_a_gpu_that_is_gone() -> None:
    run = run_of("nid001", after={"nid001": {"gpus": (gpu(0),)}})
    assert ("gpu-missing", "nid001", 1, D) in found_in(run)


def rise(**more: int) -> dict[str, int]:
    names = (*nic().counters, *more)
    return {name: nic().counters.get(name, 0) + more.get(name, 0) for name in names}


#: What differs of a port after a test, and the code and verdict of it.
NIC_FAULTS: tuple[tuple[dict[str, Any], str, Verdict | None], ...] = (
    ({"up": False}, "nic-down", D),
    ({"up": False, "settings": {"state": "INIT"}}, "nic-down", D),
    ({"settings": {"PCIe": "16.0 GT/s x8 of 32.0 GT/s x16"}}, "pcie-reduced", None),
    ({"settings": {"link layer": "Ethernet", "GID types": "IB/RoCE v1"}}, "roce-settings", None),
    ({"settings": {"ECN (np)": "3", "ECN (rp)": "off"}}, "roce-settings", None),
    ({"counters": {"link_downed": 9}}, "nic-flaps", None),
    ({"kind": "infiniband", "counters": rise(retrans_pkts=9)}, "congestion", None),
    ({"kind": "infiniband", "counters": rise(rdma_read_wr_err=1)}, "nic-errors", D),
    ({"rate_gbps": 100.0}, "nic-slow", D),
    ({"duplex": "half"}, "nic-slow", D),
    ({"counters": rise(rx_errors=3)}, "nic-errors", P),
    ({"counters": rise(rx_errors=10)}, "nic-errors", D),
    ({"counters": rise(carrier_changes=2)}, "nic-errors", D),
    ({"counters": rise(rx_dropped=50, rx_packets=9950)}, "nic-drops", D),
    ({"counters": rise(ethtool_rx_pause=9)}, "congestion", None),
    ({"counters": rise(ethtool_rx_crc_errors_phy=7, ethtool_rx_symbol_err_phy=2)}, "nic-errors", None),
)


@pytest.mark.parametrize("changed, code, verdict", NIC_FAULTS)
def test_a_fault_of_a_port(changed: dict[str, Any], code: str, verdict: Verdict | None) -> None:
    found = found_in(run_of(after={"nid002": {"nics": (nic(**changed),)}}), ALPS)
    assert found.count((code, "nid002", "hsn0", verdict)) == 1
    assert {host for _, host, _, _ in found} == {"nid002"}


@pytest.mark.parametrize("changed", [{"settings": {"PFC": "off"}}, {"mtu": 1400}, {"firmware": "1"}])
def test_a_port_that_is_set_otherwise_than_the_others(changed: dict[str, Any]) -> None:
    usual = {"settings": {"PFC": "3:on"}, "mtu": 9000, "firmware": "2"}
    ports = {host: nic(**{**usual, **(changed if host == "nid002" else {})}) for host in HOSTS}
    after = {host: {"nics": (port,)} for host, port in ports.items()}
    assert found_in(run_of(after=after), ALPS) == [("nodes-differ", "nid002", "", D)]


def test_settings_of_ports_that_fit() -> None:
    """RoCE v2 beside v1, congestion noticed and reacted to alike, and a slot that carries the port; and a virtual
    machine's slots, which are made up."""
    fits = {
        **{"link layer": "Ethernet", "GID types": "IB/RoCE v1, RoCE v2", "ECN (np)": "3", "ECN (rp)": "3"},
        "PCIe": "16.0 GT/s x16 of 32.0 GT/s x16",
    }
    for settings, more in ((fits, {}), ({"PCIe": "2.5 GT/s x1"}, {"virtual machine": "yes"})):
        changes = {host: {"nics": (nic(settings=settings),), "settings": more} for host in HOSTS}
        assert told(run_of(before=changes, after=changes), ALPS) == []


def test_ports_of_containers_are_none() -> None:
    """They have names of their own on each node, no hardware, and come and go."""
    after = [node(host, "after", nics=(nic(), nic(f"veth{host}", mtu=1450, up=False))) for host in HOSTS]
    before = [node(host, nics=(nic(), nic(f"veth{host}", mtu=1450))) for host in HOSTS]
    assert told(run_with(before, after), ALPS) == told(run_with(before, after)) == []
    hard = [replace(each, nics=(nic(driver="mlx5_core", up=False),)) for each in after]
    assert [verdict for verdict, _ in told(run_with(before, hard))] == [Verdict.DEGRADED] * 4


def test_few_drops_among_many_packets_are_usual() -> None:
    many = nic(counters=rise(rx_dropped=50, rx_packets=100_000))
    assert told(run_of(after={host: {"nics": (many,)} for host in HOSTS}), ALPS) == []


def test_ports_are_only_told_of_a_run_inside_a_node() -> None:
    run = run_of("nid001", after={"nid001": {"nics": (nic(up=False),)}})
    assert found_in(run, ALPS) == [("nic-down", "nid001", "hsn0", P)]


def test_ports_count_where_a_node_sends_to_itself_by_them() -> None:
    """libfabric, out by a NIC and in again: the data of a run on one node pass its ports."""
    run = run_of("nid001", after={"nid001": {"nics": (nic(up=False),)}}, transport="fabric")
    assert [verdict for verdict, _ in told(run, ALPS)] == [Verdict.DEGRADED]


def segments(host: str, gaps: int, again: int = 0, recoveries: int = 5) -> NodeState:
    usual = node(host).tcp
    more = {"OutSegs": 47_000, "InSegs": 30_000, "RetransSegs": again, "TCPOFOQueue": gaps}
    counted = {name: value + more[name] for name, value in usual.items()}
    return node(host, "after", tcp={**counted, "TCPSackRecovery": recoveries})


#: Segments by node: that came after a gap, were sent again, and recoveries; and the code's verdict at which node.
LOSSY = [(0, 34, 10), (1_434, 0, 0), (0, 6, 4), (0, 38, 3)]  # recorded with 0.1% of the packets to a node lost
LOSSES: dict[str, tuple[list[tuple[int, int, int]], list[tuple[str, Verdict | None]]]] = {
    "to a node": ([(200, 264, 37), (200, 264, 37), (10_489, 75, 3), (200, 264, 37)], [("nid003", D)]),
    "0.1% of the packets": (LOSSY, [("nid002", D)]),
    # What the others recover from for the lossy node is no word against one that is late on busy cores.
    "beside a late one": ([(1_020, 75, 10), (10_489, 75, 10), (200, 264, 40), (200, 264, 40)], [("nid002", D)]),
    "from one sender, whose own port may drop them": ([*LOSSY[:2], (0, 0, 0), (0, 0, 0)], []),
    "a shaper's, few and together": ([(216, 256, 10), (216, 256, 10), (1_747, 28, 6), (216, 256, 10)], []),
    "all alike": ([(6_000, 250, 60)] * 4, []),
    # Recorded where all data went from the first to the second of two healthy nodes.
    "of two": ([(0, 4_418, 96), (4_867, 0, 0)], []),
    # Recorded with 0.3% of the packets to a node lost, on two cores at a load of 15, and of healthy nodes beside it.
    "0.3%, busy": ([(0, 8, 4), (115, 0, 0), (0, 17, 8), (0, 10, 4)], [("nid002", D)]),
    "from a node": ([(60, 0, 0), (0, 45, 15), (40, 2, 0), (30, 0, 0)], [("nid002", D)]),
    "healthy, busy": ([(1, 10, 2), (5, 0, 0), (0, 1, 0), (0, 3, 1)], []),
}


@pytest.mark.parametrize("case", LOSSES)
def test_the_node_that_packets_do_not_reach_is_named(case: str) -> None:
    counts, wanted = LOSSES[case]
    hosts = HOSTS[: len(counts)]
    after = [segments(host, *of_node) for host, of_node in zip(hosts, counts, strict=True)]
    found = found_in(run_with([node(host) for host in hosts], after))
    assert found == [("packets-lost", host, "", verdict) for host, verdict in wanted]


@pytest.mark.parametrize(
    "busy, is_told", [({"nid002"}, False), ({"nid001"}, True), ({*HOSTS[1:]}, True), ({*HOSTS}, True)]
)
def test_gaps_are_no_loss_at_a_node_that_is_busier_than_others(busy: set[str], is_told: bool) -> None:
    before = [node(host, busy_cores=60.0 * (host in busy)) for host in HOSTS]
    after = [segments(host, *of_node) for host, of_node in zip(HOSTS, LOSSY, strict=True)]
    assert ("packets-lost" in {code for code, *_ in found_in(run_with(before, after))}) is is_told


def test_what_differs_between_nodes_is_one_line_each() -> None:
    versions = node("x").versions
    odd = {"versions": {**versions, "kernel": "6.9.1"}, "settings": {"governor": "powersave"}}
    assert found_in(run_of(after={"nid004": odd})) == [("nodes-differ", "nid004", "", D)] * 2  # kernel and governor
    other_kind = {**odd, "versions": {**versions, "kernel": "6.9.1", "processor": "another"}}
    assert told(run_of(after={"nid004": other_kind})) == []


def test_a_variable_that_one_node_has_otherwise() -> None:
    of_ranks = [
        {"name": "UCX_TLS", "rank": 1, "value": "tcp"},
        {"name": "OMPI_MCA_ess_base_vpid", "rank": 2, "value": "2"},
    ]
    run = run_of(environment={"UCX_TLS": "rc"}, environment_differences=of_ranks)
    assert found_in(run) == [("nodes-differ", "nid002", "", D)]
    # Each local rank has its own NIC, and every node the same.
    by_rank = [{"name": "UCX_NET_DEVICES", "rank": rank, "value": f"mlx5_{rank % 2}"} for rank in range(4)]
    twice = run_of("a", "b", environment={})
    ranks = tuple(replace(rank, host="ab"[rank.rank // 2]) for rank in run.ranks)
    header = {**twice.header, "environment_differences": by_rank}
    assert told(replace(twice, ranks=ranks, header=header)) == []


def test_devices_by_their_uuids_are_others_on_each_node() -> None:
    name = "CUDA_VISIBLE_DEVICES"
    own = [{"name": name, "rank": rank, "value": f"GPU-{rank}a,GPU-{rank}b"} for rank in (1, 2, 3)]
    assert told(run_of(environment={name: "GPU-0a,GPU-0b"}, environment_differences=own)) == []
    # As on nodes that jobs share.
    shared = [{"name": name, "rank": rank, "value": f"{rank},{rank + 1}"} for rank in (1, 2, 3)]
    assert told(run_of(environment={name: "0,1"}, environment_differences=shared)) == []
    for usual, other in (("GPU-0a,GPU-0b", "GPU-3a"), ("0,1", "1,0"), ("0,1", "0"), ("0", None)):
        unlike = [{"name": name, "rank": 3, "value": other}]
        (found,) = told(run_of(environment={name: usual}, environment_differences=unlike))
        assert found[0] is Verdict.DEGRADED


def test_what_the_library_says_and_which_settings_were_in_effect() -> None:
    run = run_of(environment={"NCCL_PROTO": "LL", "OMPI_MCA_pml": "ob1", "NCCL_DEBUG": "WARN"})
    remarks = [
        {"text": "No space left on device", "warning": True, "ranks": [1], "of_ranks": 1},
        {"text": "GPU Direct RDMA Disabled for HCA 0", "warning": False, "ranks": [0, 1, 2, 3], "of_ranks": 4},
    ]
    proof: dict[str, Any] = {"paths": {}, "evidence": None, "remarks": remarks}
    run = replace(run, header={**run.header, "set_by_library": ["NCCL_PROTO"]}, footer={"proof": proof})
    found = evidence_of(run, None)
    assert [(each.host, each.verdict) for each in found[:2]] == [("nid002", Verdict.PASS), ("nid001", None)]
    assert [each.host for each in found[2:]] == list(HOSTS)
    assert all("NCCL_PROTO=LL (" in each.text and "pml" not in each.text for each in found[2:])
    # A warning is told in any case, the rest beside what is slow.
    assert len([each for each in findings_of([(run, None)])]) == 1
    # Where sockets join the nodes, RDMA is another path.
    assert len(evidence_of(run, replace(ALPS, ccl_path_between_nodes="NET/Socket"))) == len(found) - 1


@pytest.mark.parametrize(("path", "crossed"), [("NET/Socket/0", False), ("P2P/CUMEM", True)])
def test_links_of_gpus_explain_nothing_between_nodes_that_nics_join(path: str, crossed: bool) -> None:
    errors = gpu(0, links=links(crc_flit=10**9))
    run = run_of("nid001", "nid002", after={"nid001": {"gpus": (errors, gpu(1))}}, gbps=10.0)
    (metric,) = judged(replace(run, footer={"proof": {"paths": {path: 2}, "evidence": "NCCL_DEBUG"}})).judgements
    assert ("GPU 0" in metric.reason) is crossed


def test_a_library_that_one_node_has_in_another_version() -> None:
    older = [{"name": "ccl", "rank": 1, "value": "NCCL 2.20.5"}]
    libraries = {"ccl": {"name": "NCCL", "version": "2.28.9"}, "mpi": {"name": "Open MPI", "version": "5.0.1"}}
    run = run_of(libraries=libraries, library_differences=older)
    assert found_in(run) == [("nodes-differ", "nid002", "", D)]


def test_gpus_in_another_order_on_one_node() -> None:
    """The same GPUs, of which the ranks of one node drive others; other GPUs are no other order."""
    hosts = ("nid001", "nid001", "nid002", "nid002")
    ranks = made_ranks(hosts, devices=True)
    run = replace(run_with([node("nid001"), node("nid002")], []), ranks=ranks)
    assert {code for code, *_ in found_in(run)} == {"state-unknown"}
    first, second = ranks[2], ranks[3]
    swapped = (*ranks[:2], replace(first, device=second.device), replace(second, device=first.device))
    assert ("nodes-differ", "nid002", "", D) in found_in(replace(run, ranks=swapped))


def test_a_gpu_that_does_not_say_whether_it_rests_is_held_against_those_beside_it() -> None:
    """AMD's driver does not: one of a node at a lower generation is not at rest, all of them may be."""
    amd = [gpu(index, performance_state=None) for index in range(2)]
    slow = [replace(each, pcie_generation=3) for each in amd]
    for gpus, verdict in (((amd[0], slow[1]), Verdict.DEGRADED), (tuple(slow), None)):
        run = run_of("nid001", after={"nid001": {"gpus": gpus}})
        assert ("pcie-reduced", "nid001", 1, verdict) in found_in(run)


def test_which_gpu_is_missing_is_told_by_the_other_nodes_of_the_job() -> None:
    nics = tuple(nic(f"hsn{number}") for number in range(4))
    whole = node("nid001", gpus=tuple(map(gpu, range(4))), nics=nics)
    less = node("nid002", gpus=tuple(map(gpu, (0, 2, 3))), nics=nics)
    (found,) = evidence_without_run(States({"nid001": whole, "nid002": less}, {}, True), ALPS)
    assert (found.code, found.host, found.verdict) == ("gpu-missing", "nid002", Verdict.INCOMPLETE)
    (alone,) = evidence_without_run(States({"nid002": less}, {}, True), ALPS)
    place = "none at 0000:01:00.0, where nid001 has GPU 1"
    assert (place in found.text, place in alone.text) == (True, False)


def test_a_gpu_that_sends_over_another_nic_than_the_topology_has() -> None:
    """Seen by what the kernel counted on each NIC; nothing is said where it does not count what a library sends."""
    samples = [made_samples("unidirectional", (rank, rank + 4), MIB, 1.0) for rank in range(4)]
    run = made_run(["nid001"] * 4 + ["nid002"] * 4, samples, transport="ccl", devices=True)
    sent = 25 * MIB  # with what was not kept

    def said(**interfaces: int) -> list[tuple[str, str | int]]:
        footer = {"proof": {"interfaces": {"nid001": interfaces, "nid002": {"hsn0": 1000}}}}
        return [(each.host, each.part) for each in evidence_of_association(replace(run, footer=footer), ALPS)]

    assert said(hsn0=sent, hsn1=sent, hsn2=sent, hsn3=sent) == []
    assert said(hsn0=9000, hsn1=2 * sent, hsn2=sent, hsn3=sent) == [("nid001", "hsn0")]
    assert said(hsn0=9000, hsn1=9000, hsn2=9000, hsn3=9000) == []


@pytest.mark.parametrize(
    ("took", "swapped"),
    [
        (("hsn0", "hsn1", "hsn2", "hsn3"), []),
        (("hsn1", "hsn0", "hsn2", "hsn3"), ["hsn0", "hsn1"]),
        (("cxi1", "cxi0", "cxi2", "cxi3"), []),  # of which the topology knows nothing
    ],
)
def test_nics_that_changed_places_are_named_by_libfabric(took: tuple[str, ...], swapped: list[str]) -> None:
    samples = [made_samples("unidirectional", (rank, rank + 4), MIB, 1.0) for rank in range(4)]
    hosts = ["nid001"] * 4 + ["nid002"] * 4
    nics = [*(f"hsn{number}" for number in range(4)), *took]
    told = [{"nics": [{"name": nic, "bus_id": f"000{place}:01:00.0"}]} for place, nic in enumerate(nics)]
    run = made_run(hosts, samples, transport="fabric", devices=True, plan={"nic": "near"}, ranks=told)
    run = replace(run, ranks=tuple(replace(rank, nics=(nic,)) for rank, nic in zip(run.ranks, nics, strict=True)))
    evidence = evidence_of(run, ALPS)
    named = [(each.code, each.host, each.part, each.verdict) for each in evidence if each.code == "nic-association"]
    assert named == [("nic-association", "nid002", nic, Verdict.INVALID) for nic in swapped]
    asked = replace(run, header={**run.header, "plan": {**run.header["plan"], "nic": ",".join(took)}})
    without = replace(run, header={**run.header, "ranks": [{"nics": [{"name": nic}]} for nic in nics]})
    for silent in (asked, without):  # as somebody wanted; no PCI device, of which none is nearer
        assert not [each for each in evidence_of(silent, ALPS) if each.code == "nic-association"]


def test_a_clock_that_is_an_hour_off_and_the_load_of_others() -> None:
    off = {"time_s": node("nid004").time_s + 3600, "busy_cores": 60.0, "busiest": ("cc1plus 59.1",)}
    run = run_of(before={"nid004": off})
    assert found_in(run) == [("clock-off", "nid004", "", D), ("node-busy", "nid004", "", P)]


def test_ranks_without_a_core_for_the_threads_of_their_library() -> None:
    run = run_of()
    ranks = tuple(replace(each, cpus="3" if each.host == "nid002" else "0-15") for each in run.ranks)
    narrow = replace(run, ranks=ranks, header={**run.header, "few_cores": True})
    (found,) = evidence_of(narrow, None)
    assert (found.host, found.verdict) == ("nid002", Verdict.PASS)
    assert evidence_of(replace(narrow, header=run.header), None) == ()


def test_a_node_that_told_nothing_is_told() -> None:
    run = run_of()
    lost = replace(run.states, after={host: run.states.after[host] for host in HOSTS[:3]})
    assert found_in(replace(run, states=lost)) == [("state-unknown", "nid004", "", P)]
    mute = node("nid001", "after", gpus=(), notes=("the GPUs: no response in 10 s",))
    hangs = replace(run.states, after={**run.states.after, "nid001": mute})
    assert found_in(replace(run, states=hangs)) == [("state-unknown", "nid001", "", P)]


def test_evidence_stands_beside_the_slow_metric_of_its_own_gpus() -> None:
    slow = gpu(1, pcie_generation=3, performance_state=8)  # at rest: by itself it says nothing
    resting = {"nid001": {"gpus": (gpu(0), slow)}}
    run = run_of("nid001", after=resting, gbps=40.0)
    found = judged(run)
    (metric,) = found.judgements
    assert found.problems == ()
    assert metric.reason.endswith(" nid001: GPU 1: PCIe runs at Gen 3 x16 of Gen 5 x16")
    fast = judged(run_of("nid001", after=resting))
    assert "PCIe" not in fast.judgements[0].reason


def test_a_reason_stands_once_in_a_session_and_once_for_each_set_of_nodes() -> None:
    """Three runs on one node have it beside the slowest; a run on another node has its own."""

    def slow(host: str, gbps: float) -> RunJudgement:
        run = run_of(host, environment={"NCCL_PROTO": "LL"}, gbps=gbps)
        run = replace(run, ranks=tuple(replace(rank, host=host) for rank in run.ranks))
        return judge_run(run, lambda *_: Expectation(100, 100, 120, 0.5, "made"), {})

    runs = [slow("nid001", 40.0), slow("nid001", 10.0), slow("nid001", 20.0), slow("nid002", 40.0)]
    metrics = [metric for judged in beside_metrics(runs) for metric in judged.judgements]
    assert ["NCCL_PROTO=LL" in metric.reason for metric in metrics] == [False, True, False, True]
    assert "(3 metrics of 3 runs)" in metrics[1].reason and "metrics)" not in metrics[3].reason


def test_a_run_that_ended_before_its_header_is_what_it_says() -> None:
    """With what its nodes say, and not INVALID for having no metric."""
    ended = bad_finding(Verdict.INCOMPLETE, "run.jsonl:1: the benchmark ended with an error: rank 2 did not arrive")
    states = States({"nid001": node("nid001")}, {"nid001": node("nid001", "after", gpus=(gpu(0), gpu(1)))}, True)
    found = judged(Run("run.jsonl", {}, (), (), None, (ended,), states))
    assert (found.verdict, found.problems) == (Verdict.INCOMPLETE, (ended,))
    assert judged(Run("run.jsonl", {}, (), (), None, (), states)).verdict is Verdict.INVALID


def test_a_fault_of_the_machine_is_a_problem_of_the_run() -> None:
    found = judged(run_of("nid001", after={"nid001": {"gpus": (gpu(0), gpu(1, processes=(PYTHON,)))}}))
    (problem,) = found.problems
    assert (found.verdict, problem.verdict, problem.place) == (Verdict.INVALID, Verdict.INVALID, "nid001:gpu1")


@pytest.mark.parametrize(
    ("nodes", "gpus", "way", "by_processors"),
    [
        (1, False, ("mpi", ""), True),
        (4, False, ("mpi", ""), False),
        (1, True, ("mpi", ""), False),
        (1, True, ("ccl", "P2P/CUMEM"), False),
        (1, True, ("ccl", "SHM/direct/direct"), True),
        (1, True, ("mpi", "cuda: cuda_copy/cuda"), True),
        (1, True, ("staging", ""), True),
        (1, True, ("copy", "emulated"), True),
        (4, True, ("staging", ""), False),
    ],
)
@pytest.mark.parametrize("busy", [21.0, 22.0])
def test_slow_on_processors_that_had_other_work_says_nothing_of_the_machine(
    busy: float, nodes: int, gpus: bool, way: tuple[str, str], by_processors: bool
) -> None:
    """No FAIL, no diagnosis and no drain; but no green either. The links of GPUs and between nodes do not care."""
    transport, path = way
    run = run_of(before={host: {"busy_cores": busy} for host in HOSTS}, gpus=gpus)
    places = tuple(replace(place, host=HOSTS[place.rank % nodes]) for place in run.ranks)
    header = {**run.header, "backend": "cuda" if gpus else "host", "transport": transport}
    footer = {**(run.footer or {}), "proof": {"paths": {path: 24} if path else {}}}
    run = replace(run, ranks=places, header=header, footer=footer)
    run = as_rehearsal(run) if path == "emulated" else run
    alone = judge_run(run, lambda *_: Expectation(1e9, 1e9, 2e9, 0.5, "made"), {})
    (found,) = beside_metrics([alone])
    codes = {each.code for each in found.judgements}
    assert "below-floor" in {each.code for each in alone.judgements}
    if busy > 64 / 3 and by_processors:
        assert found.final_verdict is Verdict.INCOMPLETE
        assert "slow-while-busy" in codes and "below-floor" not in codes
    else:
        assert found.final_verdict is Verdict.FAIL and "below-floor" in codes
