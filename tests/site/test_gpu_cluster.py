"""What sites of GPU clusters tell ReFrame: a Slurm system with the Cray PE in full, and one with another scheduler."""

from __future__ import annotations

import runpy
from typing import Any

import pytest

from tests.support.nodes import ROOT


def configuration(system: str) -> dict[str, Any]:
    found = runpy.run_path(str(ROOT / "site_configs" / system / "settings.py"))["site_configuration"]
    assert isinstance(found, dict)
    return found


def test_a_slurm_system_with_the_cray_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LMOD_CMD", raising=False)
    found = configuration("dardel")
    partition = found["systems"][0]["partitions"][0]
    access = partition.pop("access")
    assert access[0] == "--partition=gpu"
    assert access[1].startswith("--account=")
    assert found == {
        "systems": [
            {
                "name": "dardel",
                "descr": "Dardel, MI250X",
                "hostnames": ["uan[0-9]+", "login1", "nid[0-9]+"],
                "modules_system": "nomod",
                "partitions": [partition],
            }
        ],
        "environments": [
            {
                "name": "PrgEnv-cray",
                "target_systems": ["dardel"],
                "modules": ["PDC", "PrgEnv-cray", "cray-mpich/8.1.28", "craype-accel-amd-gfx90a", "rocm/5.7.0"],
                "cc": "cc",
                "cxx": "CC",
                "ftn": "",
                "env_vars": [["MPICH_GPU_SUPPORT_ENABLED", "1"]],
                "features": ["mpi", "hip", "rccl", "device-collectives"],
                "extras": {"backend": "hip", "mpi": "cray-mpich", "mpicxx": "CC", "gpu_arch": "gfx90a"},
            }
        ],
    }
    assert partition == {
        "name": "gpu",
        "descr": "GPU nodes",
        "scheduler": "slurm",
        "launcher": "srun",
        "environs": ["PrgEnv-cray"],
        "max_jobs": 1,
        "features": ["gpu", "hip", "xgmi", "remote"],
        "devices": [{"type": "gpu", "arch": "gfx90a", "model": "MI250X", "num_devices": 8}],
        "resources": [{"name": "_rfm_gpu", "options": ["--gpus-per-node={num_gpus_per_node}"]}],
        "extras": {
            "tuning_profile": "dardel",
            "gpus_per_node": 8,
            "nodes": 1,
            "most_nodes": 64,
            "cores": ["49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47"],
        },
    }


def test_another_scheduler_and_another_mpi_library() -> None:
    found = configuration("sierra")
    (partition,), (environment,) = found["systems"][0]["partitions"], found["environments"]
    assert (partition["scheduler"], partition["launcher"], partition["access"]) == ("lsf", "lrun", ["-q pbatch"])
    assert "resources" not in partition
    assert partition["extras"]["nodes"] == 2
    assert (environment["cc"], environment["cxx"]) == ("mpicc", "mpicxx")
    assert "env_vars" not in environment
    assert environment["features"] == ["mpi", "cuda"]
