"""Builds fabricbench outside ReFrame: for developers, for the linters, and to see that every backend compiles.

    python -m tools.build [--without-tests] [TARGET...]

builds into build/TARGET. `host-openmpi` and `host-mpich` (without libfabric) are what a laptop runs, and what is
built when no target is named; the others treat warnings as errors, and with CI=true all do: `lint-gcc` and
`lint-clang` (host backend), `sanitize` and `sanitize-threads` (host backend, with GCC's sanitizers; warnings stay
so), `cuda` (sm_90), `sycl` (by the machine's compiler, with the headers and libraries of Intel's wheels), `standins`
(for GPU libraries, lab/fabricheck_lab/standins), and with these, which are built before them, `hip`, the HIP backend
(gfx90a) with the stand-in of RCCL, and `sycl-emulated`, the SYCL backend with those of SYCL, Level Zero and oneCCL.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from fabricheck import mpi
from fabricheck.errors import UserError
from tools import cuda_home

ROOT = Path(__file__).resolve().parent.parent
CUDA_WHEELS = Path(sys.prefix) / "cuda"
ONEAPI_WHEELS = Path(sys.prefix) / "oneapi"
RCCL_SHIM = ROOT / "tools" / "rccl_shim" / "include"
_WITHOUT_TESTS = "--without-tests"
STRICT = "-DFABRICHECK_WARNINGS_AS_ERRORS=ON"
# Emulated GPUs take the time that they are told to. Most warnings that need a compiler to optimize come with this, too.
_QUICK = "-DCMAKE_CXX_FLAGS_RELEASE=-O1"
# Leaves in the folder how each source was compiled: compile_commands.json.
_COMMANDS = "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"


def options(target: str) -> list[str]:
    """CMake's options for a target. Raises `UserError` for an unknown one, or when its compiler is not here."""
    if target == "standins":
        return []
    if target not in _OPTIONS:
        raise UserError(f"unknown target '{target}': choose from {', '.join([*_OPTIONS, 'standins'])}")
    return _OPTIONS[target]()


def build(target: str, folder: Path | None = None, *, tests: bool = True) -> Path:
    """Configures and builds a target. Returns the folder that it lies in; raises `UserError` when it fails.

    `tests`: the unit tests too.
    """
    folder = folder or ROOT / "build" / target
    if target == "standins":
        return _build_standins(folder)
    what = [] if tests else ["--target", "fabricbench"]
    chosen = options(target)
    if (
        not target.startswith(("lint", "sanitize"))
        and folder != ROOT / "build" / "host-openmpi"
        and mpi.find("openmpi")
    ):
        chosen.append(f"-DFABRICHECK_CORE={core()}")
    steps = (
        ["cmake", "-S", str(ROOT / "src"), "-B", str(folder), *chosen],
        ["cmake", "--build", str(folder), "--parallel", str(os.cpu_count() or 1), *what],
    )
    folder.mkdir(parents=True, exist_ok=True)
    # Tests run in several processes, and CMake's own files are not for two at once.
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        forget_other_options(folder, chosen)
        for step in steps:
            # Python's own CMake comes first where setup had to install one.
            path = f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
            status = subprocess.run(step, env={**os.environ, "PATH": path}, check=False).returncode
            if status != 0:
                raise UserError(f"target '{target}' does not build: '{' '.join(step)}' ended with exit status {status}")
    return folder


@cache  # as of the stand-ins
def core() -> Path:
    """The library of what has neither MPI nor GPUs in it, a third of each target: the one of `make test` for all.

    Whoever asks for another MPI library than that has it built before.
    """
    return build("host-openmpi", tests=False) / "libfabricbench_core.a"


def forget_other_options(folder: Path, chosen: Sequence[str]) -> None:
    """Has a folder that was built with other options re-configured.

    CMake keeps the libraries that it found for an MPI, and would link them although another is asked for now.
    """
    record = folder / "options.txt"
    now = "\n".join(chosen)
    if not record.is_file() or record.read_text() != now:
        (folder / "CMakeCache.txt").unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        record.write_text(now)


def _mpi_option(name: str | None = None) -> str:
    installations = [one for one in map(mpi.find, [name] if name else mpi.NAMES) if one]
    if not installations:
        raise UserError(f"no {name or 'MPI'} on this machine; `make build` installs its wheel where there is one")
    return f"-DMPI_CXX_COMPILER={installations[0].mpicxx}"


def _host(name: str) -> list[str]:
    strict = [STRICT] if os.environ.get("CI") == "true" else []
    return ["-DFABRICHECK_BACKEND=host", *strict, _mpi_option(name)]


def _lint(compiler: str, *more: str) -> list[str]:
    return ["-DFABRICHECK_BACKEND=host", STRICT, f"-DCMAKE_CXX_COMPILER={_program(compiler)}", *more, _mpi_option()]


