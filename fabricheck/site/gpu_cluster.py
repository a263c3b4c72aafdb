"""The part of a settings.py that clusters of GPU nodes share, so that a site's file says what is particular to it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a node: how many there have to be, the model, the compiler's name of it, and their API.

    `api`: `cuda`, `hip` or `sycl`. `links`: features that say how they are joined, such as `nvlink`. `cores`: those
    next to each GPU, as Linux lists them (`0-7,64-71`), to which its rank is bound; empty: ranks are not bound.
    """

    count: int
    model: str
    arch: str
    api: str
    links: Sequence[str]
    cores: Sequence[str] = ()


@dataclass(frozen=True)
class Software:
    """The environment to build and measure with: its name, modules, MPI library (as `fabricheck.mpi` calls it).

    `ccl`: `nccl`, `rccl` or `oneccl`, where there is one. `gpu_arch`: what CMake is told to compile for (`90`,
    `gfx90a`). The compiler wrappers are those of the Cray PE for Cray MPICH, else mpicc and mpicxx. `variables` are set
    in each job; `features` and `extras` of the environment are added to those that follow from the rest.
    """

    name: str
    modules: Sequence[str]
    mpi: str
    gpu_arch: str
    ccl: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    features: Sequence[str] = ()
    extras: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Jobs:
    """How jobs are started: the `access` options that the site asks for, and ReFrame's scheduler and launcher."""

    access: Sequence[str]
    scheduler: str = "slurm"
    launcher: str = "srun"


@dataclass(frozen=True)
class Cluster:
    """What is particular to a site. `hostnames`: regular expressions of the hosts on which ReFrame may run.

    `extras` of the partition are added to those that follow from the rest. `nodes`: how many it has, where
    topology.yaml does not state it; 1 where only single nodes are to be measured. `most_nodes`: how many a job of
    checks of the network takes at most. `modules_system`: ReFrame's; by default lmod where it is there.
    """

    name: str
    descr: str
    hostnames: Sequence[str]
    jobs: Jobs
    gpus: Gpus
    software: Software
    tuning_profile: str = "default"
    nodes: int = 0
    most_nodes: int = 64
    modules_system: str = ""
    extras: Mapping[str, object] = field(default_factory=dict)


def gpu_cluster(site: Cluster) -> dict[str, object]:
    """The `site_configuration` of a cluster with one partition of GPU nodes, `gpu`, and one environment.

    One job at a time, since two would measure each other. On Slurm all GPUs of a node are requested and none is bound
    to a rank: a rank that sees its own GPU only cannot use peer copies.
    """
    # Elsewhere, to describe the tests without the system, there are no modules.
    lmod = "lmod" if "LMOD_CMD" in os.environ else "nomod"
    return {
        "systems": [
            {
                "name": site.name,
                "descr": site.descr,
                "hostnames": [*site.hostnames],
                "modules_system": site.modules_system or lmod,
                "partitions": [_partition(site)],
            }
        ],
        "environments": [_environment(site)],
    }


def _partition(site: Cluster) -> dict[str, object]:
    gpus = site.gpus
    asked = {"name": "_rfm_gpu", "options": ["--gpus-per-node={num_gpus_per_node}"]}
    device = {"type": "gpu", "arch": gpus.arch, "model": gpus.model, "num_devices": gpus.count}
    return {
        "name": "gpu",
        "descr": "GPU nodes",
        "scheduler": site.jobs.scheduler,
        "launcher": site.jobs.launcher,
        "access": [*site.jobs.access],
        "environs": [site.software.name],
        "max_jobs": 1,
        "features": ["gpu", gpus.api, *gpus.links, "remote"],
        "devices": [device],
        **({"resources": [asked]} if site.jobs.scheduler == "slurm" else {}),
        "extras": {
            "tuning_profile": site.tuning_profile,
            "gpus_per_node": gpus.count,
            **({"nodes": site.nodes} if site.nodes else {}),
            "most_nodes": site.most_nodes,
            **({"cores": [*gpus.cores]} if gpus.cores else {}),
            **site.extras,
        },
    }


def _environment(site: Cluster) -> dict[str, object]:
    software = site.software
    cray = software.mpi == "cray-mpich"
    # Else Cray MPICH does not take device memory.
    variables = {**({"MPICH_GPU_SUPPORT_ENABLED": "1"} if cray else {}), **software.variables}
    return {
        "name": software.name,
        "target_systems": [site.name],
        "modules": [*software.modules],
        "cc": "cc" if cray else "mpicc",
        "cxx": "CC" if cray else "mpicxx",
        "ftn": "",
        **({"env_vars": [[name, value] for name, value in variables.items()]} if variables else {}),
        "features": ["mpi", site.gpus.api, *([software.ccl] if software.ccl else []), *software.features],
        "extras": {
            "backend": site.gpus.api,
            "mpi": software.mpi,
            "mpicxx": "CC" if cray else "mpicxx",
            "gpu_arch": software.gpu_arch,
            **software.extras,
        },
    }
