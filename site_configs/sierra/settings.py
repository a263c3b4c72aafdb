"""A Sierra-like OpenPOWER system: four V100 a node, CUDA 9.2.148 and Spectrum MPI 10.3 (OpenPOWER evaluation, §4).

The paper does not say how its jobs were started; LSF with lrun is what Sierra itself has (Livermore Computing pages).
"""

import os

site_configuration = {
    "systems": [
        {
            "name": "sierra",
            "descr": "Sierra-like OpenPOWER node, V100",
            "hostnames": ["sierra[0-9]+", "lassen[0-9]+"],
            # Elsewhere, to describe the tests without the system, there are no modules.
            "modules_system": "lmod" if "LMOD_CMD" in os.environ else "nomod",
            "partitions": [
                {
                    "name": "gpu",
                    "descr": "GPU nodes",
                    "scheduler": "lsf",
                    "launcher": "lrun",
                    "access": ["-q pbatch"],
                    "environs": ["spectrum-mpi"],
                    "max_jobs": 1,
                    "time_limit": "30m",
                    "features": ["gpu", "cuda", "nvlink", "remote", "multinode"],
                    "devices": [{"type": "gpu", "arch": "sm_70", "model": "V100", "num_devices": 4}],
                    # tuning_profile: a name in config/tuning.yaml
                    "extras": {"tuning_profile": "default", "gpus_per_node": 4},
                }
            ],
        }
    ],
    "environments": [
        {
            "name": "spectrum-mpi",
            "target_systems": ["sierra"],
            "modules": ["gcc", "spectrum-mpi", "cuda/9.2.148"],
            "cc": "mpicc",
            "cxx": "mpicxx",
            "ftn": "",
            "features": ["mpi", "cuda"],
            "extras": {"backend": "cuda", "mpi": "spectrum-mpi", "mpicxx": "mpicxx", "gpu_arch": "70"},
        },
    ],
}
