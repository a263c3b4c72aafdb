"""Builds fabricbench, once for each partition and environment, or takes one that was built before."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import reframe as rfm
from reframe.core.builtins import run_after, run_before, sanity_function, variable
from reframe.core.exceptions import SanityError
from reframe.utility import sanity as sn

from fabricheck.records.operations import backend_of
from fabricheck.suite import suite_root

# Backends of fabricbench, and the CMake variable that names what the GPU code is compiled for.
ARCHITECTURES = {"host": None, "cuda": "CMAKE_CUDA_ARCHITECTURES", "hip": "GPU_TARGETS", "sycl": "SYCL_TARGETS"}

# Features of an environment whose ccl transport has a library, and the API of the GPUs that each is for.
API_OF_CCL = {"nccl": "cuda", "rccl": "hip", "oneccl": "sycl"}


def missing_backend(backend: str) -> str | None:
    """Why there is nothing to build for `backend`, as one line; `None` where there is."""
    if backend in ARCHITECTURES:
        return None
    return f"fabricbench has no backend for {backend!r} yet, only for {', '.join(ARCHITECTURES)}"


class BuildFabricbench(rfm.CompileOnlyRegressionTest):
    """The backend that the environment's `extras` ask for.

    `backend`: host, cuda, hip or sycl. `mpicxx`: the compiler wrapper of the MPI library, where CMake does not find it
    by itself. `gpu_arch`: what to compile for (`90`, `gfx90a`, `intel_gpu_pvc`; several with `;`). `cmake_options`: a
    list of further options, such as `-DNCCL_ROOT=…`. `hip_platform`: `nvidia` for HIP's own back end for NVIDIA
    devices. `sycl_compiler`: another than icpx.
    """

    descr = "build fabricbench"
    build_system = "CMake"
    sourcesdir: str | None = str(suite_root() / "src")
    build_locally = True
    build_time_limit = "15m"
    #: A folder with programs that were built before, as ENVIRONMENT/fabricbench; then nothing is built.
    prebuilt = variable(str, value="")

    @run_after("init")
    def take_prebuilt(self) -> None:
        if self.prebuilt:
            self.build_system = "CustomBuild"
            self.sourcesdir = None

    @run_after("setup")
    def check_backend(self) -> None:
        reason = missing_backend(backend_of(self.current_environ.extras))
        self.skip_if(reason is not None, reason)

    @run_before("compile")
    def configure(self) -> None:
        cmake: Any = self.build_system  # its name in the class, ReFrame's object from here on
        if self.prebuilt:
            if not os.access(self.program, os.X_OK):
                raise SanityError(f"INCOMPLETE: there is no program {self.program}")
            cmake.commands = [f"{shlex.quote(self.program)} --version"]
            return
        extras = self.current_environ.extras
        backend = backend_of(extras)
        options = [f"-DFABRICHECK_BACKEND={backend}", "-DBUILD_TESTING=OFF"]
        if "mpicxx" in extras:
            options.append(f"-DMPI_CXX_COMPILER={extras['mpicxx']}")
        if ARCHITECTURES[backend] and "gpu_arch" in extras:
            options.append(f"'-D{ARCHITECTURES[backend]}={extras['gpu_arch']}'")
        if "hip_platform" in extras:
            options.append(f"-DFABRICHECK_HIP_PLATFORM={extras['hip_platform']}")
        if backend == "hip" and extras.get("hip_platform", "amd") == "amd":
            cmake.cxx = "hipcc"
        if backend == "sycl":
            cmake.cxx = extras.get("sycl_compiler", "icpx")
        if not API_OF_CCL.keys() & set(self.current_environ.features):
            options.append("-DFABRICHECK_CCL=OFF")
        cmake.config_opts = [*options, *extras.get("cmake_options", [])]
        cmake.builddir = "build"
        cmake.build_opts = ["fabricbench"]

    @property
    def program(self) -> str:
        if self.prebuilt:
            return str(Path(self.prebuilt) / self.current_environ.name / "fabricbench")
        return str(Path(self.stagedir) / "build" / "fabricbench")

    @sanity_function
    def is_built(self) -> object:
        return sn.assert_true(Path(self.program).is_file(), f"INCOMPLETE: there is no program {self.program}")
