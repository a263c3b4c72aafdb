"""Systems whose settings were not written for Fabricheck: what their devices and environments allow, by what they say.

Such settings name modules, compilers and devices, and nothing of backends. What is derived here is put where the checks
look for it, in the features and extras of ReFrame's own objects, before they select anything; and it is said, in one
line for each environment, so that nothing is measured or left out in silence.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fabricheck import mpi
from fabricheck.suite import described
from fabricheck.topology.hardware import GpuProduct, gpu_product

#: What a word in a module's name, a compiler, a variable or a feature says, the first that fits.
_MPI = (
    ("cray-mpich", r"cray-mpich|prgenv|\bcpe(amd|aocc|cray|gnu|intel)"),
    ("spectrum-mpi", r"spectrum"),
    ("impi", r"impi|intel-?mpi|mpii(cpc|cpx|cxx)|i_mpi"),
    ("mpich", r"mpich|mvapich"),
    ("openmpi", r"openmpi|ompi|hpcx|hpc-x|foss|gompi"),
    ("", r"mpicxx|mpic\+\+|mpicc"),
)
#: By backend: what compiles for its GPUs, its library of collectives, and what brings that.
_TOOLS = {
    "cuda": r"cuda|nvhpc|nvidia",
    "hip": r"rocm|hip(cc)?\b|craype-accel-amd|(prgenv-|cpe)amd",
    "sycl": r"oneapi|icpx|sycl|dpc",
}
_CCL = {
    "cuda": ("nccl", r"nccl|nvhpc"),
    "hip": ("rccl", r"rccl|rocm|(prgenv-|cpe)amd"),
    "sycl": ("oneccl", r"ccl|oneapi"),
}
#: Modules by their usual names, to be changed to the site's.
_SNIPPET = {"cuda": ("OpenMPI", "CUDA", "NCCL"), "hip": ("OpenMPI", "ROCm"), "sycl": ("impi", "intel-compilers")}
_ARCHITECTURES = (("cuda", r"sm_?(\d+a?)$"), ("hip", r"(gfx\w+)$"), ("sycl", r"(intel_gpu_\w+|pvc)$"))
_GPU_AWARE = (
    r"(gpu|cuda|rocm|hip|device)[-_]?aware|ucx-(cuda|rocm)|[+](cuda|rocm)"
    r"|mpich_gpu_support_enabled=1|i_mpi_offload=[1-9]"
)

#: Works at the end of any settings, also where functions have put environments into them.
_ADD = 'site_configuration["environments"].append({}); '
_PARTITIONS = 'sum([system["partitions"] for system in site_configuration["systems"]], [])'
DOCUMENT = "docs/your-own-reframe.md"


@dataclass(frozen=True)
class PartitionGpus:
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
        """The features that ReFrame's settings of a partition or environment list."""
        if self.backend == "host":
            return ("mpi",)
        return ("mpi", self.backend, self.ccl or "without-ccl")

    def __str__(self) -> str:
        mpi = self.mpi or "an MPI library"
        if self.backend == "host":
            return f"{mpi}, and nothing that drives GPUs"
        parts = [mpi, f"{self.backend} for {self.arch}", self.ccl or f"no {_CCL[self.backend][0]}"]
        return ", ".join([*parts, "GPU-aware" if self.gpu_aware else "not known to be GPU-aware"])


def complete_backends(system: Any) -> None:
    """Completes the partitions and environments of a system of ReFrame that say nothing of backends."""
    remote = any(_scheduler(partition) != "local" for partition in system.partitions)
    for partition in system.partitions:
        # Whoever declares GPUs of a local partition means this machine.
        login = remote and _scheduler(partition) == "local" and not partition.devices
        for line in _adopt(partition, login=login):
            say_once(line)
    if not described(system.name):
        text = "has no topology.yaml, so its metrics have no model"
        say_once(f"{system.name} {text} until `fabricheck init` has written one ({DOCUMENT})")


@functools.cache
def say_once(text: str) -> None:
    """One line on stderr, however many tests come to it."""
    print(f"fabricheck: {text}", file=sys.stderr)


