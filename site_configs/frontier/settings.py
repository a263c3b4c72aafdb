"""Frontier (OLCF), measured with CommBench (ICS 24).

Partition, launcher and modules as in the Frontier user guide. The paper used the defaults of its time and does not name
their versions.
"""

from reframe.utility import osext

from fabricheck.site.gpu_cluster import Cluster, Gpus, Jobs, Software, gpu_cluster

# Of each GCD the cores of its part of the L3 cache, without the first, which is the system's (Frontier user guide,
# OLCF, node diagram and low-noise mode; the nodes of LUMI and Dardel are the same).
CORES = ["49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47"]

site_configuration = gpu_cluster(
    Cluster(
        name="frontier",
        descr="Frontier, MI250X",
        hostnames=["login[0-9]+", "frontier[0-9]+"],
        jobs=Jobs(access=["--partition=batch", f"--account={osext.osgroup()}"]),
        gpus=Gpus(count=8, model="MI250X", arch="gfx90a", api="hip", links=["xgmi"], cores=CORES),
        software=Software(
            name="PrgEnv-cray",
            modules=["PrgEnv-cray", "craype-accel-amd-gfx90a", "rocm"],
            mpi="cray-mpich",
            gpu_arch="gfx90a",
            ccl="rccl",
        ),
        tuning_profile="frontier",
    )
)
