"""Nodes as administrators have them: which NICs are rails, which links there are, and which paths follow from them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fabricheck.errors import UserError
from fabricheck.site.facts import read_facts
from fabricheck.site.found import NodeFacts
from fabricheck.site.nics import network_of_lldp
from fabricheck.site.slurm import read_slurm
from fabricheck.site.write import topology_text
from fabricheck.state.capture import nic_facts
from fabricheck.topology.model import Topology, load_topology
from fabricheck.topology.nic import node_gbps
from fabricheck.topology.transport_paths import ccl_paths, mpi_paths
from tests.support.captured import amd_gpu, capture_of, nic, nvidia_gpus, topo, xgmi
from tests.support.nodes import ROOT, expected_of

DATA = ROOT / "tests" / "data" / "field_reports"
PIX8 = {at: " ".join("PIX" if to == at else "SYS" for to in range(8)) for at in range(8)}
NAMES = [f"mlx5_{at}" for at in range(8)]


def topology_of(facts: NodeFacts, folder: Path) -> Topology:
    file = folder / "topology.yaml"
    file.write_text(topology_text(facts, "found").replace("FILL IN Gb/s", "100 Gb/s"), encoding="utf-8")
    return load_topology(file)


def h100(count: int = 8, **more: Any) -> list[dict[str, Any]]:
    return nvidia_gpus("NVIDIA H100 80GB HBM3", "sm_90", count, nvlinks=18, **more)


def mi300x() -> list[dict[str, Any]]:
    return [amd_gpu(at, [xgmi(to) for to in range(2, 10) if to != at]) for at in range(2, 10)]


def level(name: str, count: int = 4) -> str:
    """All GPUs as far from one NIC."""
    return topo(dict.fromkeys(range(count), name), ["mlx5_0"])


GH200: dict[str, Any] = {"c2c_links": 5, "c2c_mbps": 90000, "pcie_generation": 5}
GRACE_HOPPER = {
    "nvml": nvidia_gpus("NVIDIA GH200 480GB", "sm_90", 4, nvlinks=6, pairs=[(0, 1), (2, 3)], **GH200),
    "nics": [nic("mlx5_0")],
    "nvidia_topo": level("NODE"),
}
# A capture; the path of *CCL and of MPI between two nodes, and which channels use GPUDirect RDMA if not all.
PATHS: dict[str, tuple[dict[str, Any], str, str, str | None]] = {
    "RoCE at each GPU": (
        {"nvml": h100(), "nics": [nic(one, "Ethernet") for one in NAMES], "nvidia_topo": topo(PIX8, NAMES)},
        "NET/IB/GDRDMA",
        "RoCE",
        None,
    ),
    "EFA, by its driver": (
        {"nvml": h100(), "nics": [nic(f"rdmap{at}s0", "Unspecified", "100 Gb/sec (4X EDR)") for at in range(32)]},
        "NET/OFI/GDRDMA",
        "OFI/efa",
        None,
    ),
    "EFA of an instance without NVLinks": (
        {"nvml": nvidia_gpus("NVIDIA A10G", "sm_86", 8), "nics": [nic("rdmap0s0", "EFA", "100 Gb/sec", driver="efa")]},
        "NET/OFI",
        "OFI/efa",
        "none",
    ),
    "GeForce and RoCE": (
        {"nvml": nvidia_gpus("NVIDIA GeForce RTX 4090", "sm_89", 4), "nics": [nic("mlx5_0", "Ethernet")]},
        "NET/IB",
        "RoCE",
        "none",
    ),
    "Slingshot": (
        {"amd": mi300x(), "nics": [nic(f"cxi{at}", "cxi", "BS_200G") for at in range(4)]},
        "NET/OFI/GDRDMA",
        "OFI/cxi",
        None,
    ),
    "V100, a NIC beyond the host bridge": (
        {
            "nvml": nvidia_gpus("Tesla V100-SXM2-16GB", "sm_70", 4, nvlinks=2, pairs=[(0, 1), (1, 2), (2, 3), (3, 0)]),
            "nics": [nic("mlx5_0", rate="100 Gb/sec (4X EDR)")],
            "nvidia_topo": level("NODE"),
        },
        "NET/IB",
        "InfiniBand",
        "none",
    ),
    "eight H100 and NICs in a guest, whose PCI tree is flat": (
        {
            "nvml": h100(),
            "nics": [nic(f"mlx5_ib{at}") for at in range(8)],
            "nvidia_topo": topo(dict.fromkeys(range(8), "NODE " * 8), [f"mlx5_ib{at}" for at in range(8)]),
        },
        "NET/IB/GDRDMA",
        "InfiniBand",
        None,
    ),
    "L40S, a host bridge in common": (
        {"nvml": nvidia_gpus("NVIDIA L40S", "sm_89", 4), "nics": [nic("mlx5_0")], "nvidia_topo": level("PHB")},
        "NET/IB",
        "InfiniBand",
        "none",
    ),
    "T4 without NVLink, a switch in common": (
        {"nvml": nvidia_gpus("Tesla T4", "sm_75", 4), "nics": [nic("mlx5_0")], "nvidia_topo": level("PXB")},
        "NET/IB/GDRDMA",
        "InfiniBand",
        "some",
    ),
    "MI210, a host bridge in common": (
        {
            "amd": [amd_gpu(at, [], pci=f"pci0000:00/0000:00:0{at}.0/0000:0{at}:00.0") for at in (1, 2)],
            "nics": [nic("mlx5_0", pci="pci0000:00/0000:00:09.0/0000:09:00.0")],
            "ccl": ("rccl", "2.20.5"),
        },
        "NET/IB/GDRDMA",
        "InfiniBand",
        None,
    ),
    "MI210, another socket": (
        {"amd": [amd_gpu(at, []) for at in (1, 2)], "nics": [nic("mlx5_0", numa_node=1)], "numa": 2},
        "NET/IB",
        "InfiniBand",
        "none",
    ),
    "GH200 and NCCL 2.26": (
        GRACE_HOPPER,
        "NET/IB",
        "InfiniBand",
        "none",
    ),
    "GH200 and NCCL 2.27": (
        {**GRACE_HOPPER, "ccl": ("nccl", "2.27.3")},
        "NET/IB/GDRDMA",
        "InfiniBand",
        None,
    ),
    "GB200 NVL72": (
        {"nvml": nvidia_gpus("NVIDIA GB200", "sm_100", 4, nvlinks=18, **GH200), "nics": [nic("mlx5_0")]},
        "P2P/MNNVL",
        "InfiniBand",
        None,
    ),
    "Ethernet without RDMA": (
        {"nvml": h100(2), "nics": [nic("eth0", "net", "100 Gb/sec")]},
        "NET/Socket",
        "TCP",
        None,
    ),
}


@pytest.mark.parametrize("case", PATHS)
def test_the_paths_that_follow_from_a_capture(case: str, tmp_path: Path) -> None:
    files, ccl, mpi, gpudirect = PATHS[case]
    topology = topology_of(read_facts(capture_of(tmp_path / "kept", **files)), tmp_path)
    assert (ccl_paths(topology, 2).described, mpi_paths(topology, 2).described) == (ccl, mpi)
    assert topology.gpudirect_rdma == gpudirect


def rate_of(facts: NodeFacts) -> float:
    return sum(one.rate_gbps or 0.0 for one in facts.nics)


def test_virtual_functions_share_the_rate_of_their_port(tmp_path: Path) -> None:
    table = (DATA / "nvidia-smi_sriov.txt").read_text()
    nics = [nic(f"mlx5_{at}") for at in range(24)]
    facts = read_facts(capture_of(tmp_path, nvml=h100(), nics=nics, nvidia_topo=table, numa=2))
    assert rate_of(facts) == 3200


RAILS = {
    "a guest that has nothing else": ([nic("mlx5_0", virtual=True), nic("mlx5_1", virtual=True)], 800),
    "two ports of one card": ([nic(name, rate="200 Gb/sec (4X HDR)") for name in ("mlx5_0", "mlx5_0_2")], 400),
    "a bond": ([nic("mlx5_bond_0", "Ethernet", "400 Gb/sec (bond of 2 ports)")], 400),
}


@pytest.mark.parametrize("case", RAILS)
def test_what_a_node_sends_by_its_ports(case: str, tmp_path: Path) -> None:
    nics, wanted = RAILS[case]
    assert rate_of(read_facts(capture_of(tmp_path, nvml=h100(1), nics=nics))) == wanted


def test_two_kinds_of_rails_in_a_node(tmp_path: Path) -> None:
    nics = [nic(f"mlx5_{at}", card="MT4129") for at in range(4)]
    nics += [nic(f"mlx5_{at}", rate="200 Gb/sec (4X HDR)", card="MT4123") for at in range(4, 8)]
    facts = read_facts(capture_of(tmp_path / "kept", nvml=h100(), nics=nics))
    assert facts.doubts == () and node_gbps(topology_of(facts, tmp_path)) == 2400


def sysfs_port(root: Path, name: str, net: str, *, bus: str) -> Path:
    device = root / "devices" / "pci0000:00" / bus
    (device / "net" / net).mkdir(parents=True, exist_ok=True)
    port = root / "class" / "infiniband" / name / "ports" / "1"
    port.mkdir(parents=True)
    (port / "rate").write_text("200 Gb/sec (4X HDR)\n")
    (port / "state").write_text("4: ACTIVE\n")
    (port / "link_layer").write_text("Ethernet\n")
    (root / "class" / "infiniband" / name / "device").symlink_to(device)
    interface = root / "class" / "net" / net
    interface.parent.mkdir(parents=True, exist_ok=True)
    interface.symlink_to(device / "net" / net)
    return device


def test_the_kernel_tells_interfaces_and_bonds(tmp_path: Path) -> None:
    sysfs_port(tmp_path, "mlx5_0", "eth0", bus="0000:01:00.0")
    bonded = sysfs_port(tmp_path, "mlx5_bond_0", "eth2", bus="0000:02:00.0")
    bond = tmp_path / "devices" / "virtual" / "net" / "bond0"
    (bond / "bonding").mkdir(parents=True)
    (bond / "bonding" / "slaves").write_text("eth2 eth3\n")
    (bond / "speed").write_text("400000\n")
    (bonded / "net" / "eth2" / "master").symlink_to(bond)
    found = {one["name"]: one for one in nic_facts(tmp_path)}
    assert found["mlx5_0"]["interfaces"] == ["eth0"]
    assert found["mlx5_bond_0"]["rate"].startswith("400 Gb/sec")


@pytest.mark.parametrize(
    ("name", "interface", "kind"),
    [("mlx5_0", "eth0", "Ethernet"), ("cxi0", "hsn0", "cxi"), ("bnxt_re0", "ens1np0", "Ethernet")],
)
def test_lldp_names_interfaces(name: str, interface: str, kind: str, tmp_path: Path) -> None:
    lldp = tmp_path / "lldp.txt"
    lldp.write_text("".join(f"node{at}: lldp.{interface}.chassis.name=leaf1\n" for at in (1, 2)))
    rate = "BS_200G" if kind == "cxi" else "200 Gb/sec (4X HDR)"

    def nics(**more: Any) -> Any:
        return read_facts(capture_of(tmp_path / "kept", nvml=h100(1), nics=[nic(name, kind, rate, **more)])).nics

    network = network_of_lldp(lldp, (), nics(interfaces=[interface]))["network"]
    assert network["links"][0]["pairs"] == [[f"node[1-2]:{name}", "leaf1"]]
    with pytest.raises(UserError, match=interface):
        network_of_lldp(lldp, (), nics())


@pytest.mark.parametrize(
    ("gres", "count", "kind", "slices"),
    [
        ("gpu:1g.10gb:56(S:0-1)", 56, "1g.10gb", True),
        ("gpu:2g.20gb:12,gpu:3g.40gb:4", 16, "2g.20gb", True),
        ("gpu:no_consume:h100:8", 8, "h100", False),
        ("gpu:no_consume:4,shard:8", 4, "", False),
    ],
)
def test_gres_of_slurm(gres: str, count: int, kind: str, slices: bool) -> None:
    slurm = read_slurm({"sinfo": f"p|2|{gres}|node[01-02]|96|idle\n"})
    assert slurm is not None
    (partition,) = slurm.partitions
    assert (partition.gpus, partition.gres, partition.slices) == (count, kind, slices)


def links_between_gpus(facts: NodeFacts) -> int:
    return sum(all(end.startswith("gpu") for end in link.ends) for link in facts.links)


AMD_SMI = (ROOT / "tests/data/site/amd-smi_topology.txt").read_text(encoding="utf-8")


def test_weights_tell_direct_links_of_amd(tmp_path: Path) -> None:
    table = (DATA / "rocm-smi_mi250x.txt").read_text()
    # Of each of eight GCDs three others have the weight 15, as in the paper's graph of LUMI; 30 and 45 are not joined.
    lumi = load_topology(ROOT / "site_configs" / "lumi" / "topology.yaml")
    wanted = {tuple(end.replace("gcd", "gpu") for end in link.ends) for link in lumi.links if "gcd" in link.ends[1]}
    found = read_facts(capture_of(tmp_path / "pairs", rocm_smi_topo=table, numa=4))
    assert {link.ends for link in found.links if link.ends[1].startswith("gpu")} == wanted
    without = table.replace("Weight between two GPUs", "Nothing")
    assert links_between_gpus(read_facts(capture_of(tmp_path / "hops", rocm_smi_topo=without, numa=4))) == 28
    assert links_between_gpus(read_facts(capture_of(tmp_path / "smi", amd_smi_topo=AMD_SMI))) == 2


def test_what_rocm_smi_does_not_know(tmp_path: Path) -> None:
    """A guest has no weights; NUMA nodes that nobody knows are -1, which ROCm 5 prints without a sign."""
    table = (DATA / "rocm-smi_mi250x.txt").read_text()
    guest = re.sub(r"\b(15|30|45)\b", "N/A", table)
    assert links_between_gpus(read_facts(capture_of(tmp_path / "guest", rocm_smi_topo=guest, numa=4))) == 28
    for unknown in ("-1", "4294967295"):
        flat = re.sub(r"(Numa Node: )\d+", rf"\g<1>{unknown}", table)
        facts = read_facts(capture_of(tmp_path / f"flat{unknown}", rocm_smi_topo=flat, numa=1))
        assert {end for link in facts.links for end in link.ends if end.startswith("numa")} == {"numa0"}
        assert topology_of(facts, tmp_path)


ARC = """\
         GPU 0/0  GPU 1/0  CPU Affinity
