"""Whether an MPI library takes device memory, by its own word.

Asked are, in this order: the library itself (`MPIX_Query_cuda_support` and its kin, by a tiny program that is compiled
with it), UCX below an Open MPI, `ompi_info`, how MPICH was configured, and what Cray's wrapper compiles for. Where
nothing says so, the answer is no: an MPI library that does not know device memory ends with signal 11 on it.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fabricheck.state.programs import Answer, ask

#: By the API of the GPUs: what the libraries call it in their own words.
_QUERIES = {
    "cuda": ("MPIX_Query_cuda_support",),
    "hip": ("MPIX_Query_rocm_support", "MPIX_Query_hip_support"),
    "sycl": ("MPIX_Query_ze_support",),
}
_BUILT_WITH = {"cuda": "cuda", "hip": "rocm", "sycl": "ze"}
#: Without these variables the library says no, and does not take device memory.
NEEDED: Mapping[str, Mapping[str, str]] = {
    "cray-mpich": {"MPICH_GPU_SUPPORT_ENABLED": "1"},
    "impi": {"I_MPI_OFFLOAD": "1"},
}
_CRAY_TARGETS = {"cuda": "nvidia", "hip": "amd_gfx"}
# UCX knows device memory by the memory's address only where Open MPI leaves it all to UCX.
_OVER_UCX = {
    "OMPI_MCA_pml": "ucx",
    "OMPI_MCA_opal_common_ucx_tls": "any",
    "OMPI_MCA_opal_common_ucx_devices": "any",
}

# Found by name while it runs, so that it links with every MPI library.
_PROBE = """\
#include <dlfcn.h>
#include <mpi.h>
#include <cstdio>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  for (int i = 1; i < argc; ++i) {
    void* found = dlsym(RTLD_DEFAULT, argv[i]);
    if (found != nullptr) std::printf("%s %d\\n", argv[i], reinterpret_cast<int (*)()>(found)());
  }
  MPI_Finalize();
}
"""


@dataclass(frozen=True)
class GpuAware:
    """Whether a library takes device memory, by whose word, and the variables that it needs for it.

    `collectives`: whether its own collectives and reductions do, too.
    """

    yes: bool
    source: str
    variables: Mapping[str, str] = field(default_factory=dict)
    collectives: bool = False


def gpu_aware(family: str, mpicxx: str, api: str, environment: Mapping[str, str]) -> GpuAware:
    """Whether the MPI library of a compiler wrapper takes device memory of GPUs with this API (cuda, hip, sycl)."""
    variables = NEEDED.get(family, {})
    said = _query(mpicxx, _QUERIES[api], {**environment, **variables})
    for name, value in said.items():
        if value == 1:
            return GpuAware(True, f"{name}() is 1", variables, collectives=True)
    if family == "openmpi" and (over := _over_ucx(api, environment)) is not None:
        return over
    if said:
        return GpuAware(False, f"{next(iter(said))}() is 0")
    if family == "openmpi":
        return _by_ompi_info(api, environment)
    if family == "mpich":
        return _by_configuration(api, environment)
    target = environment.get("CRAY_ACCEL_TARGET", "")
    if family == "cray-mpich" and target.startswith(_CRAY_TARGETS.get(api, "none")):
        # The compiler wrapper links its library for GPUs then (HPE, intro_mpi).
        return GpuAware(True, f"CRAY_ACCEL_TARGET is {target}", variables, collectives=True)
    return GpuAware(False, "no source states that it is GPU-aware")


def _query(mpicxx: str, names: Sequence[str], environment: Mapping[str, str]) -> dict[str, int]:
    """What the library answers to those of the queries that it has; nothing where no program can be compiled or run."""
    with tempfile.TemporaryDirectory(prefix="fabricheck-") as folder:
        source, program = Path(folder) / "probe.cpp", Path(folder) / "probe"
        source.write_text(_PROBE, encoding="utf-8")
        compiler = [*shlex.split(mpicxx), str(source), "-o", str(program), "-ldl"]
        if not ask(compiler, 60, environment).given:
            return {}
        # One rank without a launcher, as root too.
        answer = ask([str(program), *names], 30, {**environment, **_AS_ROOT})
    pairs = re.findall(r"^(MPIX_\w+) (-?\d+)$", answer.output, re.MULTILINE) if answer.given else []
    return {name: int(value) for name, value in pairs}


_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def _over_ucx(api: str, environment: Mapping[str, str]) -> GpuAware | None:
    components = _output(ask(["ompi_info", "--parsable"], 30, environment))
    transports = _output(ask(["ucx_info", "-d"], 30, environment))
    match = re.search(rf"Transport: ({_BUILT_WITH[api]}_\w+)", transports)
    if "mca:pml:ucx:" not in components or match is None:
        return None
    return GpuAware(True, f"pml ucx over a UCX that has {match[1]}, by ucx_info -d", _OVER_UCX)


def _by_ompi_info(api: str, environment: Mapping[str, str]) -> GpuAware:
    built = re.compile(rf"mca:(?:mpi|opal):base:param:((?:mpi|opal)_built_with_{_BUILT_WITH[api]}_support):value:(\w+)")
    match = built.search(_output(ask(["ompi_info", "--parsable", "--all"], 60, environment)))
    if match is None:
        return GpuAware(False, f"ompi_info does not mention {_BUILT_WITH[api]}")
    return GpuAware(match[2] == "true", f"ompi_info: {match[1]} is {match[2]}", collectives=match[2] == "true")


def _by_configuration(api: str, environment: Mapping[str, str]) -> GpuAware:
    option = f"--with-{ {'cuda': 'cuda', 'hip': 'hip', 'sycl': 'ze'}[api] }"
    configured = option in _output(ask(["mpichversion"], 30, environment))
    source = f"mpichversion: configured with{'' if configured else 'out'} {option}"
    return GpuAware(configured, source, collectives=configured)


def _output(answer: Answer) -> str:
    return answer.output if answer.given else ""
