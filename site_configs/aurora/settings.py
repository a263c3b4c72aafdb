"""Aurora (ALCF), measured with CommBench (ICS 24) on early software: MPICH of the vendor (§5).

Batch system, launcher and modules as in the ALCF user guide. The SYCL backend of the benchmark does not exist yet:
partition and environment name it, so that checks of GPUs can say what is missing instead of measuring something else.
"""

from reframe.utility import osext

from fabricheck.site.gpu_cluster import Cluster, Gpus, Jobs, Software, gpu_cluster

site_configuration = gpu_cluster(
    Cluster(
        name="aurora",
        descr="Aurora, PVC",
        hostnames=["aurora-uan-[0-9]+", "x[0-9]+c[0-9]+s[0-9]+b[0-9]+n[0-9]+"],
        jobs=Jobs(
            access=[f"-A {osext.osgroup()}", "-q prod", "-l filesystems=home:flare"],
            scheduler="pbs",
            launcher="mpiexec",
        ),
        gpus=Gpus(count=12, model="PVC", arch="pvc", api="sycl", links=["xelink"]),
        software=Software(name="oneapi", modules=["oneapi", "mpich"], mpi="mpich", gpu_arch="intel_gpu_pvc"),
        extras={"missing_backend": "sycl"},
    )
)
