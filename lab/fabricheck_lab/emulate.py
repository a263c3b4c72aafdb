"""`fabricheck emulate`: a cluster of one's own, and what can be broken on it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.errors import UserError
from fabricheck_lab.emulate_faults import cluster_of, fault

if TYPE_CHECKING:
    from fabricheck.topology.network import Network

_name = click.option("--name", default="emulated", show_default=True, help="The cluster's name.")


@click.group()
def emulate() -> None:
    """Build a Slurm cluster in miniature on this machine, with root, and plant faults on it.

    When: to try Fabricheck, a job script or your system's files before you have its nodes.

    \b
    fabricheck emulate up --system alps --nodes 2
    fabricheck emulate fault slow nid002:hsn0 10
    """


@emulate.command()
@click.option("--system", help="The system or system:partition to emulate.  [default: emulated]")
@click.option("--nodes", type=int, default=2, show_default=True, help="With --system: the number of nodes.")
@click.option(
    "--scale", type=float, help="With --system: the factor for all rates.  [default: ports carry 50 Mb/s, a node 100]"
)
@click.option(
    "--topology",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A topology.yaml with a network.  [default: that of the system `emulated`]",
)
@_name
def up(*, system: str | None, nodes: int, scale: float | None, topology: Path | None, name: str) -> None:
    """Build a cluster; returns when all nodes are idle.

    When: before the first run on a new system, or to see what a fault looks like.

    A system is a folder of site_configs/: its nodes, NICs and GPUs are emulated, with all rates scaled down. The GPU
    libraries are stand-ins, so a run there is a rehearsal and not a measurement.

    \b
    fabricheck emulate up --system alps --nodes 2
    fabricheck emulate exec -- fabricheck run --system alps --tag smoke
    """
    from fabricheck.suite import suite_root
    from fabricheck_lab.cluster import Cluster
    from fabricheck_lab.rehearsal import up_in_miniature

    begin = time.monotonic()
    if system is not None and system != "emulated":
        if topology is not None:
            raise UserError("--system and --topology exclude each other")
        cluster = up_in_miniature(system, nodes, scale, suite_root(), name)
    else:
        cluster = Cluster.up(topology or suite_root() / "site_configs" / "emulated" / "topology.yaml", name)
    network = cluster.layout.network
    click.echo(f"{name}: {len(network.nodes)} nodes are idle after {time.monotonic() - begin:.1f} s")
    for limit in limits_of(network, in_miniature=system is not None and system != "emulated"):
        click.echo(f"{name}: {limit}")
    if len(network.switches) == 1 and len(network.nodes) > 1:
        click.echo(f"{name}: all are on one switch: leaves and trunks need `network` in topology.yaml")


def limits_of(network: Network, *, in_miniature: bool) -> Iterator[str]:
    """What a fault on this cluster does not show, and what does not run there, a line each."""
    from fabricheck.suite import suite_root
    from fabricheck.yardsticks.policy import load_policy

    if in_miniature:
        margin = load_policy(suite_root() / "config" / "policy.yaml").achievable_margin_of_small
        yield f"a loss of less than {margin:.0%} that all links have is not found here: nothing healthy is beside them"
        yield "parts that are slow now and then are not looked for here: processes that wait for a core look the same"
    if network.is_rail_only:
        yield "no switches join its rails: what goes from one to another by MPI arrives at the NIC of the sender's rail"


@emulate.command()
@_name
def down(*, name: str) -> None:
    """End a cluster and remove all that is left of it.

    When: you are done with it, or it crashed.

    \b
    fabricheck emulate down
    """
    from fabricheck_lab.cluster import Cluster

    click.echo(f"{name}: {'is gone' if Cluster.down(name) else 'there was nothing'}")


@emulate.command()
@_name
@click.pass_context
def status(context: click.Context, *, name: str) -> None:
    """Print the state of the nodes and which faults are planted.

    When: a job does not start, or a result is unexpected. The exit status is 1 if a node or a daemon is missing.

    \b
    fabricheck emulate status
    """
    cluster_state = cluster_of(name).status()
    for node, state in cluster_state.nodes.items():
        click.echo(f"{node}  {state}")
    for role in cluster_state.missing:
        click.echo(f"has ended: {role}")
    for what in cluster_state.faults.values():
        click.echo(f"planted: {what}")
    healthy = not cluster_state.missing and all(
        # With an asterisk a node does not answer.
        state.startswith(("idle", "alloc", "mix", "comp")) and not state.endswith("*")
        for state in cluster_state.nodes.values()
    )
    context.exit(0 if healthy else 1)


@emulate.command(context_settings={"ignore_unknown_options": True})
@_name
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def exec(*, name: str, command: tuple[str, ...]) -> None:
    """Run a command on the login node.

    When: to use the cluster as a user of the system would.

    \b
    fabricheck emulate exec -- sinfo
    """
    from fabricheck_lab.layout import LOGIN
    from fabricheck_lab.rehearsal import variables_of
    from fabricheck_lab.slurm import in_login

    cluster = cluster_of(name)
    words = [*in_login(cluster.layout, LOGIN), *command]
    os.execvpe(words[0], words, {**cluster.environment(), **variables_of(name)})


emulate.add_command(fault)
