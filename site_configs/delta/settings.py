"""Delta (NCSA), A100 4-way nodes, measured with CommBench (ICS 24): Open MPI (§5).

Partition and account as in the Delta user guide: gpuA100x4, accounts end in -delta-gpu.
"""

import os

from reframe.utility import osext

site_configuration = {
    "systems": [
        {
            "name": "delta",
            "descr": "Delta, A100",
            "hostnames": ["dt-login[0-9]+", "gpua[0-9]+"],
            # Elsewhere, to describe the tests without the system, there are no modules.
            "modules_system": "lmod" if "LMOD_CMD" in os.environ else "nomod",
            "partitions": [
                {
                    "name": "gpu",
                    "descr": "GPU nodes",
                    "scheduler": "slurm",
                    "launcher": "srun",
                    "access": ["--partition=gpuA100x4", f"--account={osext.osgroup()}-delta-gpu"],
                    "environs": ["openmpi"],
                    "max_jobs": 1,
                    "time_limit": "30m",
                    "features": ["gpu", "cuda", "nvlink", "remote", "multinode"],
                    "devices": [{"type": "gpu", "arch": "sm_80", "model": "A100", "num_devices": 4}],
                    "resources": [
                        {"name": "_rfm_gpu", "options": ["--gpus-per-node={num_gpus_per_node}"]},
                    ],
                    # tuning_profile: a name in config/tuning.yaml
                    "extras": {"tuning_profile": "default", "gpus_per_node": 4},
                }
            ],
        }
    ],
    "environments": [
        {
            "name": "openmpi",
            "target_systems": ["delta"],
            "modules": ["gcc", "cuda", "openmpi+cuda", "nccl"],
            "cc": "mpicc",
            "cxx": "mpicxx",
            "ftn": "",
            "features": ["mpi", "cuda", "nccl"],
            "extras": {"backend": "cuda", "mpi": "openmpi", "mpicxx": "mpicxx", "gpu_arch": "80"},
        },
    ],
}
