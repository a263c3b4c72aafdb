"""Nodes as they are sold and rented: what they are taken for, and what the model allows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fabricheck.site.facts import read_facts
from fabricheck.site.nominal import product_of
from fabricheck.topology.nic import node_gbps
from fabricheck.yardsticks.expected_table import expected_rows
from tests.site.test_shapes import topology_of
from tests.support.captured import amd_gpu, capture_of, nic, nvidia_gpus, xgmi


def switched(name: str, arch: str, links: int, count: int = 8, **more: Any) -> dict[str, Any]:
    return {"nvml": nvidia_gpus(name, arch, count, nvlinks=links, **more)}


def ports(count: int, kind: str = "InfiniBand", rate: str = "400 Gb/sec (4X NDR)", name: str = "mlx5_{}") -> Any:
    return [nic(name.format(at), kind, rate) for at in range(count)]


def mesh(model: str, arch: str, speed: str, links: list[list[dict[str, Any]]], **more: Any) -> dict[str, Any]:
    return {
        "amd": [
            amd_gpu(2 + at, each, model=model, arch=arch, link_speed=speed, **more) for at, each in enumerate(links)
        ]
    }


def everyone(mbps: int) -> list[list[dict[str, Any]]]:
    return [[xgmi(to, least=mbps, most=mbps) for to in range(2, 10) if to != at] for at in range(2, 10)]


QUAD = [(a, b) for a in range(4) for b in range(a + 1, 4)]
C2C = {"c2c_links": 10, "c2c_mbps": 45000}
# MI250X: four links in a package, and one to each of two neighbours.


def gcds() -> list[list[dict[str, Any]]]:
    one: dict[str, Any] = {"least": 50000, "most": 50000}
    return [
        [
            xgmi((at ^ 1) + 2, least=50000, most=200000),
            xgmi((at + 2) % 8 + 2, **one),
            xgmi((at - 2) % 8 + 2, **one),
        ]
        for at in range(8)
    ]


def gh200() -> list[dict[str, Any]]:
    gpus = nvidia_gpus("NVIDIA GH200 120GB", "sm_90", 4, nvlinks=6, pairs=QUAD, **C2C)
    return [{**each, "numa_node": at} for at, each in enumerate(gpus)]


def a100(size: int) -> dict[str, Any]:
    return switched(f"NVIDIA A100-SXM4-{size}GB", "sm_80", 12, pcie_generation=4)


OAM = ("AMD Instinct MI300X OAM", "gfx942", "32.0 GT/s PCIe")
BROADCOM = ports(8, "Ethernet", name="bnxt_re{}")
CXI = ports(4, "cxi", "BS_200G", "cxi{}")
HDR, EFA100 = "200 Gb/sec (4X HDR)", "100 Gb/sec (4X EDR)"
#: A capture; how the product is called; Gb/s that the node sends, and from GPU 0 to GPU 1.
PRODUCTS: dict[str, tuple[dict[str, Any], str, float, float]] = {
    "DGX A100": ({**a100(80), "nics": ports(8, rate=HDR)}, "DGX A100", 1600, 2400),
    "DGX H100": ({**switched("NVIDIA H100 80GB HBM3", "sm_90", 18), "nics": ports(8)}, "DGX H100", 3200, 3600),
    "GB200 NVL72": (
        {**switched("NVIDIA GB200", "sm_100", 18, 4, **C2C), "nics": ports(4)}, "a compute tray of GB200", 1600, 7200,
    ),
    "MI300X OAM": (
        {**mesh(*OAM, everyone(64000)), "nics": BROADCOM},
        "an MI300X", 3200, 512,
    ),
    "LUMI": (
        {**mesh("AMD Instinct MI250X", "gfx90a", "16.0 GT/s PCIe", gcds()), "nics": CXI},
        "a node of MI250X", 800, 1600,
    ),
    "Alps": (
        {"nvml": gh200(), "nics": CXI, "numa": 4},
        "a node of GH200", 800, 1200,
    ),
    "AWS p4d": (
        {**a100(40), "nics": ports(4, "Unspecified", EFA100, "rdmap{}s0")},
        "AWS p4d", 400, 2400,
    ),
    "AWS p5": (
        {**switched("NVIDIA H100 80GB HBM3", "sm_90", 18), "nics": ports(32, "Unspecified", EFA100, "rdmap{}s0")},
        "AWS p5", 3200, 3600,
    ),
    "Google a3-highgpu": (
        {**switched("NVIDIA H100 80GB HBM3", "sm_90", 18), "nics": ports(4, "net", "200 Gb/sec", "eth{}")},
        "Google a3-highgpu", 800, 3600,
    ),
    "Oracle BM.GPU4.8": (
        {**a100(40), "nics": ports(16, "Ethernet", EFA100)},
        "Oracle BM.GPU4.8", 1600, 2400,
    ),
}  # fmt: skip


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_product_is_known_and_has_what_its_data_sheet_says(product: str, tmp_path: Path) -> None:
    files, name, node, pair = PRODUCTS[product]
    facts = read_facts(capture_of(tmp_path / "kept", **{"numa": 2, **files}))
    like = product_of(facts)
    assert like is not None and like.name.startswith(name)
    assert facts.doubts == ()
    topology = topology_of(facts, tmp_path)
    assert node_gbps(topology) == node
    ends = ("gpu0", "gpu1")
    first = next(row for row in expected_rows(topology) if row.devices == ends and row.transport == "direct")
    assert first.nominal == pair


@pytest.mark.parametrize(
    ("product", "change"),
    [
        ("LUMI", lambda files: files["nics"].pop(3)),
        ("AWS p5", lambda files: files["nics"].pop(20)),
    ],
)
def test_a_part_that_is_not_there_is_missed(product: str, change: Any, tmp_path: Path) -> None:
    files: dict[str, Any] = {name: list(content) for name, content in PRODUCTS[product][0].items()}
    change(files)
    facts = read_facts(capture_of(tmp_path, numa=2, **files))
    assert "unlike-product" in {each.code for each in facts.doubts}


@pytest.mark.parametrize(
    "files",
    [
        {**switched("NVIDIA H100 80GB HBM3", "sm_90", 18), "nics": ports(4)},
        {**switched("NVIDIA H100 80GB HBM3", "sm_90", 18, 4), "nics": ports(4)},
        {**switched("NVIDIA L40S", "sm_89", 0, pcie_generation=4), "nics": ports(2)},
        {**switched("NVIDIA H100 80GB HBM3", "sm_90", 18)},
    ],
    ids=["half the ports", "four GPUs", "no known product", "no ports"],
)
def test_another_machine_is_like_none(files: dict[str, Any], tmp_path: Path) -> None:
    facts = read_facts(capture_of(tmp_path, numa=2, **files))
    assert product_of(facts) is None
