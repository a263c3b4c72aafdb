"""A node with H200 on an NVSwitch, CUDA 13, NCCL, and up to three GPU-aware MPI libraries.

Where the libraries lie is the site's business and comes from the environment:

    FABRICHECK_UCX_ROOT       UCX built with CUDA; Open MPI and MPICH reach device memory through it
    FABRICHECK_OPENMPI_ROOT   Open MPI 5
    FABRICHECK_MPICH_ROOT     MPICH 5
    FABRICHECK_IMPI_ROOT      Intel MPI 2021, with its own CUDA support
    FABRICHECK_NCCL_ROOT      NCCL, where it does not lie in /usr

What is not named is left out, with one line on stderr. CUDA is found through `nvcc` on the PATH.

    FABRICHECK_GPUS           how many GPUs the node has to have, up to 8; unset: 8 where more than 4 are seen, else 4
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path


def gpus_of_node() -> int:
    """How many there have to be, and not how many there are: a GPU that is lost has to be missed."""
    said = os.environ.get("FABRICHECK_GPUS")
    if said is not None:
        if said not in map(str, range(1, 9)):
            raise ValueError(f"FABRICHECK_GPUS is {said!r}: give the number of GPUs of the node, 1 to 8")
        return int(said)
    if shutil.which("nvidia-smi") is None:
        return 4
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    return 8 if sum(line.startswith("GPU ") for line in listed.splitlines()) > 4 else 4


def root_of(library: str) -> Path | None:
    path = os.environ.get(f"FABRICHECK_{library}_ROOT")
    if path is None:
        print(f"fabricheck: FABRICHECK_{library}_ROOT is not set, so its tests are left out", file=sys.stderr)
    return Path(path) if path else None


def library_path(*folders: Path) -> list[str]:
    return ["LD_LIBRARY_PATH", ":".join([*map(str, folders), "$LD_LIBRARY_PATH"])]


def cuda_driver() -> str:
    """The driver's library, by its full name: Intel MPI does not search for it."""
    cache = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    found = [line.split()[-1] for line in cache.splitlines() if line.strip().startswith("libcuda.so.1 ")]
    return found[0] if found else "libcuda.so.1"


ucx, openmpi, mpich, impi = (root_of(name) for name in ("UCX", "OPENMPI", "MPICH", "IMPI"))
nccl = os.environ.get("FABRICHECK_NCCL_ROOT")

# UCX chooses by itself what is fast only among the transports that it is given.
ucx_variables = (
    [["UCX_MODULE_DIR", f"{ucx}/lib/ucx"], ["UCX_TLS", "self,sm,cma,cuda_copy,cuda_ipc"]] if ucx is not None else []
)
# What UCX's own log has to name: device memory that goes straight to the peer.
ucx_proof = {"mpi": ["^cuda: .*cuda_ipc"]}
common = {"backend": "cuda", "gpu_arch": "90", "vendor": {}, "cmake_options": [f"-DNCCL_ROOT={nccl}"] if nccl else []}
as_root = [["OMPI_ALLOW_RUN_AS_ROOT", "1"], ["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"]] if os.geteuid() == 0 else []

environments = []
if openmpi and ucx:
    environments.append(
        {
            "name": "openmpi-ucx",
            "env_vars": [
                ["PATH", f"{openmpi}/bin:$PATH"],
                library_path(ucx / "lib", openmpi / "lib"),
                ["OPAL_PREFIX", str(openmpi)],
                *(["OMPI_MCA_" + name, value] for name, value in (
                    ("pml", "ucx"), ("opal_common_ucx_tls", "any"), ("opal_common_ucx_devices", "any"),
                )),
                *ucx_variables,
                *as_root,
            ],
            # The one in which the transports that need no GPU-aware MPI are measured, too.
            "features": ["mpi", "cuda", "nccl"],
            "extras": {**common, "mpi": "openmpi", "mpicxx": f"{openmpi}/bin/mpicxx", "required_paths": ucx_proof},
        }
    )  # fmt: skip
if mpich and ucx:
    environments.append(
        {
            "name": "mpich-ucx",
            "env_vars": [
                ["PATH", f"{mpich}/bin:$PATH"],
                library_path(ucx / "lib", mpich / "lib"),
                # Messages inside the node go through UCX, which knows device memory, and not through MPICH's own path.
                ["MPIR_CVAR_NOLOCAL", "1"],
                ["MPIR_CVAR_CH4_NETMOD", "ucx"],
                ["MPIR_CVAR_ENABLE_GPU", "0"],
                *ucx_variables,
            ],
            "features": ["mpi", "cuda"],
            "extras": {**common, "mpi": "mpich", "mpicxx": f"{mpich}/bin/mpicxx", "required_paths": ucx_proof},
        }
    )
if impi:
    environments.append(
        {
            "name": "intel-mpi",
            "env_vars": [
                ["PATH", f"{impi}/bin:$PATH"],
                library_path(impi / "lib"),
                ["I_MPI_ROOT", str(impi)],
                ["I_MPI_FABRICS", "shm"],
                ["I_MPI_OFFLOAD", "1"],
                # I_MPI_OFFLOAD_PIN stays on, which shows each rank its own GPU only: with 0 an allreduce of 64 KiB in
                # device memory crashed (Intel MPI 2021.19, CUDA 13.0, 2026-11-21).
                ["I_MPI_OFFLOAD_CUDA_LIBRARY", cuda_driver()],
            ],
            # device-collectives: MPI's own collectives take device memory; the others crash on it.
            "features": ["mpi", "cuda", "device-collectives"],
            "extras": {**common, "mpi": "intel", "mpicxx": f"{impi}/bin/mpicxx"},
        }
    )
if not environments:
    # The tests can be listed, not run.
    environments.append({"name": "none", "features": ["mpi", "cuda", "nccl"], "extras": common})

node = gpus_of_node()

# Each with its own topology and references; that of another node than this has no environments, and so no tests.
partitions = {
    # What the machine cannot do, and who says so.
    "gpu": (
        "The node itself, with up to four GPUs",
        min(node, 4),
        {"host_numa=remote": "one NUMA node, by `fabricheck capture` of 2026-11-21"},
    ),
    "gpu8": ("The node itself, with eight GPUs", node if node > 4 else 8, {}),
}

site_configuration = {
    "systems": [
        {
            "name": "hgx-h200",
            "descr": "HGX H200",
            "hostnames": [".*"],
            "max_local_jobs": 1,
            "partitions": [
                {
                    "name": name,
                    "descr": description,
                    "scheduler": "local",
                    "launcher": "mpirun",
                    "max_jobs": 1,
                    "environs": [each["name"] for each in environments] if (node > 4) == (gpus > 4) else [],
                    "features": ["gpu", "cuda", "nvlink"],
                    "devices": [{"type": "gpu", "arch": "sm_90", "model": "H200", "num_devices": gpus}],
                    "processor": {"num_cpus": os.cpu_count(), "num_cpus_per_core": 1, "num_sockets": 1},
                    # tuning_profile: a name in config/tuning.yaml
                    "extras": {"tuning_profile": "hgx-h200", "unsupported": unsupported},
                }
                for name, (description, gpus, unsupported) in partitions.items()
            ],
        }
    ],
    # ReFrame looks ever more rarely whether a job is done, down to once in 10 s; here, looking is cheap.
    "general": [{"target_systems": ["hgx-h200"], "poll_rate_min": 4}],
    "environments": [{"target_systems": ["hgx-h200"], "cc": "cc", "cxx": "c++", **each} for each in environments],
}
