"""How a node is measured: partitions and environments of its settings.py, and what cannot be done, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fabricheck import mpi
from fabricheck.errors import UserError
from fabricheck.site.found import NodeFacts
from fabricheck.site.slurm import Partition, Slurm
from fabricheck.site.software import APIS, Library, assumed_software
from fabricheck.topology.network import fold

_LINKS = (("NVLink", "nvlink"), ("Infinity Fabric", "xgmi"), ("Xe Link", "xelink"))


@dataclass(frozen=True)
class Choices:
    """What a user says of Slurm's jobs: partitions by name (none: the largest that fits), and further options."""

    partitions: tuple[str, ...] = ()
    access: tuple[str, ...] = ()


@dataclass(frozen=True)
class SitePlan:
    """`left_out`: what is not measured and why, one line each."""

    system: str
    description: str
    partitions: tuple[dict[str, Any], ...]
    environments: tuple[dict[str, Any], ...]
    nodes: tuple[str, ...]
    modules_system: str
    hostname: str
    left_out: tuple[str, ...]

    def configuration(self) -> dict[str, Any]:
        """ReFrame's `site_configuration`."""
        return {
            "systems": [
                {
                    "name": self.system,
                    "descr": self.description,
                    "hostnames": [self.hostname],
                    "modules_system": self.modules_system,
                    "max_local_jobs": 1,
                    "partitions": [*self.partitions],
                }
            ],
            # ReFrame looks ever more rarely whether a job is done, down to once in 10 s.
            "general": [{"target_systems": [self.system], "poll_rate_min": 4}],
            "environments": [*self.environments],
        }


def plan(facts: NodeFacts, system: str, description: str, choices: Choices) -> SitePlan:
    """The settings of a node that runs its own jobs, or of Slurm's partitions with such nodes.

    Raises UserError for a partition that Slurm does not have.
    """
    left_out: list[str] = []
    if facts.software.unknown:
        facts = replace(facts, software=assumed_software(facts.vendor))
    require_partitions(facts, choices.partitions)
    slurm, chosen = facts.slurm, _partitions(facts, choices, left_out)
    libraries = [*facts.software.libraries]
    if slurm is not None and chosen:
        libraries = _startable(libraries, slurm, left_out)
    # The first measures all that needs no MPI: a GPU-aware one is as good as any, and preferred.
    libraries.sort(key=lambda one: not one.gpu_aware)
    environments = _environments(facts, libraries, slurm if chosen else None, system)
    if facts.gpus:
        for library in libraries:
            if not library.gpu_aware:
                left_out.append(f"MPI on device memory, since {mpi.not_gpu_aware(library.family, _word(library))}")
    if not libraries:
        left_out.append("everything: no MPI library is on the PATH, in a module or in the virtual environment")
    if any(len(one.nodes) > 1 for one in chosen) and not facts.nics:
        left_out.append("the rate of the network: no port with a rate is in /sys; give nics in topology.yaml")
    if not facts.cores:
        left_out.append("processor: no source has the number of cores: add the output of `LC_ALL=C lscpu`")
    left_out += facts.software.notes
    names = [each["name"] for each in environments]
    partitions = [_slurm_partition(facts, slurm, one, names, choices) for one in chosen if slurm is not None]
    return SitePlan(
        system=system,
        description=description,
        partitions=tuple(partitions or [_local_partition(facts, names)]),
        environments=tuple(environments),
        nodes=chosen[0].nodes if chosen else (),
        modules_system=facts.software.modules_system,
        hostname=".*" if chosen else facts.hostname or ".*",
        left_out=tuple(dict.fromkeys(left_out)),
    )


def require_partitions(facts: NodeFacts, names: Sequence[str]) -> None:
    """Raises UserError for a name that is not a partition of Slurm."""
    known = [one.name for one in facts.slurm.partitions] if facts.slurm is not None else []
    for name in names:
        if name not in known:
            has = ", ".join(dict.fromkeys(known)) or "none, or there is no Slurm here"
            raise UserError(f"--partition {name}: Slurm has no such partition, but {has}")


