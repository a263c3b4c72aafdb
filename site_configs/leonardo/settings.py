"""Leonardo Booster (CINECA), measured by De Sensi et al. (SC24).

Software as in the paper (Table I): Open MPI 4.1.4 on UCX 1.13, CUDA 12.1. Slurm partition: CINECA user guide.
"""

import shutil

from reframe.utility import osext

site_configuration = {
    "systems": [
        {
            "name": "leonardo",
            "descr": "Leonardo Booster, A100",
            "hostnames": ["login[0-9]+-ext", "login[0-9]+.leonardo.local", "lrdn[0-9]+"],
            # Elsewhere, to describe the tests without the system, there are no modules.
            "modules_system": "tmod4" if shutil.which("modulecmd") else "nomod",
            "partitions": [
                {
                    "name": "gpu",
                    "descr": "GPU nodes",
                    "scheduler": "slurm",
                    "launcher": "srun",
                    "access": ["--partition=boost_usr_prod", f"--account={osext.osgroup()}", "--exclusive"],
                    "environs": ["openmpi"],
                    "max_jobs": 1,
                    "time_limit": "30m",
                    "features": ["gpu", "cuda", "nvlink", "remote", "multinode"],
                    "devices": [{"type": "gpu", "arch": "sm_80", "model": "A100", "num_devices": 4}],
                    "resources": [
                        {"name": "_rfm_gpu", "options": ["--gpus-per-node={num_gpus_per_node}"]},
                    ],
                    # tuning_profile: a name in config/tuning.yaml
                    "extras": {"tuning_profile": "leonardo", "gpus_per_node": 4},
                }
            ],
        }
    ],
    "environments": [
        {
            "name": "openmpi",
            "target_systems": ["leonardo"],
            "modules": ["gcc", "cuda/12.1", "openmpi", "nccl"],
            "cc": "mpicc",
            "cxx": "mpicxx",
            "ftn": "",
            "features": ["mpi", "cuda", "nccl"],
            "extras": {"backend": "cuda", "mpi": "openmpi", "mpicxx": "mpicxx", "gpu_arch": "80"},
        },
    ],
}
