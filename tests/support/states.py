"""States of nodes made up for tests: healthy ones, and what is changed of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fabricheck.records.node_state import GpuLink, GpuState, NicState, NodeState, States
from fabricheck.records.run import Run
from tests.support.made_runs import MIB, made_run, made_samples

LINKS = 18


def gpu(index: int = 0, **changed: Any) -> GpuState:
    """A healthy GPU of an HGX H200, the one that `made_ranks` drives at this index."""
    counters = {"ecc_corrected": 3, "ecc_uncorrected": 0, "pcie_replays": 2, "throttled_ns_thermal": 5000}
    healthy = GpuState(
        index=index,
        name="NVIDIA H200",
        uuid=f"GPU-{index}",
        bus_id=f"0000:{index:02x}:00.0",
        pcie_generation=5,
        pcie_width=16,
        pcie_most_generation=5,
        pcie_most_width=16,
        performance_state=0,
        clock_mhz=1980,
        clock_most_mhz=1980,
        power_limit_w=700.0,
        power_usual_limit_w=700.0,
        temperature_c=35,
        settings={"ECC": "on", "MIG": "off", "persistence mode": "on"},
        counters=counters,
        links=tuple(GpuLink(number, True, {"replay": 1, "crc_flit": 7}) for number in range(LINKS)),
    )
    return replace(healthy, **changed)


def nic(name: str = "hsn0", **changed: Any) -> NicState:
    """A healthy port of 200 Gb/s."""
    counters = {"rx_packets": 1000, "tx_packets": 1000, "rx_dropped": 4, "rx_errors": 1, "carrier_changes": 2}
    return replace(NicState(name, "ethernet", True, 200.0, 9000, "full", counters=counters), **changed)


def node(host: str, when: Any = "before", **changed: Any) -> NodeState:
    """A healthy node with two GPUs and a port, 30 s apart before and after."""
    healthy = NodeState(
        host=host,
        when=when,
        time_s=1_795_000_000.0 + (30.0 if when == "after" else 0.0),
        versions={"kernel": "6.8.0", "GPU driver": "580.1", "processor": "made up"},
        settings={"governor": "performance"},
        cores=64,
        busy_cores=0.2,
        memory_bytes=1 << 40,
        memory_free_bytes=900 << 30,
        tcp={"OutSegs": 1000, "InSegs": 1000, "RetransSegs": 5, "TCPOFOQueue": 1},
        gpus=(gpu(0), gpu(1)),
        nics=(nic(),),
    )
    return replace(healthy, **changed)


def states(before: Sequence[NodeState], after: Sequence[NodeState]) -> States:
    return States({one.host: one for one in before}, {one.host: one for one in after}, asked=True)


def run_with(
    before: Sequence[NodeState], after: Sequence[NodeState], *, gpus: bool = True, gbps: float = 100.0, **header: Any
) -> Run:
    """A run with one pair: of two GPUs on one node, or of one on each of two nodes and so on."""
    hosts = [one.host for one in after]
    hosts = hosts * 2 if len(hosts) == 1 else hosts
    series = {"operation": "unidirectional", "schedule": "uncontended", "ranks": [0, 1], "bytes": [MIB], "round": -1}
    header = {"ranks": [{}] * len(hosts), "environment_differences": [], **header}
    samples = [made_samples("unidirectional", (0, 1), MIB, gbps)]
    made = made_run(hosts, samples, devices=gpus, plan={"series": [series]}, **header)
    return replace(made, states=states(before, after))
