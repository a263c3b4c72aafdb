"""Alps (CSCS), GH200 nodes, measured by De Sensi et al. (SC24) on the Santis partition.

Scheduler, launcher and access as in cscs-reframe-tests (config/systems/santis.py). Cray MPICH 8.1.28 and CUDA 12.3 are
what the paper used (Table I); on CSCS systems they come with a uenv, which provides these module names.
"""

from reframe.utility import osext

from fabricheck.site.gpu_cluster import Cluster, Gpus, Jobs, Software, gpu_cluster

# A GH200 has 72 cores of its own, and those of a node are numbered one GH200 after another (vendor).
CORES = ["0-71", "72-143", "144-215", "216-287"]

site_configuration = gpu_cluster(
    Cluster(
        name="alps",
        descr="Alps, GH200",
        hostnames=["santis", "nid[0-9]+"],
        jobs=Jobs(access=[f"--account={osext.osgroup()}"]),
        gpus=Gpus(count=4, model="H100", arch="sm_90", api="cuda", links=["nvlink"], cores=CORES),
        software=Software(
            name="PrgEnv-gnu",
            modules=["PrgEnv-gnu", "cray-mpich", "cudatoolkit", "craype-accel-nvidia90"],
            mpi="cray-mpich",
            gpu_arch="90",
            ccl="nccl",
            # SC24 paper, sections IV-C and IV-D, figures 5 and 6: its alltoall and allreduce on device memory.
            features=["device-collectives"],
        ),
        tuning_profile="alps",
    )
)
