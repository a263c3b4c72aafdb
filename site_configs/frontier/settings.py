"""Frontier (OLCF), measured with CommBench (ICS 24).

Partition, launcher and modules as in the Frontier user guide. The paper used the defaults of its time and does not name
their versions.
"""

import os

from reframe.utility import osext

site_configuration = {
    "systems": [
        {
            "name": "frontier",
            "descr": "Frontier, MI250X",
            "hostnames": ["login[0-9]+", "frontier[0-9]+"],
            # Elsewhere, to describe the tests without the system, there are no modules.
            "modules_system": "lmod" if "LMOD_CMD" in os.environ else "nomod",
            "partitions": [
                {
                    "name": "gpu",
                    "descr": "GPU nodes",
                    "scheduler": "slurm",
                    "launcher": "srun",
                    "access": ["--partition=batch", f"--account={osext.osgroup()}"],
                    "environs": ["PrgEnv-cray"],
                    "max_jobs": 1,
                    "time_limit": "30m",
                    "features": ["gpu", "hip", "xgmi", "remote", "multinode"],
                    "devices": [{"type": "gpu", "arch": "gfx90a", "model": "MI250X", "num_devices": 8}],
                    "resources": [
                        {"name": "_rfm_gpu", "options": ["--gpus-per-node={num_gpus_per_node}"]},
                    ],
                    # tuning_profile: a name in config/tuning.yaml
                    "extras": {"tuning_profile": "default", "gpus_per_node": 8},
                }
            ],
        }
    ],
    "environments": [
        {
            "name": "PrgEnv-cray",
            "target_systems": ["frontier"],
            "modules": ["PrgEnv-cray", "craype-accel-amd-gfx90a", "rocm"],
            "cc": "cc",
            "cxx": "CC",
            "ftn": "",
            "env_vars": [["MPICH_GPU_SUPPORT_ENABLED", "1"]],
            "features": ["mpi", "hip", "rccl"],
            "extras": {"backend": "hip", "mpi": "cray-mpich", "mpicxx": "CC", "gpu_arch": "gfx90a"},
        },
    ],
}
