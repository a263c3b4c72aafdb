"""Versions, load and the kernel's log: this machine's own, and failures of devices in logs at random."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from fabricheck.records.finding_texts import CATALOGUE
from fabricheck.records.node_state import KernelEvent, NodeState
from fabricheck.state import kernel
from fabricheck.state.kernel import settings
from tests.support.effort import effort
from tests.support.kernel_logs import draw_log


def test_this_machine() -> None:
    total, free = kernel.memory()
    assert 0 < free <= total
    assert kernel.versions()["kernel"]
    assert all(settings().values())


def test_the_load_of_others_is_seen_and_named() -> None:
    """A process beside this one has a core for itself, or its share of one."""
    spin = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        busy, names = kernel.load(1.0)
    finally:
        spin.kill()
        spin.wait()
    assert busy > 0.05
    assert any(each.startswith("python") for each in names)


def config(*, acs: int | None = None, relaxed: bool = True, size: int = 4096) -> bytes:
    """Configuration space with the PCI Express capability at 0x60, and ACS as the second extended one."""
    space = bytearray(4096)
    space[0x34], space[0x60] = 0x60, 0x10
    space[0x68] = 0x10 if relaxed else 0x00
    space[0x100:0x104] = (0x0001 | 0x148 << 20).to_bytes(4, "little")  # advanced error reporting
    if acs is not None:
        space[0x148:0x14C] = (0x000D).to_bytes(4, "little")
        space[0x14E] = acs
    return bytes(space[:size])


def node(root: Path, *, bridge: bytes, gpu: bytes | None = None) -> Path:
    """A GPU below a bridge."""
    devices = root / "sys/devices/pci0000:10"
    above = devices / "0000:10:01.0"
    for folder, kind, vendor, content in (
        (above, "0x060400", "0x1000", bridge),
        (above / "0000:18:00.0", "0x030200", "0x10de", gpu if gpu is not None else config()),
    ):
        folder.mkdir(parents=True)
        (folder / "class").write_text(kind + "\n")
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "config").write_bytes(content)
        link = root / "sys/bus/pci/devices" / folder.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)
    (root / "proc").mkdir()
    return root


@pytest.mark.parametrize(
    ("control", "wanted"),
    [(0x1D, "on: 0000:10:01.0"), (0x04, "on: 0000:10:01.0"), (0x11, "off"), (None, "off")],
)
def test_acs_of_the_bridges_above_gpus(control: int | None, wanted: str, tmp_path: Path) -> None:
    """SrcValid+ (0x01) and UpstreamFwd+ (0x10) redirect nothing."""
    assert settings(node(tmp_path, bridge=config(acs=control)))["ACS redirect"] == wanted


def test_without_root_nothing_is_known_of_acs(tmp_path: Path) -> None:
    assert "ACS redirect" not in settings(node(tmp_path, bridge=config(acs=0x1D, size=64)))


def test_relaxed_ordering(tmp_path: Path) -> None:
    found = settings(node(tmp_path, bridge=config(), gpu=config(relaxed=False)))
    assert found["relaxed ordering"] == "off: 0000:18:00.0"


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, b"\xff" * 4096, bytes(4096), bytes(range(256)) * 16])
def test_whatever_a_device_has_for_configuration_space(content: bytes, tmp_path: Path) -> None:
    settings(node(tmp_path, bridge=content, gpu=content))


@pytest.mark.parametrize(
    ("kinds", "line", "wanted"),
    [
        (["identity"], "", "passthrough"),
        (["identity", "DMA-FQ"], "", "translating"),
        (["DMA"], "intel_iommu=on", "translating"),
        ([], "", "off"),
        ([""], "intel_iommu=on", "translating"),
        ([""], "amd_iommu=on iommu=pt", "passthrough"),
    ],
)
def test_the_iommu(kinds: list[str], line: str, wanted: str, tmp_path: Path) -> None:
    root = node(tmp_path, bridge=config())
    (root / "proc/cmdline").write_text(line + "\n")
    for number, kind in enumerate(kinds):
        group = root / f"sys/kernel/iommu_groups/{number}"
        group.mkdir(parents=True)
        (root / "sys/class/iommu/dmar0").mkdir(parents=True, exist_ok=True)
        if kind:
            (group / "type").write_text(kind + "\n")
    assert settings(root)["IOMMU"] == wanted


def test_modules_limits_and_channels(tmp_path: Path) -> None:
    root = node(tmp_path, bridge=config())
    (root / "sys/module/mlx5_core").mkdir(parents=True)
    (root / "proc/driver/nvidia").mkdir(parents=True)
    (root / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95\n"
    )
    (root / "proc/sys/kernel").mkdir(parents=True)
    (root / "proc/sys/kernel/numa_balancing").write_text("1\n")
    (root / "dev/nvidia-caps-imex-channels").mkdir(parents=True)
    found = settings(root)
    wanted = {"peer memory": "none", "NVIDIA kernel module": "open", "NUMA balancing": "on", "IMEX channels": "0"}
    assert wanted.items() <= found.items()
    (root / "sys/module/nvidia_peermem").mkdir()
    (root / "dev/nvidia-caps-imex-channels/channel0").touch()
    found = settings(root)
    assert (found["peer memory"], found["IMEX channels"]) == ("nvidia_peermem", "1")


def logged(log: Path) -> tuple[KernelEvent, ...]:
    return NodeState("node", "before", 1.0, xids=kernel.xids(log), events=kernel.events(log)).logged


@pytest.mark.parametrize("seed", range(effort(100)))
def test_what_a_log_says_of_devices_is_read(seed: int, tmp_path: Path) -> None:
    log = draw_log(random.Random(seed))
    events = logged(log.write(tmp_path / "kmsg"))
    of_machine = {
        (event.code, event.part, event.severity, event.recovered) for event in events if event.severity != "program"
    }
    assert of_machine == log.planted, f"seed {seed}"


def test_a_long_log_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read gives one record; those that were overwritten meanwhile are a broken pipe."""
    records: list[bytes | OSError] = [b"6,1,10,-;usb 1-1: new device\n", BrokenPipeError()]
    records += [
        f"4,{each},{each}000000,-;NVRM: Xid (PCI:0000:18:00): 63, row\n SUBSYSTEM=pci\n".encode() for each in range(250)
    ]
    records.append(BlockingIOError())

    def read(_: int, __: int) -> bytes:
        record = records.pop(0)
        if isinstance(record, OSError):
            raise record
        return record

    monkeypatch.setattr("os.lseek", lambda *_: 0)
    monkeypatch.setattr("os.read", read)
    events = kernel.xids(Path("/dev/null")) or ()
    assert records == []
    assert (events[-1].number, events[-1].part, events[-1].at_s) == ("63", "0000:18:00.0", 249.0)
    assert len(events) == 200


def test_a_log_that_may_not_be_read(tmp_path: Path) -> None:
    assert kernel.events(tmp_path / "none") is None


def test_every_row_has_an_entry_of_the_catalogue_with_steps() -> None:
    for row in kernel.event_rows():
        assert CATALOGUE[row.code].steps and row.recovery
