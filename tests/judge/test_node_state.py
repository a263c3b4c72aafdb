"""What nodes say of themselves, judged: each fault is named with its part, and a healthy machine says nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
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
from fabricheck.records.run import Rank, Run
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


def told(run: Run, topology: Topology | None = None) -> list[tuple[Verdict | None, str]]:
    return [(each.verdict, each.short) for each in evidence_of(run, topology)]


def links(down: Sequence[int] = (), **rise: int) -> tuple[GpuLink, ...]:
    usual = {"replay": 1, "crc_flit": 7}
    counters = {name: value + rise.get(name, 0) for name, value in usual.items()}
    return tuple(GpuLink(each, each not in down, counters if each == 3 else usual) for each in range(LINKS))


def counted(**rise: int) -> Mapping[str, int]:
    return {name: value + rise.get(name, 0) for name, value in gpu().counters.items()}


@pytest.mark.parametrize("gpus", [True, False])
def test_healthy_nodes_say_nothing(gpus: bool) -> None:
    before, after = [node(host) for host in HOSTS], [node(host, "after") for host in HOSTS]
    run = run_with(before, after, gpus=gpus)
    assert told(run) == []
    assert judged(run).verdict is Verdict.PASS


def test_nodes_that_nobody_asked_say_nothing() -> None:
    assert told(replace(run_with([], [node("nid001", "after")]), states=States())) == []


GPU_FAULTS: tuple[tuple[dict[str, Any], dict[str, Any], Verdict | None, str], ...] = (
    ({"processes": (PYTHON,)}, {}, Verdict.INVALID, "GPU 1: is in use by process 4242 (python, 1.07 GB)"),
    ({}, {"processes": (PYTHON,)}, Verdict.INVALID, "GPU 1: is in use by process 4242 (python, 1.07 GB)"),
    ({}, {"processes": (GpuProcess(7, "nvidia-cuda-mps-server"),)}, Verdict.PASS, "GPU 1: CUDA MPS is on"),
    ({"busy_percent": 98, "memory_used_bytes": 1_600_000_000}, {}, Verdict.INVALID, "GPU 1: was 98% busy before"),
    ({}, {"pcie_generation": 3}, Verdict.DEGRADED, "GPU 1: PCIe runs at Gen 3 x16 of Gen 5 x16"),
    ({}, {"pcie_width": 8, "performance_state": 8}, Verdict.DEGRADED, "GPU 1: PCIe runs at Gen 5 x8 of Gen 5 x16"),
    # At rest a GPU lowers its link by itself: that counts beside a slow metric alone.
    ({}, {"pcie_generation": 1, "performance_state": 8}, None, "GPU 1: PCIe runs at Gen 1 x16 of Gen 5 x16"),
    ({}, {"links": links([7])}, Verdict.DEGRADED, "(7 inactive), and link 7 went down during the test"),
    ({"links": links([7])}, {"links": links([7])}, Verdict.DEGRADED, "17 of 18 links to other GPUs are active"),
    ({}, {"links": links(replay=2)}, Verdict.DEGRADED, "GPU 1: NVLink 3 had 2 replays during the test"),
    ({}, {"links": links(crc_flit=90)}, None, "1 of 18 NVLinks had CRC errors of flits during the test, at most 90 on"),
    ({}, {"links": links(crc_flit=9000)}, Verdict.DEGRADED, "NVLink 3 had 9000 CRC errors of flits during the test"),
    (
        {},
        {"throttle": ("sw_thermal_slowdown",), "clock_mhz": 1188, "temperature_c": 92},
        Verdict.DEGRADED,
        "GPU 1: is throttled: thermal slowdown by the driver (1188 of 1980 MHz), 92 °C",
    ),
    ({}, {"counters": counted(throttled_ns_thermal=4_000_000)}, Verdict.PASS, "throttled for 4 ms of the test"),
    ({}, {"counters": counted(throttled_ns_thermal=4_000_000_000)}, Verdict.DEGRADED, "throttled for 4,000 ms"),
    ({}, {"throttle": ("sw_power_cap",)}, None, "GPU 1: its clocks are limited: power cap (1980 of 1980 MHz)"),
    ({}, {"counters": counted(ecc_uncorrected=2)}, Verdict.DEGRADED, "GPU 1: had 2 uncorrected memory errors"),
    ({}, {"counters": counted(ecc_corrected=2)}, Verdict.PASS, "GPU 1: had 2 corrected memory errors"),
    ({}, {"counters": counted(pcie_replays=8)}, None, "GPU 1: PCIe had 8 replays during the test"),
    ({}, {"counters": counted(pcie_replays=9)}, Verdict.DEGRADED, "GPU 1: PCIe had 9 replays during the test"),
    ({}, {"rows_pending": True}, Verdict.DEGRADED, "GPU 1: remapped rows of its memory wait for a reset"),
    ({}, {"rows_failed": True}, Verdict.DEGRADED, "GPU 1: rows of its memory could not be remapped"),
    ({}, {"settings": {**gpu().settings, "ECC": "off"}}, Verdict.DEGRADED, "GPU 1: ECC is off, and on on 3 others"),
    ({}, {"power_limit_w": 400.0}, Verdict.DEGRADED, "GPU 1: power limit is 400 W, and 700 W on 3 others"),
)  # fmt: skip


@pytest.mark.parametrize("before, after, verdict, said", GPU_FAULTS, ids=[each[3] for each in GPU_FAULTS])
def test_a_fault_of_a_gpu(before: dict[str, Any], after: dict[str, Any], verdict: Verdict | None, said: str) -> None:
    healthy = [node("nid001"), node("nid001", "after")]
    one = [replace(healthy[0], gpus=(gpu(0), gpu(1, **before))), replace(healthy[1], gpus=(gpu(0), gpu(1, **after)))]
    other = node("nid002"), node("nid002", "after")
    run = run_with([one[0], other[0]], [one[1], other[1]])
    run = replace(run, ranks=made_ranks(["nid001", "nid001", "nid002", "nid002"], devices=True))
    found = [each for each in told(run) if said in each[1]]
    assert found == [(verdict, found[0][1])], told(run)
    assert found[0][1].startswith("nid001: ")


def test_a_gpu_in_another_clique_of_its_nvlink_domain_is_named_and_another_rack_is_not() -> None:
    def tray(host: str, domain: str, *cliques: int) -> NodeState:
        settings = [{f"NVLink domain {domain}": f"clique {number}"} for number in cliques]
        gpus = tuple(gpu(index, settings={**gpu().settings, **more}) for index, more in enumerate(settings))
        return node(host, gpus=gpus, settings={**node(host).settings, "IMEX channels": "1"})

    trays = [tray("nid001", "8f3a", 1, 1), tray("nid002", "8f3a", 1, 2), tray("nid003", "77c0", 5, 5)]
    run = run_with(trays, [replace(each, when="after") for each in trays])
    run = replace(run, ranks=made_ranks([each.host for each in trays for _ in each.gpus], devices=True))
    (found,) = [each for each in told(run) if "clique" in each[1]]
    assert found[0] is Verdict.DEGRADED
    assert found[1].startswith("nid002: GPU 1: NVLink domain 8f3a is clique 2, and clique 1 on 3 others")


@pytest.mark.parametrize(
    ("busy", "used"),
    [(0, 90 << 30), (100, 0), (100, 1 << 20), (None, None)],
    ids=["memory of the system", "the driver's own", "no context", "not told"],
)
def test_a_gpu_that_rests_or_has_no_context_is_nobodys(busy: int | None, used: int | None) -> None:
    at_work = node("nid001", gpus=(gpu(0, busy_percent=busy, memory_used_bytes=used),))
    assert told(run_with([at_work], [node("nid001", "after")])) == []


def test_a_gpu_that_no_rank_drove_is_told_and_not_judged() -> None:
    after = node("nid001", "after", gpus=(gpu(0), gpu(1), gpu(2, processes=(PYTHON,), pcie_width=8)))
    run = run_with([node("nid001", gpus=(gpu(0), gpu(1), gpu(2)))], [after])
    assert [verdict for verdict, _ in told(run)] == [Verdict.PASS, Verdict.PASS]
    lines = [each.message for each in findings_of([(run, None), (run, None)])]
    assert len(lines) == 2
    assert lines[0] == "nid001: GPU 2: is in use by process 4242 (python, 1.07 GB), at 0000:02:00.0"


def test_the_topology_says_how_many_links_there_have_to_be() -> None:
    """All GPUs have as few: nothing else shows it."""
    described = sum(link.count for link in ALPS.links if "gpu0" in link.ends and "C2C" not in link.technology)
    few = tuple(gpu(each).links[: described - 1] for each in range(4))
    all_ = tuple(gpu(each, links=few[each]) for each in range(4))
    run = run_with([node("nid001", gpus=all_)], [node("nid001", "after", gpus=all_)])
    wanted = f"{described - 1} of {described} links to other GPUs are active"
    assert sum(wanted in text for verdict, text in told(run, ALPS) if verdict is Verdict.DEGRADED) == 2
    assert not any("links" in text for _, text in told(run))


def test_a_gpu_that_is_gone() -> None:
    run = run_with([node("nid001")], [node("nid001", "after", gpus=(gpu(0),))])
    assert (Verdict.DEGRADED, "nid001: GPU 1: disappeared during the test") in told(run)


def rise(**more: int) -> dict[str, int]:
    names = (*nic().counters, *more)
    return {name: nic().counters.get(name, 0) + more.get(name, 0) for name in names}


NIC_FAULTS: tuple[tuple[dict[str, Any], Verdict | None, str], ...] = (
    ({"up": False}, Verdict.DEGRADED, "hsn0: its link is down since the test began"),
    ({"up": False, "settings": {"state": "INIT"}}, Verdict.DEGRADED, "hsn0: is in state INIT: no subnet or fabric"),
    ({"settings": {"PCIe": "16.0 GT/s x8 of 32.0 GT/s x16"}}, None, "hsn0: its PCIe link (16.0 GT/s x8) carries less"),
    ({"settings": {"link layer": "Ethernet", "GID types": "IB/RoCE v1"}}, None, "hsn0: has no GID of RoCE v2"),
    ({"settings": {"ECN (np)": "3", "ECN (rp)": "off"}}, None, "hsn0: notices congestion on priorities 3 and reacts"),
    ({"counters": {"link_downed": 9}}, None, "hsn0: its link went down 9 times since its counters began"),
    ({"kind": "infiniband", "counters": rise(retrans_pkts=9)}, None, "hsn0: retrans_pkts rose by 9 during"),
    ({"kind": "infiniband", "counters": rise(rdma_read_wr_err=1)}, Verdict.DEGRADED, "hsn0: rdma_read_wr_err rose"),
    ({"rate_gbps": 100.0}, Verdict.DEGRADED, "hsn0: its link runs at 100 of 200 Gb/s"),
    ({"duplex": "half"}, Verdict.DEGRADED, "hsn0: its link is half duplex"),
    ({"counters": rise(rx_errors=3)}, Verdict.PASS, "hsn0: rx_errors rose by 3 during the test"),
    ({"counters": rise(rx_errors=10)}, Verdict.DEGRADED, "hsn0: rx_errors rose by 10 during the test"),
    ({"counters": rise(carrier_changes=2)}, Verdict.DEGRADED, "hsn0: carrier_changes rose by 2 during the test"),
    ({"counters": rise(rx_dropped=50, rx_packets=9950)}, Verdict.DEGRADED, "hsn0: rx_dropped rose by 50"),
    ({"counters": rise(ethtool_rx_pause=9)}, None, "hsn0: rx_pause rose by 9 during the test"),
    (
        {"counters": rise(ethtool_rx_crc_errors_phy=7, ethtool_rx_symbol_err_phy=2)},
        None,
        "hsn0: rx_crc_errors_phy rose by 7, rx_symbol_err_phy rose by 2 during the test",
    ),
    ({"mtu": 1400}, Verdict.DEGRADED, "MTU of hsn0 differs between nodes: 1400 on nid002, 9000 on 3 others"),
)  # fmt: skip


@pytest.mark.parametrize("changed, verdict, said", NIC_FAULTS, ids=[each[2] for each in NIC_FAULTS])
def test_a_fault_of_a_port(changed: dict[str, Any], verdict: Verdict | None, said: str) -> None:
    after = [node(host, "after", nics=(nic(**changed) if host == "nid002" else nic(),)) for host in HOSTS]
    run = run_with([node(host) for host in HOSTS], after)
    found = told(run, ALPS)
    assert [each for each in found if each[1].startswith(f"nid002: {said}")] == [
        (verdict, next(text for _, text in found if said in text))
    ], found


@pytest.mark.parametrize(
    ("name", "usual", "odd"),
    [
        ("PFC", "3:on", "off"),
        ("ECN (np)", "3", "off"),
        ("ECN (rp)", "3", "off"),
        ("trusted priorities", "dscp", "pcp"),
        ("traffic class", "Global tclass=104", "Global tclass=0"),
        ("GID types", "IB/RoCE v1, RoCE v2", "IB/RoCE v1"),
        ("RoCE v2 GID of IPv4", "3", "5"),
        ("link layer", "InfiniBand", "Ethernet"),
        ("lanes", "4X NDR", "2X NDR"),
        ("PCIe", "32.0 GT/s x16", "16.0 GT/s x16"),
    ],
)
def test_a_port_that_is_set_otherwise_than_the_others(name: str, usual: str, odd: str) -> None:
    ports = {host: nic(settings={name: odd if host == "nid002" else usual}) for host in HOSTS}
    after = [node(host, "after", nics=(port,)) for host, port in ports.items()]
    said = f"nid002: {name} of hsn0 differs between nodes: {odd} on nid002, {usual} on 3 others"
    assert (Verdict.DEGRADED, said) in told(run_with([node(host) for host in HOSTS], after), ALPS)


def test_settings_of_ports_that_fit() -> None:
    """RoCE v2 beside v1, congestion noticed and reacted to alike, and a slot that carries the port; and a virtual
    machine's slots, which are made up."""
    fits = {
        **{"link layer": "Ethernet", "GID types": "IB/RoCE v1, RoCE v2", "ECN (np)": "3", "ECN (rp)": "3"},
        "PCIe": "16.0 GT/s x16 of 32.0 GT/s x16",
    }
    for settings, more in ((fits, {}), ({"PCIe": "2.5 GT/s x1"}, {"virtual machine": "yes"})):
        states = [
            [node(host, when, nics=(nic(settings=settings),), settings=more) for host in HOSTS]
            for when in ("before", "after")
        ]
        assert told(run_with(*states), ALPS) == []


