"""Builds the stand-ins for GPU libraries, and runs a command with them on one emulated node of this machine.

    python -m fabricheck_lab.node SYSTEM [--scale F] [--folder DIR] -- COMMAND…

needs no GPU, no root and no network. The folder, which is on /dev/shm where none is named, holds the node while the
command runs: `node.json` (description.py), `faults.json` where something is to be wrong, and its device memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError
from fabricheck.suite import suite_root
from fabricheck.topology.model import Topology, find_topology
from fabricheck_lab.description import LARGEST_ALLOCATION, Choices, write_node

SOURCES = Path(__file__).resolve().parent / "standins"
#: Debian's Open MPI: Slurm starts it, and it can be told which NIC each rank uses.
MPICXX = Path("/usr/bin/mpicxx.openmpi")
#: Names the folder of the node that a process runs on.
VARIABLE = "FABRICHECK_EMULATED_NODE"
#: What the stand-ins of vendors' tools are called.
SMI = ("rocm-smi", "amd-smi", "xpu-smi")
DEFAULT_SCALE = 0.001


@dataclass(frozen=True)
class Real:
    """The real libraries whose calls, and their symbol versions, the stand-ins answer, and their headers.

    None for what is not here: there is no stand-in of that runtime then. Without `nccl`, a missing call of it is named
    by the dynamic linker only.
    """

    cudart: Path | None
    cuda_include: Path | None
    nccl: Path | None
    hip: Path | None
    hip_include: Path | None


_HIP_LIBRARIES = ("/usr/lib/x86_64-linux-gnu/libamdhip64.so.5", "/opt/rocm/lib/libamdhip64.so.5")


def find_real() -> Real:
    """What this machine has: CUDA_HOME or the wheels of the virtual environment; Debian's HIP, or ROCm's."""
    wheels = Path(sys.prefix) / "cuda" / "nvidia"
    homes = [Path(os.environ["CUDA_HOME"])] if "CUDA_HOME" in os.environ else [wheels / "cu13"]
    cudart = _first(home / folder / "libcudart.so.13" for home in homes for folder in ("lib64", "lib"))
    nccl = _first(Path(path) for path in (wheels / "nccl/lib/libnccl.so.2", "/usr/lib/x86_64-linux-gnu/libnccl.so.2"))
    hip = _first(map(Path, _HIP_LIBRARIES))
    cuda_include = cudart.parent.parent / "include" if cudart else None
    hip_include = (
        (Path("/usr/include") if hip.is_relative_to("/usr") else hip.parent.parent / "include") if hip else None
    )
    return Real(cudart, cuda_include, nccl, hip, hip_include)


def _first(paths: Iterable[Path]) -> Path | None:
    return next((path for path in paths if path.exists()), None)


def watched(command: Sequence[str], show: Callable[[str], object], **where: Any) -> tuple[int, str]:
    """Run a command and show each line that it writes, at once. Its exit status and its last twenty lines.

    `where`: of subprocess.Popen, such as cwd and env.
    """
    last: deque[str] = deque(maxlen=20)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **where) as job:
        assert job.stdout is not None
        for line in job.stdout:
            last.append(line)
            show(line)
    return job.returncode, "".join(last)


def build(
    folder: Path,
    real: Real | None = None,
    *,
    mpicxx: Path | None = None,
    strict: bool = False,
    show: Callable[[str], object] = lambda _: None,
) -> Path:
    """Build the stand-ins of all that is here, and those for Intel's GPUs, into a folder and return it.

    `mpicxx`: of an MPI library that is to be made GPU-aware. `strict`: compiler warnings are errors. `show` gets each
    line of CMake's. The programs of `SMI` lie there too. Raises UserError.
    """
    real = real or find_real()
    named = {
        "CUDART_LIBRARY": real.cudart,
        "CUDA_INCLUDE_DIR": real.cuda_include,
        "NCCL_LIBRARY": real.nccl,
        "HIP_LIBRARY": real.hip,
        "HIP_INCLUDE_DIR": real.hip_include,
        "FABRICBENCH_DIR": suite_root() / "src",
    }
    options = [f"-DFABRICHECK_WARNINGS_AS_ERRORS={'ON' if strict else 'OFF'}"]
    options += [f"-D{name}={path or ''}" for name, path in named.items()]
    options += ["-DSTANDIN_MPI=ON", f"-DMPI_CXX_COMPILER={mpicxx}"] if mpicxx is not None else ["-DSTANDIN_MPI=OFF"]
    for step in (
        ["cmake", "-S", str(SOURCES), "-B", str(folder), *options],
        ["cmake", "--build", str(folder), "--parallel", str(os.cpu_count() or 1)],
    ):
        status, tail = watched(step, show)
        if status != 0:
            raise UserError(f"the stand-ins do not build: '{' '.join(step)}' ended with {status}:\n{tail}")
    for name in SMI:
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SOURCES / "smi.py"}" {name} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return folder


def environment(node: Path, standins: Path) -> dict[str, str]:
    """The variables that put a process on an emulated node: the stand-ins come before all other libraries."""
    before = os.environ.get("LD_LIBRARY_PATH", "")
    path = f"{standins}{os.pathsep}{before}" if before else str(standins)
    programs = f"{standins}{os.pathsep}{os.environ.get('PATH', '')}"
    return {VARIABLE: str(node), "LD_LIBRARY_PATH": path, "PATH": programs}


@contextmanager
def node(
    topology: Topology, standins: Path, choices: Choices, folder: Path | None = None
) -> Iterator[Mapping[str, str]]:
    """An emulated node while the context lasts: the variables with which a command runs on it. Raises UserError."""
    chosen = folder or Path(tempfile.mkdtemp(prefix="fabricheck-node-", dir=_memory_folder()))
    try:
        write_node(topology, chosen, choices)
        yield environment(chosen, standins)
    finally:
        if folder is None:
            shutil.rmtree(chosen, ignore_errors=True)


def _memory_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main(arguments: Sequence[str]) -> int:
    """Run a command on an emulated node; its exit status, or 2 for a mistake, which is said in one line."""
    parser = argparse.ArgumentParser(prog="python -m fabricheck_lab.node", description=__doc__)
    parser.add_argument("system", help="a system, or SYSTEM:PARTITION, of the site configurations")
    parser.add_argument("--site-configs", type=Path, default=suite_root() / "site_configs")
    parser.add_argument("--scale", type=float, default=DEFAULT_SCALE, help="of all rates (default %(default)s)")
    parser.add_argument("--standins", type=Path, required=True, help="the folder that they were built into")
    parser.add_argument("--folder", type=Path, help="of the node; kept after the command")
    parser.add_argument("--largest-allocation", type=int, default=LARGEST_ALLOCATION, help="bytes")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(arguments)
    try:
        topology = find_topology(given.system, given.site_configs)
        choices = Choices(given.scale, largest_allocation=given.largest_allocation)
        with node(topology, given.standins, choices, given.folder) as variables:
            return subprocess.run(given.command, env={**os.environ, **variables}, check=False).returncode
    except UserError as error:
        print(f"fabricheck: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
