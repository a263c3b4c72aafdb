"""Nodes for the tests of the model: those of the papers, and small ones made on the spot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fabricheck.limits.of_metric import expectation
from fabricheck.limits.question import MeasuredSeries
from fabricheck.records.judgement import Expectation
from fabricheck.topology.graph import NodeGraph, node_graph
from fabricheck.topology.model import Cpu, Gpu, Link, Nic, Switch, Topology, find_topology

ROOT = Path(__file__).resolve().parents[2]
PAPERS = (
    "alps",
    "aurora",
    "dardel",
    "delta",
    "dgx-a100",
    "frontier",
    "hgx-h200",
    "leonardo",
    "lumi",
    "perlmutter",
    "sierra",
    "summit",
)


@cache
def system(name: str) -> Topology:
    """A system of site_configs/."""
    return find_topology(name, ROOT / "site_configs")


def graph(name: str) -> NodeGraph:
    return node_graph(system(name))


def node(
    gpus: int,
    links: Iterable[tuple[int, int, int, float]],
    *,
    switch: Mapping[int, float] | None = None,
    nics: int = 0,
    scheme: str | None = None,
) -> Topology:
    """A node of `gpus` GPUs; `links`: (GPU, GPU, count, Gb/s of one); `switch`: Gb/s of each GPU to a switch."""
    joined = [Link((f"gpu{a}", f"gpu{b}"), "test", count, rate, "test") for a, b, count, rate in links]
    joined += [Link((f"gpu{a}", "switch"), "test", 1, rate, "test") for a, rate in (switch or {}).items()]
    return Topology(
        system="made",
        description="made for a test",
        gpus=tuple(Gpu(f"gpu{index}", index, "test") for index in range(gpus)),
        cpus=(Cpu("cpu0"),),
        switches=(Switch("switch", "test"),) if switch else (),
        nics=tuple(Nic(f"nic{index}", "test", 200.0, "test") for index in range(nics)),
        links=tuple(joined),
        nic_scheme=scheme,
    )


def two_sockets(between_gbps: float | None) -> Topology:
    """A GPU and a NIC on each of two CPUs, with PCIe 4 x16 links, and the rate of the link between the CPUs if any."""
    pcie = [("gpu0", "cpu0"), ("gpu1", "cpu1"), ("mlx0", "cpu0"), ("mlx1", "cpu1")]
    links = [Link(ends, "PCIe 4 x16", 1, 256.0, "made") for ends in pcie]
    if between_gbps is not None:
        links.append(Link(("cpu0", "cpu1"), "UPI", 1, between_gbps, "made"))
    return Topology(
        "made",
        "two sockets",
        gpus=(Gpu("gpu0", 0, "A100"), Gpu("gpu1", 1, "A100")),
        cpus=(Cpu("cpu0"), Cpu("cpu1")),
        nics=tuple(Nic(name, "ConnectX-6", 200.0, "made") for name in ("mlx0", "mlx1")),
        links=tuple(links),
        nic_scheme="one-to-one",
    )


def expected_of(topology: Topology, operation: str, devices: Sequence[int], **others: Any) -> Expectation:
    """What the model expects of a goodput: of 1 GiB by *CCL on one node, unless `others` say another."""
    given: dict[str, Any] = {
        "implementation": "library",
        "transport": "ccl",
        "schedule": "uncontended",
        "nodes": 1,
        "bytes": 1 << 30,
        "quantity": "goodput",
        "host_copy_gbps": None,
    }
    return expectation(topology, MeasuredSeries(operation=operation, devices=devices, **{**given, **others}))
