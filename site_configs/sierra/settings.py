"""A Sierra-like OpenPOWER system: four V100 a node and Spectrum MPI 10.3 (OpenPOWER evaluation, §4).

The paper had CUDA 9.2.148, which cannot compile C++17: the module has to be 11.0 or later.
The paper does not say how its jobs were started; LSF with lrun is what Sierra itself has (Livermore Computing pages).
"""

from fabricheck.site.gpu_cluster import Cluster, Gpus, Jobs, Software, gpu_cluster

site_configuration = gpu_cluster(
    Cluster(
        name="sierra",
        descr="Sierra-like OpenPOWER node, V100",
        hostnames=["sierra[0-9]+", "lassen[0-9]+"],
        jobs=Jobs(access=["-q pbatch"], scheduler="lsf", launcher="lrun"),
        gpus=Gpus(count=4, model="V100", arch="sm_70", api="cuda", links=["nvlink"]),
        software=Software(
            name="spectrum-mpi", modules=["gcc", "spectrum-mpi", "cuda"], mpi="spectrum-mpi", gpu_arch="70"
        ),
        nodes=2,  # the paper measures two (section 4); put your own number
    )
)