GPU 0/0  S        SYS      0-23,48-71
GPU 1/0  SYS      S        24-47,72-95
"""
MAX_1550 = """\
          GPU 0/0   GPU 0/1   GPU 10/0  GPU 10/1  CPU Affinity
GPU 0/0   S         MDF       XL*       XL16      0-51
GPU 0/1   MDF       S         XL16      XL*       0-51
GPU 10/0  XL*       XL16      S         MDF       52-103
GPU 10/1  XL16      XL*       MDF       S         52-103
"""
# Of version 1.0, by its widths of 12 and 20; of version 2.0, which has NICs, and names no Xe Link.
MAX_1100_OF_1_0 = """\
            GPU 0/0             GPU 1/0             CPU Affinity
GPU 0/0     S                   XL24                0-95
GPU 1/0     XL24                S                   0-95
"""
MAX_1550_OF_2_0 = """\

            GPU 0/0    GPU 0/1    GPU 1/0    NIC0       NIC1       CPU Affinity
  GPU 0/0   S          MDF        SYS        PIX        SYS        0-51
  GPU 0/1   MDF        S          SYS        PIX        SYS        0-51
  GPU 1/0   SYS        SYS        S          SYS        PXB        52-103
  NIC0      PIX        PIX        SYS        S          SYS        0-51
  NIC1      SYS        SYS        PXB        SYS        S          52-103
