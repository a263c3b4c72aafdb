"""What the kernel says of a node in /sys: NUMA nodes, network ports, GPUs on PCI, and AMD's and Intel's GPUs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fabricheck.state.pcie import generation_of_text
from fabricheck.state.sysfs import infiniband_ports, interfaces_of, is_virtual, read, slingshot_ports

#: By PCI vendor: whose GPUs they are.
VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}
# PCI classes of GPUs: VGA, 3D controller, processing accelerator.
_GPU_CLASSES = ("0x0300", "0x0302", "0x1200")
# NVIDIA's and AMD's server GPUs are no VGA devices; that of a management controller, or a laptop's, is.
# Makers of virtual machines' bridges: Red Hat (QEMU), VMware, Microsoft.
_VIRTUAL = ("0x1b36", "0x15ad", "0x1414")
_HEADLESS = ("0x0302", "0x1200")


def numa_facts(sysfs: Path) -> dict[str, Any]:
    """NUMA nodes that have CPUs, with their CPU lists; physical cores and sockets of the node."""
    nodes = []
    for path in sorted(sysfs.glob("devices/system/node/node[0-9]*"), key=lambda one: int(one.name[4:])):
        cpus = read(path / "cpulist")
        if cpus:
            nodes.append({"index": int(path.name[4:]), "cpus": cpus})
    cores, sockets = set(), set()
    for path in sysfs.glob("devices/system/cpu/cpu[0-9]*/topology"):
        socket_id, core = read(path / "physical_package_id"), read(path / "core_id")
        if socket_id and core:
            cores.add((socket_id, core))
            sockets.add(socket_id)
    return {"nodes": nodes, "cores": len(cores), "sockets": len(sockets)} if nodes else {}


def nic_facts(sysfs: Path) -> list[dict[str, Any]]:
    """Active ports of InfiniBand, Slingshot and Ethernet adapters: name, kind, the kernel's rate text, NUMA node, and
    where on the PCI tree they are; driver and model of the card, interfaces, and whether it is a virtual function.
    Ethernet counts as such only where no RDMA device is the same card."""
    facts = []
    for name, port, device in infiniband_ports(sysfs):
        if (rate := read(port / "rate")) and "ACTIVE" in read(port / "state"):
            interfaces = interfaces_of(device, int(port.name) if port.name.isdecimal() else 1)
            rate = _bonded(sysfs, interfaces) or rate
            facts.append(_nic(name, read(port / "link_layer") or "InfiniBand", rate, device, interfaces))
    for device, speed in slingshot_ports(sysfs):
        facts.append(_nic(device.name, "cxi", speed or None, device, interfaces_of(device)))
    cards = {one["pci"] for one in facts if one["pci"]}
    for device in sorted(sysfs.glob("class/net/*")):
        speed = read(device / "speed")
        if not (device / "device").exists() or read(device / "operstate") != "up":
            continue
        if speed.isdecimal() and int(speed) > 0 and _pci_place(device) not in cards:
            facts.append(_nic(device.name, "net", f"{int(speed) / 1000:g} Gb/sec", device, (device.name,)))
    return facts


def _nic(name: str, kind: str, rate: str | None, device: Path, interfaces: tuple[str, ...]) -> dict[str, Any]:
    driver = device / "device" / "driver"
    return {
        "name": name,
        "kind": kind,
        "rate": rate,
        "numa_node": _numa(device),
        "pci": _pci_place(device),
        "driver": os.path.basename(os.path.realpath(driver)) if driver.exists() else None,
        # The RDMA stack's name of the chip, and the maker's of the board.
        "card": " ".join(filter(None, (read(device / "hca_type"), read(device / "board_id")))) or None,
        "interfaces": list(interfaces),
        "virtual": is_virtual(device),
    }


def _bonded(sysfs: Path, interfaces: tuple[str, ...]) -> str | None:
    """The rate of the bond that the interfaces of an RDMA device belong to, whose ports together it drives."""
    for name in interfaces:
        bond = sysfs / "class" / "net" / name / "master"
        speed, ports = read(bond / "speed"), read(bond / "bonding" / "slaves").split()
        if (bond / "bonding").exists() and speed.isdecimal() and len(ports) > 1:
            return f"{int(speed) / 1000:g} Gb/sec (bond of {len(ports)} ports)"
    return None


def intel_facts(sysfs: Path) -> list[dict[str, Any]]:
    """Intel's GPUs by the kernel's own word: PCI address, NUMA node, and its PCIe link's speed and width at most."""
    facts = []
    for driver in ("i915", "xe"):
        for device in sorted(sysfs.glob(f"bus/pci/drivers/{driver}/*:*:*.*")):
            numa = read(device / "numa_node")
            facts.append(
                {
                    "bus_id": device.name,
                    "numa_node": int(numa) if numa else None,
                    "link_speed": _path_speed(device),
                    "link_width": read(device / "max_link_width") or None,
                }
            )
    return facts


