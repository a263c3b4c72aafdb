"""Which nodes a fleet has: what the user asks for, held against what the scheduler says of the partition's nodes."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError
from fabricheck.state.programs import ProgramOutput, ask
from fabricheck.topology.network import fold, unfold

#: ReFrame's schedulers for it.
SLURM = ("slurm", "squeue")
PBS, FLUX = ("pbs", "torque"), "flux"
_ASK_S = 30
# Who asks for idle nodes does not want to wait until those that were taken meanwhile are idle again.
_IDLE_WAIT_S = 60
# What Slurm's long states begin with (sinfo(1), NODE STATE CODES), and marks behind them.
_FREE, _BUSY = ("idle",), ("alloc", "mix", "comp")
_MARKS = "*~#!%$@^-+"


@dataclass(frozen=True)
class Choice:
    """The `nodes` that are to be in the job, `count` of which are wanted; `unchecked`: which are left out, and why, and
    `notes`: lines for the user. `wait_s`: how long the job may wait at most; 0: as long as the site says."""

    nodes: tuple[str, ...]
    count: int
    unchecked: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    wait_s: int = 0


def states_of(partition: Mapping[str, Any]) -> dict[str, str]:
    """State of each node that can be requested: of Slurm's partition, else of the job in which this runs.

    From outside of a job neither PBS nor Flux starts ranks on its nodes. Raises `UserError`.
    """
    scheduler = str(partition.get("scheduler"))
    if scheduler in SLURM:
        return slurm_states(partition.get("access", []))
    if scheduler in PBS:
        return dict.fromkeys(_nodes_of_pbs(), _FREE[0])
    if scheduler == FLUX:
        return dict.fromkeys(_nodes_of_flux(), _FREE[0])
    raise UserError(f"--nodes is for Slurm, PBS and Flux, and this is {scheduler}: use ReFrame's --distribute")


def _nodes_of_pbs() -> list[str]:
    file = os.environ.get("PBS_NODEFILE", "")
    try:
        return Path(file).read_text(encoding="utf-8").split()
    except OSError:
        raise UserError(
            "--nodes on PBS is for a shell inside a job: qsub -I -l select=N -l place=scatter:excl, then run this again"
        ) from None


def _nodes_of_flux() -> list[str]:
    answer = ask(["flux", "getattr", "hostlist"], _ASK_S) if "FLUX_URI" in os.environ else None
    if answer is None or not answer.given or not answer.output.strip():
        raise UserError(
            "--nodes on Flux is for a shell inside a job: flux alloc -N COUNT --exclusive, then run this again"
        )
    return list(unfold(answer.output.strip()))


def slurm_states(access: Sequence[str]) -> dict[str, str]:
    """State of each node of the partition that the `access` options name, else of all. Raises `UserError`."""
    partition = partition_of(access)
    states = _ask_slurm("%N %T", f"--partition={partition}" if partition else "--all")
    if isinstance(states, str):
        raise UserError(f"Slurm does not name the nodes of {partition or 'all partitions'}: {states}")
    return dict(states)


def slurm_partitions() -> dict[str, str]:
    """The partition of each node, of several one; none where Slurm does not state. Raises `UserError`."""
    partitions = _ask_slurm("%N %R", "--all")
    return {} if isinstance(partitions, str) else dict(partitions)


def _ask_slurm(columns: str, which: str) -> list[tuple[str, str]] | str:
    """Two words for each node, or why there are none. Raises `UserError` where the scheduler does not answer."""
    answer = ask_slurm(["sinfo", "--noheader", "--Node", f"--format={columns}", which])
    answers = [(words[0], words[1]) for line in answer.output.splitlines() if len(words := line.split()) > 1]
    if not answer.given or not answers:
        return (answer.errors.strip().splitlines() or ["it has no nodes"])[0]
    return answers


def ask_slurm(command: Sequence[str], limit_s: float = _ASK_S) -> ProgramOutput:
    """What a command of Slurm says. Raises `UserError` where it is not here, or does not answer."""
    answer = ask(command, limit_s)
    if answer.missing:
        raise UserError(f"{command[0]} of Slurm is not installed here: run this on a login node of the cluster")
    if answer.late:
        raise UserError(f"{command[0]} did not respond in {limit_s:g} s: see scontrol ping")
    return answer


def partition_of(access: Sequence[str]) -> str:
    """The partition in options such as `--partition=gpu` or `-p gpu`; empty where they name none."""
    match = re.search(r"(?:^|\s)(?:--partition[= ]|-p\s*)(\S+)", " ".join(access))
    return match[1] if match else ""


def choose(
    asked: str, states: Mapping[str, str], where: str, partitions: Callable[[], Mapping[str, str]] = dict
) -> Choice:
    """The nodes that `asked` means: `all`, `idle`, `idle:N`, a number of them, or a list such as `nid[001-064]`.

    `states`: of the nodes of the partition `where`; of those that are idle the first N are taken. Raises `UserError`
    for names that are not among them, with where they are by `partitions` or with the nearest, and where fewer than
    requested, or none, can be had.
    """
    usable = [node for node, state in states.items() if _state(state) in (*_FREE, *_BUSY)]
    left = {node: f"its state in Slurm is {state}" for node, state in states.items() if node not in usable}
    if re.fullmatch(r"\d+", asked):
        count = int(asked)
        if not 0 < count <= len(usable):
            raise UserError(f"--nodes {asked}: {where} has {len(usable)} nodes that can run a job: give 1 to that many")
        return Choice(tuple(usable), count)
    if idle := re.fullmatch(r"idle(?::([1-9]\d*))?", asked):
        # The others are not asked for, so nothing is missing without them.
        free = tuple(node for node, state in states.items() if _state(state) in _FREE)
        taken = free[: int(idle[1] or len(free))]
        if not taken:
            raise UserError(f"--nodes {asked}: none of the {len(states)} nodes of {where} is idle now: try again later")
        note = f"--nodes {asked}: {len(free)} of {len(states)} nodes of {where} are idle, and the job uses {len(taken)}"
        return Choice(taken, len(taken), {}, (note,), _IDLE_WAIT_S)
    wanted, notes = (list(states), tuple[str, ...]()) if asked == "all" else _listed(asked, states, where, partitions)
    chosen = tuple(node for node in wanted if node not in left)
    if not chosen:
        raise UserError(f"--nodes {asked}: none of {len(wanted)} nodes of {where} is available: {_why(wanted, left)}")
    return Choice(chosen, len(chosen), {node: left[node] for node in wanted if node in left}, notes)


def _listed(
    asked: str, states: Mapping[str, str], where: str, partitions: Callable[[], Mapping[str, str]]
) -> tuple[list[str], tuple[str, ...]]:
    """The nodes of a list in Slurm's order, and a line for those that are there twice."""
    names = [name for part in _parts(asked) for name in unfold(part)]
    if unknown := [name for name in dict.fromkeys(names) if name not in states]:
        near = difflib.get_close_matches(unknown[0], states, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        if elsewhere := partitions().get(unknown[0]):
            hint = f"; {unknown[0]} is in the partition {elsewhere}: all nodes of a run are of one partition"
        raise UserError(
            f"--nodes {asked}: {fold(unknown)} {'is' if len(unknown) == 1 else 'are'} not among the {len(states)} "
            f"nodes of {where} ({fold(states)}){hint}"
        )
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    notes = (f"--nodes {asked}: {fold(twice)} more than once: name each node once",) if twice else ()
    return [node for node in states if node in set(names)], notes


def _parts(text: str) -> list[str]:
    """A list at its commas outside of brackets."""
    return [part for part in re.split(r",(?![^\[]*\])", text.replace(" ", "")) if part] or [text]


def _state(text: str) -> str:
    plain = text.rstrip(_MARKS)
    # With an asterisk a node does not answer; what follows a plus is more than one state.
    if "*" in text or "+" in text or "$" in text:
        return "other"
    return next((each for each in (*_FREE, *_BUSY) if plain.startswith(each)), "other")


def _why(nodes: Iterable[str], left: Mapping[str, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for node in nodes:
        by_reason.setdefault(left[node], []).append(node)
    return "; ".join(f"{fold(names)}: {reason}" for reason, names in by_reason.items())
