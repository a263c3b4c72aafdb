"""What `fabricheck run --nodes` does around a run: it chooses the nodes, asks for the job, and gives it back."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabricheck.errors import UserError

if TYPE_CHECKING:
    from fabricheck.fleet.nodes import Choice
    from fabricheck.fleet.record import Fleet
    from fabricheck.session.reframe import Selection
    from fabricheck.suite import Suite


@dataclass(frozen=True)
class Wanted:
    """What `--nodes`, `--resume` and `--minutes` say; None where they are not given."""

    nodes: str | None
    resume: str | None
    minutes: int | None

    @property
    def many(self) -> bool:
        """Whether it is a run over many nodes."""
        return self.nodes is not None or self.resume is not None

    def check(self, *, only_list: bool) -> None:
        """Raises UserError for options that do not go together."""
        if not self.many and self.minutes is not None:
            raise UserError("--minutes is for a run over many nodes, or a burn-in: give --nodes, or --tag burn-in")
        if self.resume is not None and only_list:
            raise UserError("--list cannot be used with --resume: leave one of them out")


def nodes_wanted(suite: Suite, selection: Selection, wanted: Wanted) -> str:
    """Say which nodes a run with --nodes would take, and the limit of its job; empty without --nodes.

    Raises UserError as the run does.
    """
    from fabricheck.fleet.allocation import MINUTES
    from fabricheck.fleet.nodes import states_of
    from fabricheck.fleet.settings import partition_in
    from fabricheck.topology.network import fold

    if wanted.nodes is None:
        return ""
    partition = partition_in(suite.settings(selection.whole_system), selection.system)
    choice = _choose(wanted.nodes, states_of(partition), partition, selection.whole_system)
    nodes = f"{choice.count} of {fold(choice.nodes)}" if choice.count < len(choice.nodes) else fold(choice.nodes)
    left = f"; left out: {fold(choice.unchecked)}" if choice.unchecked else ""
    return f"nodes: {nodes}, in a job of {wanted.minutes or MINUTES} minutes at most{left}"


def _choose(asked: str, states: Mapping[str, str], partition: Mapping[str, Any], system: str) -> Choice:
    from fabricheck.fleet.nodes import SLURM, choose, slurm_partitions

    partitions = slurm_partitions if partition["scheduler"] in SLURM else dict
    return choose(asked, states, f"{system}:{partition['name']}", partitions)


@contextlib.contextmanager
def fleet_of(
    suite: Suite, selection: Selection, wanted: Wanted, earlier: Path | None, store: Path
) -> Iterator[Fleet | None]:
    """The nodes of the selection's `system:partition` that are wanted, in a job of theirs; None where none are.

    Of idle ones those first that no session of the `store` had for longest. To resume an `earlier` run they are
    those of that run, whose complete results are copied.
    """
    from fabricheck.fleet.record import Fleet

    if wanted.nodes is None and (earlier is None or Fleet.of_run(earlier) is None):
        if wanted.minutes is not None:
            raise UserError(f"--minutes cannot be used here: {earlier} is not a run with --nodes")
        yield None
        return
    from fabricheck.fleet.allocation import MINUTES, allocated
    from fabricheck.fleet.nodes import states_of
    from fabricheck.fleet.settings import partition_in
    from fabricheck.topology.network import fold

    where, name, options = selection.system, selection.whole_system, tuple(selection.arguments())
    partition = partition_in(suite.settings(name), where)
    before = _resumed(earlier, wanted.nodes, options) if earlier is not None else None
    states: Mapping[str, str] = states_of(partition)
    if before is None and (wanted.nodes or "").startswith("idle"):
        states = _oldest_first(states, store, name)
    asked = before.asked if before else wanted.nodes or ""
    place = f"{name}:{partition['name']}"
    choice = _choose(before.wanted if before else asked, states, partition, name)
    few = (
        ("with one or two nodes there are no peers: only references and floors are baselines",)
        if choice.count < 3
        else ()
    )
    for line in (*choice.notes, *few):
        click.echo(f"fabricheck: {line}", err=True)
    minutes = wanted.minutes or MINUTES
    with allocated(choice, partition, minutes) as (job, nodes):
        now = datetime.now(timezone.utc)
        until = (now + timedelta(minutes=minutes)).isoformat()
        missing = set(choice.nodes) - set(nodes) if len(choice.nodes) == choice.count else set()
        left = {node: "not allocated to the job" for node in choice.nodes if node in missing}
        fleet = Fleet(Path(), name, place, asked, job, nodes, {**choice.unchecked, **left}, options, until=until)
        if before is None:
            fleet = replace(fleet, began=now.isoformat())
        else:
            fleet = replace(fleet, began=before.began, earlier=(str(earlier), *before.earlier))
        click.echo(f"fabricheck: job {job} on {len(nodes)} nodes: {fold(nodes)}", err=True)
        yield fleet


def _resumed(folder: Path, asked: str | None, options: Sequence[str]) -> Fleet:
    """The fleet of an earlier run, which has to have been requested the same. Raises UserError."""
    from fabricheck.fleet.record import Fleet

    fleet = Fleet.of_run(folder)
    if fleet is None:
        raise UserError(f"--resume: {folder} is not the folder of a run with --nodes: leave out --nodes")
    if asked not in (None, fleet.asked):
        raise UserError(f"--resume: {folder} ran with --nodes {fleet.asked}: give the same, or leave out --nodes")
    if tuple(options) != fleet.options:
        raise UserError(f"--resume: {folder} ran other checks: give the same options ({shlex.join(fleet.options)})")
    return fleet


def _oldest_first(states: Mapping[str, str], store: Path, system: str) -> Mapping[str, str]:
    """The nodes in the order in which they are to be measured again; in Slurm's where the store does not state it."""
    from fabricheck.store.session_nodes import last_sessions

    try:
        last = last_sessions(store, system)
    except UserError as error:
        click.echo(f"fabricheck: idle nodes are taken in Slurm's order: {error}", err=True)
        return states
    return {node: states[node] for node in sorted(states, key=lambda node: last.get(node, ""))}
