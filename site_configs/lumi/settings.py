"""LUMI-G (CSC), measured by De Sensi et al. (SC24): Cray MPICH 8.1.27, ROCm 5.7.1, aws-ofi-rccl 1.4 (Table I).

Partition and modules as in the LUMI user guide: the LUMI stack with partition/G, the compiler wrappers of PrgEnv-cray.
"""

from reframe.utility import osext

from fabricheck.site.gpu_cluster import Cluster, Gpus, Jobs, Software, gpu_cluster

# Of each GCD the cores of its part of the L3 cache, without the first, which is the system's (Frontier user guide,
# OLCF, node diagram and low-noise mode; the nodes of LUMI and Dardel are the same).
CORES = ["49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47"]

site_configuration = gpu_cluster(
    Cluster(
        name="lumi",
        descr="LUMI-G, MI250X",
        hostnames=["uan[0-9]+", "nid[0-9]+"],
        jobs=Jobs(access=["--partition=standard-g", f"--account={osext.osgroup()}"]),
        gpus=Gpus(count=8, model="MI250X", arch="gfx90a", api="hip", links=["xgmi"], cores=CORES),
        software=Software(
            name="PrgEnv-cray",
            modules=["LUMI", "partition/G", "PrgEnv-cray", "craype-accel-amd-gfx90a", "rocm", "aws-ofi-rccl"],
            mpi="cray-mpich",
            gpu_arch="gfx90a",
            ccl="rccl",
            # SC24 paper, sections IV-C and IV-D, figures 5 and 6: its alltoall and allreduce on device memory.
            features=["device-collectives"],
        ),
        tuning_profile="lumi",
    )
)