def _word(library: Library) -> str:
    return f"{library.called} ({library.source})"


def _partitions(facts: NodeFacts, choices: Choices, left_out: list[str]) -> list[Partition]:
    """Slurm's partitions whose nodes have as many GPUs as the captured one: those that were named, or the largest."""
    if facts.slurm is None:
        return []
    known = facts.slurm.partitions
    # Where Slurm gives out whole nodes, it need not know of their GPUs.
    here = [one for one in known if not one.gpus and facts.hostname in one.nodes]
    fitting = [one for one in known if one.gpus == len(facts.gpus) and not one.slices] or here
    for part in (each for each in known if each.slices):
        left_out.append(
            f"partition {part.name}: its nodes offer {part.gpus} slices of GPUs (MIG {part.gres}), without links: "
            "switch MIG off"
        )
    known = tuple(one for one in known if not one.slices)
    for part in known:
        if part.gpus and part.gpus != len(facts.gpus) and (not choices.partitions or part.name in choices.partitions):
            left_out.append(
                f"partition {part.name}: its nodes have {part.gpus} GPUs and this capture {len(facts.gpus)}: "
                "capture one of its nodes, and give it to `fabricheck init --from FOLDER`"
            )
    if facts.gpus and not fitting and not any(one.gpus for one in known):
        names = ", ".join(dict.fromkeys(one.name for one in known))
        left_out.append(f"jobs of Slurm: no gres (sinfo: GRES) of {names} has GPUs, and no partition has this node")
    if choices.partitions:
        return [one for one in fitting if one.name in choices.partitions]
    return sorted(fitting, key=lambda one: -len(one.nodes))[:1]


def _startable(libraries: Sequence[Library], slurm: Slurm, left_out: list[str]) -> list[Library]:
    """Those whose ranks srun can start; without its interface each rank would be alone, and exit with 0."""
    if slurm.interfaces is None:
        left_out.append("launcher_options of srun: its --mpi=list is not in the capture")
        return [*libraries]
    startable = []
    for library in libraries:
        if slurm.interface_of(library.family) is not None:
            startable.append(library)
        else:
            offered = ", ".join(slurm.interfaces) or "nothing"
            left_out.append(f"{library.called}: srun has no interface to start its ranks (srun --mpi=list: {offered})")
    return startable


def _environments(
    facts: NodeFacts, libraries: Sequence[Library], slurm: Slurm | None, system: str
) -> list[dict[str, Any]]:
    families = Counter(one.family for one in libraries)
    environments: list[dict[str, Any]] = []
    for mpi_library in libraries:
        name = (
            mpi_library.family if families[mpi_library.family] == 1 else f"{mpi_library.family}-{mpi_library.version}"
        )
        if any(each["name"] == name for each in environments):
            name = f"{name}-{len(environments)}"
        interface = slurm.interface_of(mpi_library.family) if slurm is not None else None
        # Copies, kernels, *CCL and NICs do not depend on the MPI library: one environment measures them.
        alone = not environments
        features, extras = _gpu_parts(facts, mpi_library, alone=alone) if facts.gpus else ([], {})
        if alone and facts.nics and (libfabric := facts.software.libfabric):
            features = [*features, "libfabric"]
            if libfabric != "/usr":
                extras["cmake_options"] = [*extras.get("cmake_options", []), f"-DLIBFABRIC_ROOT={libfabric}"]
        environments.append(
            {
                "name": name,
                "target_systems": [system],
                **({"modules": [*mpi_library.modules]} if mpi_library.modules else {}),
                **(
                    {"env_vars": [[key, value] for key, value in mpi_library.variables.items()]}
                    if mpi_library.variables
                    else {}
                ),
                **({"prepare_cmds": [*mpi_library.commands]} if mpi_library.commands else {}),
                "features": ["mpi", *features],
                "cc": "cc",
                "cxx": "CC" if mpi_library.family == "cray-mpich" else "c++",
                "extras": {
                    "backend": "host",
                    "mpi": mpi_library.family,
                    "mpi_version": mpi_library.version,
                    "mpicxx": mpi_library.mpicxx,
                    **extras,
                    **({"launcher_options": [f"--mpi={interface}"]} if interface else {}),
                    # Which vendor suites are here is the site's to say: docs/vendor-tools.md.
                    "vendor": {},
                },
            }
        )
    return environments


