"""Facts from captured answers: one real capture of four H200 on NVSwitch, others as the tools print them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fabricheck.errors import UserError
from fabricheck.site.facts import read_facts
from fabricheck.site.plan import Choices, plan
from fabricheck.site.write import topology_text
from fabricheck.state import capture as capturing
from fabricheck.state import capture as sysfs_of
from tests.support.captured import capture_of
from tests.support.nodes import ROOT

H200 = ROOT / "tests" / "data" / "site" / "h200x4"


def test_nics_and_numa_from_sysfs(tmp_path: Path) -> None:
    sysfs = tmp_path / "sys"

    def put(name: str, text: str) -> None:
        file = sysfs / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n", encoding="utf-8")

    put("class/cxi/cxi0/device/port/speed", "BS_200G")
    put("class/cxi/cxi2/device/port/0/link/speed", "ck400G")  # of Cassini 2
    put("class/cxi/cxi0/device/numa_node", "0")
    put("class/cxi/cxi1/device/numa_node", "0")
    put("devices/system/node/node0/cpulist", "0-1")
    put("devices/system/node/node1/cpulist", "")
    for cpu in (0, 1):
        put(f"devices/system/cpu/cpu{cpu}/topology/physical_package_id", "0")
        put(f"devices/system/cpu/cpu{cpu}/topology/core_id", str(cpu))
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / capturing.NICS).write_text(json.dumps(sysfs_of.nic_facts(sysfs)), encoding="utf-8")
    (tmp_path / "kept" / capturing.NUMA).write_text(json.dumps(sysfs_of.numa_facts(sysfs)), encoding="utf-8")
    facts = read_facts(tmp_path / "kept", ["slow-port"])
    assert [(one.name, one.rate_gbps, one.numa) for one in facts.nics] == [
        ("cxi0", 200.0, 0),
        ("cxi1", None, 0),
        ("cxi2", 400.0, None),
    ]
    assert facts.numa_nodes == (0,)
    assert (facts.cores, facts.sockets) == (2, 1)
    assert any("rate of cxi1" in note for note in facts.notes)


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a directory of captures"):
        read_facts(tmp_path / "nothing")
    with pytest.raises(UserError, match="has no captures"):
        read_facts(tmp_path)
    (tmp_path / capturing.NVML).write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="is not valid JSON"):
        read_facts(tmp_path)
    (tmp_path / capturing.NVML).unlink()
    (tmp_path / capturing.NVIDIA_TOPO).write_text("No devices were found\n", encoding="utf-8")
    with pytest.raises(UserError, match="is not the output of its tool"):
        read_facts(tmp_path)


# The example of Intel's guide (intel/xpumanager, doc/smi_user_guide.md, "Get the system topology").
XPU_SMI = """\

         GPU 0/0|GPU 0/1|GPU 1/0|GPU 1/1|CPU Affinity
