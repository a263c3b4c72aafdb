"""The cluster that `fabricheck emulate up` builds: Slurm on network namespaces, with Debian's Open MPI and MPICH.

To be run on its login node: `fabricheck emulate exec -- fabricheck run --system emulated`.
"""

import os
import shutil
from pathlib import Path

folder = Path(__file__).resolve().parent
# Slurm's partitions are those that `emulate up` makes: one for each leaf, and `all`. With more than two ranks on two
# cores Debian's MPICH 4.0.2 often does not come back from MPI_Finalize.
partitions = {
    "pair": ("leaf0", 2, ["openmpi", "mpich"], "two nodes on one leaf"),
    "one-leaf": ("leaf0", 4, ["openmpi"], "four nodes on one leaf"),
    "two-leaves": ("all", 8, ["openmpi"], "all eight nodes, on two leaves"),
    "two-ports": ("leaf0", 2, ["openmpi-packed", "openmpi-round-robin"], "two nodes, four ranks each on two ports"),
}
# What each environment's module sets, and what a run must have had in effect to count.
required = {
    "openmpi": {"OMPI_MCA_btl_tcp_if_include": "hsn0"},
    "openmpi-packed": {},
    "openmpi-round-robin": {},
    "mpich": {"UCX_NET_DEVICES": "hsn0"},
}

site_configuration = {
    "general": [{"target_systems": ["emulated"], "poll_rate_min": 4}],
    "systems": [
        {
            "name": "emulated",
            "descr": "Emulated cluster on this machine",
            "hostnames": ["^login$"],
            # Elsewhere, to describe the tests without the cluster, there need not be any modules.
            "modules_system": "envmod" if shutil.which("modulecmd") and "SLURM_CONF" in os.environ else "nomod",
            "env_vars": [],
            "partitions": [
                {
                    "name": name,
                    "descr": description,
                    # Without accounting; the exit status is left in a file (fabricheck.rfm.measure).
                    "scheduler": "squeue",
                    "launcher": "srun",
                    "access": [f"--partition={partition}", "--exclusive"],
                    "environs": environments,
                    # What shares a link would measure each other.
                    "max_jobs": 1,
                    "time_limit": "5m",
                    "prepare_cmds": ["source /usr/share/modules/init/bash"],
                    "features": ["remote", "emulated"],
                    "extras": {
                        "tuning_profile": "default",
                        "nodes": nodes,
                        # Nothing else runs here: a job that does not start soon never will.
                        "max_pending_time": "30s",
                        # Data between nodes may go over these only.
                        "network_interfaces": ["hsn0", "hsn1"],
                    },
                    "processor": {"num_cpus": 8, "num_cpus_per_core": 1, "num_cpus_per_socket": 8, "num_sockets": 1},
                }
                for name, (partition, nodes, environments, description) in partitions.items()
            ],
        }
    ],
    "environments": [
        {
            "name": name,
            "target_systems": ["emulated"],
            "modules": [{"name": f"fabricheck-{name.partition('-')[0]}", "path": str(folder / "modulefiles")}],
            "features": ["mpi"],
            "cc": "cc",
            "cxx": "c++",
            "extras": {
                "backend": "host",
                "mpi": name.partition("-")[0],
                "mpicxx": f"/usr/bin/mpicxx.{name.partition('-')[0]}",
                "required_environment": required[name],
                **({"most_ranks": 2} if name == "mpich" else {}),
                # Which rank of a node uses which port.
                "launcher_options": [f"--task-prolog={folder / name.partition('-')[2]}.sh"] if "-" in name else [],
                **({"rank_nics": "round-robin"} if name.endswith("round-robin") else {}),
                "vendor": {},
            },
        }
        for name in required
    ],
}
