"""The one job of a fleet: requested, and given back whatever happens."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fabricheck.errors import UserError
from fabricheck.fleet.nodes import SLURM, Choice, ask_slurm
from fabricheck.fleet.record import Fleet
from fabricheck.topology.network import fold, unfold

#: Minutes of a job of which nobody says how long it is to be.
MINUTES = 60
# For ReFrame's own forms of time and for what a job waits where the site says nothing.
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_WAIT_S = 3600
_ASK_S = 30
_NAME = "fabricheck-fleet"
# States of a job in which its steps go on.
_GOES_ON = ("RUNNING", "SUSPENDED", "CONFIGURING")


@contextlib.contextmanager
def allocated(choice: Choice, partition: Mapping[str, Any], minutes: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A job on the chosen nodes, by its number, and the nodes that it has; it is cancelled in the end.

    `partition`: as in the site's settings. `minutes`: its time limit. The job of another scheduler than Slurm is that
    around this program, which is left alone and has no number here. Raises `UserError` where the scheduler refuses, or
    has no nodes in time.
    """
    if partition.get("scheduler") not in SLURM:
        yield "", choice.nodes[: choice.count]
        return
    wait = parse_duration(str(partition.get("extras", {}).get("max_pending_time", ""))) or _WAIT_S
    wait = min(wait, choice.wait_s or wait)
    command = [
        *("salloc", "--no-shell", "--no-kill", "--exclusive", f"--job-name={_NAME}", f"--immediate={wait}"),
        *_words(partition.get("access", [])),
        *_gpus(partition),
        f"--time={minutes}",
        f"--nodes={choice.count}",
        *([f"--nodelist={fold(choice.nodes)}"] if len(choice.nodes) == choice.count else []),
    ]
    answer = ask_slurm(command, wait + _ASK_S)
    output = answer.errors + answer.output
    match = re.search(r"Granted job allocation (\d+)", output)
    if match is None:
        raise UserError(f"Slurm gave no job for {choice.count} nodes in {wait} s: {_first(output)}")
    job = match[1]
    try:
        yield job, _nodes_of(job)
    finally:
        cancel(job)


def cancel(job: str, name: str = _NAME) -> None:
    """Gives back a job, by default that of a fleet; nothing happens to another one that has its number by now."""
    ask_slurm(["scancel", "--quiet", f"--name={name}", job])


def is_over(fleet: Fleet) -> bool:
    """Whether the job of a fleet has ended, which the fleet is told then; not where Slurm does not state."""
    if not fleet.job:
        return False
    try:
        answer = ask_slurm(["squeue", "--noheader", f"--jobs={fleet.job}", "--format=%T"])
    except UserError:
        return False
    if answer.output.strip() in _GOES_ON or (not answer.given and "Invalid job id" not in answer.errors):
        return False
    how = "time limit, or cancelled"
    fleet.end(f"job {fleet.job} ended before all was measured ({how}); --resume measures the rest")
    return True


def parse_duration(text: str) -> int:
    """Of a time such as `30s` or `1h30m`; 0 for another text."""
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([dhms])", text))


def _nodes_of(job: str) -> tuple[str, ...]:
    names = ask_slurm(["squeue", "--noheader", f"--jobs={job}", "--format=%N"]).output.strip()
    if not names:
        raise UserError(f"job {job} ended before anything was measured: see sacct -j {job}")
    return unfold(names)


def _gpus(partition: Mapping[str, Any]) -> list[str]:
    """Options for the GPUs of a node, as the partition's resources say them to ReFrame."""
    count = next((each["num_devices"] for each in partition.get("devices", []) if each["type"] == "gpu"), 0)
    resources = [each for each in partition.get("resources", []) if each["name"] == "_rfm_gpu"]
    return [option.format(num_gpus_per_node=count) for each in resources for option in each["options"] if count]


def _words(options: Sequence[str]) -> list[str]:
    return [word for option in options for word in option.split()]


def _first(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if "error" in line] or said.split("\n")
    return lines[0].strip() or "no output"
