"""A cluster of NVIDIA DGX A100, measured with CommBench (ICS 24): Open MPI (§5), NCCL with its SHARP plugin.

The paper does not name the site. DGX BasePOD and SuperPOD have Slurm; put the partition of yours into access.
"""

import os

site_configuration = {
    "systems": [
        {
            "name": "dgx-a100",
            "descr": "DGX A100",
            "hostnames": ["dgx-?[0-9]+"],
            # Elsewhere, to describe the tests without the system, there are no modules.
            "modules_system": "lmod" if "LMOD_CMD" in os.environ else "nomod",
            "partitions": [
                {
                    "name": "gpu",
                    "descr": "GPU nodes",
                    "scheduler": "slurm",
                    "launcher": "srun",
                    "access": ["--exclusive"],
                    "environs": ["openmpi"],
                    "max_jobs": 1,
                    "time_limit": "30m",
                    "features": ["gpu", "cuda", "nvlink", "nvswitch", "remote", "multinode"],
                    "devices": [{"type": "gpu", "arch": "sm_80", "model": "A100", "num_devices": 8}],
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
            "name": "openmpi",
            "target_systems": ["dgx-a100"],
            "modules": ["cuda", "openmpi", "nccl"],
            "cc": "mpicc",
            "cxx": "mpicxx",
            "ftn": "",
            "features": ["mpi", "cuda", "nccl"],
            "extras": {"backend": "cuda", "mpi": "openmpi", "mpicxx": "mpicxx", "gpu_arch": "80"},
        },
    ],
}
