"""MPI libraries with their own word on device memory, *CCL, compilers and modules; real ones where they are here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fabricheck import mpi
from fabricheck.site.software import GpuAware, NodeSoftware, find_software, gpu_aware, software_of


def program(folder: Path, name: str, *lines: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    (folder / name).chmod(0o755)


def only(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.mark.parametrize("name", mpi.NAMES)
def test_the_librarys_own_word(name: str) -> None:
    """Those of this machine are built without GPUs, and say so when they are asked."""
    found = mpi.find(name)
    if found is None:
        pytest.skip(f"no {name} here")
    path = f"{found.mpicxx.parent}:{os.environ['PATH']}"
    assert gpu_aware(name, str(found.mpicxx), "cuda", {**os.environ, "PATH": path}) == GpuAware(
        False, "MPIX_Query_cuda_support() is 0"
    )


def compiled(folder: Path, body: str) -> None:
    """A compiler wrapper whose programs do `body` in place of asking an MPI library."""
    program(
        folder,
        "mpicxx",
        'while [ "$1" != -o ]; do shift; done',
        f'printf \'#!/bin/sh\\n{body}\\n\' > "$2"; chmod +x "$2"',
    )


def test_a_gpu_aware_library_with_the_variables_that_it_needs(tmp_path: Path) -> None:
    """Cray MPICH says yes only where MPICH_GPU_SUPPORT_ENABLED is set: the probe sets it, and jobs have to."""
    compiled(tmp_path, 'test "$MPICH_GPU_SUPPORT_ENABLED" = 1 && echo MPIX_Query_cuda_support 1')
    said = gpu_aware("cray-mpich", str(tmp_path / "mpicxx"), "cuda", only(tmp_path))
    assert (said.yes, said.collectives, said.variables) == (True, True, {"MPICH_GPU_SUPPORT_ENABLED": "1"})


def test_open_mpi_over_a_ucx_that_knows_device_memory(tmp_path: Path) -> None:
    """As a distribution's Open MPI with libucx for CUDA: point to point works, reductions do not."""
    compiled(tmp_path, "echo MPIX_Query_cuda_support 0")
    program(tmp_path, "ompi_info", "echo 'mca:pml:ucx:version:\"component:4.1.6\"'")
    program(tmp_path, "ucx_info", "echo '#      Transport: cuda_copy'")
    said = gpu_aware("openmpi", str(tmp_path / "mpicxx"), "cuda", only(tmp_path))
    assert (said.yes, said.collectives) == (True, False)
    assert said.variables["OMPI_MCA_pml"] == "ucx"


@pytest.mark.parametrize(
    ("family", "api", "expected"),
    [("openmpi", "cuda", False), ("impi", "cuda", False), ("cray-mpich", "cuda", True), ("cray-mpich", "hip", False)],
)
def test_where_it_cannot_be_asked_the_wrapper_of_cray_alone_tells(
    tmp_path: Path, family: str, api: str, expected: bool
) -> None:
    program(tmp_path, "mpicxx", "exit 1")
    environment = {**only(tmp_path), "CRAY_ACCEL_TARGET": "nvidia90"}
    said = gpu_aware(family, str(tmp_path / "mpicxx"), api, environment)
    assert said.yes is expected
    assert said.source


def test_a_compiler_and_nccl_in_their_usual_folders(tmp_path: Path) -> None:
    """A compiler that is not on the PATH is put there for jobs."""
    program(tmp_path / "cuda" / "bin", "nvcc", "exit 0")
    root = tmp_path / "nccl"
    (root / "include").mkdir(parents=True)
    (root / "lib").mkdir()
    (root / "include/nccl.h").write_text("#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 3\n")
    (root / "lib/libnccl.so.2").touch()
    environment = {**os.environ, "CUDA_HOME": str(tmp_path / "cuda"), "NCCL_HOME": str(root)}
    found = find_software("nvidia", environment)
    assert (found.compiler, found.ccl) == (str(tmp_path / "cuda/bin/nvcc"), ("nccl", "2.28.3", str(root)))
    for library in found.libraries:
        assert not mpi.as_root(library.family).keys() & library.variables.keys()
        assert library.variables["PATH"].split(":")[0] == str(tmp_path / "cuda/bin")
    assert software_of(found.as_json()) == found


@pytest.mark.parametrize(
    ("vendor", "provider", "knows_gpus", "is_there"),
    [
        ("nvidia", "cxi", True, True),
        ("nvidia", "cxi", False, False),  # older than 1.14
        ("nvidia", "shm", True, False),  # no NIC
        ("nvidia", "tcp", True, False),  # which takes no memory of GPUs
        ("none", "tcp", True, True),
    ],
)
def test_a_libfabric_that_measures_nics(
    tmp_path: Path, vendor: str, provider: str, knows_gpus: bool, is_there: bool
) -> None:
    (tmp_path / "include/rdma").mkdir(parents=True)
    (tmp_path / "include/rdma/fi_endpoint.h").write_text("FI_OPT_FI_HMEM_P2P" if knows_gpus else "")
    without = 'case "$2" in *FI_HMEM*) exit 61;; esac' if provider == "tcp" else ":"
    program(tmp_path / "bin", "fi_info", without, f"echo 'provider: {provider}'")
    software = find_software(vendor, only(tmp_path / "bin"))
    assert software.libfabric == (str(tmp_path) if is_there else "")
    assert software_of(software.as_json()) == software


def test_without_gpus_nobody_asks_for_their_software() -> None:
    found = find_software("none")
    assert (found.compiler, found.ccl, found.notes) == ("", None, ())


@pytest.mark.full
def test_libraries_that_modules_bring(tmp_path: Path) -> None:
    """With the machine's own environment modules, and an MPI library that is on no PATH."""
    library = mpi.find("openmpi")
    if not Path("/etc/profile.d/modules.sh").exists() or library is None:
        pytest.skip("no environment modules, or no Open MPI here")
    programs = tmp_path / "mpi" / "bin"
    programs.mkdir(parents=True)
    for name in ("mpicxx", "mpirun"):
        program(programs, name, f'exec "{getattr(library, name)}" "$@"')
    (tmp_path / "modulefiles" / "openmpi").mkdir(parents=True)
    for version in ("4.0", "10.1"):
        (tmp_path / "modulefiles/openmpi" / version).write_text(f"#%Module1.0\nprepend-path PATH {programs}\n")
    found = find_software("none", {**os.environ, "MODULEPATH": str(tmp_path / "modulefiles")})
    assert [one.modules for one in found.libraries if one.modules] == [("openmpi/10.1",)]
    assert found.modules_system in ("envmod", "lmod")


def test_nothing_is_a_software_too() -> None:
    assert software_of(NodeSoftware().as_json()) == NodeSoftware()
