"""LUMI-G (CSC), measured by De Sensi et al. (SC24): Cray MPICH 8.1.27, ROCm 5.7.1, aws-ofi-rccl 1.4 (Table I).

Partition and modules as in the LUMI user guide: the LUMI stack with partition/G, the compiler wrappers of PrgEnv-cray.
"""

import os

from reframe.utility import osext

site_configuration = {
    "systems": [
        {
            "name": "lumi",
            "descr": "LUMI-G, MI250X",
            "hostnames": ["uan[0-9]+", "nid[0-9]+"],
            # Elsewhere, to describe the tests without the system, there are no modules.
            "modules_system": "lmod" if "LMOD_CMD" in os.environ else "nomod",
            "partitions": [
                {
                    "name": "gpu",
                    "descr": "GPU nodes",
                    "scheduler": "slurm",
                    "launcher": "srun",
                    "access": ["--partition=standard-g", f"--account={osext.osgroup()}"],
                    "environs": ["PrgEnv-cray"],
                    "max_jobs": 1,
                    "time_limit": "30m",
                    "features": ["gpu", "hip", "xgmi", "remote", "multinode"],
                    "devices": [{"type": "gpu", "arch": "gfx90a", "model": "MI250X", "num_devices": 8}],
                    "resources": [
                        {"name": "_rfm_gpu", "options": ["--gpus-per-node={num_gpus_per_node}"]},
                    ],
                    # tuning_profile: a name in config/tuning.yaml
                    "extras": {"tuning_profile": "lumi", "gpus_per_node": 8},
                }
            ],
        }
    ],
    "environments": [
        {
            "name": "PrgEnv-cray",
            "target_systems": ["lumi"],
            "modules": ["LUMI", "partition/G", "PrgEnv-cray", "craype-accel-amd-gfx90a", "rocm", "aws-ofi-rccl"],
            "cc": "cc",
            "cxx": "CC",
            "ftn": "",
            "env_vars": [["MPICH_GPU_SUPPORT_ENABLED", "1"]],
            "features": ["mpi", "hip", "rccl"],
            "extras": {"backend": "hip", "mpi": "cray-mpich", "mpicxx": "CC", "gpu_arch": "gfx90a"},
        },
    ],
}
