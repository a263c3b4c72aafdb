"""Delta (NCSA), A100 4-way nodes, measured with CommBench (ICS 24): Open MPI (§5).

Partition and account as in the Delta user guide: gpuA100x4, accounts end in -delta-gpu.
"""

from reframe.utility import osext

from fabricheck.site.gpu_cluster import Cluster, Gpus, Jobs, Software, gpu_cluster

site_configuration = gpu_cluster(
    Cluster(
        name="delta",
        descr="Delta, A100",
        hostnames=["dt-login[0-9]+", "gpua[0-9]+"],
        jobs=Jobs(access=["--partition=gpuA100x4", f"--account={osext.osgroup()}-delta-gpu"]),
        gpus=Gpus(count=4, model="A100", arch="sm_80", api="cuda", links=["nvlink"]),
        software=Software(
            name="openmpi", modules=["gcc", "cuda", "openmpi+cuda", "nccl"], mpi="openmpi", gpu_arch="80", ccl="nccl"
        ),
        nodes=2,  # CommBench §5.2.1 measures two; put your own number
    )
)
