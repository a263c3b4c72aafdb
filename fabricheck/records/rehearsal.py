"""What tells a rehearsal from a measurement: it ran on emulated GPUs (lab/README.md).

fabricbench does not know that its libraries are stand-ins. Names and UUIDs of the devices say it, whatever else a file
claims.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fabricheck.records.run import Run

#: The platform of a rehearsal, in headers, reports and labels.
EMULATED = "emulated"
#: Names of emulated GPUs begin with this.
NAME_MARK = "emulated "
#: UUIDs of emulated GPUs begin with this: "emul" in ASCII.
UUID_MARK = "656d756c"
#: What people read wherever a rehearsal has a verdict.
REHEARSAL = "REHEARSAL on emulated GPUs"


def is_emulated(name: str, uuid: str) -> bool:
    """Whether a device of this name and UUID is emulated."""
    return name.startswith(NAME_MARK) or uuid.startswith(f"GPU-{UUID_MARK}")


def is_rehearsal(run: Run) -> bool:
    """Whether any rank drove an emulated GPU, or the run is marked by `as_rehearsal`."""
    devices = [each.device for each in run.ranks if each.device is not None]
    return run.header.get("platform") == EMULATED or any(is_emulated(one.name, one.uuid) for one in devices)


def any_rehearsal(runs: Iterable[Run]) -> bool:
    """Whether any of the runs is a rehearsal."""
    return any(map(is_rehearsal, runs))


def is_mixed(runs: Iterable[Run]) -> bool:
    """Whether only some of the runs are rehearsals, so that each has to say what it is."""
    return len(set(map(is_rehearsal, runs))) > 1


def drove_real_gpus(run: Run) -> bool:
    """Whether any rank drove a GPU that is not emulated. A run without GPUs is neither this nor a rehearsal."""
    return any(each.device is not None and not is_emulated(each.device.name, each.device.uuid) for each in run.ranks)


def as_rehearsal(run: Run) -> Run:
    """The run, marked: one without GPUs does not show by itself that it ran on an emulated node."""
    return replace(run, header={**run.header, "platform": EMULATED}) if run.header else run


def marked(text: str, *, rehearsal: bool) -> str:
    """A line about a run or a session, which says first that it was a rehearsal."""
    return f"{REHEARSAL}: {text}" if rehearsal else text
