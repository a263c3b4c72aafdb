"""Summit (OLCF), measured in the OpenPOWER evaluation and with CommBench: Spectrum MPI.

Batch system, launcher and modules as in the Summit user guide. ReFrame has no jsrun launcher, so it is added here.
"""

import contextlib

from reframe.core.backends import register_launcher
from reframe.core.exceptions import ConfigError
from reframe.core.launchers import JobLauncher
from reframe.utility import osext

from fabricheck.site.gpu_cluster import Cluster, Gpus, Jobs, Software, gpu_cluster

GPUS, CORES = 6, 42


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


with contextlib.suppress(ConfigError):  # it is there already where this file is read a second time
    register_launcher("jsrun")(JsrunLauncher)

site_configuration = gpu_cluster(
    Cluster(
        name="summit",
        descr="Summit, V100",
        hostnames=["login[0-9]+.summit.olcf.ornl.gov", "batch[0-9]+"],
        jobs=Jobs(access=[f"-P {osext.osgroup()}", "-q batch"], scheduler="lsf", launcher="jsrun"),
        gpus=Gpus(count=6, model="V100", arch="sm_70", api="cuda", links=["nvlink"]),
        software=Software(
            name="spectrum-mpi",
            modules=["gcc", "spectrum-mpi", "cuda", "nccl"],
            mpi="spectrum-mpi",
            gpu_arch="70",
            ccl="nccl",
        ),
    )
)
