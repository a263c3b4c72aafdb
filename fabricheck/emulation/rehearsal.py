"""A system in miniature, brought up: its cluster, its emulated GPUs, the programs and libraries that it runs with."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from fabricheck.emulation import standins
from fabricheck.emulation.cluster import FOLDER, Cluster, require_machine
from fabricheck.emulation.description import Choices, vendor_of, write_node
from fabricheck.emulation.miniature import Miniature, node_names, plan, scaled_topology, write_suite
from fabricheck.errors import UserError
from fabricheck.topology.model import Topology, load_topology
from fabricheck.topology.nic import nic_of

#: Debian's Open MPI: Slurm starts it, and it can be told which NIC each rank uses.
MPICXX = Path("/usr/bin/mpicxx.openmpi")
MPI_VARIABLES = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,self,vader",
    # Ranks of other users do not read each other's memory, so the library need not try.
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "SLURM_MPI_TYPE": "pmix",
    "SLURM_PMIX_FENCE": "ring",
}
#: Bytes that one buffer of an emulated GPU may have: a machine holds those of all.
LARGEST_ALLOCATION = 64 << 20


@dataclass(frozen=True)
class Toolchain:
    """What GPU code is compiled with here. `options` are CMake's, for fabricbench; `path` goes before PATH."""

    backend: str
    options: tuple[str, ...]
    path: str = ""


def up_in_miniature(name: str, nodes: int, scale: float | None, root: Path, cluster_name: str) -> Cluster:
    """Bring up `SYSTEM[:PARTITION]` of the suite at `root` on emulated nodes; all are idle when this returns.

    Raises UserError for an unknown system, nodes or a scale that do not fit, and where a compiler or a stand-in is
    missing.
    """
    require_machine()
    chosen = plan(name, nodes, scale, root)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "topology.yaml"
        with file.open("w", encoding="utf-8") as stream:
            YAML().dump(scaled_topology(chosen, root), stream)
        topology = load_topology(file)
        vendor = vendor_of(topology)
        libraries = build_standins(root, vendor)
        program = build_fabricbench(root, toolchain(root, vendor, libraries))
        cluster = Cluster.up(file, cluster_name)
    try:
        _furnish(cluster, chosen, root, libraries, program)
    except BaseException:
        cluster.down_now()
        raise
    return cluster


def suite_of(cluster: str) -> Path | None:
    """The suite of the miniature that a cluster is; None where it is none."""
    folder = FOLDER / cluster / "suite"
    return folder if folder.is_dir() else None


def gpu_folder(cluster: str, node: str) -> Path:
    """Where the emulated GPUs of a node have their description, their faults and their memory."""
    return FOLDER / cluster / "gpus" / node


def variables_of(cluster: str) -> dict[str, str]:
    """What a command on the login node of a miniature needs to find its suite and programs."""
    suite = suite_of(cluster)
    if suite is None:
        return {}
    return {"FABRICHECK_SUITE": str(suite), "FABRICHECK_BUILT": str(suite / "built")}


def toolchain(root: Path, vendor: str, libraries: Path) -> Toolchain:
    """The compiler of GPU code for a vendor's devices. Raises UserError where there is none."""
    if vendor == "amd":
        if shutil.which("hipcc") is None:
            raise UserError("there is no hipcc here, with which the hip backend is compiled: apt-get install hipcc")
        options = ("-DGPU_TARGETS=gfx90a", f"-DRCCL_ROOT={libraries}", "-DCMAKE_CXX_COMPILER=hipcc")
        return Toolchain("hip", options)
    home = cuda_home(root)
    nccl = home.parent / "nccl"
    options = (
        f"-DCMAKE_CUDA_COMPILER={home / 'bin' / 'nvcc'}",
        f"-DCUDAToolkit_ROOT={home}",
        "-DCMAKE_CUDA_ARCHITECTURES=80",
        *([f"-DNCCL_ROOT={nccl}"] if nccl.is_dir() else []),
    )
    return Toolchain("cuda", options)


def cuda_home(root: Path) -> Path:
    """The CUDA toolkit: from the wheels that `make test` unpacks, else that of the nvcc on the PATH."""
    wheels = Path(sys.prefix) / "cuda" / "nvidia" / "cu13"
    found = shutil.which("nvcc")
    if wheels.is_dir():
        return wheels
    if found is None:
        raise UserError(
            f"there is no CUDA compiler here: {root}/tools/setup.sh test installs it, or put nvcc on the PATH"
        )
    return Path(found).resolve().parent.parent


