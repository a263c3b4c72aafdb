"""Dardel GPU partition (PDC, KTH), the MI250X node of Schieffer et al.

Cray PE 23.12, Cray MPICH 8.1.28, ROCm 5.7.0 (§III). Partition and module names as in the PDC support pages.
"""

import os

from reframe.utility import osext

site_configuration = {
    "systems": [
        {
            "name": "dardel",
            "descr": "Dardel, MI250X",
            "hostnames": ["uan[0-9]+", "login1", "nid[0-9]+"],
            # Elsewhere, to describe the tests without the system, there are no modules.
            "modules_system": "lmod" if "LMOD_CMD" in os.environ else "nomod",
            "partitions": [
                {
                    "name": "gpu",
                    "descr": "GPU nodes",
                    "scheduler": "slurm",
                    "launcher": "srun",
                    "access": ["--partition=gpu", f"--account={osext.osgroup()}"],
                    "environs": ["PrgEnv-cray"],
                    "max_jobs": 1,
                    "time_limit": "30m",
                    "features": ["gpu", "hip", "xgmi", "remote"],
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
            "target_systems": ["dardel"],
            "modules": ["PDC", "PrgEnv-cray", "cray-mpich/8.1.28", "craype-accel-amd-gfx90a", "rocm/5.7.0"],
            "cc": "cc",
            "cxx": "CC",
            "ftn": "",
            "env_vars": [["MPICH_GPU_SUPPORT_ENABLED", "1"]],
            "features": ["mpi", "hip", "rccl"],
            "extras": {"backend": "hip", "mpi": "cray-mpich", "mpicxx": "CC", "gpu_arch": "gfx90a"},
        },
    ],
}
