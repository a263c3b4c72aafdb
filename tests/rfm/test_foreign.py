"""What settings allow that were not written for Fabricheck, by what they say."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fabricheck.rfm.foreign import Derived, PartitionGpus, derive, gpus_of_devices
from fabricheck.suite import suite_root

H100 = PartitionGpus(4, "cuda", "90")
MI250 = PartitionGpus(8, "hip", "gfx90a")


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
def test_what_an_environment_allows(words: str, gpus: PartitionGpus | None, found: Derived | None) -> None:
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
        ({"arch": "a100"}, PartitionGpus(1, "cuda", "80")),
        ({"arch": "zen3", "model": "AMD Instinct MI300A"}, PartitionGpus(1, "hip", "gfx942")),
        ({"arch": "pvc", "num_devices": 6}, PartitionGpus(6, "sycl", "pvc")),
        ({"model": "NVIDIA B200", "num_devices": 8}, PartitionGpus(8, "cuda", "100")),
        ({"arch": "sm_100a", "num_devices": 4}, PartitionGpus(4, "cuda", "100a")),
        ({"model": "MI355X", "num_devices": 8}, PartitionGpus(8, "hip", "gfx950")),
        ({"arch": "ampere", "num_devices": 4}, PartitionGpus(4, "cuda", "80")),
    ],
)
def test_the_gpus_of_a_partition(info: dict[str, Any], gpus: PartitionGpus) -> None:
    assert gpus_of_devices([Device({"type": "fpga"}), Device({"type": "gpu", **info})]) == (gpus, "")


def test_gpus_that_nobody_knows_are_named() -> None:
    assert gpus_of_devices([Device({"type": "gpu", "arch": "vortex"})])[1].startswith("unknown architecture")
    assert gpus_of_devices([Device({"type": "gpu"})])[1].startswith("their devices name no architecture")
    assert gpus_of_devices([])[0] is None


@pytest.mark.parametrize(
    ("words", "gpus"),
    [
        ("gpu nvidia a100 gpu partition", PartitionGpus(4, "cuda", "80")),
        ("gpu rome a100 40 gpu nodes", PartitionGpus(4, "cuda", "80")),
        ("gpus nvidia v100", PartitionGpus(4, "cuda", "70")),
        ("standard g mi250x", PartitionGpus(4, "hip", "gfx90a")),
        ("gpu nodes", None),
    ],
)
def test_a_partition_may_name_the_model_of_its_gpus(words: str, gpus: PartitionGpus | None) -> None:
    assert gpus_of_devices([Device({"type": "gpu", "num_devices": 4})], words)[0] == gpus


SETTINGS = (suite_root() / "tests/data/settings/theirs.txt").read_text(encoding="utf-8")


# After public settings of sites (EESSI's Snellius and Hortense, CSCS' Clariden, LUMI), shortened.
SITES = (suite_root() / "tests/data/settings/sites.txt").read_text(encoding="utf-8")


def _listed(folder: Path, settings: str) -> tuple[set[tuple[str, str]], list[str]]:
    """Check and where of what ReFrame selects with these settings, and the lines of Fabricheck."""
    (folder / "theirs.py").write_text(settings)
    checks = [word for name in ("smoke", "vendor_osu") for word in ("-c", str(suite_root() / f"checks/{name}.py"))]
    command = ["reframe", "-C", "theirs.py", *checks, "--list=C"]
    job = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert job.returncode == 0, job.stdout + job.stderr
    found = {(line.split()[1], line.split("@")[1]) for line in job.stdout.splitlines() if line.startswith("- ")}
    lines = (line.partition("fabricheck: ") for line in job.stderr.splitlines())
    return found, [text for before, mark, text in lines if mark and not before]


@pytest.mark.e2e
def test_settings_of_sites_select_gpus_or_say_what_to_add(tmp_path: Path) -> None:
    found, said = _listed(tmp_path, SITES)
    with_gpus = {where.partition("+")[0] for name, where in found if name == "SmokePeers"}
    assert with_gpus == {"theirs:b200", "theirs:whole", "theirs:pbs", "theirs:spack"}
    pastes = [line.partition("as its nodes are: ")[2] for line in said if "its GPUs are left out" in line]
    assert len(pastes) == 3
    for paste, where in zip(pastes, ("vega+gpu", "lumi+cpe-amd", "t4+foss"), strict=True):
        pasted, _ = _listed(tmp_path, "\n".join([SITES, paste]))
        assert ("SmokePeers", f"theirs:{where}") in pasted
    assert not any("login" in where for _, where in found)
    begin = [
        "theirs:login is left out: it runs on this machine",
        "theirs:snellius: no environment drives its GPUs; add to the end of the settings: "
        'site_configuration["environments"].append({"name": "gpu"',
        "theirs:gpu_rome_a100_40: no environment drives its GPUs",
        "theirs:clariden: its jobs ask for no GPU: add the resource",
        "theirs:clariden: no environment drives its GPUs",
        "theirs:b200: its resource gpu is taken for _rfm_gpu: --gres=gpu:{num_gpus_per_node}",
        "theirs:pbs: GPUs of PBS belong into the chunk: _rfm_gpu is taken for ngpus={num_gpus_per_node}",
        "theirs:cray: no environment drives its GPUs; add to the end of the settings: "
        'site_configuration["environments"].append({"name": "gpu", '
        '"target_systems": ["theirs"], "modules": ["cpeGNU", "ROCm"]',
    ]
    assert [one for one in begin if not any(line.startswith(one) for line in said)] == []
    assert ("OsuPairs", "theirs:cray+cpe") in found
    assert not any(line.startswith("theirs:spack: no environment drives") for line in said)
    assert not any(line.startswith("theirs:whole: ") and "GPU" in line for line in said)


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
        "theirs:cpu: its network is left out: give the number of nodes in its extras",
        "theirs:cpu+gnu is left out: its launcher is local, which starts one rank only",
        "theirs:gpu+gnu is left out: no MPI library is named",
        "theirs:gpu+foss is not described for Fabricheck; taken for openmpi, cuda for 90, nccl, not known",
        "theirs:odd: its GPUs are left out: unknown architecture 'vortex'",
        "theirs:odd+foss is not described for Fabricheck; taken for openmpi, and nothing that drives GPUs",
        "theirs has no topology.yaml, so its metrics have no model",
    ]
    assert [one for one in begin if not any(line.startswith(one) for line in said)] == []
