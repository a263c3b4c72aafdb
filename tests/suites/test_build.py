"""Build options by backend, and what a build that failed says."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.suites.build import Toolchain, build_commands, c_wrapper, explain_failure, first_error
from fabricheck.suites.sources import Tool

CUDA = {
    "backend": "cuda",
    "mpicxx": "/opt/mpi/bin/mpicxx",
    "gpu_arch": "80;90",
    "cuda_home": "/cuda",
    "nccl_home": "/nccl",
}
HIP = {"backend": "hip", "mpicxx": "CC", "gpu_arch": "gfx90a", "rocm_path": "/rocm", "rccl_home": "/rccl"}

# The end of a real build of OMB 7.4 with CUDA 13, shortened.
OMB_CUDA_13 = """\
make[3]: Entering directory '/tmp/omb/c/mpi/pt2pt/standard'
  CC       osu_error_free.o
../../../util/osu_util_mpi.c: In function 'allocate_managed_buffer':
../../../util/osu_util_mpi.c:1400:48: error: incompatible type for argument 3 of 'cudaMemPrefetchAsync'
 1400 |             cudaMemPrefetchAsync(sendbuf, length, devid, um_stream);
make[3]: *** [Makefile:512: osu_util_mpi.o] Error 1
make: *** [Makefile:388: all-recursive] Error 1
"""


def commands(name: str, extras: dict[str, str], features: tuple[str, ...], source: Path = Path("/src")) -> str:
    return "\n".join(build_commands(name, Toolchain.of(extras, features), source))


def test_osu_by_port() -> None:
    host = commands("osu", {"mpicxx": "/opt/mpi/bin/mpicxx"}, ("mpi",))
    assert './configure CC=/opt/mpi/bin/mpicc CXX=/opt/mpi/bin/mpicxx --prefix="$prefix"\n' in host
    cuda = commands("osu", CUDA, ("mpi", "cuda", "nccl"))
    assert '--enable-cuda --with-cuda="/cuda"' in cuda
    assert '--enable-ncclomb --with-nccl="/nccl"' in cuda
    assert "code=sm_80 -gencode=arch=compute_90" in cuda
    assert "ncclomb" not in commands("osu", CUDA, ("mpi", "cuda"))
    hip = commands("osu", HIP, ("mpi", "hip", "rccl"))
    assert '--enable-rocm --with-rocm="/rocm" --enable-rcclomb --with-rccl="/rccl"' in hip
    assert "CC=cc CXX=CC" in hip
    sycl = commands("osu", {"backend": "sycl", "mpicxx": "mpicxx", "sycl_home": "/compiler"}, ("mpi", "oneccl"))
    assert '--enable-sycl --with-sycl="/compiler"' in sycl
    assert "ncclomb" not in sycl and "rcclomb" not in sycl


def test_nccl_tests_with_mpi() -> None:
    made = commands("nccl-tests", CUDA, ("mpi", "nccl"))
    assert 'make -j 4 MPI=1 MPI_HOME="/opt/mpi" CUDA_HOME="/cuda" NCCL_HOME="/nccl"' in made
    assert "code=sm_90" in made


def test_rccl_tests_with_make_or_cmake(tmp_path: Path) -> None:
    newer = commands("rccl-tests", HIP, ("mpi", "rccl"), tmp_path)
    assert "-DUSE_MPI=ON" in newer
    assert '-DGPU_TARGETS="gfx90a"' in newer
    (tmp_path / "Makefile").write_text("")
    older = commands("rccl-tests", HIP, ("mpi", "rccl"), tmp_path)
    assert 'ROCM_PATH="/rocm" NCCL_HOME="/rccl"' in older
    assert "HIP_HOME" not in older


def test_oneccls_benchmark_is_built_by_the_mpi_wrapper() -> None:
    made = commands("oneccl", {"backend": "sycl", "mpicxx": "/opt/mpi/bin/mpicxx", "ccl_home": "/ccl"}, ("oneccl",))
    assert "/opt/mpi/bin/mpicxx -O2 -std=c++17 -fsycl" in made
    assert '-I"/ccl/include"' in made and '-L"/ccl/lib" -lccl' in made


@pytest.mark.parametrize(
    ("name", "extras"), [("nccl-tests", HIP), ("rccl-tests", CUDA), ("oneccl", CUDA), ("other", CUDA)]
)
def test_what_cannot_be_built_is_refused(name: str, extras: dict[str, str]) -> None:
    with pytest.raises(UserError):
        commands(name, extras, ())


def test_imb_is_built_twice_and_not_taken_for_built(tmp_path: Path) -> None:
    steps = commands("imb", {"mpicxx": "/opt/mpi/bin/mpicxx"}, ("mpi",)).splitlines()
    assert [("-DCHECK" in step) for step in steps if step.startswith("make -j")] == [False, True]
    checking = next(number for number, step in enumerate(steps) if "-DCHECK" in step)
    assert "rm -f IMB-MPI1" in steps[:checking]


@pytest.mark.parametrize(
    ("mpicxx", "mpicc"),
    [
        ("mpicxx", "mpicc"),
        ("/opt/c++/bin/mpic++", "/opt/c++/bin/mpicc"),
        ("/usr/bin/mpicxx.mpich", "/usr/bin/mpicc.mpich"),
        ("CC", "cc"),
        ("mpiicpx", "mpiicx"),
    ],
)
def test_the_c_compiler_beside(mpicxx: str, mpicc: str) -> None:
    assert c_wrapper(mpicxx) == mpicc


@pytest.mark.parametrize(
    "line",
    [
        "configure: error: cannot run C compiled programs.",
        "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
        "/usr/bin/ld: cannot find -lnccl: No such file or directory",
        "main.c:(.text+0x5): undefined reference to `MPI_Init'",
        "src/common.h:10:10: fatal error: nccl.h: No such file or directory",
        "make: *** No rule to make target 'x'.  Stop.",
        "sh: 1: nvcc: command not found",
    ],
)
def test_all_tools_of_a_build_are_understood(line: str) -> None:
    assert first_error(f"checking for x... no\n{line}\nmain.c:2:1: error: another\nmake: *** Error 1\n") == line


def test_a_known_cause_is_told(osu: Tool) -> None:
    said = explain_failure(osu, OMB_CUDA_13, 2)
    assert "osu_util_mpi.c:1400:48: error" in said
    assert "take 7.5.2" in said
    assert "\n" not in said


def test_an_unknown_cause_is_not_made_up(osu: Tool) -> None:
    assert "Known cause" not in explain_failure(osu, "x.c:1: error: expected ';'\n", 1)
    assert "no output" in explain_failure(osu, "", 137)