GPU 0/0 |S      |MDF    |XL*    |XL16   |0-23,48-71
GPU 0/1 |MDF    |S      |XL16   |XL*    |0-23,48-71
GPU 1/0 |XL*    |XL16   |S      |MDF    |24-47,72-95
GPU 1/1 |XL16   |XL*    |MDF    |S      |24-47,72-95
"""


def xpu_discovery(*bus_ids: str) -> str:
    """In the form of the same guide ("Discover the devices in this machine")."""
    name = "Intel(R) Data Center GPU Max 1550"
    cards = [{"device_id": i, "device_name": name, "pci_bdf_address": bus} for i, bus in enumerate(bus_ids)]
    return json.dumps({"device_list": cards})


BUSES = ("0000:18:00.0", "0000:42:00.0")


def intel(folder: Path, *, buses: tuple[str, ...] = BUSES, topo: str = XPU_SMI, speed: str = "32.0") -> Path:
    """Two cards, with `buses` on the PCI bus; the link of the second has `speed`."""
    on_bus = [
        {"vendor": "intel", "bus_id": bus, "numa_node": at, "path_speed": f"{rate} GT/s PCIe", "link_width": "16"}
        for at, (bus, rate) in enumerate(zip(buses, ("32.0", speed, "32.0"), strict=False))
    ]
    return capture_of(folder, numa=2, xpu_smi_topo=topo, xpu_smi_discovery=xpu_discovery(*BUSES), pci_gpus=on_bus)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"buses": (*BUSES, "0000:6c:00.0")}, "hidden-gpus"),
        ({"speed": "16.0"}, "slow-pcie"),
        ({"topo": XPU_SMI.replace("XL16", "SYS ", 1)}, "missing-links"),
    ],
)
def test_what_a_card_of_tiles_has_less_of_is_doubted(change: dict[str, Any], code: str, tmp_path: Path) -> None:
    assert {doubt.code for doubt in read_facts(intel(tmp_path, **change)).doubts} == {code}


def test_intel_tiles_are_gpus_and_ways_over_another_tile_are_no_links(tmp_path: Path) -> None:
    facts = read_facts(intel(tmp_path))
    assert facts.doubts == ()
    assert facts.vendor == "intel"
    assert [(gpu.model, gpu.arch, gpu.numa) for gpu in facts.gpus] == [
        ("Data Center GPU Max 1550, tile", "pvc", numa) for numa in (0, 0, 1, 1)
    ]
    assert {link.ends: (link.technology, link.rate_gbps) for link in facts.links} == {
        ("gpu0", "numa0"): ("PCIe 5 x16", 512.0),
        ("gpu2", "numa1"): ("PCIe 5 x16", 512.0),
        ("gpu0", "gpu1"): ("MDFI", None),
        ("gpu2", "gpu3"): ("MDFI", None),
        ("gpu0", "gpu3"): ("Xe Link x16", None),
        ("gpu1", "gpu2"): ("Xe Link x16", None),
    }
    assert "FILL IN Gb/s" in topology_text(facts, "found")
    (partition,) = plan(facts, "found", "", Choices()).partitions
    assert partition["features"] == ["gpu", "sycl", "xelink"]


def kept(tmp_path: Path, change: Any) -> Path:
    """The capture of four H200 with its NVML answers changed."""
    content = json.loads((H200 / capturing.NVML).read_text())
    change(content)
    (tmp_path / capturing.NVML).write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / capturing.NUMA).write_text((H200 / capturing.NUMA).read_text(), encoding="utf-8")
    return tmp_path


def test_a_part_that_nobody_knows_has_the_drivers_numbers(tmp_path: Path) -> None:
    def unknown(nvml: dict[str, Any]) -> None:
        for gpu in nvml["gpus"]:
            gpu.update(name="NVIDIA X9000", arch="sm_199")
            for link in gpu["nvlinks"]:
                link.update(version=99, speed_mbps=100_000)

    facts = read_facts(kept(tmp_path, unknown))
    assert {(link.technology, link.rate_gbps) for link in facts.links if "nvswitch" in link.ends} == {("NVLink", 800.0)}
    assert facts.gpus[0].model == "X9000"
    assert "in_network_reduction" not in topology_text(facts, "found")


def sysfs_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n", encoding="utf-8")


def test_a_gpu_of_pcie_6_is_at_a_cpu_of_pcie_5(tmp_path: Path) -> None:
    """A B300 says 6, its CPU has 5; what a virtual machine has for a bridge says nothing."""
    real, of_vm = "devices/pci0000:17/0000:17:01.0", "devices/pci0000:80/0000:80:01.0"
    for number, (port, vendor, speed) in enumerate(((real, "0x8086", "32.0"), (of_vm, "0x1b36", "16.0"))):
        gpu = f"{port}/0000:{number + 1:02x}:00.0"
        sysfs_tree(
            tmp_path / "sys",
            {
                f"{port}/vendor": vendor,
                f"{port}/max_link_speed": f"{speed} GT/s PCIe",
                f"{gpu}/vendor": "0x10de",
                f"{gpu}/class": "0x030200",
                f"{gpu}/max_link_speed": "64.0 GT/s PCIe",
            },
        )
        (tmp_path / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"sys/bus/pci/devices/0000:{number + 1:02x}:00.0").symlink_to(tmp_path / "sys" / gpu)
    on_bus = sysfs_of.pci_gpus(tmp_path / "sys")
    assert [one["path_speed"] for one in on_bus] == ["32.0 GT/s PCIe", "64.0 GT/s PCIe"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nvml.json", 5000 * "["),
        ("nvml.json", '{"gpus": [{"index": []}]}'),
        ("nvml.json", '{"gpus": 7}'),
        ("nics.json", '[{"name": "hsn0"}, 3]'),
        ("nics.json", '"hsn0"'),
        ("numa.json", '{"0": 5}'),
        ("numa.json", '{"nodes": [], "cores": Infinity, "sockets": 1}'),
        ("software.json", '{"compiler": "\\ud800"}'),
        ("software.json", '{"ccl": ["nccl", "/usr"]}'),
        ("software.json", '{"libraries": [{"family": "openmpi"}]}'),
        ("nvidia-smi_topo.txt", "\tGPU0\nGPU0\n\udcff"),
        ("xpu-smi_topology.txt", "Error: no devices\n"),
        ("rocm-smi_showtopo.txt", "hops\n GPU0\nGPU0 1 2 3\ntype\nGPU0\n"),
    ],
)
def test_a_capture_that_is_none_is_one_line(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(UserError) as refused:
        read_facts(tmp_path)
    assert len(str(refused.value).splitlines()) == 1
