"""Summit (OLCF), measured in the OpenPOWER evaluation and with CommBench: Spectrum MPI.

Batch system, launcher and modules as in the Summit user guide. ReFrame has no jsrun launcher, so it is added here.
"""

import os

from reframe.core.backends import register_launcher
from reframe.core.launchers import JobLauncher
from reframe.utility import osext

GPUS, CORES = 6, 42


@register_launcher("jsrun")
class JsrunLauncher(JobLauncher):
    """One resource set a node, which holds all GPUs: each rank sees every GPU and picks its own."""

    def command(self, job):
        per_node = job.num_tasks_per_node or min(job.num_tasks, GPUS)
        nodes = -(-job.num_tasks // per_node)
        return [
            "jsrun",
            "--smpiargs=-gpu",
            f"--nrs={nodes}",
            "--rs_per_host=1",
            f"--tasks_per_rs={per_node}",
            f"--gpu_per_rs={GPUS}",
            f"--cpu_per_rs={CORES}",
            "--launch_distribution=packed",
            f"--bind=packed:{CORES // per_node}",
        ]


site_configuration = {
    "systems": [
        {
            "name": "summit",
            "descr": "Summit, V100",
            "hostnames": ["login[0-9]+.summit.olcf.ornl.gov", "batch[0-9]+"],
            # Elsewhere, to describe the tests without the system, there are no modules.
            "modules_system": "lmod" if "LMOD_CMD" in os.environ else "nomod",
            "partitions": [
                {
                    "name": "gpu",
                    "descr": "GPU nodes",
                    "scheduler": "lsf",
                    "launcher": "jsrun",
                    "access": [f"-P {osext.osgroup()}", "-q batch"],
                    "environs": ["spectrum-mpi"],
                    "max_jobs": 1,
                    "time_limit": "30m",
                    "features": ["gpu", "cuda", "nvlink", "remote", "multinode"],
                    "devices": [{"type": "gpu", "arch": "sm_70", "model": "V100", "num_devices": 6}],
                    # tuning_profile: a name in config/tuning.yaml
                    "extras": {"tuning_profile": "default", "gpus_per_node": 6},
                }
            ],
        }
    ],
    "environments": [
        {
            "name": "spectrum-mpi",
            "target_systems": ["summit"],
            "modules": ["gcc", "spectrum-mpi", "cuda", "nccl"],
            "cc": "mpicc",
            "cxx": "mpicxx",
            "ftn": "",
            "features": ["mpi", "cuda", "nccl"],
            "extras": {"backend": "cuda", "mpi": "spectrum-mpi", "mpicxx": "mpicxx", "gpu_arch": "70"},
        },
    ],
}
