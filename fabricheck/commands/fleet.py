"""What `fabricheck run --nodes` does around a run: chooses the nodes, asks for the job, and gives it back."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.errors import UserError

if TYPE_CHECKING:
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

    def check(self, *, is_short: bool, only_list: bool) -> None:
        """Raises UserError for options that do not go together."""
        if not self.many and (self.minutes is not None or is_short):
            raise UserError("--minutes and --short are for a run over many nodes: give --nodes")
        if self.many and only_list:
            raise UserError("--list lists what runs on one node or between a few: leave out --nodes and --resume")


@contextlib.contextmanager
def fleet_of(suite: Suite, selection: Selection, wanted: Wanted, output: Path) -> Iterator[Fleet | None]:
    """The nodes of the selection's `system:partition` that are wanted, in a job of theirs; None where none are.

    To resume an earlier run below `output` they are that run's, and what it has is taken over.
    """
    if not wanted.many:
        yield None
        return
    from fabricheck.fleet.allocation import allocated
    from fabricheck.fleet.nodes import choose, slurm_states
    from fabricheck.fleet.record import Fleet, Unchecked
    from fabricheck.fleet.resume import find_earlier
    from fabricheck.fleet.settings import partition_in
    from fabricheck.topology.network import fold

    where, name, options = selection.system, selection.whole_system, tuple(selection.arguments())
    partition = partition_in(suite.settings(name), where)
    earlier = find_earlier(output.resolve() / "runs", name, wanted.resume) if wanted.resume is not None else None
    before = _resumed(earlier, wanted.nodes, options) if earlier is not None else None
    states = slurm_states(partition.get("access", []))
    asked = before.asked if before else wanted.nodes or ""
    place = f"{name}:{partition['name']}"
    choice = choose(before.wanted if before else asked, states, place)
    few = ("one or two nodes have no equals: references and floors judge them alone",) if choice.count < 3 else ()
    for line in (*choice.notes, *few):
        click.echo(f"fabricheck: {line}", err=True)
    with allocated(choice, partition, wanted.minutes) as (job, nodes):
        missing = set(choice.nodes) - set(nodes) if len(choice.nodes) == choice.count else set()
        left = tuple(Unchecked(node, "the job did not get it") for node in choice.nodes if node in missing)
        fleet = Fleet(Path(), name, place, asked, job, nodes, (*choice.unchecked, *left), options)
        if before is None:
            fleet = replace(fleet, began=datetime.now(timezone.utc).isoformat())
        else:
            click.echo(f"fabricheck: resumes {earlier}: what is whole there is taken over", err=True)
            fleet = replace(fleet, began=before.began, earlier=(str(earlier), *before.earlier))
        click.echo(f"fabricheck: job {job} on {len(nodes)} nodes: {fold(nodes)}", err=True)
        yield fleet


def _resumed(folder: Path, asked: str | None, options: Sequence[str]) -> Fleet:
    """The fleet of an earlier run, which has to have been asked for the same. Raises UserError."""
    from fabricheck.fleet.record import Fleet
    from fabricheck.session.reading import VERDICT

    fleet = Fleet.of_run(folder)
    if fleet is None or not (folder / VERDICT).exists():
        raise UserError(f"--resume: {folder} is still going on, or was never judged: see squeue, or leave out --resume")
    if asked not in (None, fleet.asked):
        raise UserError(f"--resume: {folder} was of --nodes {fleet.asked}: give the same, or leave out --nodes")
    if tuple(options) != fleet.options:
        raise UserError(f"--resume: {folder} was of other checks: give the same ({shlex.join(fleet.options)})")
    return fleet
