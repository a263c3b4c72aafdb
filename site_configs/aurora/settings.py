"""Aurora (ALCF), measured with CommBench (ICS 24) on early software: MPICH of the vendor (§5).

Batch system, launcher and modules as in the ALCF user guide. The SYCL backend of the benchmark does not exist yet:
partition and environment name it, so that checks of GPUs can say what is missing instead of measuring something else.
"""

import os

from reframe.utility import osext

site_configuration = {
    "systems": [
        {
            "name": "aurora",
            "descr": "Aurora, PVC",
            "hostnames": ["aurora-uan-[0-9]+", "x[0-9]+c[0-9]+s[0-9]+b[0-9]+n[0-9]+"],
            # Elsewhere, to describe the tests without the system, there are no modules.
            "modules_system": "lmod" if "LMOD_CMD" in os.environ else "nomod",
            "partitions": [
                {
                    "name": "gpu",
                    "descr": "GPU nodes",
                    "scheduler": "pbs",
                    "launcher": "mpiexec",
                    "access": [f"-A {osext.osgroup()}", "-q prod", "-l filesystems=home:flare"],
                    "environs": ["oneapi"],
                    "max_jobs": 1,
                    "time_limit": "30m",
                    "features": ["gpu", "sycl", "xelink", "remote", "multinode"],
                    "devices": [{"type": "gpu", "arch": "pvc", "model": "PVC", "num_devices": 12}],
                    # tuning_profile: a name in config/tuning.yaml
                    "extras": {
                        "tuning_profile": "default",
                        "gpus_per_node": 12,
                        "missing_backend": "sycl",
                    },
                }
            ],
        }
    ],
    "environments": [
        {
            "name": "oneapi",
            "target_systems": ["aurora"],
            "modules": ["oneapi", "mpich"],
            "cc": "mpicc",
            "cxx": "mpicxx",
            "ftn": "",
            "features": ["mpi", "sycl"],
            "extras": {"backend": "sycl", "mpi": "mpich", "mpicxx": "mpicxx", "gpu_arch": "intel_gpu_pvc"},
        },
    ],
}
