"""The software of a node to build and measure with: MPI libraries, *CCL, compilers, and the modules that bring them."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fabricheck import mpi
from fabricheck.errors import refused
from fabricheck.state import capture
from fabricheck.state.programs import ProgramOutput, ask

#: By vendor: the API of its GPUs, its compiler, its *CCL and header, and modules that bring them.
APIS: Mapping[str, str] = {"nvidia": "cuda", "amd": "hip", "intel": "sycl"}
_COMPILERS = {"cuda": "nvcc", "hip": "hipcc", "sycl": "icpx"}
_CCL = {"cuda": ("nccl", "nccl.h"), "hip": ("rccl", "rccl/rccl.h"), "sycl": ("oneccl", "oneapi/ccl.hpp")}
_USUAL = {"cuda": ("/usr/local/cuda",), "hip": ("/opt/rocm",), "sycl": ("/opt/intel/oneapi/compiler/latest",)}
_COMPILER_MODULES = {"cuda": ("cuda", "cudatoolkit", "nvhpc"), "hip": ("rocm",), "sycl": ("oneapi", "intel-oneapi")}
_CCL_MODULES = {"cuda": ("nccl", "aws-ofi-nccl"), "hip": ("rccl", "aws-ofi-rccl"), "sycl": ("oneccl", "ccl")}
_MPI_MODULES = ("openmpi", "ompi", "hpcx", "mpich", "cray-mpich", "impi", "intel-mpi", "mvapich2", "mvapich")
_MOST_MODULES = 6

_FAMILIES = (
    (re.compile(r"\((?:Open MPI|OpenRTE)\) (\d[\w.]*)"), "openmpi", "Open MPI"),
    (re.compile(r"Intel\(R\) MPI Library.*Version (\d[\w.]*)"), "impi", "Intel MPI"),
    (re.compile(r"HYDRA build details:\s+Version:\s+(\d[\w.]*)"), "mpich", "MPICH"),
)


@dataclass(frozen=True)
class Library:
    """An MPI library, and how jobs come to it: modules, variables, shell commands; `mpicxx` its compiler wrapper.

    `gpu_aware`: whether it takes device memory of this node's GPUs, and `source`, who says so.
    """

    family: str
    title: str
    version: str
    mpicxx: str
    modules: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    gpu_aware: bool = False
    collectives: bool = False
    source: str = ""

    @property
    def called(self) -> str:
        """Name and version for people."""
        return f"{self.title} {self.version}"


@dataclass(frozen=True)
class NodeSoftware:
    """`compiler`: of the GPUs' API, empty where there is none. `ccl`: its name (`nccl`), version and folder, if any.

    `libfabric`: the folder of one that fabricbench can be built with and that has a provider for the GPUs' memory, or
    of a node without GPUs for the host's; empty where there is none. `unknown`: it was not captured.
    """

    libraries: tuple[Library, ...] = ()
    compiler: str = ""
    ccl: tuple[str, str, str] | None = None
    libfabric: str = ""
    modules_system: str = "nomod"
    notes: tuple[str, ...] = ()
    unknown: bool = False

    def as_json(self) -> dict[str, Any]:
        """Its fields as JSON can hold them."""
        return asdict(self)


def assumed_software(vendor: str) -> NodeSoftware:
    """The software to write for a node without a capture of it: unknown is not absent, so all checks are selected."""
    ccl = _CCL[APIS[vendor]][0] if vendor in APIS else ""
    what = " and ".join(
        filter(None, ("an MPI library that takes device memory" if ccl else "an MPI library", ccl.upper()))
    )
    note = (
        f"nothing, though the capture has no software: settings.py expects {what} on the PATH; name modules, `mpi` and "
        "`mpicxx` there"
    )
    library = Library("openmpi", "Open MPI", "", "mpicxx", gpu_aware=bool(ccl), collectives=bool(ccl))
    return NodeSoftware((library,), ccl=(ccl, "", "/usr") if ccl else None, notes=(note,))


def capture_all(directory: Path) -> list[str]:
    """What this node reports and the software that it has, as files in `directory`; their names.

    Raises UserError if the directory cannot be written.
    """
    with refused(f"{directory}:", "written"):
        written = capture.capture(directory)
        vendor = json.loads((directory / capture.HOST).read_text(encoding="utf-8"))["gpu_vendor"]
        content = json.dumps(find_software(vendor).as_json(), indent=2)
        (directory / capture.SOFTWARE).write_text(content + "\n", encoding="utf-8")
    return [*written, capture.SOFTWARE]


def software_of(content: Any) -> NodeSoftware:
    """What `Software.as_json` wrote. Raises ValueError for something else."""
    return _software().validate_python(content)


@functools.cache
def _software() -> TypeAdapter[NodeSoftware]:
    return TypeAdapter(NodeSoftware)


def find_software(vendor: str, environment: Mapping[str, str] | None = None) -> NodeSoftware:
    """What this node has for the GPUs of a vendor (`none`: no GPUs)."""
    base = dict(environment or os.environ)
    api = APIS.get(vendor)
    known = _modules(base)
    common: list[str] = []
    notes: list[str] = []
    compiler = _compiler(api, base)
    if api is not None and not compiler:
        common += _best(known, _COMPILER_MODULES[api])[:1]
        compiler = _compiler(api, _with_modules(common, base)) if common else ""
        if not compiler:
            common = []
            notes.append(
                f"no {_COMPILERS[api]}: fabricbench cannot be built here; give `run` built programs with --built"
            )
    with_common = _with_modules(common, base) if common else base
    ccl = _ccl(api, with_common) if api is not None else None
    if api is not None and ccl is None:
        for module in _best(known, _CCL_MODULES[api])[:1]:
            ccl = _ccl(api, _with_modules([*common, module], base))
            common += [module] if ccl else []
        if ccl is None:
            notes.append(f"no {_CCL[api][0].upper()}: checks over it are left out")
    libfabric = _libfabric(api, with_common)
    path = _path_of_compiler(api, compiler, base) if not common else {}
    libraries = [*_on_path(common, with_common), *_from_modules(known, common, base)]
    asked_libraries = [_asked(one, api, path, base) for one in _distinct(libraries)]
    system = _modules_system(base) if any(one.modules for one in asked_libraries) else "nomod"
    return NodeSoftware(tuple(asked_libraries), compiler, ccl, libfabric, system, tuple(notes))


def _asked(library: Library, api: str | None, path: Mapping[str, str], base: Mapping[str, str]) -> Library:
    """The library, with its own word on device memory where there are GPUs."""
    variables = {**library.variables}
    if path:
        variables["PATH"] = ":".join([path["PATH"].removesuffix(":$PATH"), variables.get("PATH", "$PATH")])
    environment = _with_modules(library.modules, base) if library.modules else dict(base)
    environment["PATH"] = f"{Path(library.mpicxx).parent}:{environment.get('PATH', '')}"
    word = gpu_aware(library.family, library.mpicxx, api, environment) if api is not None else GpuAware(False, "")
    return replace(
        library,
        variables={**variables, **(word.variables if word.yes else {})},
        gpu_aware=word.yes,
        collectives=word.collectives,
        source=word.source,
    )


def _on_path(common: Sequence[str], environment: Mapping[str, str]) -> list[Library]:
    """Those that need no module but the common ones: on the PATH, and the wheels of the virtual environment."""
    if environment.get("CRAY_MPICH_VERSION") and shutil.which("CC", path=environment.get("PATH")):
        loaded = environment.get("LOADEDMODULES", "").split(":")
        kept = [one for one in loaded if re.match(r"PrgEnv-|craype-accel|cray-mpich|rocm|cuda", one)]
        return [Library("cray-mpich", "Cray MPICH", environment["CRAY_MPICH_VERSION"], "CC", tuple(kept))]
    on_path = []
    for name in mpi.NAMES:
        mpi_found = mpi.find(name)
        if mpi_found is not None:
            title = mpi.LIBRARIES[name]
            # What root needs is found out anew for each run.
            variables = {key: value for key, value in mpi_found.environment.items() if key not in mpi.as_root(name)}
            commands = tuple(mpi_found.shell_commands)
            on_path.append(
                Library(name, title, mpi_found.version, str(mpi_found.mpicxx), tuple(common), variables, commands)
            )
    other = _library(common, environment)
    return on_path if other is None or other.family in mpi.NAMES else [*on_path, other]


def _from_modules(known: Sequence[str], common: Sequence[str], base: Mapping[str, str]) -> list[Library]:
    of_modules = []
    for module in _best(known, _MPI_MODULES)[:_MOST_MODULES]:
        modules = (*common, module)
        library = _library(modules, _with_modules(modules, base))
        if library is not None:
            of_modules.append(library)
    return of_modules


def _library(modules: Sequence[str], environment: Mapping[str, str]) -> Library | None:
    """The MPI library that comes first on the PATH of an environment."""
    path = environment.get("PATH")
    wrapper = shutil.which("mpicxx", path=path) or shutil.which("mpicc", path=path)
    if wrapper is None or shutil.which("mpirun", path=path) is None:
        return None
    answer = ask(["mpirun", "--version"], 30, environment)
    for pattern, family, title in _FAMILIES:
        if match := pattern.search(answer.output + answer.errors):
            return Library(family, title, match[1], wrapper, tuple(modules))
    return None


def _distinct(libraries: Iterable[Library]) -> list[Library]:
    by_path: dict[str, Library] = {}
    for library in libraries:
        by_path.setdefault(
            os.path.realpath(library.mpicxx) if os.path.isabs(library.mpicxx) else library.mpicxx, library
        )
    return [*by_path.values()]


def _compiler(api: str | None, environment: Mapping[str, str]) -> str:
    if api is None:
        return ""
    name = _COMPILERS[api]
    if compiler := shutil.which(name, path=environment.get("PATH")):
        return compiler
    homes = [environment.get(variable, "") for variable in ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH")]
    for home in (*filter(None, homes), *_USUAL[api]):
        if os.access(program := f"{home}/bin/{name}", os.X_OK):
            return program
    return ""


def _path_of_compiler(api: str | None, compiler: str, environment: Mapping[str, str]) -> dict[str, str]:
    if not compiler or api is None or shutil.which(_COMPILERS[api], path=environment.get("PATH")) == compiler:
        return {}
    return {"PATH": f"{Path(compiler).parent}:$PATH"}


def _ccl(api: str, environment: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Name, version and folder of the *CCL whose header and library are there."""
    name, header = _CCL[api]
    homes = [environment.get(f"{name.upper()}_{end}") for end in ("HOME", "ROOT", "DIR", "PREFIX", "PATH")]
    wheels = [f"{entry}/nvidia/{name}" for entry in sys.path if entry.endswith("-packages")]
    beside = [str(Path(folder).parent) for folder in environment.get("CPATH", "").split(":") if folder]
    for root in (*homes, *beside, "/usr", *_USUAL[api], "/usr/local", *wheels):
        if root is None or not (file := Path(root) / "include" / header).is_file():
            continue
        folders = [Path(root) / each for each in ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu")]
        if not any(list(folder.glob(f"lib{name.removeprefix('one')}.so*")) for folder in folders):
            continue
        numbers = dict(
            re.findall(r"#define (?:NCCL|RCCL|CCL)_(MAJOR|MINOR|PATCH)\w* +(\d+)", file.read_text(errors="replace"))
        )
        version = ".".join(numbers.get(each, "?") for each in ("MAJOR", "MINOR", "PATCH"))
        return name, version, str(root)
    return None


def _libfabric(api: str | None, environment: Mapping[str, str]) -> str:
    """The folder of the libfabric whose `fi_info` is on the PATH, if that measures NICs: by its headers and providers.

    Shared memory is not a NIC.
    """
    program = shutil.which("fi_info", path=environment.get("PATH"))
    if program is None:
        return ""
    root = Path(program).resolve().parent.parent
    header = root / "include/rdma/fi_endpoint.h"
    if not header.is_file() or "FI_OPT_FI_HMEM_P2P" not in header.read_text(errors="replace"):
        return ""
    wanted = "FI_RMA|FI_TAGGED" + ("|FI_HMEM" if api is not None else "")
    answer = ask([program, "-c", wanted], 30, environment)
    return str(root) if {*re.findall(r"^provider: (\S+)", answer.output, re.MULTILINE)} - {"shm", "sm2"} else ""


def _shell(command: str, environment: Mapping[str, str]) -> str:
    answer = ask(["bash", "-lc", command], 60, environment)
    return answer.output if answer.given else ""


def _modules(environment: Mapping[str, str]) -> list[str]:
    """The modules that `module avail` lists, without marks such as `(default)`."""
    lines = _shell("type module >/dev/null 2>&1 && module -t avail 2>&1", environment).splitlines()
    names = [re.sub(r"\(.*?\)$", "", line.strip()) for line in lines]
    return [name for name in names if name and not name.endswith((":", "/")) and " " not in name]


def _modules_system(environment: Mapping[str, str]) -> str:
    if "LMOD_CMD" in environment or _shell("echo $LMOD_CMD", environment).strip():
        return "lmod"
    version = re.search(r"Modules Release (\d+)", _shell("module --version 2>&1", environment))
    return "nomod" if version is None else "envmod"


def _best(known: Sequence[str], names: Sequence[str]) -> list[str]:
    """Of each name the module with the highest version, in the order of `names`."""
    modules = []
    for name in names:
        fitting = [one for one in known if name in one.lower().split("/")[:-1] or one.lower() == name]
        if fitting:
            modules.append(max(fitting, key=_numbers))
    return modules


def _numbers(module: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", module.rpartition("/")[2]))


def _with_modules(modules: Sequence[str], base: Mapping[str, str]) -> dict[str, str]:
    """The variables after loading modules; those before where that fails."""
    output = _shell(f"module load {' '.join(modules)} >/dev/null 2>&1 && env -0", base)
    pairs = [entry.partition("=") for entry in output.split("\0") if "=" in entry]
    return {name: value for name, _, value in pairs} or dict(base)


#: By the API of the GPUs: what the libraries call it in their own words.
_QUERIES = {
    "cuda": ("MPIX_Query_cuda_support",),
    "hip": ("MPIX_Query_rocm_support", "MPIX_Query_hip_support"),
    "sycl": ("MPIX_Query_ze_support",),
}
_OF_UCX = {"cuda": "cuda", "hip": "rocm", "sycl": "ze"}
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
    match = re.search(rf"Transport: ({_OF_UCX[api]}_\w+)", transports)
    if "mca:pml:ucx:" not in components or match is None:
        return None
    return GpuAware(True, f"pml ucx over a UCX that has {match[1]}, by ucx_info -d", _OVER_UCX)


def _output(answer: ProgramOutput) -> str:
    return answer.output if answer.given else ""
