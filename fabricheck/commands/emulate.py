"""`fabricheck emulate`: a cluster of one's own, and what can be broken on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.errors import UserError

if TYPE_CHECKING:
    from fabricheck.emulation.cluster import Cluster

_name = click.option("--name", default="emulated", show_default=True, help="The cluster's name.")


@click.group()
def emulate() -> None:
    """A Slurm cluster of network namespaces with shaped links, on this machine. Needs root."""


@emulate.command()
@click.argument("system", required=False, metavar="[SYSTEM[:PARTITION]]")
@click.option("--nodes", type=int, default=2, show_default=True, help="Of a system in miniature.")
@click.option("--scale", type=float, help="Of all its rates.  [default: ports carry 100 Mb/s]")
@click.option(
    "--topology",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A topology.yaml with a network.  [default: that of the system `emulated`]",
)
@_name
def up(*, system: str | None, nodes: int, scale: float | None, topology: Path | None, name: str) -> None:
    """Build a cluster; returns when all nodes are idle.

    SYSTEM is a system of site_configs/ that is brought up in miniature: emulated nodes with its NICs and GPUs, and all
    rates scaled. Stand-ins take the place of the GPU libraries; what runs there is a rehearsal and no measurement.

    \b
    fabricheck emulate up alps --nodes 2
    fabricheck emulate exec -- fabricheck run --system alps --tag smoke
    """
    from fabricheck.emulation.cluster import Cluster
    from fabricheck.emulation.rehearsal import up_in_miniature
    from fabricheck.suite import suite_root

    begin = time.monotonic()
    if system is not None and system != "emulated":
        if topology is not None:
            raise UserError("SYSTEM and --topology exclude each other")
        cluster = up_in_miniature(system, nodes, scale, suite_root(), name)
    else:
        cluster = Cluster.up(topology or suite_root() / "site_configs" / "emulated" / "topology.yaml", name)
    count = len(cluster.layout.network.nodes)
    click.echo(f"{name}: {count} nodes are idle after {time.monotonic() - begin:.1f} s")


@emulate.command()
@_name
def down(*, name: str) -> None:
    """End a cluster and remove all that is left of it, also after a crash."""
    from fabricheck.emulation.cluster import Cluster

    click.echo(f"{name}: {'is gone' if Cluster.down(name) else 'there was nothing'}")


@emulate.command()
@_name
@click.pass_context
def status(context: click.Context, *, name: str) -> None:
    """Print the state of the nodes and what was planted. The exit status is 1 where a node or a daemon is not there."""
    found = _cluster(name).status()
    for node, state in found.nodes.items():
        click.echo(f"{node}  {state}")
    for role in found.missing:
        click.echo(f"has ended: {role}")
    for what in found.faults.values():
        click.echo(f"planted: {what}")
    healthy = not found.missing and all(
        # With an asterisk a node does not answer.
        state.startswith(("idle", "alloc", "mix", "comp")) and not state.endswith("*")
        for state in found.nodes.values()
    )
    context.exit(0 if healthy else 1)


@emulate.command(context_settings={"ignore_unknown_options": True})
@_name
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def exec(*, name: str, command: tuple[str, ...]) -> None:
    """Run a command on the login node."""
    from fabricheck.emulation.layout import LOGIN
    from fabricheck.emulation.rehearsal import variables_of
    from fabricheck.emulation.slurm import in_login

    cluster = _cluster(name)
    words = [*in_login(cluster.layout, LOGIN), *command]
    os.execvpe(words[0], words, {**cluster.environment(), **variables_of(name)})


@emulate.group()
def fault() -> None:
    """Plant a fault, or remove it again."""


def _cluster(name: str) -> Cluster:
    from fabricheck.emulation.cluster import Cluster, require_machine

    require_machine()
    return Cluster.find(name)


def _plant(name: str, plant: Callable[[Cluster], None]) -> None:
    cluster = _cluster(name)
    plant(cluster)
    faults = cluster.journal.faults().values()
    click.echo("".join(f"planted: {what}\n" for what in faults) or "nothing is planted\n", nl=False)


@fault.command()
@click.argument("link")
@click.argument("percent", type=float)
@click.option("--one-side", is_flag=True, help="Slow down only what the first end sends.")
@_name
def slow(*, link: str, percent: float, one_side: bool, name: str) -> None:
    """A link (nid001:hsn0, or leaf0--spine0) loses PERCENT of its rate."""
    from fabricheck.emulation import faults

    _plant(name, lambda cluster: faults.slow(cluster, link, percent, one_side=one_side))


@fault.command()
@click.argument("link")
@_name
def unshaped(*, link: str, name: str) -> None:
    """A link is as fast as the machine."""
    from fabricheck.emulation import faults

    _plant(name, lambda cluster: faults.unshaped(cluster, link))


@fault.command()
@click.argument("link")
@click.option("--period", type=float, default=2.0, show_default=True, help="Seconds.")
@_name
def flap(*, link: str, period: float, name: str) -> None:
    """A link goes down and up."""
    from fabricheck.emulation import faults

    _plant(name, lambda cluster: faults.flap(cluster, link, period))


@fault.command()
@click.argument("port")
@_name
def unplug(*, port: str, name: str) -> None:
    """A port (nid001:hsn0) loses its carrier."""
    from fabricheck.emulation import faults

    _plant(name, lambda cluster: faults.unplug(cluster, port))


@fault.command()
@click.argument("node")
@_name
def node_down(*, node: str, name: str) -> None:
    """A node loses its power."""
    from fabricheck.emulation import faults

    _plant(name, lambda cluster: faults.node_down(cluster, node))


@fault.command()
@click.argument("daemon", nargs=-1, required=True)
@_name
def kill_daemon(*, daemon: tuple[str, ...], name: str) -> None:
    """A daemon ends: munged, slurmctld, or slurmd NODE."""
    from fabricheck.emulation import faults

    _plant(name, lambda cluster: faults.kill_daemon(cluster, " ".join(daemon)))


@fault.command()
@click.argument("port")
@click.argument("per_10000", type=int)
@_name
def loss(*, port: str, per_10000: int, name: str) -> None:
    """A port loses PER_10000 of 10,000 packets."""
    from fabricheck.emulation import faults

    _plant(name, lambda cluster: faults.loss(cluster, port, per_10000))


@fault.command()
@_name
def clear(*, name: str) -> None:
    """Remove all faults."""
    from fabricheck.emulation import faults

    _plant(name, faults.clear)
