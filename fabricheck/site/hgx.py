"""ReFrame's settings of an HGX node: up to eight GPUs on an NVSwitch, CUDA, NCCL, a GPU-aware Open MPI.

Where the libraries lie is the site's business and comes from the environment:

    FABRICHECK_OPENMPI_ROOT   Open MPI 5
    FABRICHECK_UCX_ROOT       UCX built with CUDA, through which it reaches device memory
    FABRICHECK_NCCL_ROOT      NCCL, where it does not lie in /usr

Without the first two, with one line on stderr, the machine's own MPI library builds and starts what needs no GPU-aware
one; `fabricheck init` finds out more, and other libraries. CUDA is found through `nvcc` on the PATH.

    FABRICHECK_GPUS           how many GPUs the node has to have, up to 8; unset: 8 where more than 4 are seen, else 4
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
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
_UNNAMED = "the machine's own MPI library, by FABRICHECK_OPENMPI_ROOT and FABRICHECK_UCX_ROOT,"


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
    environment = _environment(site)
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
                        "environs": [environment["name"]] if name == own else [],
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
        "environments": [{"target_systems": [site.name], "cc": "cc", "cxx": "c++", **environment}],
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


def _environment(site: Hgx) -> dict[str, Any]:
    """That of Open MPI, in which all is measured; else of the machine's own library."""
    openmpi, ucx, nccl = (os.environ.get(f"FABRICHECK_{name}_ROOT") for name in ("OPENMPI", "UCX", "NCCL"))
    options = [f"-DNCCL_ROOT={nccl}"] if nccl else []
    common = {"backend": "cuda", "gpu_arch": site.arch.removeprefix("sm_"), "vendor": {}, "cmake_options": options}
    if not openmpi or not ucx:
        print("fabricheck: MPI on device memory is left out: set FABRICHECK_OPENMPI_ROOT and FABRICHECK_UCX_ROOT",
              file=sys.stderr)  # fmt: skip
        return _machines_own(common)
    variables = {
        "PATH": f"{openmpi}/bin:$PATH",
        "LD_LIBRARY_PATH": f"{ucx}/lib:{openmpi}/lib:$LD_LIBRARY_PATH",
        "OPAL_PREFIX": openmpi,
        **_OPENMPI,
        "UCX_MODULE_DIR": f"{ucx}/lib/ucx",
        # UCX chooses by itself what is fast only among the transports that it is given.
        "UCX_TLS": "self,sm,cma,cuda_copy,cuda_ipc",
    }
    return {
        "name": "openmpi-ucx",
        "env_vars": [[name, value] for name, value in variables.items()],
        "features": ["mpi", "cuda", "nccl"],
        "extras": {**common, "required_paths": _UCX_PROOF, "mpi": "openmpi", "mpicxx": f"{openmpi}/bin/mpicxx"},
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
