"""Systems whose settings were not written for Fabricheck: what their devices and environments allow, by what they say.

Such settings name modules, compilers and devices, and nothing of backends. What is derived here is put where the checks
look for it, in the features and extras of ReFrame's own objects, before they select anything; and it is said, in one
line for each environment, so that nothing is measured or left out in silence.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fabricheck.suite import described

#: What a word in a module's name, a compiler, a variable or a feature says, the first that fits.
_MPI = (
    ("cray-mpich", r"cray-mpich|prgenv"),
    ("spectrum-mpi", r"spectrum"),
    ("impi", r"impi|intel-?mpi|mpii(cpc|cpx|cxx)|i_mpi"),
    ("mpich", r"mpich|mvapich"),
    ("openmpi", r"openmpi|ompi|hpcx|hpc-x|foss|gompi"),
    ("", r"mpicxx|mpic\+\+|mpicc"),
)
#: By backend: what compiles for its GPUs, its library of collectives, and what brings that.
_TOOLS = {"cuda": r"cuda|nvhpc|nvidia", "hip": r"rocm|hip(cc)?\b|craype-accel-amd", "sycl": r"oneapi|icpx|sycl|dpc"}
_CCL = {"cuda": ("nccl", r"nccl|nvhpc"), "hip": ("rccl", r"rccl|rocm"), "sycl": ("oneccl", r"ccl|oneapi")}
_ARCHITECTURES = (("cuda", r"sm_?(\d+a?)$"), ("hip", r"(gfx\w+)$"), ("sycl", r"(intel_gpu_\w+|pvc)$"))
#: Of GPUs that are named by their model.
_MODELS = (
    ("cuda", "90", r"h100|h200|gh200|hopper"),
    ("cuda", "80", r"a100|ampere"),
    ("cuda", "70", r"v100|volta"),
    ("cuda", "60", r"p100|pascal"),
    ("hip", "gfx942", r"mi300"),
    ("hip", "gfx90a", r"mi2[0-9]0"),
    ("sycl", "pvc", r"pvc|ponte|max ?1[0-9]{3}"),
)
_GPU_AWARE = (
    r"(gpu|cuda|rocm|hip|device)[-_]?aware|ucx-(cuda|rocm)|[+](cuda|rocm)"
    r"|mpich_gpu_support_enabled=1|i_mpi_offload=[1-9]"
)

DOCUMENT = "docs/your-own-reframe.md"


@dataclass(frozen=True)
class Gpus:
    """Of the nodes of a partition: the backend that drives them, and what to compile for."""

    count: int
    backend: str
    arch: str


@dataclass(frozen=True)
class Derived:
    """What an environment allows. `mpi`: the family, empty where that is unknown. `backend` is host without `gpus`."""

    mpi: str
    backend: str = "host"
    arch: str = ""
    ccl: str = ""
    gpu_aware: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        if self.backend == "host":
            return ("mpi",)
        return ("mpi", self.backend, self.ccl or "without-ccl")

    def __str__(self) -> str:
        mpi = self.mpi or "an MPI library"
        if self.backend == "host":
            return f"{mpi}, and nothing that drives GPUs"
        parts = [mpi, f"{self.backend} for {self.arch}", self.ccl or f"no {_CCL[self.backend][0]}"]
        return ", ".join([*parts, "GPU-aware" if self.gpu_aware else "not known to be GPU-aware"])


def adopt(system: Any) -> None:
    """Completes the partitions and environments of a system of ReFrame that say nothing of backends."""
    for partition in system.partitions:
        for line in _adopt(partition):
            say_once(line)
    if not described(system.name):
        text = "has no topology.yaml: no model says what it should reach, and its metrics are unjudged"
        say_once(f"{system.name} {text} until `fabricheck init` has written one ({DOCUMENT})")


@functools.cache
def say_once(text: str) -> None:
    """One line on stderr, however many tests come to it."""
    print(f"fabricheck: {text}", file=sys.stderr)


def _adopt(partition: Any) -> Iterable[str]:
    foreign = [each for each in partition.environs if "backend" not in each.extras]
    if not foreign:
        return
    gpus, unknown = gpus_of_devices(partition.devices)
    if unknown:
        yield f"{partition.fullname}: its GPUs are left out: {unknown} ({DOCUMENT})"
    if gpus is not None and "gpu" not in partition.features:
        partition.features.append("gpu")
    if "nodes" not in partition.extras and "multinode" not in partition.features:
        yield f"{partition.fullname}: its network is left out: nodes in its extras does not say how many it has"
    for environ in foreign:
        where = f"{partition.fullname}+{environ.name}"
        words = said(partition, environ)
        reason = "its launcher is local, which starts one rank only" if _launcher(partition) == "local" else ""
        found = None if reason else derive(words, gpus)
        if found is None:
            why = reason or "no MPI library is named by its modules, compilers, variables or features"
            yield f"{where} is left out: {why} ({DOCUMENT})"
            continue
        environ.features.extend(each for each in found.features if each not in environ.features)
        environ.extras.update(_extras(found, environ))
        yield f"{where} is not described for Fabricheck; taken for {found} ({DOCUMENT})"


def gpus_of_devices(devices: Iterable[Any]) -> tuple[Gpus | None, str]:
    """The GPUs of ReFrame's `devices`, and why they cannot be known; neither where there are none."""
    found = next((each.info for each in devices if each.device_type == "gpu"), None)
    if found is None:
        return None, ""
    arch, model = (str(found.get(name) or "").lower() for name in ("arch", "model"))
    count = int(found.get("num_devices", 1))
    for backend, pattern in _ARCHITECTURES:
        if (match := re.match(pattern, arch)) is not None:
            return Gpus(count, backend, match[1]), ""
    for backend, known, pattern in _MODELS:
        if re.search(pattern, f"{arch} {model}"):
            return Gpus(count, backend, known), ""
    named = f"nobody knows their architecture {arch!r}" if arch else "their devices name no architecture"
    return None, f"{named}: give arch, such as sm_90 or gfx90a"


