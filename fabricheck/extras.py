"""What the `extras` of a site's settings say beside what ReFrame knows, and what is wrong with them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fabricheck.errors import UserError
from fabricheck.records.operations import SETTINGS, VICTIMS
from fabricheck.results.fabricbench_format import is_plan_setting
from fabricheck.units import bound_sizes, coarser_sizes

#: What an aggressor's messages have where fabricbench is told nothing else.
AGGRESSOR_BYTES = 1 << 20
#: What is read of the extras of a partition, and of those of an environment, with its meaning.
KEYS: Mapping[str, Mapping[str, str]] = {
    "partition": {
        "budget": "seconds of measuring for one size of one pair or group, where checks take too long (0.1 without)",
        "build_in_job": "true: fabricbench and vendor suites are built in a job, not on the login node",
        "cores": 'the cores next to each GPU, in the order of the GPUs, as Linux writes them: `["0-71", "72-143"]`',
        "fleet": "written by `run --nodes` itself: the nodes of its job",
        "gpus_per_node": "GPUs of a node",
        "max_pending_time": "how long a job may wait in the queue, such as `1h`",
        "most_bytes": (
            "largest size in bytes, for machines with little memory: larger sizes of a check and of its aggressors "
            "are measured at it"
        ),
        "most_bytes_between_nodes": "the same where several nodes take part",
        "most_bytes_by_host": (
            "the same for what goes from GPUs to the host of their node or over it, which may be much slower than "
            "from GPU to GPU"
        ),
        "most_nodes": "how many nodes one job of checks takes at most",
        "network_interfaces": "interfaces that the data may take beside the NICs of topology.yaml",
        "nodes": "how many nodes the partition has",
        "size_step": "sizes of a range grow at least by this factor, where checks take too long",
        "tuning_profile": "a profile of `config/tuning.yaml`",
        "unsupported": (
            "settings that the machine does not support, each with the reason "
            "([example](site-files.md#1-settingspy-partitions-and-environments))"
        ),
    },
    "environment": {
        "backend": "`host`, `cuda`, `hip` or `sycl` ([SYCL](../src/sycl.md))",
        "ccl_home": "folder of oneCCL, for the vendor suites",
        "cmake_options": "further options with which fabricbench is built, such as `-DNCCL_ROOT=…`",
        "container": (
            "`platform`, `image` and `options` of the container in which ranks run ([containers](your-own-reframe.md))"
        ),
        "cuda_home": "folder of CUDA, for the vendor suites",
        "cxx": "compiler of fabricbench, where it is another than the environment's `cxx`",
        "gpu_arch": "what to compile for: `90`, `gfx90a`, `intel_gpu_pvc`; several with `;`",
        "hip_platform": "`nvidia`: HIP's own back end for NVIDIA devices",
        "launcher_options": "further options of the launcher, such as those that bind ranks",
        "most_ranks": "how many ranks a job has at most",
        "mpi": "the MPI library: `openmpi`, `mpich`, `cray-mpich`, `impi`",
        "mpicc": "its C wrapper, where it is not beside `mpicxx`",
        "mpicxx": "its C++ wrapper",
        "nccl_home": "folder of NCCL, for the vendor suites",
        "not_gpu_aware": "why MPI cannot take device memory; checks of MPI on device memory do not start there",
        "rank_nics": (
            "`round-robin`: the library binds the ranks of a node to its NICs in turn, so that ranks without a GPU "
            "can measure each NIC"
        ),
        "rccl_home": "folder of RCCL, for the vendor suites",
        "required_environment": "variables, with their values, that have to be in effect on all ranks; else INVALID",
        "required_paths": "by transport, what has to be among the transport paths; else INVALID",
        "rocm_path": "folder of ROCm, for the vendor suites",
        "share_devices": "true: ranks may share a GPU",
        "sycl_compiler": "another compiler than `icpx`",
        "sycl_home": "folder of the SYCL compiler, for the vendor suites",
        "tried": "written by `upgrade` itself: variables to try, null to unset them",
        "vendor": "where the [vendor suites](vendor-tools.md) are",
    },
}


def misplaced_keys(extras: Mapping[str, object], of: str) -> Iterator[str]:
    """One line for each key that is nearly one of `of`, a `partition` or an `environment`, or is one of the other's.

    A site may have more keys, for its own checks.
    """
    (other,) = KEYS.keys() - {of}
    for key in map(str, extras):
        if key in KEYS[of]:
            continue
        if key in KEYS[other]:
            yield f"{key!r} in extras of the {of} has no effect: move it to those of the {other}"
        elif near := difflib.get_close_matches(key, sorted(KEYS[of]), 1, 0.8):
            yield f"{key!r} in extras is unknown: did you mean {near[0]!r}?"


@dataclass(frozen=True)
class Effort:
    """How much checks measure on a partition, where its `extras` say less than the checks do by themselves.

    `most_bytes`: the largest size; `most_bytes_between_nodes` between nodes, and inside one `most_bytes_by_host` on the
    way from GPUs to the host or over it, where those are given. `size_step`: sizes of a range grow by this factor at
    least. `budget`: seconds of measuring for one size of one pair or group. None: as the check says.
    """

    most_bytes: int | None = None
    size_step: int | None = None
    budget: float | None = None

    @classmethod
    def of(cls, extras: Mapping[str, Any], nodes: int, *, by_host: bool = False) -> Effort:
        """That of a check over so many nodes. `by_host`: inside a node, data leave GPUs for the host's memory."""
        special = "most_bytes_between_nodes" if nodes > 1 else "most_bytes_by_host" if by_host else "most_bytes"
        most = extras.get(special, extras.get("most_bytes"))
        return cls(most, extras.get("size_step"), extras.get("budget"))

    def sizes(self, text: str) -> str:
        """A check's sizes, as fabricbench takes them, with none too large."""
        bound = text if self.most_bytes is None else bound_sizes(text, self.most_bytes)
        return bound if self.size_step is None else coarser_sizes(bound, self.size_step)

    def aggressors(self, operations: Iterable[str]) -> dict[str, str]:
        """The setting with which the messages of aggressors are not too large either, where there are any."""
        most = self.most_bytes
        disturbs = most is not None and most < AGGRESSOR_BYTES and not VICTIMS.keys().isdisjoint(operations)
        return {"aggressor_size": str(most)} if disturbs else {}


