"""Reading the kernel's files: one value a file, empty where it cannot be read; and the ports of RDMA adapters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def read(path: Path) -> str:
    """Empty where it cannot be read, as of a port that is down."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def infiniband_ports(sysfs: Path) -> Iterator[tuple[str, Path, Path]]:
    """Name, folder and device of each port of the InfiniBand stack: `mlx5_0`, and `mlx5_0_2` of a second port."""
    for port in sorted(sysfs.glob("class/infiniband/*/ports/*")):
        device = port.parent.parent
        yield device.name if port.name == "1" else f"{device.name}_{port.name}", port, device


def interfaces_of(device: Path, port: int = 1) -> tuple[str, ...]:
    """The network interfaces of a port of a card, whose device `device` is; of LLDP and IP they are the names."""
    folders = sorted(each for each in (device / "device" / "net").glob("*"))
    own = [each for each in folders if read(each / "dev_port") in ("", str(port - 1))]
    return tuple(each.name for each in own or folders)


def is_virtual(device: Path) -> bool:
    """Whether it is a virtual function (SR-IOV), which shares the port of its physical one."""
    return (device / "device" / "physfn").exists()


def slingshot_ports(sysfs: Path) -> Iterator[tuple[Path, str]]:
    """Device and speed (in Gb/s, as `BS_200G`) of each Cassini, in whichever folder its driver has it."""
    for device in sorted(sysfs.glob("class/cxi/cxi[0-9]*")):
        own = device / "device"
        yield device, read(own / "port" / "speed") or read(own / "properties" / "speed")
