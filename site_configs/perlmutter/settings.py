"""Perlmutter GPU nodes (NERSC), measured with CommBench (ICS 24): Cray MPICH (§5).

Constraint, quality of service and modules as in the NERSC documentation.
"""

import os

from reframe.utility import osext

site_configuration = {
    "systems": [
        {
            "name": "perlmutter",
            "descr": "Perlmutter, A100",
            "hostnames": ["perlmutter", "login[0-9]+", "nid[0-9]+"],
            # Elsewhere, to describe the tests without the system, there are no modules.
            "modules_system": "lmod" if "LMOD_CMD" in os.environ else "nomod",
            "partitions": [
                {
                    "name": "gpu",
                    "descr": "GPU nodes",
                    "scheduler": "slurm",
                    "launcher": "srun",
                    "access": ["--constraint=gpu", "--qos=regular", f"--account={osext.osgroup()}"],
                    "environs": ["PrgEnv-gnu"],
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
            "name": "PrgEnv-gnu",
            "target_systems": ["perlmutter"],
            "modules": ["PrgEnv-gnu", "cray-mpich", "cudatoolkit", "craype-accel-nvidia80", "nccl"],
            "cc": "cc",
            "cxx": "CC",
            "ftn": "",
            "env_vars": [["MPICH_GPU_SUPPORT_ENABLED", "1"]],
            "features": ["mpi", "cuda", "nccl"],
            "extras": {"backend": "cuda", "mpi": "cray-mpich", "mpicxx": "CC", "gpu_arch": "80"},
        },
    ],
}