def _sanitize(which: str) -> list[str]:
    # Without optimizing it compiles in half the time.
    flags = f"-DCMAKE_CXX_FLAGS=-fsanitize={which} -fno-sanitize-recover=all -g1"
    return ["-DFABRICHECK_BACKEND=host", flags, "-DCMAKE_CXX_FLAGS_RELEASE=-O0", _mpi_option("openmpi")]


def _cuda() -> list[str]:
    home = cuda_home.cuda_home(CUDA_WHEELS)
    return [
        "-DFABRICHECK_BACKEND=cuda",
        STRICT,
        _QUICK,
        _COMMANDS,
        f"-DCMAKE_CUDA_COMPILER={_program(str(home / 'bin' / 'nvcc'))}",
        f"-DCUDAToolkit_ROOT={home}",
        f"-DNCCL_ROOT={cuda_home.nccl_home(CUDA_WHEELS)}",
        "-DCMAKE_CUDA_ARCHITECTURES=90",
        _mpi_option(),
    ]


def _hip() -> list[str]:
    nccl = cuda_home.nccl_home(CUDA_WHEELS) / "include"
    return [
        "-DFABRICHECK_BACKEND=hip",
        STRICT,
        _QUICK,
        _COMMANDS,
        f"-DCMAKE_CXX_COMPILER={_program('hipcc')}",
        "-DGPU_TARGETS=gfx90a",
        # No RCCL: its calls are compiled against NCCL's header (tools/rccl_shim/README.md).
        f"-DRCCL_ROOT={_standins_of('rccl', RCCL_SHIM)}",
        f"-DCMAKE_CXX_FLAGS=-isystem {nccl}",
        _mpi_option(),
    ]


@cache  # several targets need them, and that nothing is to do takes seconds to find
def _build_standins(folder: Path) -> Path:
    try:
        from fabricheck_lab import node
    except ModuleNotFoundError:
        raise UserError("fabricheck-lab, which builds the stand-ins, is not installed: run `make lab`") from None
    mpicxx = node.MPICXX if node.MPICXX.exists() else None
    return node.build(folder, mpicxx=mpicxx, strict=True, show=lambda line: print(line, end="", flush=True))


def _standins_of(name: str, headers: Path) -> Path:
    """A folder with `include` and `lib`, as an installation of the real library has."""
    standins = build("standins")
    # Beside it: a link to the folder that it lies in has no end for those who follow links, such as setuptools.
    root = standins.with_name(f"standins-{name}")
    root.mkdir(exist_ok=True)
    for part, folder in {"include": headers, "lib": standins}.items():
        (root / part).unlink(missing_ok=True)
        (root / part).symlink_to(folder)
    return root


def _sycl_emulated() -> list[str]:
    root = _standins_of("sycl", ROOT / "lab" / "fabricheck_lab" / "standins" / "sycl" / "include")
    return [
        "-DFABRICHECK_BACKEND=sycl",
        STRICT,
        _QUICK,
        *(f"-D{name}_ROOT={root}" for name in ("SYCL", "CCL", "LEVEL_ZERO")),
        # The libraries are those of the node that it runs on.
        "-DCMAKE_SKIP_BUILD_RPATH=ON",
        _mpi_option(),
    ]


def _sycl() -> list[str]:
    if not (ONEAPI_WHEELS / "include" / "sycl" / "sycl.hpp").is_file():
        raise UserError(f"there is no SYCL in {ONEAPI_WHEELS}; `make test` installs its wheels where there are some")
    # oneCCL's own way between processes is Intel MPI, with whose binary interface MPICH agrees.
    return [
        "-DFABRICHECK_BACKEND=sycl",
        STRICT,
        _QUICK,
        _COMMANDS,
        f"-DSYCL_ROOT={ONEAPI_WHEELS}",
        f"-DCCL_ROOT={ONEAPI_WHEELS}",
        _mpi_option("mpich"),
    ]


def _program(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        raise UserError(f"there is no {name} here; `make test` says how to get it")
    return program


_OPTIONS: dict[str, Callable[[], list[str]]] = {
    "host-openmpi": lambda: _host("openmpi"),
    # One of the two is built as where there is no libfabric.
    "host-mpich": lambda: [*_host("mpich"), "-DLIBFABRIC_INCLUDE_DIR=OFF"],
    "lint-gcc": lambda: _lint("g++"),
    # Clang warns of the same whether it optimizes or not; GCC does not.
    "lint-clang": lambda: _lint("clang++", "-DCMAKE_CXX_FLAGS_RELEASE=-O0", "-DCMAKE_UNITY_BUILD=OFF"),
    "sanitize": lambda: _sanitize("address,undefined"),
    "sanitize-threads": lambda: _sanitize("thread"),
    "cuda": _cuda,
    "hip": _hip,
    "sycl": _sycl,
    "sycl-emulated": _sycl_emulated,
}


def main(arguments: Sequence[str]) -> int:
    targets = [each for each in arguments if each != _WITHOUT_TESTS]
    try:
        for target in targets or [f"host-{one.name}" for one in mpi.find_all()]:
            build(target, tests=_WITHOUT_TESTS not in arguments)
    except UserError as error:
        print(f"fabricheck: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
