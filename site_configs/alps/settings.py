"""Alps (CSCS), GH200 nodes, measured by De Sensi et al. (SC24) on the Santis partition.

Scheduler, launcher and access as in cscs-reframe-tests (config/systems/santis.py). Cray MPICH 8.1.28 and CUDA 12.3 are
what the paper used (Table I); on CSCS systems they come with a uenv, which provides these module names.
"""

import os

from reframe.utility import osext

site_configuration = {
    "systems": [
        {
            "name": "alps",
            "descr": "Alps, GH200",
            "hostnames": ["santis", "nid[0-9]+"],
            # Elsewhere, to describe the tests without the system, there are no modules.
            "modules_system": "lmod" if "LMOD_CMD" in os.environ else "nomod",
            "partitions": [
                {
                    "name": "gpu",
                    "descr": "GPU nodes",
                    "scheduler": "slurm",
                    "launcher": "srun",
                    "access": [f"--account={osext.osgroup()}"],
                    "environs": ["PrgEnv-gnu"],
                    "max_jobs": 1,
                    "time_limit": "30m",
                    "features": ["gpu", "cuda", "nvlink", "remote", "multinode"],
                    "devices": [{"type": "gpu", "arch": "sm_90", "model": "H100", "num_devices": 4}],
                    "resources": [
                        {"name": "_rfm_gpu", "options": ["--gpus-per-node={num_gpus_per_node}"]},
                    ],
                    # tuning_profile: a name in config/tuning.yaml
                    "extras": {"tuning_profile": "alps", "gpus_per_node": 4},
                }
            ],
        }
    ],
    "environments": [
        {
            "name": "PrgEnv-gnu",
            "target_systems": ["alps"],
            "modules": ["PrgEnv-gnu", "cray-mpich", "cudatoolkit", "craype-accel-nvidia90"],
            "cc": "cc",
            "cxx": "CC",
            "ftn": "",
            "env_vars": [["MPICH_GPU_SUPPORT_ENABLED", "1"]],
            "features": ["mpi", "cuda", "nccl"],
            "extras": {"backend": "cuda", "mpi": "cray-mpich", "mpicxx": "CC", "gpu_arch": "90"},
        },
    ],
}
