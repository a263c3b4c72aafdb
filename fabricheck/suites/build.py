"""How the vendor suites are built, by backend, and what a build that failed says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabricheck.building import build_command
from fabricheck.errors import UserError
from fabricheck.records.operations import backend_of
from fabricheck.suites.sources import Tool

# Where the build of IMB that checks its data lies; its name has to be the same as the other's.
CHECKED = "checked"

# What has no step that installs it.
_KEEP_BUILD = 'cp -a build "$prefix/bin"'

# The compiler wrapper for C that belongs to one for C++.
_C_WRAPPERS = {"CC": "cc", "mpiicpx": "mpiicx", "mpiicpc": "mpiicc", "mpic++": "mpicc"}

# The first message of a compiler, linker, configure script or make. The names of files and options may hold "error".
_ERROR = re.compile(
    r"(\bfatal error:|\berror:|\berror #|undefined reference to|cannot find -l|\bfatal\s+:|^nvcc fatal"
    r"|No rule to make target|command not found|is missing on your system|: Permission denied)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Toolchain:
    """What a suite is built with. Paths may hold shell variables; where a home is empty the build finds it itself."""

    backend: str
    mpicc: str
    mpicxx: str
    gpu_arch: tuple[str, ...] = ()
    cuda_home: str = ""
    nccl_home: str = ""
    rocm_path: str = ""
    rccl_home: str = ""
    sycl_home: str = ""
    ccl_home: str = ""
    ccl: bool = False

    @classmethod
    def of(cls, extras: Mapping[str, Any], features: Collection[str]) -> Toolchain:
        """The toolchain of an environment with these `extras` (docs/vendor-tools.md) and `features`."""
        mpicxx = str(extras.get("mpicxx", "mpicxx"))
        return cls(
            backend=backend_of(extras),
            mpicc=str(extras.get("mpicc") or c_wrapper(mpicxx)),
            mpicxx=mpicxx,
            gpu_arch=tuple(each for each in str(extras.get("gpu_arch", "")).split(";") if each),
            cuda_home=str(extras.get("cuda_home", '${CUDA_HOME:-$(dirname "$(dirname "$(command -v nvcc)")")}')),
            nccl_home=str(extras.get("nccl_home", "${NCCL_HOME:-/usr}")),
            rocm_path=str(extras.get("rocm_path", "${ROCM_PATH:-/opt/rocm}")),
            rccl_home=str(extras.get("rccl_home", "${RCCL_HOME:-${ROCM_PATH:-/opt/rocm}}")),
            sycl_home=str(extras.get("sycl_home", "${CMPLR_ROOT:-/opt/intel/oneapi/compiler/latest}")),
            ccl_home=str(extras.get("ccl_home", "${CCL_ROOT:-/opt/intel/oneapi/ccl/latest}")),
            ccl=bool({"nccl", "rccl", "oneccl"} & set(features)),
        )

    @property
    def mpi_home(self) -> str:
        """The MPI library's prefix, as a word for a shell: two folders above its compiler wrapper."""
        wrapper = Path(self.mpicxx)
        if wrapper.is_absolute():
            return str(wrapper.parent.parent)
        return f'$(dirname "$(dirname "$(command -v {shlex.quote(self.mpicxx)})")")'


def c_wrapper(mpicxx: str) -> str:
    """The wrapper of the C compiler beside `mpicxx`: `/opt/mpi/bin/mpicc` for `/opt/mpi/bin/mpicxx`, `cc` for `CC`."""
    path = Path(mpicxx)
    stem, dot, rest = path.name.partition(".")
    name = _C_WRAPPERS.get(stem) or stem.replace("cxx", "cc").replace("c++", "cc")
    return str(path.with_name(name + dot + rest))


def build_once(name: str, chain: Toolchain, source: Path, result: Path) -> str:
    """The shell command that leaves the tool `name`, built from the tree `source` now or before, in the folder
    `result`. Raises UserError for a tool that has no build for the backend.
    """
    steps = ['cp -a "$sources/." .', *build_commands(name, chain, source)]
    told = {
        "FABRICHECK_BACKEND": chain.backend,
        "CMAKE_CXX_COMPILER": chain.mpicxx,
        "MPI_C_COMPILER": chain.mpicc,
        "MPI_CXX_COMPILER": chain.mpicxx,
        "NCCL_ROOT": chain.nccl_home,
        "RCCL_ROOT": chain.rccl_home,
    }
    options = [f'-D{option}="{value}"' for option, value in told.items() if value]
    return build_command(name, source, result, " && ".join(steps), options)


def build_commands(name: str, chain: Toolchain, source: Path) -> list[str]:
    """The shell commands that build the tool `name` in a copy of the tree `source`, and leave it below `$prefix`.

    Raises UserError for a tool that has no build for the backend.
    """
    commands = {"osu": _osu, "nccl-tests": _nccl_tests, "rccl-tests": _rccl_tests, "imb": _imb, "oneccl": _oneccl}
    if name not in commands:
        raise UserError(f"no build is known for {name!r}, only for {', '.join(commands)}")
    return commands[name](chain, source)