def _adopt(partition: Any, *, login: bool) -> Iterable[str]:
    if "gpu" not in partition.features and any(each.device_type == "gpu" for each in partition.devices):
        partition.features.append("gpu")
    foreign = [each for each in partition.environs if "backend" not in each.extras]
    if not foreign:
        return
    if login:
        yield f"{partition.fullname} is left out: it runs on this machine, a login node ({DOCUMENT})"
        return
    gpus, unknown = gpus_of_devices(partition.devices, _words_of(partition))
    if gpus is None and (device := _device_to_add(partition)):
        yield f"{partition.fullname}: its GPUs are left out: {unknown}; {_paste(partition, device)}"
    if gpus is not None and (line := _ask_for_gpus(partition)):
        yield f"{partition.fullname}: {line}"
    if "nodes" not in partition.extras and "multinode" not in partition.features:
        yield f"{partition.fullname}: its network is left out: give the number of nodes in its extras"
    for environ in foreign:
        where = f"{partition.fullname}+{environ.name}"
        words = environment_text(partition, environ)
        reason = "its launcher is local, which starts one rank only" if _launcher(partition) == "local" else ""
        derived = None if reason else derive(words, gpus)
        if derived is None:
            why = reason or "no MPI library is named by its modules, compilers, variables or features"
            yield f"{where} is left out: {why} ({DOCUMENT})"
            continue
        environ.features.extend(each for each in derived.features if each not in environ.features)
        environ.extras.update(_extras(derived, environ))
        yield f"{where} is not described for Fabricheck; taken for {derived} ({DOCUMENT})"
    # Also of those that an earlier check's call has completed.
    if gpus is not None and all(each.extras.get("backend", "host") == "host" for each in partition.environs):
        device = next(each.info for each in partition.devices if each.device_type == "gpu")
        yield f"{partition.fullname}: no environment drives its GPUs; {_paste(partition, device, known=True)}"


def _paste(partition: Any, device: Mapping[str, Any], *, known: bool = False) -> str:
    """A line for the end of the settings: the `device` that the nodes of this partition have, and an environment that
    drives it, where there is none; where settings have the device (`known`), the environment for all such partitions.
    """
    gpus, _ = _gpus_of(device, _words_of(partition))
    backend = gpus.backend if gpus is not None else "cuda"
    changes = {} if known else {"devices": json.dumps([device])}
    add = ""
    if all(_backend(partition, environ, gpus) == "host" for environ in partition.environs):
        own = (each.modules for each in partition.environs if "mpi" in each.features and each.modules)
        modules = [*map(str, next(own, _SNIPPET[backend][:1])), *_SNIPPET[backend][1:]]
        system = partition.fullname.partition(":")[0]
        environment = {"name": "gpu", "target_systems": [system], "modules": modules, "features": ["mpi"]}
        add = _ADD.format(json.dumps(environment))
        changes["environs"] = '[*part["environs"], "gpu"]'
    updates = ", ".join(f"{name}={value}" for name, value in changes.items())
    condition = 'part.get("devices")' if known else f'part["name"] == "{partition.name}"'
    where = "add to the end of the settings" if known else "add to the end of the settings, as its nodes are"
    return f"{where}: {add}[part.update({updates}) for part in {_PARTITIONS} if {condition}]"


def _backend(partition: Any, environ: Any, gpus: PartitionGpus | None) -> str:
    """What an environment would drive on nodes with `gpus`: by its words, else by its extras."""
    derived = derive(environment_text(partition, environ), gpus)
    by_words = derived.backend if derived is not None else "host"
    return by_words if by_words != "host" else str(environ.extras.get("backend", "host"))


def _device_to_add(partition: Any) -> dict[str, Any]:
    """The GPUs of a partition as its `devices` should have them: those that it has, with an architecture, or those that
    its words name; empty where none do."""
    words = _words_of(partition)
    for device in partition.devices:
        if device.device_type == "gpu":
            return {**device.info, "arch": "gfx90a" if re.search("instinct|rocm", words) else "sm_90"}
    if not re.search(r"\bgpus?\b|gres|_rfm_gpu", words):
        return {}
    name, product = _model_in(words)
    here = re.escape(name)
    count = re.search(rf"\b(\d+) {here}\b|\b{here} (\d+) (?:cn|per node)\b", words) if name else None
    arch = (f"sm_{product.arch}" if product.backend == "cuda" else product.arch) if product is not None else "sm_90"
    return {"type": "gpu", "arch": arch, "num_devices": int(count[1] or count[2]) if count else 4}


def _words_of(partition: Any) -> str:
    """What a partition reports, in lower case: name, description, options, features."""
    options = [option for name, options in partition.resources.items() for option in (name, *options)]
    features = [*partition.features, *map(str, partition.extras.values())]
    words = (partition.name, getattr(partition, "descr", ""), *partition.access, *options, *features)
    return re.sub(r"[_:=,/-]|(?<=\d)x(?=[a-z])", " ", " ".join(map(str, words)).lower())


#: What an option that asks a scheduler for GPUs looks like.
_ASKS = re.compile(r"gpu|--gres=")
_PLACE = re.compile(r"\{[^{}]*\}")


def _asks_for_gpus(name: str, options: Sequence[str]) -> bool:
    """Whether a resource is GPUs by another name, with their number to be filled in and nothing else."""
    return len(options) == 1 and len(_PLACE.findall(options[0])) == 1 and "gpu" in f"{name} {options[0]}".lower()


