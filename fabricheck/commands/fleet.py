"""What `fabricheck run --nodes` does around a run (it chooses the nodes, asks for the job, and gives it back), and
`fabricheck ledger`: which nodes are to be next."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.commands.options import JSON, STORE, SYSTEM
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
            raise UserError(
                "--minutes and --short are for a run over many nodes: give --nodes; or --minutes with --tag burn-in"
            )
        if self.many and only_list:
            raise UserError("--list cannot be used with --nodes or --resume: leave them out")


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
    from fabricheck.fleet.nodes import SLURM, choose, slurm_partitions, states_of
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
    partitions = slurm_partitions if partition["scheduler"] in SLURM else dict
    choice = choose(before.wanted if before else asked, states, place, partitions)
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
    from fabricheck.history.ledger import read_ledger

    try:
        entries = read_ledger(store, system, tuple(states))
    except UserError as error:
        click.echo(f"fabricheck: idle nodes are taken in Slurm's order: {error}", err=True)
        return states
    return {node: states[node] for node in entries.oldest(states)}


@click.command()
@SYSTEM
@STORE
@click.option(
    "--oldest",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print the N nodes that were tested longest ago and can run a job, as a list for `run --nodes`.",
)
@JSON
def ledger(*, system: str, store: Path, oldest: int | None, as_json: bool) -> None:
    """Print when each node of a system or partition, and each of its links, was last verified.

    When: to choose the nodes to test next. Each node is one line, with tags and verdict: nodes that were never verified
    first, then the oldest. An INCOMPLETE or INVALID session does not verify a node: the line ends with its verdict.

    \b
    fabricheck ledger --system alps:gpu
    fabricheck ledger --system alps:gpu --oldest 16
    fabricheck run --system alps:gpu --tag smoke --nodes idle:16 --minutes 5
    """
    from fabricheck.commands import rehearsal_note
    from fabricheck.fleet.nodes import choose
    from fabricheck.history.ledger import read_ledger
    from fabricheck.history.text import ledger_lines, to_json
    from fabricheck.suite import Suite, suite_root
    from fabricheck.topology.network import fold

    if oldest is not None and as_json:
        raise UserError("--oldest and --json exclude each other")
    known = _nodes_of(Suite(suite_root()), system)
    entries = read_ledger(store, system.partition(":")[0], known.nodes, known.nics)
    rehearsal_note.say(entries.rehearsal)
    if known.note:
        click.echo(f"fabricheck: {known.note}", err=True)
    if entries.others:
        click.echo(f"fabricheck: the store has nodes that are not of {system}: {fold(entries.others)}", err=True)
    if oldest is None:
        click.echo(to_json(entries) if as_json else "\n".join(ledger_lines(entries)), nl=not as_json)
        return
    able = choose("all", known.states, system).nodes if known.states else [each.node for each in entries.nodes]
    chosen = entries.oldest(able)[:oldest]
    if len(chosen) < oldest:
        click.echo(f"fabricheck: --oldest {oldest}: {system} has only {len(chosen)} nodes that can run a job", err=True)
    click.echo(fold(chosen))


@dataclass(frozen=True)
class _Known:
    """The nodes of a partition; their `states` where Slurm says them; the `nics` of each; `note`: who named them."""

    nodes: tuple[str, ...]
    states: Mapping[str, str]
    nics: tuple[str, ...]
    note: str = ""


def _nodes_of(suite: Suite, where: str) -> _Known:
    """Of the partition by Slurm, else by the network of its topology. Raises UserError for an unknown one."""
    from fabricheck.fleet.nodes import SLURM, slurm_states
    from fabricheck.fleet.settings import partition_in
    from fabricheck.topology.model import find_topology

    name = where.partition(":")[0]
    suite.require(name)
    partition = partition_in(suite.settings(name), where)
    topology = find_topology(f"{name}:{partition['name']}", suite.site(name).parent)
    nics = tuple(each.name for each in topology.nics) if topology.network else ()
    try:
        if partition["scheduler"] not in SLURM:
            raise UserError(f"the partition's scheduler is {partition['scheduler']}")
        states: Mapping[str, str] = slurm_states(partition.get("access", []))
    except UserError as error:
        nodes = topology.network.nodes if topology.network else ()
        by = "the nodes are those of topology.yaml" if nodes else "only nodes that the store has are listed"
        return _Known(nodes, {}, nics, f"{by}: {error}")
    return _Known(tuple(states), states, nics)
