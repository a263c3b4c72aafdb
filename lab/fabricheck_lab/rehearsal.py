"""A system in miniature, brought up: its cluster, its emulated GPUs, the programs and libraries that it runs with."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fabricheck.suite import MINIATURE
from fabricheck.topology.model import Topology, load_topology
from fabricheck.topology.nic import gpus_of_ports, nic_of
from fabricheck_lab import node
from fabricheck_lab.cluster import FOLDER, TOPOLOGY, Cluster, require_machine
from fabricheck_lab.description import Choices, vendor_of, write_node
from fabricheck_lab.miniature import Miniature, node_names, plan, write_suite, write_topology
from fabricheck_lab.programs import Programs, programs

MPI_VARIABLES = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,self,vader",
    # A message is one copy, which its receiver makes: with several, two ranks have to get a core for each of its parts.
    "OMPI_MCA_btl_vader_single_copy_mechanism": "cma",
    # Between nodes the kernel has the whole message as soon as it is sent, so that its time is that of the links.
    **{f"OMPI_MCA_btl_tcp_{name}": str(1 << 20) for name in ("eager_limit", "rndv_eager_limit", "max_send_size")},
    **{f"OMPI_MCA_btl_tcp_free_list_{name}": "2" for name in ("num", "inc")},
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "SLURM_MPI_TYPE": "pmix",
    "SLURM_PMIX_FENCE": "ring",
}
#: The file of a node beside its GPUs with what its ranks are told after all else, as `export NAME=VALUE`.
VARIABLES = "variables"
#: Bytes that one buffer of an emulated GPU may have: a machine holds those of all.
LARGEST_ALLOCATION = 64 << 20
#: How nice ranks are, and the session that each node's ranks are: they get a core at once when their links are done,
#: whatever else this machine does. Linux counts niceness among the processes of a session alone.
_NICE = -15


def up_in_miniature(name: str, nodes: int, scale: float | None, root: Path, cluster_name: str) -> Cluster:
    """Bring up `SYSTEM[:PARTITION]` of the suite at `root` on emulated nodes; all are idle when this returns.

    Raises UserError for an unknown system, nodes or a scale that do not fit, and where a compiler or a stand-in is
    missing.
    """
    require_machine()
    chosen = plan(name, nodes, scale, root)
    with tempfile.TemporaryDirectory() as scratch:
        file = write_topology(chosen, root, Path(scratch))
        built = programs(root, vendor_of(load_topology(file)))
        cluster = Cluster.up(file, cluster_name)
    try:
        _furnish(cluster, chosen, root, built)
    except BaseException:
        cluster.down_now()
        raise
    return cluster


def suite_of(cluster: str) -> Path | None:
    """The suite of the miniature that a cluster is; None where it is none."""
    folder = FOLDER / cluster / "suite"
    return folder if folder.is_dir() else None


def gpu_folder(cluster: str, host: str) -> Path:
    """Where the emulated GPUs of a node have their description, their faults and their memory."""
    return FOLDER / cluster / "gpus" / host


def variables_of(cluster: str) -> dict[str, str]:
    """What a command on the login node of a miniature needs to find its suite and programs."""
    suite = suite_of(cluster)
    if suite is None:
        return {}
    return {"FABRICHECK_SUITE": str(suite), "FABRICHECK_BUILT": str(suite / "built")}


def _furnish(cluster: Cluster, chosen: Miniature, root: Path, built: Programs) -> None:
    """Emulated GPUs for each node, and the suite with which the login node runs checks on them."""
    name, topology = cluster.layout.name, cluster.layout.topology
    for host in node_names(chosen):
        write_node(
            topology,
            gpu_folder(name, host),
            Choices(scale=1.0, node=host, largest_allocation=LARGEST_ALLOCATION),  # the topology is scaled already
        )
    before = cluster.folder / "prolog.sh"
    before.write_text(prolog(topology, name, built.libraries), encoding="utf-8")
    before.chmod(0o755)
    environment: Mapping[str, Any] = {
        "env_vars": [
            *map(list, MPI_VARIABLES.items()),
            ["LD_LIBRARY_PATH", f"{built.libraries}:$LD_LIBRARY_PATH"],
            # Where amd-smi is looked for.
            ["PATH", f"{built.libraries}:$PATH"],
            # The largest messages of a miniature are as small as those that NCCL sends through its own buffers.
            ["NCCL_P2P_LL_THRESHOLD", "1024"],
        ],
        "extras": {"mpi": "openmpi", "mpicxx": str(node.MPICXX), "launcher_options": [f"--task-prolog={before}"]},
    }
    suite = cluster.folder / "suite"
    write_suite(chosen, root, suite, cluster.folder / TOPOLOGY, {"environment": environment})
    output = root / "output" / "miniatures" / name
    output.mkdir(parents=True, exist_ok=True)
    (suite / "output").symlink_to(output)
    for own_environment in _environments(suite, chosen.system):
        folder = suite / "built" / own_environment
        folder.mkdir(parents=True)
        (folder / "fabricbench").symlink_to(built.program)


def _environments(suite: Path, system: str) -> list[str]:
    from fabricheck_lab.settings import of_miniature

    content = of_miniature(suite / "site_configs" / system / MINIATURE)
    return [each["name"] for each in content["environments"]]


def prolog(topology: Topology, cluster: str, libraries: Path) -> str:
    """What each rank is told before it starts: its node's GPUs, and the NIC of its own GPU for MPI.

    A node has a rank for each GPU, or for each NIC. On rails that nothing joins each rank has all NICs, and its own for
    all peers that have one on that rail: MPI has no way between two rails, and does not forward inside a node.
    """
    gpus = sorted(topology.gpus, key=lambda gpu: gpu.index)
    every = ",".join(nic.name for nic in topology.nics) or "mgmt0"
    network = topology.network
    setting = "latency_{nic}=1" if network is not None and network.is_rail_only else "if_include={nic}"
    of_ranks = {len(each): [nic_of(topology, gpu) for gpu in each] for each in (gpus_of_ports(topology), gpus)}
    nics_in_turn = itertools.cycle(topology.nics or [None])  # of GPUs that nobody associates with one
    cases = ""
    for ranks, nics in of_ranks.items():
        for rank, own in enumerate(nics):
            if (nic := own or next(nics_in_turn)) is not None:
                cases += f'  {ranks}/{rank}) echo "export OMPI_MCA_btl_tcp_{setting.format(nic=nic.name)}" ;;\n'
    return (
        "#!/bin/sh\n"
        f"{{ renice -n {_NICE} -p $PPID; echo {_NICE} > /proc/$PPID/autogroup; }} > /dev/null 2>&1\n"
        f'echo "export {node.VARIABLE}={FOLDER / cluster / "gpus"}/$(hostname)"\n'
        f'echo "export LD_PRELOAD={libraries / "libfabricheck-gpu-aware-mpi.so"}"\n'
        f'echo "export OMPI_MCA_btl_tcp_if_include={every}"\n'
        'case "$SLURM_NTASKS_PER_NODE/$SLURM_LOCALID" in\n'
        f"{cases}esac\n"
        f"cat {FOLDER / cluster / 'gpus'}/$(hostname)/{VARIABLES} 2> /dev/null || true\n"
    )
