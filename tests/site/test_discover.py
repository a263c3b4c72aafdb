"""Discovery from captured answers: one real capture of four H200 on NVSwitch, others as the tools print them."""

from __future__ import annotations

import json
import runpy
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fabricheck.commands.site import capture, discover
from fabricheck.errors import UserError
from fabricheck.site import capture as capturing
from fabricheck.site.facts import read_facts
from fabricheck.site.validation import problems
from fabricheck.site.write import settings_text, topology_text, write_site
from fabricheck.topology.model import Topology, load_topology
from tests.support.nodes import ROOT, system

H200 = ROOT / "tests" / "data" / "site" / "h200x4"

ROCM_SMI = """\

============================ ROCm System Management Interface ============================
================================ Weight between two GPUs =================================
       GPU0         GPU1         GPU2
GPU0   0            15           15
GPU1   15           0            30
GPU2   15           30           0

================================= Hops between two GPUs ==================================
       GPU0         GPU1         GPU2
GPU0   0            1            1
GPU1   1            0            2
GPU2   1            2            0

=============================== Link Type between two GPUs ===============================
       GPU0         GPU1         GPU2
GPU0   0            XGMI         XGMI
GPU1   XGMI         0            XGMI
GPU2   XGMI         XGMI         0

======================================= Numa Nodes =======================================
GPU[0]\t\t: (Topology) Numa Node: 3
GPU[0]\t\t: (Topology) Numa Affinity: 3
GPU[1]\t\t: (Topology) Numa Node: 3
GPU[1]\t\t: (Topology) Numa Affinity: 3
GPU[2]\t\t: (Topology) Numa Node: 1
GPU[2]\t\t: (Topology) Numa Affinity: 1
================================== End of ROCm SMI Log ===================================
"""

LSTOPO = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f">
    <object type="Package" os_index="0" cpuset="0x0000000f">
      <object type="NUMANode" os_index="1" cpuset="0x00000003"/>
      <object type="Core" os_index="0" cpuset="0x00000003"/>
      <object type="NUMANode" os_index="3" cpuset="0x0000000c"/>
      <object type="Core" os_index="1" cpuset="0x0000000c"/>
      <object type="NUMANode" os_index="4" cpuset="0x0"/>
    </object>
  </object>
