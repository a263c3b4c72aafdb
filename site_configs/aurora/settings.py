"""Aurora (ALCF): batch system, launcher, modules and binding as in the ALCF user guide ("Running Jobs on Aurora",
"Aurora Programming Environment", read 2026-11).

The sycl backend has run on a processor and never on this machine: nothing below is tested there. A rank drives a tile,
and all tiles of the node stay visible to it, so `gpu_tile_compact.sh` is not put before the program: it hides the
others. CommBench (ICS 24) measured the published values here with MPICH of the vendor on early software (section 5).
"""

import os

from reframe.utility import osext

# Eight cores a tile, of the tile's socket; the first core of each socket is the system's own ("Binding MPI ranks to
# GPUs", example 1).
CORES = "1-8:9-16:17-24:25-32:33-40:41-48:53-60:61-68:69-76:77-84:85-92:93-100"

site_configuration = {
    "systems": [
        {
            "name": "aurora",
            "descr": "Aurora, PVC",
            "hostnames": ["aurora-uan-[0-9]+", "x[0-9]+c[0-9]+s[0-9]+b[0-9]+n[0-9]+"],
            # Elsewhere, to describe the tests without the system, there are no modules.
            "modules_system": "lmod" if "LMOD_CMD" in os.environ else "nomod",
            "partitions": [
                {
                    "name": "gpu",
                    "descr": "GPU nodes",
                    "scheduler": "pbs",
                    "launcher": "mpiexec",
                    "access": [
                        f"-A {osext.osgroup()}",
                        "-q prod",
                        "-l filesystems=home:flare",
                        "-l place=scatter",
                        "-k doe",
                    ],
                    "environs": ["oneapi"],
                    "max_jobs": 1,
                    "time_limit": "30m",
                    "features": ["gpu", "sycl", "xelink", "remote", "multinode"],
                    "devices": [{"type": "gpu", "arch": "pvc", "model": "PVC", "num_devices": 12}],
                    # tuning_profile: a name in config/tuning.yaml
                    "extras": {"tuning_profile": "aurora", "gpus_per_node": 12},
                }
            ],
        }
    ],
    "environments": [
        {
            "name": "oneapi",
            "target_systems": ["aurora"],
            "modules": ["oneapi", "mpich", "cmake"],
            "cc": "mpicc",
            "cxx": "mpicxx",
            "ftn": "",
            "env_vars": [
                # The order of the tiles is that of their cards' PCI addresses, as gpu_tile_compact.sh has it.
                ["ZE_ENABLE_PCI_ID_DEVICE_ORDER", "1"],
                # oneCCL is started by PALS and exchanges over MPI ("oneCCL", mandatory variables).
                ["CCL_PROCESS_LAUNCHER", "pmix"],
                ["CCL_ATL_TRANSPORT", "mpi"],
                ["CCL_KVS_MODE", "mpi"],
                ["CCL_KVS_USE_MPI_RANKS", "1"],
                ["CCL_CONFIGURATION", "cpu_gpu_dpcpp"],
                ["CCL_CONFIGURATION_PATH", ""],
            ],
            "features": ["mpi", "sycl", "oneccl", "device-collectives"],
            "extras": {
                "backend": "sycl",
                "mpi": "mpich",
                "mpicxx": "mpicxx",
                "gpu_arch": "intel_gpu_pvc",
                "launcher_options": ["--ppn 12", f"--cpu-bind=list:{CORES}"],
            },
        },
    ],
}