"""


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("", ["Xe Link x24"]),
        (ARC, []),
        (MAX_1550, ["MDFI", "Xe Link x16"]),
        (MAX_1100_OF_1_0, ["Xe Link x24"]),
        (MAX_1550_OF_2_0, ["MDFI"]),
    ],
)
def test_xpu_smi_sets_columns_apart_by_blanks(text: str, links: list[str], tmp_path: Path) -> None:
    table = text or (DATA / "xpu-smi_max1100.txt").read_text()
    facts = read_facts(capture_of(tmp_path, xpu_smi_topo=table))
    between = [link.technology for link in facts.links if all(end.startswith("gpu") for end in link.ends)]
    assert sorted(set(between)) == links
    assert len(facts.gpus) == (2 if "0/1" not in table else 3 if "NIC" in table else 4)
    assert any("Xe Link between cards" in note for note in facts.notes) == (not any("Xe" in each for each in links))


TWO_SOCKETS: dict[str, dict[str, Any]] = {
    "L40S": {"nvml": nvidia_gpus("NVIDIA L40S", "sm_89", 4, numa_node=0)},
    "bridged A100 PCIe": {
        "nvml": nvidia_gpus("NVIDIA A100 80GB PCIe", "sm_80", 4, nvlinks=12, pairs=[(0, 1), (2, 3)], numa_node=0)
    },
    "MI210": {"amd": [amd_gpu(at, []) for at in range(1, 5)]},
}


@pytest.mark.parametrize("case", TWO_SOCKETS)
def test_gpus_of_two_sockets_meet_through_the_cpus(case: str, tmp_path: Path) -> None:
    (gpus,) = TWO_SOCKETS[case].values()
    for place, gpu in enumerate(gpus):
        gpu["numa_node"] = place // 2
    facts = read_facts(capture_of(tmp_path / "kept", numa=2, **TWO_SOCKETS[case]))
    assert [(link.ends, link.rate_gbps) for link in facts.links if link.technology == "link between CPUs"] == [
        (("numa0", "numa1"), None)
    ]
    assert len(topology_of(facts, tmp_path).gpus) == 4


@pytest.mark.parametrize(("numa", "links"), [(1, True), (0, False), (None, False)])
def test_a_nic_at_another_numa_node_than_a_gpu_has_its_link(numa: int | None, links: bool, tmp_path: Path) -> None:
    """What joins the domains nobody tells: nothing is expected of such a GPU and NIC, and a line says what to do."""
    gpus = h100(2)
    on_bus = [
        {"bus_id": gpu["bus_id"][-12:], "numa_node": at * (numa or 0), "vendor": "nvidia", "pci": None}
        for at, gpu in enumerate(gpus)
    ]
    link = {"link_speed": "32.0 GT/s PCIe", "link_width": "16"}
    nics = [nic("mlx5_0", **link), {**nic("mlx5_1", **link), "numa_node": numa}]
    facts = read_facts(capture_of(tmp_path / "kept", numa=2, nvml=gpus, pci_gpus=on_bus, nics=nics))
    topology = topology_of(facts, tmp_path)
    ends = {link.ends for link in topology.links}
    assert (("mlx5_0", "numa0") in ends, ("mlx5_1", "numa1") in ends) == (links, links)
    far = expected_of(topology, "local_copy", (0,), transport="fabric", ranks=1, nics=[["mlx5_1"]])
    assert (far.nominal, far.expected) == (400.0, None if links else 400.0)
    assert any("NUMA" in note for note in facts.notes) == links
