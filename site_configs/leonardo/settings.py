"""Leonardo Booster (CINECA), measured by De Sensi et al. (SC24).

Software as in the paper (Table I): Open MPI 4.1.4 on UCX 1.13, CUDA 12.1. Slurm partition: CINECA user guide.
"""

import shutil

from reframe.utility import osext

from fabricheck.site.gpu_cluster import Cluster, Gpus, Jobs, Software, gpu_cluster

site_configuration = gpu_cluster(
    Cluster(
        name="leonardo",
        descr="Leonardo Booster, A100",
        hostnames=["login[0-9]+-ext", "login[0-9]+.leonardo.local", "lrdn[0-9]+"],
        jobs=Jobs(access=["--partition=boost_usr_prod", f"--account={osext.osgroup()}", "--exclusive"]),
        gpus=Gpus(count=4, model="A100", arch="sm_80", api="cuda", links=["nvlink"]),
        software=Software(
            name="openmpi",
            modules=["gcc", "cuda/12.1", "openmpi", "nccl"],
            mpi="openmpi",
            gpu_arch="80",
            ccl="nccl",
            # SC24 paper, sections IV-C and IV-D, figures 5 and 6: its alltoall and allreduce on device memory,
            # which Open MPI brings to the host to add up.
            features=["device-collectives"],
        ),
        tuning_profile="leonardo",
        most_nodes=256,  # De Sensi et al. SC24, §V-C: users can only run jobs using up to 256 nodes
        modules_system="envmod" if shutil.which("modulecmd") else "nomod",
    )
)