def pci_gpus(sysfs: Path) -> list[dict[str, Any]]:
    """GPUs on the PCI bus, whatever a driver, a container or a scheduler shows of them: vendor, address, driver, NUMA
    node, place on the PCI tree, and the least speed of the links on the way to it."""
    gpus = []
    for device in sorted(sysfs.glob("bus/pci/devices/*")):
        kind, vendor = read(device / "class")[:6], VENDORS.get(read(device / "vendor"))
        if vendor is None or kind not in _GPU_CLASSES or (vendor != "intel" and kind not in _HEADLESS):
            continue
        if vendor == "intel" and kind == "0x0300":
            continue  # a desktop processor's own
        driver = os.path.basename(os.path.realpath(device / "driver")) if (device / "driver").exists() else None
        numa = read(device / "numa_node")
        gpus.append(
            {
                "vendor": vendor,
                "bus_id": device.name,
                "driver": driver,
                "numa_node": int(numa) if numa else None,
                "pci": _place(device),
                "path_speed": _path_speed(device),
            }
        )
    return gpus


def amd_facts(sysfs: Path) -> list[dict[str, Any]]:
    """AMD's GPUs as the kernel's KFD knows them, in the order of the runtime: arch, PCI address, memory, links.

    A link has the other node's number, its kind (`xgmi` or `pcie`), its weight (15 for each hop of XGMI), and the least
    and largest bandwidth in MB/s: those of one link and of all parallel ones (Linux, drivers/gpu/drm/amd/amdkfd,
    kfd_crat.h and kfd_topology.c). CPUs are the nodes without SIMDs.
    """
    amd_gpus = []
    for node in sorted(sysfs.glob("class/kfd/kfd/topology/nodes/[0-9]*"), key=lambda one: int(one.name)):
        facts = _properties(node / "properties")
        if not facts.get("simd_count"):
            continue
        memory = [_properties(bank / "properties") for bank in sorted(node.glob("mem_banks/[0-9]*"))]
        location, domain = facts.get("location_id", 0), facts.get("domain", 0)
        bus_id = f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"
        device = sysfs / "bus/pci/devices" / bus_id
        numa = read(device / "numa_node")
        version = facts.get("gfx_target_version", 0)
        amd_gpus.append(
            {
                "node": int(node.name),
                # 90010 is 9.0.10, which compilers write gfx90a: decimal, decimal, hexadecimal.
                "arch": f"gfx{version // 10000}{version // 100 % 100}{version % 100:x}" if version else "unknown",
                "bus_id": bus_id,
                "numa_node": int(numa) if numa else None,
                "model": read(device / "product_name") or None,
                "memory_bus_bits": memory[0].get("width") if memory else None,
                "memory_clock_mhz": memory[0].get("mem_clk_max") if memory else None,
                "memory_mib": memory[0].get("size_in_bytes", 0) >> 20 if memory else None,
                "link_speed": _path_speed(device),
                "link_width": read(device / "max_link_width") or None,
                "links": [_amd_link(_properties(each / "properties")) for each in sorted(node.glob("io_links/[0-9]*"))],
                "pci": _place(device) if device.exists() else None,
            }
        )
    return amd_gpus


def _amd_link(facts: dict[str, int]) -> dict[str, Any]:
    kinds = {2: "pcie", 11: "xgmi"}  # CRAT_IOLINK_TYPE_PCIEXPRESS, CRAT_IOLINK_TYPE_XGMI
    return {
        "to": facts.get("node_to"),
        "kind": kinds.get(facts.get("type", 0), "other"),
        "weight": facts.get("weight"),
        "least_mbps": facts.get("min_bandwidth"),
        "most_mbps": facts.get("max_bandwidth"),
    }


def _properties(file: Path) -> dict[str, int]:
    pairs = [line.split() for line in read(file).splitlines()]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _numa(device: Path) -> int | None:
    text = read(device / "device" / "numa_node")
    return int(text) if text.lstrip("-").isdecimal() else None


def _pci_place(device: Path) -> str | None:
    return _place(device / "device") if (device / "device").exists() else None


def _path_speed(device: Path) -> str | None:
    """The kernel's word for the slowest link between a device and its root port, at its best: a PCIe 6 GPU at a CPU of
    PCIe 5 has `32.0 GT/s PCIe`. None where nobody says; what virtual machines have for bridges says nothing."""
    speeds = []
    place = Path(os.path.realpath(device))
    for folder in (place, *place.parents):
        if folder.name.count(":") == 2 and read(folder / "vendor") not in _VIRTUAL:
            speed = read(folder / "max_link_speed")
            speeds += [(generation, speed)] if (generation := generation_of_text(speed)) else []
    return min(speeds)[1] if speeds else None


def _place(device: Path) -> str:
    """The bridges that lead to a device, from the root complex on: `pci0000:17/0000:17:01.0/0000:18:00.0`."""
    parts = Path(os.path.realpath(device)).parts
    return "/".join(part for part in parts if part.startswith("pci") or part.count(":") == 2)
