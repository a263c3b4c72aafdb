"""Whether a run drove the GPUs that the system's topology describes, by the number in the name of their model."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fabricheck.records.finding import Finding
from fabricheck.records.rehearsal import is_rehearsal
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.topology.model import Topology

# H100, GH200, MI250X; not 80GB, HBM3 or SXM4. Names without one, such as "PVC tile", say nothing here.
_NUMBER = re.compile(r"(?<![A-Za-z0-9])[A-Z]{1,3}[0-9]{2,4}[A-Z]{0,2}(?![A-Za-z0-9])")

# The GPU of a Grace Hopper superchip calls itself by the name of that; papers and people also say what it is.
_ALSO = {"GH200": "H100"}


def problem_of_gpus(run: Run, topology: Topology) -> Finding | None:
    """INVALID where ranks drove GPUs of another model than the topology has: another system's file was given."""
    described = [gpu.model for gpu in topology.gpus]
    known = _numbers(described)
    if not known or is_rehearsal(run):
        return None
    for rank in run.ranks:
        name = rank.device.name if rank.device is not None else ""
        found = _numbers([name])
        if found and not found & known:
            wanted = " and ".join(dict.fromkeys(described))
            todo = "give the system of this machine, or correct `model` in its topology"
            what = f"rank {rank.rank} used {name}, and the GPUs of {topology.system} are {wanted}"
            return Finding("other-gpus", Verdict.INVALID, f"{run.path}: {what}: {todo}")
    return None


def _numbers(names: Iterable[str]) -> set[str]:
    return {_ALSO.get(number, number) for name in names for number in _NUMBER.findall(name)}
