"""What `fabricheck capture` does where a tool hangs, a driver is missing, or NVML may not be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fabricheck.site import capture as capturing
from fabricheck.site.software import Software
from fabricheck.state.nvml import NvmlUnavailable


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /sys with two NVIDIA GPUs on the bus, and no software to look for."""
    for at, driver in enumerate(("nvidia", None)):
        device = tmp_path / "sys/bus/pci/devices" / f"0000:0{at}:00.0"
        device.mkdir(parents=True)
        for name, text in (("class", "0x030200"), ("vendor", "0x10de"), ("numa_node", "0")):
            (device / name).write_text(text + "\n")
        if driver:
            (tmp_path / "sys/bus/pci/drivers" / driver).mkdir(parents=True)
            (device / "driver").symlink_to(tmp_path / "sys/bus/pci/drivers" / driver)
    monkeypatch.setattr(capturing, "find_software", lambda vendor: Software())
    return tmp_path / "sys"


def problems(directory: Path) -> list[str]:
    found: list[str] = json.loads((directory / capturing.PROBLEMS).read_text())
    return found


@pytest.mark.parametrize(
    ("error", "absent"),
    [
        ("NVML: Insufficient Permissions: this user may not read /dev/nvidiactl", False),
        ("NVML: Driver Not Loaded", True),
    ],
)
def test_gpus_on_the_bus_that_nvml_does_not_tell_of(
    sysfs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, absent: bool
) -> None:
    def refuse(seconds: float) -> None:
        raise NvmlUnavailable(error, absent=absent)

    monkeypatch.setattr(capturing, "ask_gpu_facts", refuse)
    capturing.capture(tmp_path / "kept", sysfs)
    assert f"2 NVIDIA GPUs on the PCI bus, and {error}" in problems(tmp_path / "kept")


def test_variables_that_hide_gpus_are_said(sysfs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's own, with all of a job's GPUs, is none."""
    monkeypatch.setattr(capturing, "ask_gpu_facts", lambda seconds: {"gpus": [{}, {}, {}]})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "0,1,2")
    capturing.capture(tmp_path / "kept", sysfs)
    (said,) = [one for one in problems(tmp_path / "kept") if "hides GPUs" in one]
    assert said.startswith("CUDA_VISIBLE_DEVICES='0,1' in the environment")


def test_what_an_earlier_capture_found_does_not_stay(sysfs: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    for name in (capturing.NVML, capturing.XPU_SMI_TOPO):
        (tmp_path / "kept" / name).write_text("old")
    (tmp_path / "kept" / "mine.txt").write_text("mine")
    capturing.capture(tmp_path / "kept", sysfs)
    assert "old" not in [file.read_text() for file in (tmp_path / "kept").iterdir()]
    assert (tmp_path / "kept" / "mine.txt").exists()


def test_a_tool_that_hangs_costs_its_answer_only(sysfs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "nvidia-smi").write_text("#!/bin/sh\nsleep 1000\n")
    (programs / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    capturing.capture(tmp_path / "kept", sysfs, patience=0.3)
    found = problems(tmp_path / "kept")
    assert "`nvidia-smi topo -m` did not respond in 0.3 s" in found
    assert (tmp_path / "kept" / capturing.PCI_GPUS).exists()
    assert not (tmp_path / "kept" / capturing.NVIDIA_TOPO).exists()
