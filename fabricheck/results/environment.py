"""Which environment variables may be stored: an allow-list, because any other may hold a secret.

fabricbench records by the same list (src/fabricbench/environment.cpp); a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

RECORDED_PREFIXES = (
    "NCCL_",
    "RCCL_",
    "HSA_",
    "HIP_",
    "ROCR_",
    "MPICH_",
    "FI_",
    "UCX_",
    "OMPI_MCA_",
    "I_MPI_",
    "MPIR_CVAR_",
    "PSM2_",
    "PMIX_MCA_",
    "MV2_",
    "OMP_",
    "CCL_",
    "ZE_",
    "ZEX_",
    "SYCL_",
    "UR_",
)
RECORDED_NAMES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "GPU_MAX_HW_QUEUES",
    "SLURM_NTASKS",
    "SLURM_NNODES",
    "SLURM_CPU_BIND",
    "SLURM_JOB_PARTITION",
    "LD_PRELOAD",
    "ONEAPI_DEVICE_SELECTOR",
)
# A value under a recorded prefix can still be a credential.
SECRET_PARTS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "_KEY", "AUTH")

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*(?:=\s*|:\s+)(?=\S)")
_WITH_PASSWORD = re.compile(r"://[^/\s@]*:[^/\s@]*@")


def is_recorded(name: str) -> bool:
    """Whether the variable `name` may be stored with its value."""
    upper = name.upper()
    if any(part in upper for part in SECRET_PARTS):
        return False
    return name.startswith(RECORDED_PREFIXES) or name in RECORDED_NAMES


def recorded_environment(entries: Iterable[str]) -> dict[str, str]:
    """The variables that may be stored, of entries `NAME=value` as `env` prints them; all others are dropped."""
    pairs = (entry.partition("=") for entry in entries)
    return {
        name: value
        for name, equals, value in pairs
        if equals and is_recorded(name) and not _WITH_PASSWORD.search(value)
    }


def without_values(text: str) -> str:
    """`text` with what follows the first `NAME=` or `NAME: ` that may not be stored cut off, for quoting a line.

    `text` without a name that is to be kept secret comes back as it is. A plain `name: value` is cut only where the
    name looks like a credential, because tools print `name: value` of their own.
    """
    for match in _ASSIGNMENT.finditer(text):
        name = match[1]
        secret = any(part in name.upper() for part in SECRET_PARTS)
        if secret or ("=" in match[0] and not is_recorded(name)):
            return text[: match.end()] + "…"
    return text if _WITH_PASSWORD.search(text) is None else "…"


# What Open MPI's and Intel MPI's mpirun tell the ranks that they start: no tuning, and wrong in another run.
_OF_LAUNCHER = re.compile(
    r"OMPI_MCA_(PREFIXES|cpu_type|initial_wdir|num_procs|ess_.*|orte_.*)"
    r"|I_MPI_(INFO_.*|INTERNAL_.*|HYDRA_UUID|MPIRUN|PIN_INFO|PIN_MAPPING|RETURN_WIN_.*|BIND_WIN_.*)"
)


def set_by_launcher(variable: str) -> bool:
    """Whether mpirun sets the variable itself, so that it says nothing about tuning and differs from run to run."""
    return _OF_LAUNCHER.fullmatch(variable) is not None
