"""Aurora (ALCF): batch system, launcher, modules and binding as in the ALCF user guide ("Running Jobs on Aurora",
"Aurora Programming Environment", "oneCCL", read 2026-11).

The sycl backend has run on a processor and never on this machine: nothing below is tested there. A rank drives a tile,
and all tiles of the node stay visible to it, so `gpu_tile_compact.sh` is not put before the program: it hides the
others. CommBench (ICS 24) measured the published values here with MPICH of the vendor on early software (section 5).
"""

from reframe.utility import osext

from fabricheck.site.gpu_cluster import Cluster, Gpus, Jobs, Software, gpu_cluster

# Eight cores a tile, of the tile's socket; the first core of each socket is the system's own ("Binding MPI ranks to
# GPUs", example 1).
CORES = ["1-8", "9-16", "17-24", "25-32", "33-40", "41-48", "53-60", "61-68", "69-76", "77-84", "85-92", "93-100"]

site_configuration = gpu_cluster(
    Cluster(
        name="aurora",
        descr="Aurora, PVC",
        hostnames=["aurora-uan-[0-9]+", "x[0-9]+c[0-9]+s[0-9]+b[0-9]+n[0-9]+"],
        jobs=Jobs(
            access=[
                f"-A {osext.osgroup()}",
                "-q prod",
                "-l filesystems=home:flare",
                "-l place=scatter",
                "-k doe",
            ],
            scheduler="pbs",
            launcher="mpiexec",
        ),
        gpus=Gpus(count=12, model="PVC", arch="pvc", api="sycl", links=["xelink"], cores=CORES),
        software=Software(
            name="oneapi",
            modules=["oneapi", "mpich", "cmake"],
            mpi="mpich",
            gpu_arch="intel_gpu_pvc",
            ccl="oneccl",
            variables={
                # The tiles are in the order of their cards' PCI addresses, as gpu_tile_compact.sh has them.
                "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1",
                # oneCCL is started by PALS and exchanges over MPI ("oneCCL", mandatory variables).
                "CCL_PROCESS_LAUNCHER": "pmix",
                "CCL_ATL_TRANSPORT": "mpi",
                "CCL_KVS_MODE": "mpi",
                "CCL_KVS_USE_MPI_RANKS": "1",
                "CCL_CONFIGURATION": "cpu_gpu_dpcpp",
                "CCL_CONFIGURATION_PATH": "",
            },
            features=["device-collectives"],
        ),
        tuning_profile="aurora",
        extras={"unsupported": {"host_memory=managed": "SYCL's shared memory goes to who uses it, as `migrated` does"}},
    )
)
