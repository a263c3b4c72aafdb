"""A cluster of NVIDIA DGX A100, measured with CommBench (ICS 24): Open MPI (§5), NCCL with its SHARP plugin.

The paper does not name the site. DGX BasePOD and SuperPOD have Slurm; put the partition of yours into access.
"""

from fabricheck.site.gpu_cluster import Cluster, Gpus, Jobs, Software, gpu_cluster

site_configuration = gpu_cluster(
    Cluster(
        name="dgx-a100",
        descr="DGX A100",
        hostnames=["dgx-?[0-9]+"],
        jobs=Jobs(access=["--exclusive"]),
        gpus=Gpus(count=8, model="A100", arch="sm_80", api="cuda", links=["nvlink", "nvswitch"]),
        software=Software(
            name="openmpi", modules=["cuda", "openmpi", "nccl"], mpi="openmpi", gpu_arch="80", ccl="nccl"
        ),
        nodes=2,  # CommBench §5.2.1 measures two; put your own number
    )
)