def effort_problems(extras: Mapping[str, object]) -> Iterator[str]:
    """What is wrong with the keys of `Effort`."""
    for name in ("most_bytes", "most_bytes_between_nodes", "most_bytes_by_host"):
        most = extras.get(name, 1)
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            yield f"{name} {most!r} in extras is not a number of bytes: give a whole number, such as {1 << 20}"
    step = extras.get("size_step", 2)
    if isinstance(step, bool) or not isinstance(step, int) or step < 2:
        yield f"size_step {step!r} in extras is not a factor between sizes: give a whole number from 2 up"
    budget = extras.get("budget", 1)
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not 0 < budget <= 3600:
        yield f"budget {budget!r} in extras is not a time: give seconds, such as 0.1"


def parse_cores(text: str) -> frozenset[int]:
    """The cores of a list as Linux writes it, such as `0-7,64-71`. Raises UserError for anything else."""
    cores: set[int] = set()
    for part in text.split(",") if isinstance(text, str) else [""]:
        ends = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part, re.ASCII)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if last < first:
            raise UserError(f"{text!r} is not a list of cores: give ranges, such as 0-7,64-71")
        cores |= set(range(first, last + 1))
    return frozenset(cores)


def cores_problems(extras: Mapping[str, Any], gpus: int) -> Iterator[str]:
    """What is wrong with `cores`, the cores of each of a node's `gpus` GPUs."""
    cores = extras.get("cores")
    if cores is None:
        return
    if not isinstance(cores, list) or len(cores) != gpus:
        yield f"cores in extras is not a list of the cores of each GPU: give {gpus} texts such as '0-7,64-71'"
        return
    for text in cores:
        try:
            parse_cores(text)
        except UserError as error:
            yield f"cores in extras: {error}"


def number_of_nodes(extras: Mapping[str, object], by_topology: int) -> int:
    """How many nodes a partition has: as its `extras` say, else its topology; 0 where neither does."""
    nodes = extras.get("nodes")
    return nodes if isinstance(nodes, int) else by_topology


def nodes_problems(partition: Mapping[str, object], by_topology: int) -> Iterator[str]:
    """What is missing about a partition's number of nodes, so that checks of the network would silently not exist."""
    given = partition.get("extras")
    extras: Mapping[str, object] = given if isinstance(given, dict) else {}
    for name in ("nodes", "most_nodes"):
        value = extras.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            yield f"{name} {value!r} in extras is not a number of nodes: give a whole number from 1 up"
            return
    known, features = number_of_nodes(extras, by_topology), partition.get("features")
    if known == 0 and partition.get("scheduler") != "local":
        missing = "has no number of nodes, so its network would not be tested"
        yield f"{missing}: give nodes in extras, or fabric or network in topology.yaml; 1 for single nodes"
    elif known < 2 and isinstance(features, list) and "multinode" in features:
        yield f"has the feature multinode and {known or 'no number of'} nodes: give nodes in extras"


def unsupported_settings(extras: Mapping[str, object], settings: Mapping[str, str]) -> str:
    """What of `settings` a partition says that it does not support, with its reasons; empty where all is supported."""
    unsupported = extras.get("unsupported")
    known = unsupported if isinstance(unsupported, dict) else {}
    needed = [f"{name}={value}" for name, value in settings.items()]
    return "; ".join(f"{each}: {known[each]}" for each in needed if each in known)


def unsupported_problems(unsupported: object) -> Iterator[str]:
    """What is wrong with the value of `unsupported`: a reason by each setting that the machine does not support."""
    if not isinstance(unsupported, dict):
        yield "unsupported is not a map of settings, such as host_numa=remote, to reasons"
        return
    for setting, reason in unsupported.items():
        if not is_plan_setting(*str(setting).partition("=")[::2]):
            yield f"unsupported has {setting!r}, which is not a NAME=VALUE of {', '.join(SETTINGS)}"
        if not isinstance(reason, str) or not reason.strip():
            yield f"unsupported has {setting!r} without a reason: state what showed it, and when"
