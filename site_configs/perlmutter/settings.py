"""Perlmutter GPU nodes (NERSC), measured with CommBench (ICS 24): Cray MPICH (§5).

Constraint, quality of service and modules as in the NERSC documentation.
"""

from reframe.utility import osext

from fabricheck.site.gpu_cluster import Cluster, Gpus, Jobs, Software, gpu_cluster

site_configuration = gpu_cluster(
    Cluster(
        name="perlmutter",
        descr="Perlmutter, A100",
        hostnames=["perlmutter", "login[0-9]+", "nid[0-9]+"],
        jobs=Jobs(access=["--constraint=gpu", "--qos=regular", f"--account={osext.osgroup()}"]),
        gpus=Gpus(count=4, model="A100", arch="sm_80", api="cuda", links=["nvlink"]),
        software=Software(
            name="PrgEnv-gnu",
            modules=["PrgEnv-gnu", "cray-mpich", "cudatoolkit", "craype-accel-nvidia80", "nccl"],
            mpi="cray-mpich",
            gpu_arch="80",
            ccl="nccl",
        ),
        nodes=2,  # CommBench §5.2.1 measures two; put your own number
    )
)
