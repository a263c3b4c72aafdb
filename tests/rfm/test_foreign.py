"""What settings allow that were not written for Fabricheck, by what they say."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fabricheck.rfm.foreign import Derived, Gpus, derive, gpus_of_devices
from fabricheck.suite import suite_root

H100 = Gpus(4, "cuda", "90")
MI250 = Gpus(8, "hip", "gfx90a")


@pytest.mark.parametrize(
    ("words", "gpus", "found"),
    [
        ("prgenv-gnu builtin", None, Derived("cray-mpich")),
        ("gnu mpicxx", None, Derived("")),
        ("gcc features mpi openmp", None, Derived("")),
        ("foss/2023b cuda/12.4 nccl/2.20", H100, Derived("openmpi", "cuda", "90", "nccl")),
        ("foss/2023b cuda/12.4 ucx-cuda/1.15", H100, Derived("openmpi", "cuda", "90", "", gpu_aware=True)),
        ("foss/2023b", H100, Derived("openmpi")),
        ("openmpi@5.0.3+cuda nvhpc@24.3", H100, Derived("openmpi", "cuda", "90", "nccl", gpu_aware=True)),
        (
            "prgenv-cray craype-accel-amd-gfx90a rocm/6.0 mpich_gpu_support_enabled=1",
            MI250,
            Derived("cray-mpich", "hip", "gfx90a", "rccl", gpu_aware=True),
        ),
        ("prgenv-cray rocm mpich_gpu_support_enabled=0", MI250, Derived("cray-mpich", "hip", "gfx90a", "rccl")),
        ("iimpi/2023b cuda", H100, Derived("impi", "cuda", "90")),
        # Of another vendor's GPUs than the node has.
        ("openmpi cuda/12.4 nccl", MI250, Derived("openmpi")),
        ("gcc/13 python", H100, None),
        ("builtin g++", None, None),
    ],
)
def test_what_an_environment_allows(words: str, gpus: Gpus | None, found: Derived | None) -> None:
    assert derive(words, gpus) == found


@dataclass(frozen=True)
class Device:
    info: dict[str, Any]

    @property
    def device_type(self) -> object:
        return self.info["type"]


@pytest.mark.parametrize(
    ("info", "gpus"),
    [
        ({"arch": "sm_90", "num_devices": 4}, H100),
        ({"arch": "gfx90a", "num_devices": 8}, MI250),
        ({"arch": "a100"}, Gpus(1, "cuda", "80")),
        ({"arch": "zen3", "model": "AMD Instinct MI300A"}, Gpus(1, "hip", "gfx942")),
        ({"arch": "pvc", "num_devices": 6}, Gpus(6, "sycl", "pvc")),
    ],
)
def test_the_gpus_of_a_partition(info: dict[str, Any], gpus: Gpus) -> None:
    assert gpus_of_devices([Device({"type": "fpga"}), Device({"type": "gpu", **info})]) == (gpus, "")


def test_gpus_that_nobody_knows_are_named() -> None:
    assert gpus_of_devices([Device({"type": "gpu", "arch": "vortex"})])[1].startswith("nobody knows their architecture")
    assert gpus_of_devices([Device({"type": "gpu"})])[1].startswith("their devices name no architecture")
    assert gpus_of_devices([]) == (None, "")


SETTINGS = """
site_configuration = {
    "systems": [{"name": "theirs", "hostnames": [".*"], "partitions": [
        {"name": "cpu", "scheduler": "local", "launcher": "local", "environs": ["gnu"]},
        {"name": "gpu", "scheduler": "local", "launcher": "srun", "environs": ["gnu", "foss"],
         "devices": [{"type": "gpu", "arch": "sm_90", "num_devices": 4}]},
        {"name": "odd", "scheduler": "local", "launcher": "srun", "environs": ["foss"],
         "devices": [{"type": "gpu", "arch": "vortex", "num_devices": 4}]},
    ]}],
    "environments": [
        {"name": "gnu", "cc": "gcc", "cxx": "g++", "features": ["openmp"]},
        {"name": "foss", "modules": ["foss/2023b", "CUDA/12.4", "NCCL/2.20"]},
    ],
}
"""


@pytest.mark.e2e
def test_settings_of_somebody_else_select_what_they_allow(tmp_path: Path) -> None:
    """By ReFrame itself: what is selected, and one line for each thing that is left out."""
    (tmp_path / "theirs.py").write_text(SETTINGS)
    checks = suite_root() / "checks"
    command = ["reframe", "-C", "theirs.py", "-c", str(checks / "smoke.py"), "-c", str(checks / "network.py")]
    job = subprocess.run([*command, "--list=C"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert job.returncode == 0, job.stdout + job.stderr
    found = {(line.split()[1], line.split("@")[1]) for line in job.stdout.splitlines() if line.startswith("- ")}
    assert found == {
        ("SmokePeers", "theirs:gpu+foss"),
        ("SmokeHostCopies", "theirs:gpu+foss"),
        ("SmokeLibraries", "theirs:gpu+foss"),
        ("SmokeLibraries", "theirs:odd+foss"),
    }
    said = [line.removeprefix("fabricheck: ") for line in job.stderr.splitlines() if line.startswith("fabricheck: ")]
    assert len(said) == len(set(said))
    begin = [
        "theirs:cpu: its network is left out: nodes in its extras does not say how many it has",
        "theirs:cpu+gnu is left out: its launcher is local, which starts one rank only",
        "theirs:gpu+gnu is left out: no MPI library is named",
        "theirs:gpu+foss is not described for Fabricheck; taken for openmpi, cuda for 90, nccl, not known",
        "theirs:odd: its GPUs are left out: nobody knows their architecture 'vortex'",
        "theirs:odd+foss is not described for Fabricheck; taken for openmpi, and nothing that drives GPUs",
        "theirs has no topology.yaml: no model says what it should reach",
    ]
    assert [one for one in begin if not any(line.startswith(one) for line in said)] == []
