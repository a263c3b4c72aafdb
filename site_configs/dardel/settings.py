"""Dardel GPU partition (PDC, KTH), the MI250X node of Schieffer et al.

Cray PE 23.12, Cray MPICH 8.1.28, ROCm 5.7.0 (§III). Partition and module names as in the PDC support pages.
"""

from reframe.utility import osext

from fabricheck.site.gpu_cluster import Cluster, Gpus, Jobs, Software, gpu_cluster

site_configuration = gpu_cluster(
    Cluster(
        name="dardel",
        descr="Dardel, MI250X",
        hostnames=["uan[0-9]+", "login1", "nid[0-9]+"],
        jobs=Jobs(access=["--partition=gpu", f"--account={osext.osgroup()}"]),
        gpus=Gpus(count=8, model="MI250X", arch="gfx90a", api="hip", links=["xgmi"]),
        software=Software(
            name="PrgEnv-cray",
            modules=["PDC", "PrgEnv-cray", "cray-mpich/8.1.28", "craype-accel-amd-gfx90a", "rocm/5.7.0"],
            mpi="cray-mpich",
            gpu_arch="gfx90a",
            ccl="rccl",
        ),
        tuning_profile="dardel",
        nodes=1,  # the paper measures one
    )
)
