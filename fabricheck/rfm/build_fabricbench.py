"""Builds fabricbench for each partition and environment, unless it was built before."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import reframe as rfm
import reframe.core.runtime as rt
from reframe.core.builtins import run_after, run_before, sanity_function, variable
from reframe.core.exceptions import SanityError
from reframe.utility import sanity as sn

from fabricheck.building import build_fabricbench_command
from fabricheck.records.operations import backend_of

# Backends of fabricbench, and the CMake variable that names what the GPU code is compiled for.
ARCHITECTURES = {"host": None, "cuda": "CMAKE_CUDA_ARCHITECTURES", "hip": "GPU_TARGETS", "sycl": "SYCL_TARGETS"}

# Features of an environment whose ccl transport has a library, and the API of the GPUs that each is for.
API_OF_CCL = {"nccl": "cuda", "rccl": "hip", "oneccl": "sycl"}


def missing_backend(backend: str) -> str | None:
    """Why there is nothing to build for `backend`, as one line; `None` where there is."""
    if backend in ARCHITECTURES:
        return None
    return f"fabricbench has no backend for {backend!r} yet, only for {', '.join(ARCHITECTURES)}"


def built_on_login_node(partitions: Iterable[str]) -> bool:
    """Whether what runs on these partitions is built where ReFrame runs, and not in a job of the partition.

    A partition whose nodes have another architecture, or whose compilers are not there, says `build_in_job` in its
    extras.
    """
    wanted = {*partitions}
    of_system = rt.runtime().system.partitions
    return not any(each.extras.get("build_in_job", False) for each in of_system if each.fullname in wanted)


class BuildFabricbench(rfm.CompileOnlyRegressionTest):
    """The backend that the environment's `extras` ask for; `fabricheck.building` says what is built again, and when.

    `backend`: host, cuda, hip or sycl. `mpicxx`: the compiler wrapper of the MPI library, where CMake does not find it
    by itself. `gpu_arch`: what to compile for (`90`, `gfx90a`, `intel_gpu_pvc`; several with `;`). `cmake_options`: a
    list of further options, such as `-DNCCL_ROOT=…`. `hip_platform`: `nvidia` for HIP's own back end for NVIDIA
    devices. `sycl_compiler`: another than icpx. Compilers and their flags are those of the environment. A partition
    with `build_in_job` in its extras has it built on its own nodes.
    """

    descr = "build fabricbench"
    build_system = "CustomBuild"
    sourcesdir: str | None = None
    build_time_limit = "15m"
    #: A folder with programs that were built before, as ENVIRONMENT/fabricbench; then nothing is built.
    prebuilt = variable(str, value="")
    #: Whether no selected check can run in the environment, for ReFrame's report.
    not_applicable = variable(bool, value=False)

    @run_after("init")
    def choose_where(self) -> None:
        """Hook after init: whether it is built on this machine or in a job."""
        self.build_locally = bool(self.prebuilt) or built_on_login_node(self.valid_systems)

    @run_after("setup")
    def check_backend(self) -> None:
        """Hook after setup: skips environments for whose backend there is no source."""
        reason = missing_backend(backend_of(self.current_environ.extras))
        self.skip_if(reason is not None, reason)

    @run_before("compile")
    def configure(self) -> None:
        """Hook before compile: the command that builds it. Raises SanityError where `prebuilt` has no such program."""
        build: Any = self.build_system  # its name in the class, ReFrame's object from here on
        if self.prebuilt:
            if not os.access(self.program, os.X_OK):
                raise SanityError(f"INCOMPLETE: there is no program {self.program}")
            build.commands = [f"{shlex.quote(self.program)} --version"]
            return
        build.commands = [build_fabricbench_command(Path(self.stagedir), cmake_options(self.current_environ))]

    @property
    def program(self) -> str:
        """The path of fabricbench, built or to be built."""
        if self.prebuilt:
            return str(Path(self.prebuilt) / self.current_environ.name / "fabricbench")
        return str(Path(self.stagedir) / "fabricbench")

    @sanity_function
    def is_built(self) -> object:
        """The sanity function: whether the program is there."""
        return sn.assert_true(Path(self.program).is_file(), f"INCOMPLETE: there is no program {self.program}")


def cmake_options(environ: Any) -> Iterator[str]:
    """CMake's options for an environment of ReFrame, as shell words: compilers, flags, and what its extras say."""
    extras = environ.extras
    backend = backend_of(extras)
    cxx, cuda = extras.get("cxx", environ.cxx), environ.nvcc if backend == "cuda" else ""
    if backend == "hip" and extras.get("hip_platform", "amd") == "amd":
        cxx = "hipcc"
    elif backend == "sycl":
        cxx = extras.get("sycl_compiler", "icpx")
    yield f"-DFABRICHECK_BACKEND={backend}"
    yield "-DBUILD_TESTING=OFF"
    named = {
        "CMAKE_CXX_COMPILER": cxx,
        "CMAKE_CUDA_COMPILER": cuda,
        "CMAKE_CXX_FLAGS": " ".join([*environ.cppflags, *environ.cxxflags]),
        "CMAKE_EXE_LINKER_FLAGS": " ".join(environ.ldflags),
        "MPI_CXX_COMPILER": extras.get("mpicxx", ""),
        "FABRICHECK_HIP_PLATFORM": extras.get("hip_platform", ""),
    }
    yield from (f'-D{name}="{value}"' for name, value in named.items() if value)  # variables in them are of the job
    if ARCHITECTURES[backend] and "gpu_arch" in extras:
        yield f"'-D{ARCHITECTURES[backend]}={extras['gpu_arch']}'"
    if not API_OF_CCL.keys() & set(environ.features):
        yield "-DFABRICHECK_CCL=OFF"
    yield from extras.get("cmake_options", [])