def _ask_for_gpus(partition: Any) -> str:
    """Makes the partition's jobs ask for GPUs, by ReFrame's resource `_rfm_gpu`; what was changed or is missing, in a
    line.

    A resource of another name with one number to fill in is taken for it. In PBS, GPUs belong into the chunk, which are
    options without a dash.
    """
    if (scheduler := _scheduler(partition)) == "local":
        return ""
    resources: dict[str, list[str]] = partition._resources  # there is no other way to add one
    line = ""
    if not resources.get("_rfm_gpu"):
        other = next((name for name, options in resources.items() if _asks_for_gpus(name, options)), None)
        if other is None:
            if any(_ASKS.search(str(each)) for each in partition.access):
                return ""
            return 'its jobs ask for no GPU: add the resource {"name": "_rfm_gpu", "options": [...{num_gpus_per_node}]}'
        resources["_rfm_gpu"] = [_PLACE.sub("{num_gpus_per_node}", option) for option in resources[other]]
        line = f"its resource {other} is taken for _rfm_gpu: {resources['_rfm_gpu'][0]}"
    if scheduler == "pbs":
        chunk = [re.sub(r"^-l\s*(?=ngpus=)", "", option) for option in resources["_rfm_gpu"]]
        if chunk != resources["_rfm_gpu"]:
            resources["_rfm_gpu"] = chunk
            line = f"GPUs of PBS belong into the chunk: _rfm_gpu is taken for {chunk[0]}"
    return line


def gpus_of_devices(devices: Iterable[Any], words: str = "") -> tuple[PartitionGpus | None, str]:
    """The GPUs of ReFrame's `devices`, and why they cannot be known.

    Where they name neither architecture nor model, `words` of the partition may: `gpu_rome_a100_40`.
    """
    gpu = next((each.info for each in devices if each.device_type == "gpu"), None)
    return (None, "it has no devices") if gpu is None else _gpus_of(gpu, words)


def _gpus_of(device: Mapping[str, Any], words: str) -> tuple[PartitionGpus | None, str]:
    arch, model = (str(device.get(name) or "").lower() for name in ("arch", "model"))
    count = int(device.get("num_devices", 1))
    for backend, pattern in _ARCHITECTURES:
        if (match := re.match(pattern, arch)) is not None:
            return PartitionGpus(count, backend, match[1]), ""
    product = gpu_product(f"{arch} {model}") or (None if arch or model else _model_in(words)[1])
    if product is not None:
        return PartitionGpus(count, product.backend, product.arch), ""
    named = f"unknown architecture {arch or model!r}" if arch or model else "their devices name no architecture"
    return None, f"{named}, such as sm_90 or gfx90a"


def _model_in(words: str) -> tuple[str, GpuProduct | None]:
    """The first word, with the one behind it, that names a model of GPUs."""
    split = words.split()
    for at, word in enumerate(split):
        if (product := gpu_product(word)) is not None:
            return word, gpu_product(" ".join(split[at : at + 2])) or product
    return "", None


def derive(words: str, gpus: PartitionGpus | None) -> Derived | None:
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


def environment_text(partition: Any, environ: Any) -> str:
    """All that an environment of a partition reports, in lower case."""
    words = [
        *partition.local_env.modules,
        *environ.modules,
        *environ.features,
        *(f"{name}={value}" for name, value in environ.env_vars.items()),
        # `spack load openmpi+cuda nccl`, `uenv start prgenv-gnu`
        *partition.local_env.prepare_cmds,
        *environ.prepare_cmds,
        # ReFrame's own compilers, where the settings name none, say nothing.
        *(each for each in (environ.cc, environ.cxx) if each not in ("cc", "CC")),
        environ.name,
        *_on_path(partition, environ),
    ]
    return " ".join(map(str, words)).lower()


def _on_path(partition: Any, environ: Any) -> Iterable[str]:
    """What this machine's PATH has, for an environment that names no modules, compilers or commands of its own: so
    ReFrame would find it."""
    own = (*partition.local_env.modules, *environ.modules, *environ.prepare_cmds, *environ.env_vars)
    if own or environ.cc not in ("", "cc") or environ.cxx not in ("", "CC"):
        return
    if os.environ.get("CRAY_MPICH_VERSION"):
        yield "cray-mpich"
    elif (name := next((name for name in mpi.NAMES if shutil.which("mpicxx") and mpi.find(name)), None)) is not None:
        yield name
    for compiler, word in (("nvcc", "cuda"), ("hipcc", "rocm"), ("icpx", "oneapi")):
        if shutil.which(compiler):
            yield word


def _extras(derived: Derived, environ: Any) -> dict[str, Any]:
    extras: dict[str, Any] = {"backend": derived.backend, "mpi": derived.mpi}
    if derived.arch:
        extras["gpu_arch"] = derived.arch
    if derived.mpi != "cray-mpich" and environ.cxx == "CC":  # what ReFrame takes where the settings name none
        extras["cxx"] = "c++"
    if derived.backend != "host" and not derived.gpu_aware:
        extras["not_gpu_aware"] = f"the MPI library of {environ.name}, by its settings,"
    return {name: value for name, value in extras.items() if name not in environ.extras}


def _scheduler(partition: Any) -> str:
    return str(partition.scheduler.registered_name)


def _launcher(partition: Any) -> str:
    return str(partition.launcher_type.registered_name)