def test_ports_of_containers_are_none() -> None:
    """They have names of their own on each node, no hardware, and come and go."""
    after = [node(host, "after", nics=(nic(), nic(f"veth{host}", mtu=1450, up=False))) for host in HOSTS]
    before = [node(host, nics=(nic(), nic(f"veth{host}", mtu=1450))) for host in HOSTS]
    assert told(run_with(before, after), ALPS) == told(run_with(before, after)) == []
    hard = [replace(each, nics=(nic(driver="mlx5_core", up=False),)) for each in after]
    assert [verdict for verdict, _ in told(run_with(before, hard))] == [Verdict.DEGRADED] * 4


def test_few_drops_among_many_packets_are_usual() -> None:
    many = nic(counters=rise(rx_dropped=50, rx_packets=100_000))
    after = [node(host, "after", nics=(many,)) for host in HOSTS]
    assert told(run_with([node(host) for host in HOSTS], after), ALPS) == []


def test_ports_are_only_told_of_a_run_inside_a_node() -> None:
    run = run_with([node("nid001")], [node("nid001", "after", nics=(nic(up=False),))])
    (only,) = told(run, ALPS)
    assert only == (Verdict.PASS, "nid001: hsn0: its link is down since the test began")


def test_ports_count_where_a_node_sends_to_itself_by_them() -> None:
    """libfabric, out by a NIC and in again: the data of a run on one node pass its ports."""
    run = run_with([node("nid001")], [node("nid001", "after", nics=(nic(up=False),))], transport="fabric")
    assert [verdict for verdict, _ in told(run, ALPS)] == [Verdict.DEGRADED]


