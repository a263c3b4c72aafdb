"""`fabricheck bundle`: a run as one archive, for a vendor."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from fabricheck.errors import UserError


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The archive to write.  [default: the folder's name with .tar.gz]",
)
@click.option(
    "--hide-names", is_flag=True, help="Put a hash in place of each node, user, project and address, and hide folders."
)
@click.option("--hide", "more", multiple=True, metavar="NAME", help="Hide this name too; may be repeated.")
def bundle(*, folder: Path, output: Path | None, hide_names: bool, more: tuple[str, ...]) -> None:
    """Pack a run into one archive for a vendor.

    When: you open a case with a vendor. FOLDER is the folder of a run, below output/runs/. The archive has the verdict,
    the report, every raw result, the state of the nodes, the logs and fabricbench's sources. Its REPRODUCE.md names the
    failing run and has the commands that build, launch and judge it.

    --hide-names replaces names by hashes; names that look like other words stay, so read the archive before you send
    it, and hide those with --hide. config/policy.yaml can have names that are always hidden (hide_names, hide).

    \b
    fabricheck bundle output/runs/alps-20261122T020000Z --hide-names
    """
    from fabricheck.session.bundle import write_bundle
    from fabricheck.suite import suite_root
    from fabricheck.yardsticks.policy import load_policy

    output = output or Path(f"{folder.resolve().name}.tar.gz")
    policy = load_policy(suite_root() / "config" / "policy.yaml")
    more = (*policy.hide, *more)
    hide = hide_names or policy.hide_names or bool(more)
    written = write_bundle(folder, output, hide=hide, more=more, nodes=_nodes(folder) if hide else ())
    click.echo(f"{output}: {len(written)} files, {output.stat().st_size:,} bytes")


def _nodes(folder: Path) -> tuple[str, ...]:
    """The names of all nodes and switches, by the topology of the run's system and by Slurm, where they say them."""
    from fabricheck.jsonfile import read_json
    from fabricheck.state.programs import ask
    from fabricheck.topology.model import find_topology

    names = [*ask(["sinfo", "--all", "--noheader", "--Node", "--format=%N"], 10).output.split()]
    with contextlib.suppress(UserError, TypeError, LookupError):
        system = str(read_json(folder / "verdict.json")["system"])
        network = find_topology(system).network
        names += [*network.nodes, *(each.name for each in network.switches)] if network is not None else []
    return tuple(names)
