"""Any Linux machine, with the MPI libraries that `fabricheck.mpi` finds on it.

Where ONEAPI_DEVICE_SELECTOR names the processor (`opencl:cpu`), the sycl backend drives it as a GPU, over MPICH: an
environment of its own, beside those of the host backend (src/sycl.md).
"""

import os
import sys
from pathlib import Path

from fabricheck import mpi

# Intel MPI's benchmarks from its wheel, where `make test` has unpacked it. They run on MPICH, which has the same ABI.
imb = Path(sys.prefix) / "mpi" / "impi"

# Intel's wheels, where `make test FULL=1` has unpacked them.
oneapi = Path(sys.prefix) / "oneapi"

installations = mpi.find_all()
mpich = next((one for one in installations if one.name == "mpich"), None)
sycl = mpich is not None and oneapi.is_dir() and "cpu" in os.environ.get("ONEAPI_DEVICE_SELECTOR", "").lower()
cores = mpi.physical_cores()

site_configuration = {
    "systems": [
        {
            "name": "local",
            "descr": "This machine",
            "hostnames": [".*"],
            "max_local_jobs": 1,
            "partitions": [
                {
                    "name": "default",
                    "descr": "The machine itself, with as many ranks as are asked for",
                    "scheduler": "local",
                    "launcher": "mpirun",
                    "max_jobs": 1,
                    "environs": [*(one.name for one in installations), *(["sycl"] if sycl else [])],
                    "extras": {"tuning_profile": "default"},
                    # Given here, so that ReFrame does not detect it with a job of its own.
                    "processor": {
                        "num_cpus": cores,
                        "num_cpus_per_core": 1,
                        "num_cpus_per_socket": cores,
                        "num_sockets": 1,
                    },
                }
            ],
        }
    ],
    # ReFrame looks ever more rarely whether a job is done, down to once in 10 s; here, looking is cheap.
    "general": [{"target_systems": ["local"], "poll_rate_min": 4}],
    "environments": [
        {
            "name": one.name,
            "target_systems": ["local"],
            "features": ["mpi"],
            "cc": "cc",
            "cxx": "c++",
            "env_vars": [list(variable) for variable in one.environment.items()],
            "prepare_cmds": one.shell_commands,
            # mpi: the family, for fabricheck.mpi.launch(); mpicxx: for CMake's MPI_CXX_COMPILER; vendor: the vendor
            # suites that are there (docs/vendor-tools.md), others where their variables are set
            "extras": {
                "backend": "host",
                "mpi": one.name,
                "mpi_version": one.version,
                "mpi_origin": one.origin,
                "mpicxx": str(one.mpicxx),
                "vendor": {"imb": str(imb)} if one.name == "mpich" and (imb / "bin" / "IMB-MPI1").is_file() else {},
            },
        }
        for one in installations
    ],
}

if mpich is not None and sycl:
    site_configuration["environments"].append(
        {
            "name": "sycl",
            "target_systems": ["local"],
            "features": ["mpi"],
            "cc": "cc",
            "cxx": "c++",
            "env_vars": [
                *(list(variable) for variable in mpich.environment.items()),
                ["ONEAPI_DEVICE_SELECTOR", os.environ["ONEAPI_DEVICE_SELECTOR"]],
                ["OCL_ICD_FILENAMES", str(oneapi / "lib" / "libintelocl.so")],
                # Else each rank's device takes all cores, and the ranks that wait have none.
                ["DPCPP_CPU_NUM_CUS", "1"],
            ],
            "prepare_cmds": mpich.shell_commands,
            "extras": {
                "backend": "sycl",
                "sycl_compiler": "c++",
                "cmake_options": [f"-DSYCL_ROOT={oneapi}"],
                "share_devices": True,  # all ranks have the same processor, and no GPU
                "mpi": "mpich",
                "mpi_version": mpich.version,
                "mpi_origin": mpich.origin,
                "mpicxx": str(mpich.mpicxx),
                "vendor": {},
            },
        }
    )