</topology>
"""


def nvml(gpus: list[dict[str, Any]]) -> str:
    common = {"name": "NVIDIA A100-SXM4-40GB", "arch": "sm_80", "pcie_generation": 4, "pcie_width": 16}
    return json.dumps({"driver": "1", "gpus": [{**common, **gpu} for gpu in gpus]})


def test_the_h200_node_is_the_one_in_site_configs(tmp_path: Path) -> None:
    write_site(read_facts(H200), tmp_path / "found")
    found = load_topology(tmp_path / "found" / "topology.yaml")
    known = system("hgx-h200")

    def links(topology: Topology) -> set[tuple[str, str, str, float]]:
        hosts = {cpu.name: "host" for cpu in topology.cpus}
        return {
            (link.ends[0], hosts.get(link.ends[1], link.ends[1]), link.technology, link.total_gbps)
            for link in topology.links
        }

    assert [gpu.index for gpu in found.gpus] == [0, 1, 2, 3]
    assert {gpu.model for gpu in found.gpus} == {"H200"}
    assert links(found) == links(known)
    assert found.switches[0].in_network_reduction == known.switches[0].in_network_reduction


def test_settings_load_in_reframe(tmp_path: Path) -> None:
    import shutil

    shutil.copytree(ROOT / "config", tmp_path / "config")
    write_site(read_facts(H200), tmp_path / "site_configs" / "found")
    # What discovery cannot know is the only thing that is left to say.
    (left,) = problems(tmp_path, "found")
    assert left.startswith(f"{tmp_path / 'reference_values' / 'found.yaml'}: does not exist")
    settings = runpy.run_path(str(tmp_path / "site_configs" / "found" / "settings.py"))["site_configuration"]
    partition = settings["systems"][0]["partitions"][0]
    assert partition["devices"] == [{"type": "gpu", "arch": "sm_90", "model": "H200", "num_devices": 4}]
    assert partition["processor"]["num_cpus"] == 64
    assert partition["extras"]["unsupported"] == {"host_numa=remote": "one NUMA node, by `fabricheck discover`"}


def test_nvidia_smi_alone_tells_counts_and_asks_for_the_rest(tmp_path: Path) -> None:
    (tmp_path / capturing.NVIDIA_TOPO).write_text((H200 / capturing.NVIDIA_TOPO).read_text(), encoding="utf-8")
    facts = read_facts(tmp_path)
    assert [(link.ends, link.count) for link in facts.links if link.technology == "NVLink"] == [
        ((f"gpu{index}", "nvswitch"), 18) for index in range(4)
    ]
    assert any("taken for an NVSwitch" in note for note in facts.notes)
    write_site(facts, tmp_path / "found")
    with pytest.raises(UserError, match=r"topology.yaml:\d+: links\[0\].rate: .*FILL IN"):
        load_topology(tmp_path / "found" / "topology.yaml")


def test_direct_nvlinks_are_counted_once_for_both_ends(tmp_path: Path) -> None:
    def link(number: int, bus: str) -> dict[str, Any]:
        return {"link": number, "version": 4, "speed_mbps": 25_000, "remote_kind": "gpu", "remote_bus_id": bus}

    a, b = "00000000:01:00.0", "00000000:41:00.0"
    gpus = [
        {"index": 0, "bus_id": a, "numa_node": 0, "nvlinks": [link(n, b) for n in range(4)]},
        {"index": 1, "bus_id": b, "numa_node": 1, "nvlinks": [link(n, a) for n in range(4)]},
    ]
    (tmp_path / capturing.NVML).write_text(nvml(gpus), encoding="utf-8")
    numa = {"nodes": [{"index": 0, "cpus": "0-3"}, {"index": 1, "cpus": "4-7"}], "cores": 8, "sockets": 2}
    (tmp_path / capturing.NUMA).write_text(json.dumps(numa), encoding="utf-8")
    facts = read_facts(tmp_path)
    links = {link.ends: (link.technology, link.count, link.rate_gbps) for link in facts.links}
    assert links == {
        ("gpu0", "gpu1"): ("NVLink3", 4, 200.0),
        ("gpu0", "numa0"): ("PCIe 4 x16", 1, 256.0),
        ("gpu1", "numa1"): ("PCIe 4 x16", 1, 256.0),
    }
    assert not facts.has_switch


def test_amd_pairs_numa_nodes_and_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / capturing.ROCM_SMI_TOPO).write_text(ROCM_SMI, encoding="utf-8")
    (tmp_path / capturing.LSTOPO).write_text(LSTOPO, encoding="utf-8")
    facts = read_facts(tmp_path)
    assert facts.vendor == "amd"
    assert facts.numa_nodes == (1, 3)
    assert (facts.cores, facts.sockets) == (2, 1)
    fabric = [(link.ends, link.rate_gbps) for link in facts.links if link.technology == "Infinity Fabric"]
    # 1 and 2 are two hops apart: data pass 0
    assert fabric == [(("gpu0", "gpu1"), 400.0), (("gpu0", "gpu2"), 400.0)]
    assert [link.ends[1] for link in facts.links if link.technology == "link to the CPU"] == ["numa3", "numa3", "numa1"]
    assert any("every count is 1" in note for note in facts.notes)
    assert "every count is 1" in topology_text(facts, "found")


def test_nics_and_numa_from_sysfs(tmp_path: Path) -> None:
    sysfs = tmp_path / "sys"

    def put(name: str, text: str) -> None:
        file = sysfs / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n", encoding="utf-8")

    for port, state in (("1", "4: ACTIVE"), ("2", "1: DOWN")):
        put(f"class/infiniband/mlx5_0/ports/{port}/state", state)
        put(f"class/infiniband/mlx5_0/ports/{port}/rate", "200 Gb/sec (4X HDR)")
        put(f"class/infiniband/mlx5_0/ports/{port}/link_layer", "InfiniBand")
    put("class/infiniband/mlx5_0/device/numa_node", "1")
    put("class/cxi/cxi0/device/port/speed", "BS_200G")
    put("class/cxi/cxi0/device/numa_node", "0")
    put("class/cxi/cxi1/device/numa_node", "0")
    put("devices/system/node/node0/cpulist", "0-1")
    put("devices/system/node/node1/cpulist", "")
    for cpu in (0, 1):
        put(f"devices/system/cpu/cpu{cpu}/topology/physical_package_id", "0")
        put(f"devices/system/cpu/cpu{cpu}/topology/core_id", str(cpu))
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / capturing.NICS).write_text(json.dumps(capturing.nic_facts(sysfs)), encoding="utf-8")
    (tmp_path / "kept" / capturing.NUMA).write_text(json.dumps(capturing.numa_facts(sysfs)), encoding="utf-8")
    facts = read_facts(tmp_path / "kept")
    assert [(one.name, one.rate_gbps, one.numa) for one in facts.nics] == [
        ("mlx5_0", 200.0, 1),
        ("cxi0", 200.0, 0),
        ("cxi1", None, 0),
    ]
    assert facts.numa_nodes == (0,)
    assert (facts.cores, facts.sockets) == (2, 1)
    assert any("rate of cxi1" in note for note in facts.notes)


def test_this_machine(tmp_path: Path) -> None:
    """Whatever this machine is, its files say what the kernel says; they load, or name what has to be filled in."""
    kept = CliRunner().invoke(capture, [str(tmp_path / "kept")], catch_exceptions=False)
    assert kept.exit_code == 0
    assert (tmp_path / "kept" / capturing.NUMA).exists()
    done = CliRunner().invoke(
        discover, ["--from", str(tmp_path / "kept"), "--output", str(tmp_path / "here")], catch_exceptions=False
    )
    assert done.exit_code == 0
    file = tmp_path / "here" / "topology.yaml"
    text = file.read_text(encoding="utf-8")
    if "FILL IN" in text:
        with pytest.raises(UserError, match="FILL IN"):
            load_topology(file)
        file.write_text(text.replace("FILL IN", "1"), encoding="utf-8")
    topology = load_topology(file)
    (found,) = runpy.run_path(str(tmp_path / "here" / "settings.py"))["site_configuration"]["systems"]
    (partition,) = found["partitions"]
    assert (topology.system, found["name"]) == ("here", "here")
    assert found["hostnames"] == [socket.gethostname().split(".")[0]]
    # The kernel's word, read by other means than capture's.
    domains = [each for each in Path("/sys/devices/system/node").glob("node*/cpulist") if each.read_text().strip()]
    assert len(topology.cpus) == len(domains or [0])
    places = [
        ((each / "physical_package_id").read_text(), (each / "core_id").read_text())
        for each in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology")
    ]
    assert partition["processor"]["num_cpus"] == len(set(places))
    assert partition["processor"]["num_sockets"] == len({package for package, _ in places})
    nvidia = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    if nvidia or not topology.gpus:
        assert len(topology.gpus) == nvidia
    assert sum(each["num_devices"] for each in partition.get("devices", ())) == len(topology.gpus)


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no directory of captures"):
        read_facts(tmp_path / "nothing")
    with pytest.raises(UserError, match="has no captures"):
        read_facts(tmp_path)
    (tmp_path / capturing.NVML).write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="is not valid JSON"):
        read_facts(tmp_path)
    (tmp_path / capturing.NVML).unlink()
    (tmp_path / capturing.ROCM_SMI_TOPO).write_text("command not found\n", encoding="utf-8")
    with pytest.raises(UserError, match="not the output of rocm-smi"):
        read_facts(tmp_path)
    (tmp_path / capturing.ROCM_SMI_TOPO).unlink()
    (tmp_path / capturing.NVIDIA_TOPO).write_text("No devices were found\n", encoding="utf-8")
    with pytest.raises(UserError, match="not the output of `nvidia-smi topo -m`"):
        read_facts(tmp_path)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    write_site(read_facts(H200), tmp_path / "found")
    with pytest.raises(UserError, match="exists already"):
        write_site(read_facts(H200), tmp_path / "found")


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


def test_intel_tiles_are_gpus_and_ways_over_another_tile_are_no_links(tmp_path: Path) -> None:
    (tmp_path / capturing.XPU_SMI_TOPO).write_text(XPU_SMI, encoding="utf-8")
    (tmp_path / capturing.XPU_SMI_DISCOVERY).write_text(xpu_discovery("0000:18:00.0", "0000:42:00.0"), encoding="utf-8")
    kernel = [
        {"bus_id": bus, "numa_node": numa, "link_speed": "32.0 GT/s PCIe", "link_width": "16"}
        for numa, bus in enumerate(("0000:18:00.0", "0000:42:00.0"))
    ]
    (tmp_path / capturing.INTEL).write_text(json.dumps(kernel), encoding="utf-8")
    facts = read_facts(tmp_path)
    assert facts.vendor == "intel"
    assert [(gpu.model, gpu.arch, gpu.numa) for gpu in facts.gpus] == [
        ("Data Center GPU Max 1550, tile", "pvc", numa) for numa in (0, 0, 1, 1)
    ]
    assert {link.ends: (link.technology, link.rate_gbps) for link in facts.links} == {
        ("gpu0", "numa0"): ("PCIe", 512.0),
        ("gpu2", "numa1"): ("PCIe", 512.0),
        ("gpu0", "gpu1"): ("MDFI", None),
        ("gpu2", "gpu3"): ("MDFI", None),
        ("gpu0", "gpu3"): ("Xe Link x16", None),
        ("gpu1", "gpu2"): ("Xe Link x16", None),
    }
    assert "FILL IN Gb/s" in topology_text(facts, "found")
    settings = settings_text(facts, "found")
    assert '"backend": "sycl"' in settings and '"features": ["gpu", "sycl", "xelink"]' in settings


def test_what_is_no_table_of_xpu_smi_is_one_line(tmp_path: Path) -> None:
    (tmp_path / capturing.XPU_SMI_TOPO).write_text("Error: no devices\n", encoding="utf-8")
    with pytest.raises(UserError, match="is not the output of `xpu-smi topology -m`"):
        read_facts(tmp_path)


def test_intels_gpus_in_sysfs(tmp_path: Path) -> None:
    device = tmp_path / "bus/pci/drivers/i915/0000:18:00.0"
    device.mkdir(parents=True)
    for name, text in (("numa_node", "0"), ("max_link_speed", "32.0 GT/s PCIe"), ("max_link_width", "16")):
        (device / name).write_text(text + "\n")
    assert capturing.intel_facts(tmp_path) == [
        {"bus_id": "0000:18:00.0", "numa_node": 0, "link_speed": "32.0 GT/s PCIe", "link_width": "16"}
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nvml.json", 5000 * "["),
        ("nvml.json", '{"gpus": [{"index": []}]}'),
        ("nvml.json", '{"gpus": 7}'),
        ("nics.json", '[{"name": "hsn0"}, 3]'),
        ("nics.json", '"hsn0"'),
        ("numa.json", '{"0": 5}'),
        ("nvidia-smi_topo.txt", "\tGPU0\nGPU0\n\udcff"),
        ("rocm-smi_showtopo.txt", "hops\n GPU0\nGPU0 1 2 3\ntype\nGPU0\n"),
    ],
)
def test_a_capture_that_is_none_is_one_line(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(UserError) as refused:
        read_facts(tmp_path)
    assert len(str(refused.value).splitlines()) == 1