def derive(words: str, gpus: Gpus | None) -> Derived | None:
    """What an environment allows that says `words`, in lower case, on nodes with `gpus`; None without MPI."""
    mpi = next((family for family, pattern in _MPI if re.search(pattern, words)), None)
    if mpi is None and not re.search(r"\bmpi\b", words):
        return None
    mpi = mpi or ""
    if gpus is None or not re.search(_TOOLS[gpus.backend], words):
        return Derived(mpi)
    ccl, brought_by = _CCL[gpus.backend]
    has_ccl = re.search(brought_by, words) is not None
    return Derived(mpi, gpus.backend, gpus.arch, ccl if has_ccl else "", re.search(_GPU_AWARE, words) is not None)


def said(partition: Any, environ: Any) -> str:
    """All that an environment of a partition says of itself, in lower case."""
    words = [
        *partition.local_env.modules,
        *environ.modules,
        *environ.features,
        *(f"{name}={value}" for name, value in environ.env_vars.items()),
        # ReFrame's own compilers, where the settings name none, say nothing.
        *(each for each in (environ.cc, environ.cxx) if each not in ("cc", "CC")),
        environ.name,
    ]
    return " ".join(map(str, words)).lower()


def _extras(found: Derived, environ: Any) -> dict[str, Any]:
    extras: dict[str, Any] = {"backend": found.backend, "mpi": found.mpi}
    if found.arch:
        extras["gpu_arch"] = found.arch
    if found.mpi != "cray-mpich" and environ.cxx == "CC":  # what ReFrame takes where the settings name none
        extras["cxx"] = "c++"
    if found.backend != "host" and not found.gpu_aware:
        extras["not_gpu_aware"] = f"the MPI library of {environ.name}, by all that its settings say,"
    return {name: value for name, value in extras.items() if name not in environ.extras}


def _launcher(partition: Any) -> str:
    return str(partition.launcher_type.registered_name)
