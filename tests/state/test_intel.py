"""xpu-smi's answers, and the kernel's word on PCIe."""

from __future__ import annotations

from pathlib import Path

from fabricheck.records.node_state import GpuProcess
from fabricheck.state.intel import read_gpus


def test_cards_with_their_links_and_processes(tmp_path: Path) -> None:
    """xpu-smi lists itself on each card that it asks."""
    device = tmp_path / "bus/pci/devices/0000:18:00.0"
    device.mkdir(parents=True)
    for name, text in {
        "current_link_speed": "16.0 GT/s PCIe",
        "current_link_width": "8",
        "max_link_speed": "32.0 GT/s PCIe",
        "max_link_width": "16",
    }.items():
        (device / name).write_text(text + "\n")
    name = "Intel(R) Data Center GPU Max 1550"
    discovery = {"device_list": [{"device_id": 0, "device_name": name, "pci_bdf_address": "0000:18:00.0"}]}
    users = {
        "device_util_by_proc_list": [
            {"device_id": 0, "process_id": 1, "process_name": "xpu-smi", "mem_size": 0},
            {"device_id": 0, "process_id": 2, "process_name": "/usr/bin/python", "mem_size": 5726404},
            {"device_id": 1, "process_id": 3, "process_name": "other"},
        ]
    }
    (gpu,) = read_gpus(discovery, users, tmp_path)
    assert (gpu.pcie_generation, gpu.pcie_width, gpu.pcie_most_generation, gpu.pcie_most_width) == (4, 8, 5, 16)
    assert gpu.processes == (GpuProcess(2, "python"),)
    assert read_gpus({"error": "no device"}, {}, tmp_path) == ()
