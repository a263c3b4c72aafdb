"""`fabricheck bundle`: a run as one archive, for a vendor."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The archive to write.  [default: the folder's name with .tar.gz]",
)
@click.option("--hide-names", is_flag=True, help="Call nodes node1, node2 and so on, and hide the folders of users.")
@click.option("--hide", "more", multiple=True, metavar="NAME", help="Hide this name too; may be repeated.")
def bundle(*, folder: Path, output: Path | None, hide_names: bool, more: tuple[str, ...]) -> None:
    """Write what a vendor asks for as one archive.

    FOLDER is that of a run, below output/runs/. The archive has the verdict, the report, every raw result, what the
    nodes said of themselves, and the logs. With hidden names the report is left out, since what it carries is packed.
    What the site always hides stands in config/policy.yaml (hide_names, hide).

    \b
    fabricheck bundle output/runs/alps-20261122T020000Z --hide-names
    """
    from fabricheck.judge.policy import load_policy
    from fabricheck.session.bundle import write_bundle
    from fabricheck.suite import suite_root

    output = output or Path(f"{folder.resolve().name}.tar.gz")
    policy = load_policy(suite_root() / "config" / "policy.yaml")
    more = (*policy.hide, *more)
    written = write_bundle(folder, output, hide=hide_names or policy.hide_names or bool(more), more=more)
    click.echo(f"{output}: {len(written)} files, {output.stat().st_size:,} bytes")