def _gpu_parts(facts: NodeFacts, library: Library, *, alone: bool) -> tuple[list[str], dict[str, Any]]:
    """Features and extras of an environment that drives GPUs; `alone`: it measures what needs no MPI, too."""
    api, arch, ccl = APIS[facts.vendor], facts.gpus[0].arch, facts.software.ccl
    features, extras = [api], {"backend": api}
    if alone and ccl:
        features.append(ccl[0])
    if library.collectives:
        features.append("device-collectives")
    more: dict[str, Any] = {}
    if arch != "unknown":
        more["gpu_arch"] = arch.removeprefix("sm_") if api == "cuda" else arch
    if ccl and alone and ccl[2] != "/usr":
        more["cmake_options"] = [f"-D{ccl[0].upper()}_ROOT={ccl[2]}"]
    if not library.gpu_aware:
        more["not_gpu_aware"] = _word(library)
    return features, {**extras, **more}


def _common(facts: NodeFacts, environments: Sequence[str]) -> dict[str, Any]:
    """What partitions of this node have in common, however jobs get there."""
    unsupported = {}
    if facts.gpus and facts.cores and len(facts.numa_nodes) == 1:
        unsupported = {"unsupported": {"host_numa=remote": "one NUMA node, by `fabricheck init`"}}
    content: dict[str, Any] = {"environs": [*environments], "max_jobs": 1}
    if facts.gpus:
        gpu = facts.gpus[0]
        joined = [name for technology, name in _LINKS if any(x.technology.startswith(technology) for x in facts.links)]
        content["features"] = ["gpu", APIS[facts.vendor], *joined, *(["nvswitch"] if facts.has_switch else [])]
        content["devices"] = [{"type": "gpu", "arch": gpu.arch, "model": gpu.model, "num_devices": len(facts.gpus)}]
    if facts.cores:
        content["processor"] = {
            "num_cpus": facts.cores,
            "num_cpus_per_core": 1,
            "num_cpus_per_socket": facts.cores // max(1, facts.sockets) or 1,
            "num_sockets": max(1, facts.sockets),
        }
    content["extras"] = {"tuning_profile": "default", "gpus_per_node": len(facts.gpus), "nodes": 1, **unsupported}
    return content


def _local_partition(facts: NodeFacts, environments: Sequence[str]) -> dict[str, Any]:
    start = {"name": "default", "descr": "the node itself", "scheduler": "local", "launcher": "mpirun"}
    return {**start, **_common(facts, environments)}


def _slurm_partition(
    facts: NodeFacts, slurm: Slurm, part: Partition, environments: Sequence[str], choices: Choices
) -> dict[str, Any]:
    common = _common(facts, environments)
    common["extras"] |= {"nodes": len(part.nodes), "most_nodes": min(len(part.nodes), 64)}
    kind = f"{part.gres}:" if part.gres else ""
    asked = {"name": "_rfm_gpu", "options": [f"--gres=gpu:{kind}{{num_gpus_per_node}}"]}
    return {
        "name": part.name,
        "descr": f"{len(part.nodes)} nodes of Slurm's partition {part.name}: {fold(part.nodes)}",
        # Without accounting Slurm forgets how a job ended; the exit status is left in a file.
        "scheduler": "slurm" if slurm.accounting else "squeue",
        "launcher": "srun",
        "access": [f"--partition={part.name}", "--exclusive", *choices.access],
        **({"resources": [asked]} if part.gpus else {}),
        **common,
    }
