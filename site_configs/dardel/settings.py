"""Dardel GPU partition (PDC, KTH), the MI250X node of Schieffer et al.

Cray PE 23.12, Cray MPICH 8.1.28, ROCm 5.7.0 (§III). Partition and module names as in the PDC support pages.
"""

from reframe.utility import osext

from fabricheck.site.gpu_cluster import Cluster, Gpus, Jobs, Software, gpu_cluster

# Of each GCD the cores of its part of the L3 cache, without the first, which is the system's (Frontier user guide,
# OLCF, node diagram and low-noise mode; the nodes of LUMI and Dardel are the same).
CORES = ["49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47"]

site_configuration = gpu_cluster(
    Cluster(
        name="dardel",
        descr="Dardel, MI250X",
        hostnames=["uan[0-9]+", "login1", "nid[0-9]+"],
        jobs=Jobs(access=["--partition=gpu", f"--account={osext.osgroup()}"]),
        gpus=Gpus(count=8, model="MI250X", arch="gfx90a", api="hip", links=["xgmi"], cores=CORES),
        software=Software(
            name="PrgEnv-cray",
            modules=["PDC", "PrgEnv-cray", "cray-mpich/8.1.28", "craype-accel-amd-gfx90a", "rocm/5.7.0"],
            mpi="cray-mpich",
            gpu_arch="gfx90a",
            ccl="rccl",
            # Schieffer et al., section VI, figure 11: five collectives of MPI on memory of hipMalloc.
            features=["device-collectives"],
        ),
        tuning_profile="dardel",
        nodes=1,  # the paper measures one
    )
)