def segments(host: str, gaps: int, again: int = 0, recoveries: int = 5) -> NodeState:
    usual = node(host).tcp
    more = {"OutSegs": 47_000, "InSegs": 30_000, "RetransSegs": again, "TCPOFOQueue": gaps}
    counted = {name: value + more[name] for name, value in usual.items()}
    return node(host, "after", tcp={**counted, "TCPSackRecovery": recoveries})


def test_the_node_that_packets_do_not_reach_is_named() -> None:
    """Gaps there, and the others recover from losses; a shaper's own losses are few and come together."""
    before = [node(host) for host in HOSTS]
    lossy = run_with(
        before, [segments(host, *((10_489, 75, 3) if host == "nid003" else (200, 264, 37))) for host in HOSTS]
    )
    (only,) = told(lossy)
    assert only[0] is Verdict.DEGRADED
    assert only[1].startswith("nid003: 10,489 of 30,000 TCP segments came after a gap (35%, the other nodes'")
    few = run_with(before, [segments(host, *((5_874, 39, 24) if host == "nid003" else (1, 140, 15))) for host in HOSTS])
    assert [verdict for verdict, _ in told(few)] == [Verdict.DEGRADED]
    # Recorded with 0.1% of the packets to a node lost.
    single = {"nid001": (0, 34, 10), "nid002": (1_434, 0, 0), "nid003": (0, 6, 4), "nid004": (0, 38, 3)}
    assert [verdict for verdict, _ in told(run_with(before, [segments(host, *single[host]) for host in HOSTS]))] == [
        Verdict.DEGRADED
    ]
    busy = [replace(each, busy_cores=0.9 * each.cores) for each in before]
    on_busy = told(run_with(busy, [segments(host, *single[host]) for host in HOSTS]))
    assert not any("after a gap" in text for _, text in on_busy)
    # What the others recover from for the lossy node is no word against one that is late on busy cores.
    beside = {"nid001": (1_020, 75, 10), "nid002": (10_489, 75, 10), "nid003": (200, 264, 40), "nid004": (200, 264, 40)}
    (only,) = told(run_with(before, [segments(host, *beside[host]) for host in HOSTS]))
    assert only[1].startswith("nid002: 10,489 of")
    from_one = {**single, "nid003": (0, 0, 0), "nid004": (0, 0, 0)}  # whose own port may drop them
    assert told(run_with(before, [segments(host, *from_one[host]) for host in HOSTS])) == []
    shaper = run_with(
        before, [segments(host, *((1_747, 28, 6) if host == "nid003" else (216, 256, 10))) for host in HOSTS]
    )
    assert told(shaper) == []
    alike = run_with(before, [segments(host, 6_000, 250, 60) for host in HOSTS])
    assert told(alike) == []
    resent = run_with(before, [segments(host, 600, 47_000 if host == "nid001" else 2_200) for host in HOSTS])
    (only,) = told(resent)
    assert only[0] is None  # nodes that send to one another at once lose packets at healthy switches too
    assert only[1].startswith("nid001: TCP sent 47,000 of 94,000 segments again (50%, the other nodes' median 4.5%)")
    # Recorded where all data went from the first to the second of two healthy nodes.
    two = [segments(host, *((4_867, 0, 0) if host == "nid002" else (0, 4_418, 96))) for host in HOSTS[:2]]
    assert [verdict for verdict, _ in told(run_with(before[:2], two))] == [None, None]