def _osu(chain: Toolchain, source: Path) -> list[str]:
    options = [f"CC={_quoted(chain.mpicc)}", f"CXX={_quoted(chain.mpicxx)}", '--prefix="$prefix"']
    if chain.backend == "cuda":
        options += ["--enable-cuda", f'--with-cuda="{chain.cuda_home}"']
        if chain.gpu_arch:
            flags = " ".join(_gencode(arch) for arch in chain.gpu_arch)
            options.append(f'NVCCFLAGS="{flags}"')
        if chain.ccl:
            options += ["--enable-ncclomb", f'--with-nccl="{chain.nccl_home}"']
    elif chain.backend == "hip":
        options += ["--enable-rocm", f'--with-rocm="{chain.rocm_path}"']
        if chain.ccl:
            options += ["--enable-rcclomb", f'--with-rccl="{chain.rccl_home}"']
    elif chain.backend == "sycl":
        options += ["--enable-sycl", f'--with-sycl="{chain.sycl_home}"']
    return [f"./configure {' '.join(options)}", "make -j 4", "make install"]


def _nccl_tests(chain: Toolchain, source: Path) -> list[str]:
    if chain.backend != "cuda":
        raise UserError(f"nccl-tests are for the backend cuda, not {chain.backend}: rccl-tests are for hip")
    flags = " ".join(_gencode(arch) for arch in chain.gpu_arch)
    gencode = f' NVCC_GENCODE="{flags}"' if flags else ""
    homes = f'MPI_HOME="{chain.mpi_home}" CUDA_HOME="{chain.cuda_home}" NCCL_HOME="{chain.nccl_home}"'
    return [f"make -j 4 MPI=1 {homes}{gencode}", _KEEP_BUILD]


def _rccl_tests(chain: Toolchain, source: Path) -> list[str]:
    if chain.backend != "hip":
        raise UserError(f"rccl-tests are for the backend hip, not {chain.backend}: nccl-tests are for cuda")
    targets = ";".join(chain.gpu_arch)
    if (source / "Makefile").is_file():
        # The README says HIP_HOME; the Makefile reads ROCM_PATH.
        homes = f'MPI_HOME="{chain.mpi_home}" ROCM_PATH="{chain.rocm_path}" NCCL_HOME="{chain.rccl_home}"'
        return [
            f"make -j 4 MPI=1 {homes}" + (f' GPU_TARGETS="{targets.replace(";", ",")}"' if targets else ""),
            _KEEP_BUILD,
        ]
    options = [
        "-DUSE_MPI=ON",
        f'-DROCM_PATH="{chain.rocm_path}"',
        f'-DMPI_PATH="{chain.mpi_home}"',
        f'-DCMAKE_PREFIX_PATH="{chain.rccl_home}"',
        *([f'-DGPU_TARGETS="{targets}"'] if targets else []),
    ]
    return [f"cmake -S . -B build {' '.join(options)}", "cmake --build build --parallel 4", _KEEP_BUILD]


def _imb(chain: Toolchain, source: Path) -> list[str]:
    """Two programs: the one that is timed, and one that checks its data, which costs time inside the clock."""
    wrappers = f"CC={_quoted(chain.mpicc)} CXX={_quoted(chain.mpicxx)}"
    folder, checked = (f'"$prefix/{each}"' for each in ("bin", CHECKED))
    # IMB makes every warning an error, and MPI's old C++ bindings warn.
    flags = "-DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX"
    return [
        f"mkdir -p {folder} {checked}",
        f'make -j 4 IMB-MPI1 {wrappers} CPPFLAGS="{flags}"',
        f"cp IMB-MPI1 {folder}/",
        # Else make takes the first program for the second.
        "rm -f IMB-MPI1",
        "make -C src_cpp TARGET=MPI1 clean",
        f'make -j 4 IMB-MPI1 {wrappers} CPPFLAGS="{flags} -DCHECK"',
        f"cp IMB-MPI1 {checked}/",
    ]


def _oneccl(chain: Toolchain, source: Path) -> list[str]:
    """One source file, which calls MPI to start: with the MPI wrapper, where oneCCL's CMake files take Intel MPI."""
    if chain.backend != "sycl":
        raise UserError(f"oneCCL's benchmark is for the backend sycl, not {chain.backend}")
    options = "-O2 -std=c++17 -fsycl -DCCL_ENABLE_SYCL -DCCL_ENABLE_ZE"
    headers = f'-Iexamples/benchmark/include -Iexamples/benchmark/src -Iexamples/include -I"{chain.ccl_home}/include"'
    libraries = f'-L"{chain.ccl_home}/lib" -lccl'
    program = '"$prefix/bin/benchmark"'
    return [
        'mkdir -p "$prefix/bin"',
        f"{_quoted(chain.mpicxx)} {options} {headers} examples/benchmark/src/benchmark.cpp -o {program} {libraries}",
    ]


def _gencode(arch: str) -> str:
    return f"-gencode=arch=compute_{arch},code=sm_{arch}"


def _quoted(text: str) -> str:
    return shlex.quote(text)


def first_error(log: str) -> str | None:
    """The first line of a build's output that says what is wrong; `None` where no line does."""
    return next((line.strip() for line in log.splitlines() if _ERROR.search(line)), None)


def explain_failure(tool: Tool, log: str, status: int) -> str:
    """One line about a build that failed: its first error, and its cause where it is a known one."""
    error = first_error(log) or next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "no output")
    text = f"{tool.title} does not build (exit status {status}): {error[:300]}"
    cause = next((each.cause for each in tool.known_failures if re.search(each.pattern, log)), None)
    return f"{text}. Known cause: {cause}" if cause else text
