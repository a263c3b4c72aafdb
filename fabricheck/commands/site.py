"""`fabricheck capture` and `fabricheck discover`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

_DIRECTORY = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.argument("directory", type=_DIRECTORY)
def capture(directory: Path) -> None:
    """Keep in DIRECTORY what this node says of its GPUs, links, NICs and NUMA domains."""
    from fabricheck.site.capture import capture as ask

    for name in ask(directory):
        click.echo(str(directory / name))


@click.command()
@click.option("--from", "source", type=_DIRECTORY, help="A directory of captures; without it, this node is asked.")
@click.option("--output", required=True, type=_DIRECTORY, help="The site's folder, such as site_configs/mycluster.")
def discover(source: Path | None, output: Path) -> None:
    """Write a first topology.yaml and settings.py of a node.

    What the node does not tell is listed, and stands in the topology as FILL IN.
    """
    from fabricheck.site.capture import capture as ask
    from fabricheck.site.facts import read_facts
    from fabricheck.site.write import write_site

    if source is not None:
        facts = read_facts(source)
    else:
        with tempfile.TemporaryDirectory(prefix="fabricheck-") as temporary:
            ask(Path(temporary))
            facts = read_facts(Path(temporary))
    for path in write_site(facts, output.resolve()):
        click.echo(str(path))
    for note in facts.notes:
        click.echo(f"to be looked at: {note}", err=True)
