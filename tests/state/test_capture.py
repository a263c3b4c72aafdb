"""What `fabricheck capture` does where a tool hangs, a driver is missing, or NVML may not be read."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fabricheck.commands.site import capture
from fabricheck.site.facts import read_facts
from fabricheck.state import capture as capturing


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """A /sys with two NVIDIA GPUs on the bus."""
    for at, driver in enumerate(("nvidia", None)):
        device = tmp_path / "sys/bus/pci/devices" / f"0000:0{at}:00.0"
        device.mkdir(parents=True)
        for name, text in (("class", "0x030200"), ("vendor", "0x10de"), ("numa_node", "0")):
            (device / name).write_text(text + "\n")
        if driver:
            (tmp_path / "sys/bus/pci/drivers" / driver).mkdir(parents=True)
            (device / "driver").symlink_to(tmp_path / "sys/bus/pci/drivers" / driver)
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
    monkeypatch.setattr(capturing, "ask_gpu_facts", lambda seconds: {"unavailable": error, "absent": absent})
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


SOURCE = Path(capturing.__file__)


def test_the_file_stands_alone_in_python_3_6() -> None:
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"), feature_version=(3, 6))
    modules: set[str] = set()
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    for node in imports:
        if isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
        else:
            modules.update(each.name for each in node.names)
    assert {name.partition(".")[0] for name in modules} <= (sys.stdlib_module_names | {"pynvml"}) - {
        "__future__",
        "dataclasses",
    }
    assert not any(isinstance(node, ast.ImportFrom) and node.level for node in imports)


def test_the_program_for_other_nodes_captures_what_init_reads(tmp_path: Path) -> None:
    """Without packages, and where another user has left modules of the standard library's names."""
    copy = tmp_path / "capture.py"
    assert CliRunner().invoke(capture, ["--script", str(copy)]).exit_code == 0
    for name in ("json", "runpy", "pynvml"):
        (tmp_path / f"{name}.py").write_text("open('planted', 'w')\n")
    kept = tmp_path / "kept"
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(copy), str(kept)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {*done.stdout.splitlines()} == {str(file) for file in kept.iterdir()}
    assert not (tmp_path / "planted").exists()
    assert read_facts(kept).numa_nodes
    nvml = subprocess.run([sys.executable, "-S", str(copy), "--nvml"], cwd="/", capture_output=True, check=True)
    assert {"unavailable", "gpus"} & json.loads(nvml.stdout).keys()
