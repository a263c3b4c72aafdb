"""ReFrame's settings of an HGX node: up to eight GPUs on an NVSwitch, CUDA, NCCL, up to three GPU-aware MPI libraries.

Where the libraries lie is the site's business and comes from the environment:

    FABRICHECK_UCX_ROOT       UCX built with CUDA; Open MPI and MPICH reach device memory through it
    FABRICHECK_OPENMPI_ROOT   Open MPI 5
    FABRICHECK_MPICH_ROOT     MPICH 5
    FABRICHECK_IMPI_ROOT      Intel MPI 2021, with its own CUDA support
    FABRICHECK_NCCL_ROOT      NCCL, where it does not lie in /usr

What is not named is left out, with one line on stderr. Where none is named, the machine's own MPI library builds and
starts what needs no GPU-aware one; `fabricheck init` finds out more. CUDA is found through `nvcc` on the PATH.

    FABRICHECK_GPUS           how many GPUs the node has to have, up to 8; unset: 8 where more than 4 are seen, else 4
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabricheck import mpi
from fabricheck.state.programs import ask

# Partitions, and how many GPUs they have at most. What names none, such as `fabricheck judge`, takes the first.
_MOST = {"gpu": 4, "gpu1": 1, "gpu2": 2, "gpu8": 8}
# What UCX's own log has to name: device memory that goes straight to the peer.
_UCX_PROOF = {"mpi": ["^cuda: .*cuda_ipc"]}
_OPENMPI = {
    "OMPI_MCA_pml": "ucx",
    "OMPI_MCA_opal_common_ucx_tls": "any",
    "OMPI_MCA_opal_common_ucx_devices": "any",
}
# Messages inside the node go through UCX, which knows device memory, and not through MPICH's own path.
_MPICH = {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ucx", "MPIR_CVAR_ENABLE_GPU": "0"}
# I_MPI_OFFLOAD_PIN stays on, which shows each rank its own GPU only: with 0 an allreduce of 64 KiB in device memory
# crashed (Intel MPI 2021.19, CUDA 13.0, 2026-11-21).
_INTEL = {"I_MPI_FABRICS": "shm", "I_MPI_OFFLOAD": "1"}
_UNNAMED = "the machine's own MPI library, by FABRICHECK_OPENMPI_ROOT and the like,"


@dataclass(frozen=True)
class Hgx:
    """What is particular to a system. `model`: as NVML calls the GPU; `unsupported`: as in the extras of a partition,
    of nodes with up to four GPUs."""

    name: str
    descr: str
    model: str
    arch: str
    tuning_profile: str
    unsupported: Mapping[str, str]


def hgx(site: Hgx) -> dict[str, Any]:
    """The `site_configuration`, with a partition for each size of node: references of one are none of another.

    Those of other sizes than this node's have no environments, and so no tests.
    Raises ValueError for a number of GPUs that is none.
    """
    environments = _environments(site)
    node = gpus_of_node()
    own = min((most, name) for name, most in _MOST.items() if node <= most)[1]
    return {
        "systems": [
            {
                "name": site.name,
                "descr": site.descr,
                "hostnames": [".*"],
                "max_local_jobs": 1,
                "partitions": [
                    {
                        "name": name,
                        "descr": f"The node itself, with {most} GPU{'s' * (most > 1)}",
                        "scheduler": "local",
                        "launcher": "mpirun",
                        "max_jobs": 1,
                        "environs": [each["name"] for each in environments] if name == own else [],
                        "features": ["gpu", "cuda", "nvlink"],
                        "devices": [
                            {
                                "type": "gpu",
                                "arch": site.arch,
                                "model": site.model,
                                "num_devices": node if name == own else most,
                            }
                        ],
                        "processor": {"num_cpus": os.cpu_count(), "num_cpus_per_core": 1, "num_sockets": 1},
                        "extras": {
                            "tuning_profile": site.tuning_profile,
                            "unsupported": {**site.unsupported} if most <= 4 else {},
                        },
                    }
                    for name, most in _MOST.items()
                ],
            }
        ],
        # ReFrame looks ever more rarely whether a job is done, down to once in 10 s; here, looking is cheap.
        "general": [{"target_systems": [site.name], "poll_rate_min": 4}],
        "environments": [{"target_systems": [site.name], "cc": "cc", "cxx": "c++", **each} for each in environments],
    }


def gpus_of_node() -> int:
    """How many there have to be, and not how many there are: a GPU that is lost has to be missed.

    Raises ValueError for a number that FABRICHECK_GPUS cannot have.
    """
    said = os.environ.get("FABRICHECK_GPUS")
    if said is not None:
        if said not in map(str, range(1, 9)):
            raise ValueError(f"FABRICHECK_GPUS is {said!r}: give the number of GPUs of the node, 1 to 8")
        return int(said)
    listed = ask(["nvidia-smi", "-L"], 20).output
    return 8 if sum(line.startswith("GPU ") for line in listed.splitlines()) > 4 else 4


def _environments(site: Hgx) -> list[dict[str, Any]]:
    ucx, openmpi, mpich, impi = (_root_of(name) for name in ("UCX", "OPENMPI", "MPICH", "IMPI"))
    nccl = os.environ.get("FABRICHECK_NCCL_ROOT")
    options = [f"-DNCCL_ROOT={nccl}"] if nccl else []
    common = {"backend": "cuda", "gpu_arch": site.arch.removeprefix("sm_"), "vendor": {}, "cmake_options": options}
    by_ucx: dict[str, Any] = {**common, "required_paths": _UCX_PROOF}
    environments = []
    if openmpi and ucx:
        variables = {"OPAL_PREFIX": str(openmpi), **_OPENMPI, **_ucx_variables(ucx)}
        # The one in which the transports that need no GPU-aware MPI are measured, too.
        environments.append(_environment("openmpi", openmpi, variables, by_ucx, "nccl", ucx=ucx))
    if mpich and ucx:
        environments.append(_environment("mpich", mpich, {**_MPICH, **_ucx_variables(ucx)}, by_ucx, ucx=ucx))
    if impi:
        variables = {"I_MPI_ROOT": str(impi), **_INTEL, "I_MPI_OFFLOAD_CUDA_LIBRARY": _cuda_driver()}
        # device-collectives: MPI's own collectives take device memory; the others crash on it.
        environments.append(_environment("intel", impi, variables, common, "device-collectives"))
    return environments or [_machines_own(common)]


def _environment(
    library: str,
    root: Path,
    variables: Mapping[str, str],
    extras: Mapping[str, Any],
    *features: str,
    ucx: Path | None = None,
) -> dict[str, Any]:
    """That of an MPI library below `root`, which reaches device memory through `ucx` or by itself."""
    folders = [*([f"{ucx}/lib"] if ucx else []), f"{root}/lib", "$LD_LIBRARY_PATH"]
    every = {"PATH": f"{root}/bin:$PATH", "LD_LIBRARY_PATH": ":".join(folders), **variables}
    return {
        "name": f"{library}-ucx" if ucx else f"{library}-mpi",
        "env_vars": [[name, value] for name, value in every.items()],
        "features": ["mpi", "cuda", *features],
        "extras": {**extras, "mpi": library, "mpicxx": f"{root}/bin/mpicxx"},
    }


def _machines_own(common: Mapping[str, Any]) -> dict[str, Any]:
    """Without any MPI library the tests can be listed, not run."""
    known = mpi.find("openmpi") or mpi.find("mpich")
    extras = {**common, "not_gpu_aware": _UNNAMED}
    if known is not None:
        extras |= {"mpi": known.name, "mpicxx": str(known.mpicxx)}
    return {
        "name": "machine",
        "env_vars": [[name, value] for name, value in known.environment.items()] if known is not None else [],
        "prepare_cmds": known.shell_commands if known is not None else [],
        "features": ["mpi", "cuda", "nccl"],
        "extras": extras,
    }


def _root_of(library: str) -> Path | None:
    path = os.environ.get(f"FABRICHECK_{library}_ROOT")
    if path is None:
        print(f"fabricheck: FABRICHECK_{library}_ROOT is not set, so its tests are left out", file=sys.stderr)
    return Path(path) if path else None


def _ucx_variables(ucx: Path) -> dict[str, str]:
    # UCX chooses by itself what is fast only among the transports that it is given.
    return {"UCX_MODULE_DIR": f"{ucx}/lib/ucx", "UCX_TLS": "self,sm,cma,cuda_copy,cuda_ipc"}


def _cuda_driver() -> str:
    """The driver's library, by its full name: Intel MPI does not search for it."""
    cache = ask(["ldconfig", "-p"], 20).output
    paths = [line.split()[-1] for line in cache.splitlines() if line.strip().startswith("libcuda.so.1 ")]
    return paths[0] if paths else "libcuda.so.1"
