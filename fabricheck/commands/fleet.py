"""What `fabricheck run --nodes` does around a run: chooses the nodes, asks for the job, and gives it back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.errors import UserError

if TYPE_CHECKING:
    from fabricheck.fleet.record import Fleet
    from fabricheck.suite import Suite


@contextlib.contextmanager
def fleet_of(suite: Suite, where: str, asked: str | None, minutes: int | None) -> Iterator[Fleet | None]:
    """The nodes of `where` (`system:partition`) that are `asked` for, in a job of theirs; None where none are."""
    if asked is None:
        yield None
        return
    from fabricheck.fleet.allocation import allocated
    from fabricheck.fleet.nodes import choose, slurm_states
    from fabricheck.fleet.record import Fleet, Unchecked
    from fabricheck.fleet.settings import partition_in
    from fabricheck.topology.network import fold

    name = where.partition(":")[0]
    if name not in suite.systems():
        raise UserError(f"unknown system '{name}': systems are {', '.join(suite.systems()) or 'none'}")
    partition = partition_in(suite.settings(name), where)
    choice = choose(asked, slurm_states(partition.get("access", [])), f"{name}:{partition['name']}")
    few = ("one or two nodes have no equals: references and floors judge them alone",) if choice.count < 3 else ()
    for line in (*choice.notes, *few):
        click.echo(f"fabricheck: {line}", err=True)
    with allocated(choice, partition, minutes) as (job, nodes):
        missing = set(choice.nodes) - set(nodes) if len(choice.nodes) == choice.count else set()
        left = tuple(Unchecked(node, "the job did not get it") for node in choice.nodes if node in missing)
        fleet = Fleet(Path(), name, f"{name}:{partition['name']}", asked, job, nodes)
        fleet = replace(fleet, unchecked=(*choice.unchecked, *left))
        click.echo(f"fabricheck: job {job} on {len(nodes)} nodes: {fold(nodes)}", err=True)
        yield fleet