def test_what_differs_between_nodes_is_one_line_each() -> None:
    before = [node(host) for host in HOSTS]
    odd = node(
        "nid004", "after", versions={**node("x").versions, "kernel": "6.9.1"}, settings={"governor": "powersave"}
    )
    after = [node(host, "after") for host in HOSTS[:3]]
    run = run_with(before, [*after, odd])
    assert told(run) == [
        (Verdict.DEGRADED, "nid004: kernel differs between nodes: 6.9.1 on nid004, 6.8.0 on 3 others"),
        (Verdict.DEGRADED, "nid004: governor differs between nodes: powersave on nid004, performance on 3 others"),
    ]
    other_kind = replace(odd, versions={**odd.versions, "processor": "another"})
    assert told(run_with(before, [*after, other_kind])) == []


def test_a_variable_that_one_node_has_otherwise() -> None:
    nodes = [node(host) for host in HOSTS], [node(host, "after") for host in HOSTS]
    of_ranks = [
        {"name": "UCX_TLS", "rank": 1, "value": "tcp"},
        {"name": "OMPI_MCA_ess_base_vpid", "rank": 2, "value": "2"},
    ]
    run = run_with(*nodes, environment={"UCX_TLS": "rc"}, environment_differences=of_ranks)
    assert told(run) == [
        (Verdict.DEGRADED, "nid002: UCX_TLS differs between nodes: tcp on nid002, rc on 3 others"),
    ]
    # Each local rank has its own NIC, and every node the same.
    by_rank = [{"name": "UCX_NET_DEVICES", "rank": rank, "value": f"mlx5_{rank % 2}"} for rank in range(4)]
    twice = run_with([node("a"), node("b")], [node("a", "after"), node("b", "after")], environment={})
    ranks = tuple(replace(rank, host="ab"[rank.rank // 2]) for rank in run.ranks)
    header = {**twice.header, "environment_differences": by_rank}
    assert told(replace(twice, ranks=ranks, header=header)) == []


def test_devices_by_their_uuids_are_others_on_each_node() -> None:
    nodes = [node(host) for host in HOSTS], [node(host, "after") for host in HOSTS]
    name = "CUDA_VISIBLE_DEVICES"
    own = [{"name": name, "rank": rank, "value": f"GPU-{rank}a,GPU-{rank}b"} for rank in (1, 2, 3)]
    assert told(run_with(*nodes, environment={name: "GPU-0a,GPU-0b"}, environment_differences=own)) == []
    # As on nodes that jobs share.
    shared = [{"name": name, "rank": rank, "value": f"{rank},{rank + 1}"} for rank in (1, 2, 3)]
    assert told(run_with(*nodes, environment={name: "0,1"}, environment_differences=shared)) == []
    for usual, other in (("GPU-0a,GPU-0b", "GPU-3a"), ("0,1", "1,0"), ("0,1", "0"), ("0", None)):
        unlike = [{"name": name, "rank": 3, "value": other}]
        (found,) = told(run_with(*nodes, environment={name: usual}, environment_differences=unlike))
        assert found[0] is Verdict.DEGRADED


def test_what_the_library_says_and_which_settings_were_in_effect() -> None:
    nodes = [node(host) for host in HOSTS], [node(host, "after") for host in HOSTS]
    run = run_with(*nodes, environment={"NCCL_PROTO": "LL", "OMPI_MCA_pml": "ob1", "NCCL_DEBUG": "WARN"})
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
    run = run_with(
        [node("nid001"), node("nid002")],
        [node("nid001", "after", gpus=(errors, gpu(1))), node("nid002", "after")],
        gbps=10.0,
    )
    (metric,) = judged(replace(run, footer={"proof": {"paths": {path: 2}, "evidence": "NCCL_DEBUG"}})).judgements
    assert ("GPU 0" in metric.reason) is crossed


def test_a_library_that_one_node_has_in_another_version() -> None:
    nodes = [node(host) for host in HOSTS], [node(host, "after") for host in HOSTS]
    older = [{"name": "ccl", "rank": 1, "value": "NCCL 2.20.5"}]
    libraries = {"ccl": {"name": "NCCL", "version": "2.28.9"}, "mpi": {"name": "Open MPI", "version": "5.0.1"}}
    run = run_with(*nodes, libraries=libraries, library_differences=older)
    assert told(run) == [
        (
            Verdict.DEGRADED,
            "nid002: library ccl differs between nodes: NCCL 2.20.5 on nid002, NCCL 2.28.9 on 3 others",
        )
    ]


def test_gpus_in_another_order_on_one_node() -> None:
    """The same GPUs, of which the ranks of one node drive others; other GPUs are no other order."""
    hosts = ("nid001", "nid001", "nid002", "nid002")
    ranks = made_ranks(hosts, devices=True)
    run = replace(run_with([node("nid001"), node("nid002")], []), ranks=ranks)
    assert not any("order" in said for _, said in told(run))
    first, second = ranks[2], ranks[3]
    swapped = (*ranks[:2], replace(first, device=second.device), replace(second, device=first.device))
    said = (
        "nid002: order of GPUs differs between nodes: 0000:01:00.0, 0000:00:00.0 on nid002, "
        "0000:00:00.0, 0000:01:00.0 on nid001"
    )
    assert (Verdict.DEGRADED, said) in told(replace(run, ranks=swapped))


def test_gpus_that_cuda_numbers_otherwise_than_nvidia_smi() -> None:
    """As with CUDA_VISIBLE_DEVICES=1,0, on each node alike: what is called GPU 0 is GPU 1."""
    ranks = made_ranks(("nid001", "nid001"), devices=True)
    run = run_with([node("nid001")], [])

    def of(those: Sequence[Rank]) -> Run:
        return replace(run, ranks=tuple(those), header={**run.header, "ranks": [asdict(rank) for rank in those]})

    assert not any("nvidia-smi" in said for _, said in told(of(ranks)))
    first, second = (each.device for each in ranks)
    assert first is not None and second is not None
    swapped = (replace(first, bus_id=second.bus_id), replace(second, bus_id=first.bus_id))
    other = [replace(rank, device=device) for rank, device in zip(ranks, swapped, strict=True)]
    said = (
        "nid001: CUDA numbers the GPUs in the order 0000:01:00.0, 0000:00:00.0; nvidia-smi numbers them by PCI address"
    )
    assert (Verdict.DEGRADED, said) in told(of(other))


def test_a_gpu_that_does_not_say_whether_it_rests_is_held_against_those_beside_it() -> None:
    """AMD's driver does not: one of a node at a lower generation is not at rest, all of them may be."""
    amd = [gpu(index, performance_state=None) for index in range(2)]
    slow = [replace(each, pcie_generation=3) for each in amd]
    for gpus, verdict in (((amd[0], slow[1]), Verdict.DEGRADED), (tuple(slow), None)):
        run = run_with([node("nid001")], [node("nid001", "after", gpus=gpus)])
        found = dict((said, each) for each, said in told(run))
        assert found["nid001: GPU 1: PCIe runs at Gen 3 x16 of Gen 5 x16"] is verdict


def test_which_gpu_is_missing_is_told_by_the_other_nodes_of_the_job() -> None:
    nics = tuple(nic(f"hsn{number}") for number in range(4))
    whole = node("nid001", gpus=tuple(map(gpu, range(4))), nics=nics)
    less = node("nid002", gpus=tuple(map(gpu, (0, 2, 3))), nics=nics)
    (found,) = evidence_without_run(States({"nid001": whole, "nid002": less}, {}, True), ALPS)
    assert found.verdict is Verdict.INCOMPLETE
    said = "nid002: 3 of the 4 GPUs of alps respond, none at 0000:01:00.0, where nid001 has GPU 1"
    assert found.short == said
    (alone,) = evidence_without_run(States({"nid002": less}, {}, True), ALPS)
    assert alone.short == "nid002: 3 of the 4 GPUs of alps respond"


def test_a_gpu_that_sends_over_another_nic_than_the_topology_has() -> None:
    """Seen by what the kernel counted on each NIC; nothing is said where it does not count what a library sends."""
    samples = [made_samples("unidirectional", (rank, rank + 4), MIB, 1.0) for rank in range(4)]
    run = made_run(["nid001"] * 4 + ["nid002"] * 4, samples, transport="ccl", devices=True)
    sent = 25 * MIB  # with what was not kept

    def said(**interfaces: int) -> list[str]:
        footer = {"proof": {"interfaces": {"nid001": interfaces, "nid002": {"hsn0": 1000}}}}
        return [each.short for each in evidence_of_association(replace(run, footer=footer), ALPS)]

    assert said(hsn0=sent, hsn1=sent, hsn2=sent, hsn3=sent) == []
    (line,) = said(hsn0=9000, hsn1=2 * sent, hsn2=sent, hsn3=sent)
    assert line.startswith("nid001: hsn0: sent 0 MB of the 21 MB of its GPUs; hsn1 sent 52 MB: ")
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
    before = [node(host) for host in HOSTS[:3]]
    before.append(node("nid004", time_s=before[0].time_s + 3600, busy_cores=60.0, busiest=("cc1plus 59.1",)))
    run = run_with(before, [node(host, "after") for host in HOSTS])
    assert told(run) == [
        (Verdict.DEGRADED, "nid004: its clock is 3,600 s ahead of the other nodes'"),
        (Verdict.PASS, "nid004: 60.0 of 64 cores were busy before the test (by process: cc1plus 59.1)"),
    ]


def test_ranks_without_a_core_for_the_threads_of_their_library() -> None:
    run = run_with([node(host) for host in HOSTS], [node(host, "after") for host in HOSTS], gpus=True)
    ranks = tuple(replace(each, cpus="3" if each.host == "nid002" else "0-15") for each in run.ranks)
    narrow = replace(run, ranks=ranks, header={**run.header, "few_cores": True})
    (found,) = evidence_of(narrow, None)
    assert (found.host, found.verdict) == ("nid002", Verdict.PASS)
    assert evidence_of(replace(narrow, header=run.header), None) == ()


def test_a_node_that_told_nothing_is_told() -> None:
    run = run_with([node(host) for host in HOSTS], [node(host, "after") for host in HOSTS])
    lost = replace(run.states, after={host: run.states.after[host] for host in HOSTS[:3]})
    assert told(replace(run, states=lost)) == [(Verdict.PASS, "nid004: did not report its state after the test")]
    mute = node("nid001", "after", gpus=(), notes=("the GPUs: no response in 10 s",))
    hangs = replace(run.states, after={**run.states.after, "nid001": mute})
    said = "nid001: its state could not be read: the GPUs: no response in 10 s"
    assert told(replace(run, states=hangs)) == [(Verdict.PASS, said)]


def test_evidence_stands_beside_the_slow_metric_of_its_own_gpus() -> None:
    slow = gpu(1, pcie_generation=3, performance_state=8)  # at rest: by itself it says nothing
    run = run_with([node("nid001")], [node("nid001", "after", gpus=(gpu(0), slow))], gbps=40.0)
    found = judged(run)
    (metric,) = found.judgements
    assert found.problems == ()
    assert metric.reason.endswith(" nid001: GPU 1: PCIe runs at Gen 3 x16 of Gen 5 x16")
    fast = judged(run_with([node("nid001")], [node("nid001", "after", gpus=(gpu(0), slow))]))
    assert "PCIe" not in fast.judgements[0].reason


@pytest.mark.parametrize("busy", [0.0, 60.0])
def test_a_reason_stands_once_beside_the_worst_of_the_metrics_that_have_it(busy: float) -> None:
    before = [node("nid001", busy_cores=busy)]
    run = run_with(before, [node("nid001", "after")], environment={"NCCL_PROTO": "LL"})
    rates = {(0, 1): 40.0, (1, 0): 10.0, (0, 2): 20.0}
    samples = [made_samples("unidirectional", ranks, MIB, gbps) for ranks, gbps in rates.items()]
    series = [{**run.header["plan"]["series"][0], "ranks": list(ranks)} for ranks in rates]
    run = replace(run, header={**run.header, "plan": {**run.header["plan"], "series": series}})
    remarks = [{"text": "P2P is disabled", "warning": False, "ranks": [0, 1], "of_ranks": 2}]
    proof = {"paths": {"SHM/direct/direct": 2}, "evidence": "NCCL_DEBUG", "remarks": remarks}
    found = judged(replace(run, samples=tuple(samples), footer={"proof": proof}))
    verdict = Verdict.INCOMPLETE if busy else Verdict.FAIL
    assert [metric.verdict for metric in found.judgements] == [verdict] * 3
    for said in ("P2P is disabled (on 2 ranks) (3 metrics)", "NCCL_PROTO=LL (3 metrics)"):
        assert [said in metric.reason for metric in found.judgements] == [False, True, False]
    assert ["60.0 of 64 cores" in metric.reason for metric in found.judgements] == [False, bool(busy), False]


def test_a_reason_stands_once_in_a_session_and_once_for_each_set_of_nodes() -> None:
    """Three runs on one node have it beside the slowest; a run on another node has its own."""

    def slow(host: str, gbps: float) -> RunJudgement:
        run = run_with([node(host)], [node(host, "after")], environment={"NCCL_PROTO": "LL"}, gbps=gbps)
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
    run = run_with([node("nid001")], [node("nid001", "after", gpus=(gpu(0), gpu(1, processes=(PYTHON,))))])
    found = judged(run)
    (problem,) = found.problems
    assert (found.verdict, problem.verdict, problem.place) == (Verdict.INVALID, Verdict.INVALID, "nid001:gpu1")


@pytest.mark.parametrize(
    ("nodes", "gpus", "way", "by_processors"),
    [
        (1, False, ("mpi", ""), True),
        (4, False, ("mpi", ""), False),
        (1, True, ("mpi", ""), False),
        (1, True, ("copy", ""), False),
        (1, True, ("ccl", "P2P/CUMEM"), False),
        (1, True, ("ccl", "SHM/direct/direct"), True),
        (1, True, ("mpi", "cuda: cuda_copy/cuda"), True),
        (1, True, ("staging", ""), True),
        (4, True, ("staging", ""), False),
        (4, True, ("ccl", "SHM/direct/direct"), False),
    ],
)
@pytest.mark.parametrize("busy", [0.0, 21.0, 22.0])
def test_slow_on_processors_that_had_other_work_says_nothing_of_the_machine(
    busy: float, nodes: int, gpus: bool, way: tuple[str, str], by_processors: bool
) -> None:
    """No FAIL, no diagnosis and no drain; but no green either. The links of GPUs and between nodes do not care."""
    transport, path = way
    run = run_with([node(host, busy_cores=busy) for host in HOSTS], [node(host, "after") for host in HOSTS], gpus=gpus)
    places = tuple(replace(place, host=HOSTS[place.rank % nodes]) for place in run.ranks)
    header = {**run.header, "backend": "cuda" if gpus else "host", "transport": transport}
    footer = {**(run.footer or {}), "proof": {"paths": {path: 24} if path else {}}}
    run = replace(run, ranks=places, header=header, footer=footer)
    alone = judge_run(run, lambda *_: Expectation(1e9, 1e9, 2e9, 0.5, "made"), {})
    (found,) = beside_metrics([alone])
    codes = {each.code for each in found.judgements}
    assert "below-floor" in {each.code for each in alone.judgements}
    if busy > 64 / 3 and by_processors:
        assert found.final_verdict is Verdict.INCOMPLETE
        assert "slow-while-busy" in codes and "below-floor" not in codes
    else:
        assert found.final_verdict is Verdict.FAIL and "below-floor" in codes
