"""What of a node's firmware, kernel and limits decides how GPUs, NICs and memory reach each other, each cheap to read.

Every value is text, empty where it is not known: `fabricheck.judge.state_rules` judges it, and equal nodes are
compared.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from fabricheck.state.capture import read

#: Kernel modules by which a NIC reaches device memory without DMA-BUF, of NVIDIA and AMD.
PEER_MODULES = ("nvidia_peermem", "nv_peer_mem", "ib_peer_mem", "amdp2p")
# PCI classes (the first four digits): bridges; GPUs and accelerators; network and InfiniBand controllers.
_BRIDGE, _ENDS = ("0x0604",), ("0x0302", "0x0300", "0x1200", "0x0200", "0x0207", "0x0280")
_VENDORS_OF_GPUS = ("0x10de", "0x1002", "0x8086")
# PCI Express base specification: capabilities and their registers.
_CAPABILITIES, _EXPRESS, _ACS = 0x34, 0x10, 0x000D
_REDIRECTS = 0x04 | 0x08  # ACS control: P2P request redirect, P2P completion redirect
_RELAXED, _DEVICE_CONTROL = 0x10, 0x08


def platform(root: Path = Path("/")) -> dict[str, str]:
    """By name; see docs/state.md."""
    sysfs, proc = root / "sys", root / "proc"
    by_name = {
        "ACS redirect": _acs(sysfs),
        "IOMMU": _iommu(sysfs, read(proc / "cmdline")),
        "relaxed ordering": _relaxed_ordering(sysfs),
        "peer memory": _peer_memory(sysfs),
        "NVIDIA kernel module": _nvidia_module(read(proc / "driver/nvidia/version")),
        "NUMA balancing": {"0": "off", "": ""}.get(read(proc / "sys/kernel/numa_balancing"), "on"),
        "locked memory": _limit(resource.RLIMIT_MEMLOCK),
        "/dev/shm": _size(root / "dev/shm"),
        "IMEX channels": _imex(root),
        "virtual machine": "yes" if re.search(r"^flags\s*:.*\bhypervisor\b", read(proc / "cpuinfo"), re.M) else "",
    }
    return {name: value for name, value in by_name.items() if value}


def _devices(sysfs: Path) -> Iterator[tuple[Path, bytes]]:
    """PCI devices on the way to GPUs and NICs, and these themselves, with their configuration space."""
    wanted: dict[Path, None] = {}
    for device in sorted(sysfs.glob("bus/pci/devices/*")):
        kind = read(device / "class")[:6]
        if kind in _ENDS and (kind in ("0x0200", "0x0207") or read(device / "vendor") in _VENDORS_OF_GPUS):
            real = Path(os.path.realpath(device))
            wanted[real] = None
            wanted |= dict.fromkeys(each for each in real.parents if each.name.count(":") == 2)
    for device in sorted(wanted):
        try:
            yield device, (device / "config").read_bytes()
        except OSError:
            continue


def _acs(sysfs: Path) -> str:
    """The bridges above GPUs and NICs that send what one asks of another up to the root complex; `off` where none does.

    Empty where the configuration space may not be read beyond its head, which takes root.
    """
    redirecting, readable = [], False
    for device, config in _devices(sysfs):
        if read(device / "class")[:6] not in _BRIDGE or len(config) <= 0x100:
            continue
        readable = True
        at = _extended(config, _ACS)
        if at and int.from_bytes(config[at + 6 : at + 8], "little") & _REDIRECTS:
            redirecting.append(device.name)
    if not redirecting:
        return "off" if readable else ""
    more = f" and {len(redirecting) - 4} more" if len(redirecting) > 4 else ""
    return f"on: {', '.join(redirecting[:4])}{more}"


def _relaxed_ordering(sysfs: Path) -> str:
    """GPUs and NICs whose writes have to stay in order; `on` where none has to."""
    strict, known = [], False
    for device, config in _devices(sysfs):
        if read(device / "class")[:6] in _BRIDGE or len(config) <= 0x40:
            continue
        if (at := _capability(config, _EXPRESS)) and at + 10 <= len(config):
            known = True
            if not int.from_bytes(config[at + _DEVICE_CONTROL : at + _DEVICE_CONTROL + 2], "little") & _RELAXED:
                strict.append(device.name)
    return f"off: {', '.join(strict[:4])}" if strict else "on" if known else ""


def _capability(config: bytes, wanted: int) -> int:
    """Where a capability stands in the first 256 bytes; 0 where it does not."""
    at, seen = config[_CAPABILITIES] & 0xFC, 0
    while at and at + 2 <= len(config) and seen < 48:
        if config[at] == wanted:
            return at
        at, seen = config[at + 1] & 0xFC, seen + 1
    return 0


def _extended(config: bytes, wanted: int) -> int:
    at, seen = 0x100, 0
    while at and at + 8 <= len(config) and seen < 96:
        head = int.from_bytes(config[at : at + 4], "little")
        if head & 0xFFFF == wanted:
            return at
        at, seen = head >> 20 & 0xFFC, seen + 1
    return 0


def _iommu(sysfs: Path, command_line: str) -> str:
    """Whether devices' addresses are translated: `off`, `passthrough` or `translating`, by the groups, which know."""
    types = {read(group / "type") for group in sysfs.glob("kernel/iommu_groups/*")} - {""}
    if any(each.startswith("DMA") for each in types):
        return "translating"
    if types or any(sysfs.glob("class/iommu/*")):
        return "translating" if not types and not re.search(r"iommu=pt\b", command_line) else "passthrough"
    return "off" if (sysfs / "bus/pci/devices").is_dir() else ""


def _peer_memory(sysfs: Path) -> str:
    if not (sysfs / "module").is_dir():
        return ""
    return next((name for name in PEER_MODULES if (sysfs / "module" / name).is_dir()), "none")


def _nvidia_module(version: str) -> str:
    """The open one offers DMA-BUF, the proprietary one needs nvidia_peermem."""
    return "" if not version else "open" if "Open Kernel Module" in version else "proprietary"


def _limit(which: int) -> str:
    soft, _ = resource.getrlimit(which)
    return "unlimited" if soft == resource.RLIM_INFINITY else f"{soft >> 10} KiB"


def _size(folder: Path) -> str:
    try:
        statistics = os.statvfs(folder)
    except OSError:
        return ""
    size = statistics.f_blocks * statistics.f_frsize
    # Half of a node's memory is not the same on all nodes, and more than enough.
    return "1 GiB or more" if size >= 1 << 30 else f"{size >> 20} MiB"


def _imex(root: Path) -> str:
    """How many channels of IMEX there are, without which memory of other nodes of an NVLink domain is not reached."""
    if not (root / "proc/driver/nvidia").is_dir():
        return ""
    return str(len(list((root / "dev/nvidia-caps-imex-channels").glob("channel*"))))
