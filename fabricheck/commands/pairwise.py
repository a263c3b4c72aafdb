"""`fabricheck pairwise`: plan the rounds of one job over all nodes, and locate slow parts in its result."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.commands.options import FILE, SYSTEM_OR_FILE, given_topology
from fabricheck.errors import UserError, refused
from fabricheck.records.verdict import Verdict
from fabricheck.wholefile import read_file

if TYPE_CHECKING:
    from fabricheck.diagnosis.network.localize import Localization
    from fabricheck.diagnosis.network.routes import Routing, Ways
    from fabricheck.topology.model import Topology
    from fabricheck.topology.network import Network

_ADAPTIVE = click.option(
    "--adaptive",
    is_flag=True,
    help="The switches use adaptive routing, so pairs do not collide on routes of equal cost.",
)
_ROUTES = click.option(
    "--routes",
    "routes_file",
    type=FILE,
    help="A file of known routes. Each line has SOURCE, DESTINATION and the parts between them.",
)

_MOST_BYTES = 64 << 20  # of a file with known routes


@click.group()
def pairwise() -> None:
    """Plan rounds of pairs of nodes in one job, and name the slow part.

    When: to measure pairs by hand, with job scripts of your own. `fabricheck run --nodes` does the same in one job.

    \b
    fabricheck pairwise plan --system alps --nodes 'nid[001-008]' --rounds 8 --output rounds.txt
    fabricheck pairwise locate pairs.jsonl --system alps
    """


@pairwise.command()
@SYSTEM_OR_FILE
@click.option("--nodes", required=True, metavar="LIST", help="The nodes in rank order, such as nid[001-064].")
@click.option(
    "--rounds", "count", type=click.IntRange(min=1), help="Number of random rounds.  [default: every pair once]"
)
@click.option(
    "--ports", is_flag=True, help="One rank for each port, in the order of topology.yaml.  [default: one for each node]"
)
@click.option(
    "--suspects", metavar="LIST", help="Re-measure these parts, separated by commas, with healthy nodes elsewhere."
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--output", type=FILE, help="Write the rounds into this new file.  [default: print them]")
@_ROUTES
@_ADAPTIVE
def plan(
    *,
    system: str,
    nodes: str,
    count: int | None,
    ports: bool,
    suspects: str | None,
    seed: int,
    output: Path | None,
    routes_file: Path | None,
    adaptive: bool,
) -> None:
    """Write rounds of pairs of ranks, for fabricbench --rounds.

    When: to measure pairs by hand; `run --nodes` does the same in one job. The `network` of the system's
    topology.yaml describes how nodes are connected.

    \b
    fabricheck pairwise plan --system emulated --nodes 'nid[001-008]' --rounds 8 --output rounds.txt
    """
    from fabricheck.diagnosis.network.round_plan import all_pairs, retest, screen, write_rounds
    from fabricheck.diagnosis.network.routes import Ways
    from fabricheck.topology.network import unfold

    _, network = _network(system)
    names = unfold(nodes)
    of_each = {name: network.ports_of(name) for name in names}
    places = [place for name in names for place in (of_each[name] if ports else (name,))]
    ways = Ways(network, _routing(network, routes_file))
    if suspects is not None:
        again = [name.strip() for name in suspects.split(",") if name.strip()]
        made = retest(ways, places, again, count or 8, seed=seed, adaptive=adaptive)
    elif count is None:
        made = all_pairs(places)
    else:
        made = screen(ways, places, count, seed=seed, adaptive=adaptive)
    if output is None:
        click.echo(write_rounds(made), nl=False)
        return
    if output.exists():
        raise UserError(f"{output} exists already: give another name")
    with refused(f"{output}:", "written"):
        output.write_text(write_rounds(made), encoding="utf-8")
    click.echo(f"{output}: {len(made.rounds)} rounds, {sum(map(len, made.rounds))} pairs of {len(places)} ranks")


@pairwise.command()
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@SYSTEM_OR_FILE
@click.option("--bytes", "size", help="The message size to use, such as 16MiB.  [default: the largest]")
@click.option(
    "--operation",
    type=click.Choice(["bidirectional", "unidirectional", "pingpong"]),
    default="bidirectional",
    show_default=True,
    help="The operation to use. If pairs share a link, their rate is known only for `bidirectional`.",
)
@_ROUTES
@_ADAPTIVE
@click.pass_context
def locate(
    context: click.Context,
    *,
    files: tuple[Path, ...],
    system: str,
    size: str | None,
    operation: str,
    routes_file: Path | None,
    adaptive: bool,
) -> None:
    """Name the node, port, cable, leaf, switch or trunk that is slow, from result files of rounds of pairs.

    When: after rounds of `pairwise plan`, to judge them by hand. The exit status is 0 if no part is slow, 1 if one is,
    4 if a file is INCOMPLETE, 5 if one is INVALID (their pairs are used as well), 2 for a mistake in the input.

    \b
    fabricheck pairwise locate pairs.jsonl --system emulated
    """
    from fabricheck.commands import rehearsal_note
    from fabricheck.diagnosis.network.localize import locate as locate_in
    from fabricheck.diagnosis.network.pair_findings import as_distance, as_fast_pairs
    from fabricheck.diagnosis.network.results import OPERATION, pairs_of
    from fabricheck.diagnosis.network.routes import Ways, design
    from fabricheck.records.rehearsal import any_rehearsal
    from fabricheck.records.verdict import EXIT_CODES
    from fabricheck.results.fabricbench import read_run
    from fabricheck.units import parse_size

    topology, network = _network(system)
    runs = [read_run(file) for file in files]
    rehearsal_note.say(any_rehearsal(runs))
    worst = Verdict.PASS
    for problem in (problem for run in runs for problem in run.problems):
        worst = max(worst, problem.verdict, key=list(Verdict).index)
        click.echo(f"{problem.verdict.value}  {problem.message}")
    bytes_ = parse_size(size) if size is not None else None
    rounds = [one for run in runs for one in pairs_of(run, topology, bytes_, operation)]
    ways = Ways(network, _routing(network, routes_file))
    made = design(ways, [[pair for pair, _ in one] for one in rounds], adaptive=adaptive, duplex=operation == OPERATION)
    localization = locate_in(made, [goodput for one in rounds for _, goodput in one])
    for line in report(localization, ways):
        click.echo(line)
    if as_distance(localization, made):
        click.echo("only the pairs that cross more than one switch are slow: the distance can explain the loss")
    elif as_fast_pairs(localization, made):
        click.echo("almost all pairs are slow: few faster pairs can explain the loss, too")
    if localization.suspects:
        worst = max(worst, Verdict.DEGRADED, key=list(Verdict).index)
    context.exit(EXIT_CODES[worst])


def report(located: Localization, ways: Ways) -> Iterable[str]:
    """Lines for the administrator: the suspects, and what could not have been seen."""
    from fabricheck.diagnosis.network.pair_findings import finding_of

    for suspect in located.suspects:
        yield f"{Verdict.DEGRADED.value}  {finding_of(suspect, located).message}"
    if not located.suspects:
        yield "no slow part: noise explains the readings"
    yield (
        f"{located.readings} readings, noise {located.noise:.1%}, "
        f"healthy pairs reach {located.scale:.1%} of the link rate"
    )
    if located.doubtful:
        yield f"{located.doubtful} readings were not used: their pairs shared a link, so their healthy rate is unknown"
    for kind, (least, names) in sorted(_least(located.detectable, ways).items()):
        yield f"{kind}: losses of {least:.0%} or more are found ({names} measured)"
    if located.unseen:
        number = len(located.unseen)
        yield f"{number} parts were not measured, such as {located.unseen[0]}: no pair's route crosses them"
    if located.suspects:
        yield f"next: re-measure these: fabricheck pairwise plan --suspects {','.join(located.closest)}"


def _least(detectable: Mapping[str, float], ways: Ways) -> dict[str, tuple[float, int]]:
    by_kind: dict[str, list[float]] = {}
    for name, loss in detectable.items():
        by_kind.setdefault(ways.kinds[ways.position[name]], []).append(loss)
    return {kind: (max(losses), len(losses)) for kind, losses in by_kind.items()}


def _network(system: str) -> tuple[Topology, Network]:
    topology = given_topology(system)
    if topology.network is None:
        raise UserError(
            f"the topology of {system} has no network: describe how its nodes are connected (docs/topology-format.md)"
        )
    return topology, topology.network


def _routing(network: Network, path: Path | None) -> Routing | None:
    """Known routes from a file: `SOURCE DESTINATION PART...`; the route is the one that goes over all these parts."""
    from fabricheck.topology.network import Route

    if path is None:
        return None
    with refused(str(path), "read"):
        lines = read_file(path, _MOST_BYTES).decode("utf-8", "replace").splitlines()
    known: dict[tuple[str, str], tuple[str, ...]] = {}
    for number, line in enumerate(lines, start=1):
        words = re.sub("#.*", "", line).split()
        if not words:
            continue
        if len(words) < 3:
            raise UserError(f"{path}:{number}: give SOURCE DESTINATION and parts on the route between them")
        fitting = [one for one in network.routes(*words[:2]) if set(words[2:]) <= set(one.components)]
        if len(fitting) != 1:
            raise UserError(
                f"{path}:{number}: {len(fitting)} shortest routes from {words[0]} to {words[1]} match: name more parts"
            )
        known[words[0], words[1]] = fitting[0].components

    def routing(source: str, destination: str, routes: Sequence[Route]) -> Route | None:
        way = known.get((source, destination)) or known.get((destination, source), ())[::-1]
        return next((one for one in routes if set(one.components) == set(way)), None) if way else None

    return routing
