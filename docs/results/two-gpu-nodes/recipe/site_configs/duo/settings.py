"""Two nodes with one GPU each, in network namespaces of one machine; DUO_GPU=1: with GPUs."""

import os
from pathlib import Path

gpu = os.environ.get("DUO_GPU") == "1"
folder = str(Path(__file__).resolve().parents[2])
site_configuration = {
    "general": [{"target_systems": ["duo"], "poll_rate_min": 4}],
    "systems": [
        {
            "name": "duo",
            "descr": "two namespaces",
            "hostnames": [".*"],
            "modules_system": "nomod",
            "max_local_jobs": 1,
            "partitions": [
                {
                    "name": "gpu",
                    "scheduler": "local",
                    "launcher": "mpirun",
                    "environs": ["openmpi"],
                    "max_jobs": 1,
                    "features": ["gpu", "cuda"] if gpu else [],
                    # Of several runs that were started, one measures at a time (run.sh).
                    "prepare_cmds": [
                        f'case $PWD in *Build*) ;; *) until [ "${{DUO_TURN:-}}" = "" ] || '
                        f'grep -qsx "$DUO_TURN" {folder}/turn; do sleep 0.1; done;; esac'
                    ],
                    **(
                        {"devices": [{"type": "gpu", "arch": "sm_90", "model": "H100 80GB HBM3", "num_devices": 1}]}
                        if gpu
                        else {}
                    ),
                    "processor": {
                        "num_cpus": 16 if gpu else 1,
                        "num_cpus_per_core": 1,
                        "num_cpus_per_socket": 16 if gpu else 1,
                        "num_sockets": 1,
                    },
                    "extras": {
                        "tuning_profile": "default",
                        "nodes": 2,
                        "network_interfaces": ["hsn0"],
                        **(
                            {
                                "gpus_per_node": 1,
                                "most_bytes_between_nodes": 64 << 20,
                                "unsupported": {"host_numa=remote": "one NUMA node"},
                            }
                            if gpu
                            else {}
                        ),
                    },
                }
            ],
        }
    ],
    "environments": [
        {
            "name": "openmpi",
            "target_systems": ["duo"],
            "features": ["mpi", *(["cuda", "nccl"] if gpu else [])],
            "cc": "cc",
            "cxx": "c++",
            "env_vars": [
                ["OMPI_MCA_plm_rsh_agent", f"{folder}/agent.sh"],
                ["OMPI_MCA_pml", "ob1"],
                # Open MPI names the path of its data; Fabricheck sets this itself where it chooses the binding.
                ["OMPI_MCA_btl_base_verbose", "1"],
                ["OMPI_MCA_btl", "tcp,self"],
                ["OMPI_MCA_btl_tcp_if_include", os.environ.get("DUO_IFNAME", "hsn0")],
                ["OMPI_MCA_oob_tcp_if_include", "10.79.0.0/24"],
                ["NCCL_SOCKET_IFNAME", os.environ.get("DUO_IFNAME", "hsn0")],
            ],
            "extras": {
                "backend": "cuda" if gpu else "host",
                "mpi": "openmpi",
                "mpicxx": "/usr/bin/mpicxx.openmpi",
                "launcher_options": ["--hostfile", f"{folder}/hosts"],
                **({"gpu_arch": "90", "not_gpu_aware": "Open MPI 4.1.6"} if gpu else {}),
                **({"share_devices": True} if os.environ.get("DUO_SHARED") == "1" else {}),
                "vendor": {},
            },
        }
    ],
}
