"""ReFrame's settings of a system in miniature: those of the site, on the emulated cluster and its stand-ins.

Kept are partitions, devices, features, tuning and environments by name. Replaced is what belongs to the real machine:
scheduler, launcher, access, modules, compilers and where the libraries are.
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fabricheck_lab.slurm import CORES


def of_miniature(file: Path) -> dict[str, Any]:
    """The site_configuration of the miniature that `file`, the miniature.json of its suite, describes."""
    described = json.loads(file.read_text(encoding="utf-8"))
    site = runpy.run_path(described["settings"])["site_configuration"]
    system = next(one for one in site["systems"] if one["name"] == described["system"])
    wanted = described["partition"]
    partitions = [one for one in system["partitions"] if not wanted or one["name"] == wanted][:1]
    every = [one["name"] for one in site["environments"]]
    # Settings may leave a partition without any where the machine is not such a node.
    partitions = [{**one, "environs": [*one["environs"]] or every} for one in partitions]
    names = {name for partition in partitions for name in partition["environs"]}
    environments = [one for one in site["environments"] if one["name"] in names]
    return {
        "systems": [
            {
                "name": described["system"],
                "descr": f"{system.get('descr', described['system'])}, in miniature: a rehearsal",
                "hostnames": ["^login$"],
                "modules_system": "nomod",
                "partitions": [_partition(one, described) for one in partitions],
            }
        ],
        "environments": [_environment(one, described) for one in environments],
        "general": [{"target_systems": [described["system"]], "poll_rate_min": 4}],
    }


def _unsupported() -> dict[str, str]:
    """What no emulated node has, for the machine that emulates has not."""
    several = len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) > 1
    return {} if several else {"host_numa=remote": "emulated nodes have the memory of a machine with one NUMA node"}


def _partition(partition: Mapping[str, Any], described: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: partition[name] for name in ("name", "descr", "devices", "environs") if name in partition}
    real = ("network_interfaces", "cores")
    extras = {name: value for name, value in partition.get("extras", {}).items() if name not in real}
    several = described["nodes"] > 1
    features = [name for name in partition.get("features", []) if name not in ("multinode", "emulated")]
    return {
        **kept,
        "scheduler": "squeue",
        "launcher": "srun",
        "access": ["--partition=all", "--exclusive"],
        "max_jobs": 1,
        "features": [*features, *(["multinode"] if several else [])],
        "extras": {
            **extras,
            "nodes": described["nodes"],
            "max_pending_time": "60s",
            **described["effort"],
            "unsupported": {**extras.get("unsupported", {}), **_unsupported()},
            # MPI's data between nodes go over the emulated NICs, by TCP: there is nothing else.
            "network_interfaces": described["nics"],
        },
        "processor": {"num_cpus": CORES, "num_cpus_per_core": 1, "num_cpus_per_socket": CORES, "num_sockets": 1},
    }


def _environment(environment: Mapping[str, Any], described: Mapping[str, Any]) -> dict[str, Any]:
    extras = dict(environment.get("extras", {}))
    of_mpi = ("mpi", "mpicxx", "not_gpu_aware", "required_paths", "required_environment", "launcher_options")
    for name in (*of_mpi, "vendor"):
        extras.pop(name, None)
    own = described["environment"]
    # MPI's own collectives on device memory would take the processor's time, and not that of the links.
    features = [name for name in environment.get("features", []) if name != "device-collectives"]
    return {
        "name": environment["name"],
        "target_systems": [described["system"]],
        "cc": "cc",
        "cxx": "c++",
        "features": features,
        "env_vars": [*map(list, environment.get("env_vars", [])), *own["env_vars"]],
        "extras": {**extras, **own["extras"], "vendor": {}},
    }
