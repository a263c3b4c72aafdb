"""Writes src/data/variables.txt: which environment variables may be recorded with their values.

    python -m tools.variables SOURCES

Only names that a library documents, or reads in its own sources, are recorded: any other may hold a secret, whatever it
begins with. SOURCES is a folder with a clone of each repository of `REPOSITORIES` (bare ones will do); ompi_info,
pmix_info and impi_info are asked where they are on the PATH. Names that neither can tell are in `DOCUMENTED`. Without
SOURCES the names of repositories and programs stay what they are in the file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "src" / "data" / "variables.txt"
HEAD = """\
# The environment variables that are recorded, and no others, since those may hold a secret. Written by
# `python -m tools.variables`; read by fabricbench (src/CMakeLists.txt) and by fabricheck/results/environment.py.
"""
# A value under a documented name can still be a credential.
SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|_KEY|AUTH|COOKIE|PRIVATE", re.IGNORECASE)

#: Repository of GitHub, and the regular expression that finds names: its first group, with the text before it.
REPOSITORIES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "NVIDIA/nccl": (("NCCL_", r'NCCL_PARAM\(\w+, *"([A-Z0-9_]+)"'), ("", r'"(NCCL_[A-Z0-9_]+)"')),
    "ROCm/rccl": (("RCCL_", r'RCCL_PARAM\(\w+, *"([A-Z0-9_]+)"'), ("", r'(?:getenv|GetEnv)\("([NR]CCL_[A-Z0-9_]+)"')),
    "ROCm/clr": (("", r"^(?:release|debug)(?:_on_opencl)?\(\w+, *((?:HIP|GPU|ROC|AMD)_[A-Z0-9_]+)"),),
    "ROCm/ROCR-Runtime": (("", r'"((?:HSA|ROCR)_[A-Z0-9_]+)"'),),
    "ofiwg/libfabric": (("", r"\*(FI_[A-Z0-9_]+)\*"),),
    "pmodels/mpich": (("", r"name +: (MPIR_CVAR_[A-Z0-9_]+)"),),
    "oneapi-src/oneCCL": (("", r'const char\* CCL_[A-Z0-9_]+ = "(CCL_[A-Z0-9_]+)"'),),
    "cornelisnetworks/opa-psm2": (("", r'"(PSM2_[A-Z0-9_]+)"'),),
}
UCX = "openucx/ucx"
PROGRAMS = {
    "ompi_info": ("OMPI_MCA_", ("--all", "--parsable"), r"^mca:[^:]*:[^:]*:param:([A-Za-z0-9_]+):value:"),
    "pmix_info": ("PMIX_MCA_", ("--all", "--parsable"), r"^mca:[^:]*:[^:]*:param:([A-Za-z0-9_]+):value:"),
    "impi_info": ("", ("-all",), r"\b(I_MPI_[A-Z0-9_]+)"),
}
#: From documents: what it is, and the names.
DOCUMENTED = {
    "CUDA C++ Programming Guide, environment variables": """CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER
        CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_MANAGED_FORCE_DEVICE_ALLOC
        CUDA_MPS_ACTIVE_THREAD_PERCENTAGE""",
    "Slurm, srun(1), output environment variables": """SLURM_NTASKS SLURM_NNODES SLURM_CPU_BIND SLURM_JOB_PARTITION
        SLURMD_NODENAME""",
    "ld.so(8)": "LD_PRELOAD",
    "HIP, environment variables": "HIP_VISIBLE_DEVICES HIP_PLATFORM HIP_LAUNCH_BLOCKING GPU_MAX_HW_QUEUES",
    "RCCL, environment variables": "RCCL_MSCCL_ENABLE RCCL_MSCCLPP_ENABLE RCCL_MSCCLPP_THRESHOLD",
    "NCCL and aws-ofi-nccl, environment variables; libfabric, fabric(7)": """FI_PROVIDER FI_PROVIDER_PATH FI_HOOK
        FI_UNIVERSE_SIZE NCCL_DEBUG NCCL_DEBUG_FILE NCCL_DEBUG_SUBSYS NCCL_CROSS_NIC
        NCCL_IB_SL NCCL_IB_TC NCCL_MIN_NCHANNELS NCCL_MAX_NCHANNELS NCCL_MIN_CTAS NCCL_MAX_CTAS NCCL_NVLS_ENABLE
        NCCL_IGNORE_CPU_AFFINITY NCCL_NET_GDR_READ NCCL_P2P_PXN_LEVEL NCCL_PXN_DISABLE NCCL_GDRCOPY_ENABLE
        NCCL_TESTS_DEVICE NCCL_TESTS_MIN_BW NCCL_TESTS_SPLIT NCCL_TESTS_SPLIT_MASK
        NCCL_NCHANNELS_PER_PEER""",
    "OpenMP 5.2, environment variables": """OMP_NUM_THREADS OMP_PROC_BIND OMP_PLACES OMP_SCHEDULE OMP_DYNAMIC
        OMP_STACKSIZE OMP_WAIT_POLICY OMP_MAX_ACTIVE_LEVELS OMP_NESTED OMP_THREAD_LIMIT OMP_CANCELLATION
        OMP_DISPLAY_ENV OMP_DISPLAY_AFFINITY OMP_AFFINITY_FORMAT OMP_DEFAULT_DEVICE OMP_MAX_TASK_PRIORITY
        OMP_TARGET_OFFLOAD OMP_TOOL OMP_TOOL_LIBRARIES OMP_DEBUG OMP_ALLOCATOR OMP_NUM_TEAMS OMP_TEAMS_THREAD_LIMIT""",
    "Level Zero, programming guide, environment variables": """ZE_AFFINITY_MASK ZE_FLAT_DEVICE_HIERARCHY
        ZE_ENABLE_PCI_ID_DEVICE_ORDER ZE_SHARED_FORCE_DEVICE_ALLOC ZE_ENABLE_TRACING_LAYER ZE_ENABLE_VALIDATION_LAYER
        ZE_ENABLE_PARAMETER_VALIDATION ZE_ENABLE_LOADER_INTERCEPT ZE_ENABLE_ALT_DRIVERS ZE_ENABLE_LOADER_LOGGING
        ZEX_NUMBER_OF_CCS""",
    "DPC++, sycl/doc/EnvironmentVariables.md": """ONEAPI_DEVICE_SELECTOR SYCL_DEVICE_FILTER SYCL_DEVICE_ALLOWLIST
        SYCL_CACHE_PERSISTENT SYCL_CACHE_IN_MEM SYCL_CACHE_THRESHOLD SYCL_CACHE_TRACE SYCL_UR_TRACE SYCL_PI_TRACE
        SYCL_QUEUE_THREAD_POOL_SIZE SYCL_PI_LEVEL_ZERO_USE_COPY_ENGINE SYCL_PI_LEVEL_ZERO_BATCH_SIZE
        SYCL_PI_LEVEL_ZERO_USM_ALLOCATOR SYCL_HOST_UNIFIED_MEMORY SYCL_ENABLE_PCI UR_L0_USE_COPY_ENGINE
        UR_L0_USE_IMMEDIATE_COMMANDLISTS UR_L0_BATCH_SIZE UR_L0_USM_ALLOCATOR UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS
        UR_L0_USE_DRIVER_INORDER_LISTS UR_L0_SERIALIZE UR_L0_DEVICE_SCOPE_EVENTS""",
    "HPE Cray MPICH, intro_mpi(3)": """MPICH_ENV_DISPLAY MPICH_VERSION_DISPLAY MPICH_ABORT_ON_ERROR
        MPICH_ASYNC_PROGRESS MPICH_MAX_THREAD_SAFETY MPICH_NO_BUFFER_ALIAS_CHECK MPICH_OPTIMIZED_MEMCPY
        MPICH_MEMORY_REPORT MPICH_RANK_REORDER_METHOD MPICH_RANK_REORDER_DISPLAY MPICH_CPUMASK_DISPLAY
        MPICH_COLL_SYNC MPICH_COLL_OPT_OFF MPICH_ALLTOALL_SHORT_MSG MPICH_ALLTOALLV_THROTTLE
        MPICH_ALLTOALL_SYNC_FREQ MPICH_ALLREDUCE_NO_SMP MPICH_ALLREDUCE_BLK_SIZE MPICH_ALLREDUCE_MAX_SMP_SIZE
        MPICH_ALLGATHER_VSHORT_MSG MPICH_ALLGATHERV_VSHORT_MSG MPICH_BCAST_ONLY_TREE MPICH_BCAST_INTERNODE_RADIX
        MPICH_BCAST_INTRANODE_RADIX MPICH_REDUCE_NO_SMP MPICH_SHARED_MEM_COLL_OPT MPICH_GPU_SUPPORT_ENABLED
        MPICH_GPU_IPC_ENABLED MPICH_GPU_IPC_THRESHOLD MPICH_GPU_IPC_CACHE_MAX_SIZE MPICH_GPU_EAGER_REGISTER_HOST_MEM
        MPICH_GPU_EAGER_DEVICE_MEM MPICH_GPU_NO_ASYNC_COPY MPICH_GPU_COLL_STAGING_BUF_SIZE
        MPICH_GPU_ALLREDUCE_BLK_SIZE MPICH_GPU_ALLREDUCE_USE_KERNEL MPICH_GPU_ALLREDUCE_KERNEL_THRESHOLD
        MPICH_GPU_MANAGED_MEMORY_SUPPORT_ENABLED MPICH_GPU_USE_STREAM_TRIGGERED MPICH_SMP_SINGLE_COPY_MODE
        MPICH_SMP_SINGLE_COPY_SIZE MPICH_SMPDEV_BUFS_PER_PROC MPICH_OFI_NIC_POLICY MPICH_OFI_NIC_MAPPING
        MPICH_OFI_NUM_NICS MPICH_OFI_NUM_CQ_ENTRIES MPICH_OFI_NIC_VERBOSE MPICH_OFI_VERBOSE MPICH_OFI_USE_PROVIDER
        MPICH_OFI_CQ_STALL MPICH_OFI_CXI_COUNTER_REPORT MPICH_OFI_CXI_COUNTER_VERBOSE MPICH_OFI_DEFAULT_TCLASS
        MPICH_OFI_TCLASS_ERRORS MPICH_OFI_STARTUP_CONNECT MPICH_OFI_RMA_STARTUP_CONNECT MPICH_OFI_SKIP_NIC_SYMMETRY_TEST
        MPICH_OFI_HIGHWATER_MARK MPICH_OFI_DISABLE_TAGINJECT MPICH_SINGLE_HOST_ENABLED MPICH_MPIIO_HINTS""",
    "MPICH 4.0, README.envvar": "MPIR_CVAR_CH4_OFI_ENABLE_GPU_PIPELINE MPIR_CVAR_CH4_OFI_ENABLE_GPU_RDMA",
    "MVAPICH2 user guide": """MV2_USE_CUDA MV2_USE_ROCM MV2_ENABLE_AFFINITY MV2_CPU_BINDING_POLICY
        MV2_CPU_BINDING_LEVEL MV2_CPU_MAPPING MV2_IBA_HCA MV2_NUM_HCAS MV2_NUM_PORTS MV2_RAIL_SHARING_POLICY
        MV2_USE_GDRCOPY MV2_USE_GPUDIRECT MV2_GPUDIRECT_LIMIT MV2_CUDA_IPC MV2_CUDA_BLOCK_SIZE MV2_USE_RDMA_CM
        MV2_IBA_EAGER_THRESHOLD MV2_SMP_EAGERSIZE MV2_USE_SHARED_MEM MV2_SHOW_ENV_INFO MV2_SHOW_CPU_BINDING""",
}


def documented() -> Iterator[tuple[str, set[str]]]:
    for source, names in DOCUMENTED.items():
        yield source, set(names.split())


def from_repositories(sources: Path) -> Iterator[tuple[str, set[str]]]:
    for name, patterns in REPOSITORIES.items():
        text = _lines(_folder(sources, name), "_[A-Z]")
        names = {prefix + match for prefix, pattern in patterns for match in re.findall(pattern, text, re.MULTILINE)}
        yield f"{name} {_revision(_folder(sources, name))}", names
    yield f"{UCX} {_revision(_folder(sources, UCX))}", set(_ucx(_folder(sources, UCX)))


def from_programs() -> Iterator[tuple[str, set[str]]]:
    """Every installation on the PATH is asked, since each version has names of its own."""
    for program, (prefix, options, pattern) in PROGRAMS.items():
        names: set[str] = set()
        for folder in os.environ["PATH"].split(os.pathsep):
            if (path := shutil.which(program, path=folder)) is not None:
                text = subprocess.run([path, *options], capture_output=True, check=False).stdout.decode(
                    "utf-8", "replace"
                )
                names |= {prefix + one for one in re.findall(pattern, text, re.MULTILINE)}
        if names:
            yield f"{program} {' '.join(options)}", names


def _folder(sources: Path, name: str) -> Path:
    owner, _, repository = name.partition("/")
    candidates = (sources / name, sources / repository, sources / f"{owner}+{repository}" / "repo")
    return next(each for each in candidates if each.is_dir())


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, errors="replace").stdout


def _revision(folder: Path) -> str:
    return _git(folder, "log", "-1", "--format=%h of %cs").strip()


def _lines(folder: Path, word: str) -> str:
    return _git(folder, "grep", "-hIE", word, "HEAD")


def _ucx(folder: Path) -> Iterator[str]:
    """What `ucx_info -f` prints: the fields of each table, with the prefixes of the tables that it is a part of."""
    text = _git(folder, "grep", "-hI", "-e", "", "HEAD", "--", "src/*.c", "src/*.h", "src/*.cc")
    constants = dict(re.findall(r'#define +(\w+_PREFIX) +"([A-Z0-9_]*)"', text))
    tables = {name: _fields(body, constants) for name, body in re.findall(_TABLE, text)}
    roots = re.findall(r'UCS_CONFIG_(?:REGISTER|DECLARE)_TABLE\((\w+),\s*"[^"]*",\s*(NULL|"\w*"|\w+)', text)
    roots += [(table, prefix) for prefix, table in re.findall(r'("[A-Z0-9_]+_"),\s*(\w+_config_table)', text)]
    roots += [(table, prefix) for prefix, table in re.findall(r"\.prefix\s*=\s*([^,]+),\s*\.table\s*=\s*(\w+)", text)]
    for table, prefix in roots:
        start = prefix.strip('"') if prefix.startswith('"') else constants.get(prefix, "")
        yield from (f"UCX_{name}" for name in _flat(table, start, tables, 0))


_TABLE = re.compile(r"ucs_config_field_t\s+(\w+)\[\]\s*=\s*\{(.*?)\n\};", re.DOTALL)
_FIELD = re.compile(
    r'^\s*\{\s*(?:"([A-Z0-9_]*)"|([A-Z0-9_]+))\s*,(.*?)(?=^\s*\{\s*(?:"|[A-Z]|NULL)|\Z)', re.DOTALL | re.MULTILINE
)


def _fields(body: str, constants: Mapping[str, str]) -> list[tuple[str, str]]:
    """Name of each field, and the table that it stands for."""
    fields = []
    for match in _FIELD.finditer(body):
        inner = re.search(r"UCS_CONFIG_TYPE_TABLE\((\w+)\)", match[3])
        fields.append((match[1] if match[1] is not None else constants.get(match[2], ""), inner[1] if inner else ""))
    return fields


def _flat(table: str, prefix: str, tables: Mapping[str, list[tuple[str, str]]], depth: int) -> Iterator[str]:
    for name, inner in tables.get(table, ()):
        if inner and depth < 8:
            # A part's fields go by the prefix of the whole, and by the part's own.
            yield from _flat(inner, prefix, tables, depth + 1)
            yield from _flat(inner, name, tables, depth + 1) if name else ()
        elif name:
            yield prefix + name


def main() -> None:
    parts = [*documented()]
    if len(sys.argv) > 1:
        parts += [*from_repositories(Path(sys.argv[1])), *from_programs()]
    else:
        old = re.split(r"\n# from ", FILE.read_text(encoding="utf-8"))[1:]
        known = {source for source, _ in parts}
        parts += [(one.splitlines()[0], set(one.splitlines()[1:])) for one in old if one.splitlines()[0] not in known]
    written: set[str] = set()
    text = HEAD
    for source, names in parts:
        fresh = sorted(name for name in names - written if name and SECRET.search(name) is None)
        written |= set(fresh)
        text += "\n".join([f"# from {source}", *fresh, ""])
        print(f"{len(fresh):6}  {source}")
    FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