def build_standins(root: Path, vendor: str) -> Path:
    """The folder with the stand-ins for a vendor's libraries, which are built where they are not yet."""
    hip = next(iter(sorted(Path("/usr/lib/x86_64-linux-gnu").glob("libamdhip64.so.*"))), None)
    if vendor == "amd" and hip is None:
        raise UserError("there is no libamdhip64 here: apt-get install libamdhip64-dev")
    return standins.build(
        root / "build" / f"standins-{vendor}",
        cuda=cuda_home(root) if vendor == "nvidia" else None,
        hip=hip if vendor == "amd" else None,
        hip_include=Path("/usr/include"),
        mpicxx=MPICXX,
    )


def build_fabricbench(root: Path, chosen: Toolchain) -> Path:
    """The program for emulated GPUs, built where it is not yet or its sources have changed."""
    folder = root / "build" / f"miniature-{chosen.backend}"
    configure = [
        *(
            "cmake",
            "-S",
            str(root / "src"),
            "-B",
            str(folder),
            f"-DFABRICHECK_BACKEND={chosen.backend}",
            f"-DFABRICHECK_PORT={chosen.backend}",
        ),
        *(f"-DMPI_CXX_COMPILER={MPICXX}", "-DBUILD_TESTING=OFF", *chosen.options),
    ]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    for step in (configure, ["cmake", "--build", str(folder), "--parallel", str(os.cpu_count() or 1)]):
        done = subprocess.run(step, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path})
        if done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
            raise UserError(f"fabricbench does not build for emulated GPUs: '{' '.join(step)}' failed:\n{tail}")
    return folder / "fabricbench"


def _furnish(cluster: Cluster, chosen: Miniature, root: Path, libraries: Path, program: Path) -> None:
    """Emulated GPUs for each node, and the suite with which the login node runs checks on them."""
    name, topology = cluster.layout.name, cluster.layout.topology
    for node in node_names(chosen):
        write_node(
            topology,
            gpu_folder(name, node),
            Choices(scale=1.0, node=node, largest_allocation=LARGEST_ALLOCATION),  # the topology is scaled already
        )
    prolog = cluster.folder / "prolog.sh"
    prolog.write_text(_prolog(topology, name, libraries), encoding="utf-8")
    prolog.chmod(0o755)
    environment: Mapping[str, Any] = {
        "env_vars": [*map(list, MPI_VARIABLES.items()), ["LD_LIBRARY_PATH", f"{libraries}:$LD_LIBRARY_PATH"]],
        "extras": {"mpi": "openmpi", "mpicxx": str(MPICXX), "launcher_options": [f"--task-prolog={prolog}"]},
    }
    suite = cluster.folder / "suite"
    write_suite(chosen, root, suite, {"environment": environment})
    output = root / "output" / "miniatures" / name
    output.mkdir(parents=True, exist_ok=True)
    (suite / "output").symlink_to(output)
    settings = _environments(suite, chosen.system)
    for each in settings:
        built = suite / "built" / each
        built.mkdir(parents=True)
        with contextlib.suppress(FileExistsError):
            (built / "fabricbench").symlink_to(program)


def _environments(suite: Path, system: str) -> list[str]:
    from fabricheck.emulation.settings import of_miniature

    content = of_miniature(suite / "site_configs" / system / "miniature.json")
    return [each["name"] for each in content["environments"]]


def _prolog(topology: Topology, cluster: str, libraries: Path) -> str:
    """What each rank is told before it starts: its node's GPUs, and the NIC of its own GPU for MPI."""
    gpus = sorted(topology.gpus, key=lambda gpu: gpu.index)
    nics = [nic_of(topology, gpu) for gpu in gpus]
    cases = "".join(
        f'  {rank}) echo "export OMPI_MCA_btl_tcp_if_include={nic.name}" ;;\n' for rank, nic in enumerate(nics) if nic
    )
    every = ",".join(nic.name for nic in topology.nics) or "mgmt0"
    return (
        "#!/bin/sh\n"
        f'echo "export {standins.VARIABLE}={FOLDER / cluster / "gpus"}/$(hostname)"\n'
        f'echo "export LD_PRELOAD={libraries / "libfabricheck-gpu-aware-mpi.so"}"\n'
        'case "$SLURM_LOCALID" in\n'
        f'{cases}  *) echo "export OMPI_MCA_btl_tcp_if_include={every}" ;;\n'
        "esac\n"
    )
