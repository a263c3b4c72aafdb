"""The command line: `fabricheck COMMAND`. A user's mistake ends with exit status 2 and one line, never a traceback."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from fabricheck import __version__
from fabricheck.errors import EXIT_USER_ERROR, UserError
from fabricheck.suite import SITES


@dataclass(frozen=True)
class Command:
    """Where a command is: the module is imported only when the command runs, so that `--help` stays quick."""

    name: str
    module: str
    help: str
    attribute: str = ""  # the command in the module, where it is not called as the command is


COMMANDS: tuple[Command, ...] = (
    Command("run", "fabricheck.commands.run", "Run the checks of a system, judge them and write the report."),
    Command("judge", "fabricheck.commands.judge", "Judge result files of fabricbench."),
    Command("observations", "fabricheck.commands.judge", "Which of the SC24 paper's observations hold on this system."),
    Command("report", "fabricheck.commands.report", "Judge result files, or a stored session, and write an HTML file."),
    Command("store", "fabricheck.commands.store", "The sample store: list, verify, prune, import."),
    Command("replay", "fabricheck.commands.store", "Judge stored runs again, by another policy or reference."),
    Command("calibrate", "fabricheck.commands.history", "Make references of a system from runs while it was healthy."),
    Command("compare", "fabricheck.commands.history", "What changed between two sets of runs, and how surely."),
    Command("watch", "fabricheck.commands.history", "What got worse in the history of a system, and since when."),
    Command("expected", "fabricheck.commands.topology", "What every pair and collective of a node should give."),
    Command("pairwise", "fabricheck.commands.pairwise", "Plan pairs of all nodes in rounds, and locate what is slow."),
    Command("validate", "fabricheck.commands.topology", "Check the files of each system together."),
    Command("emulate", "fabricheck.commands.emulate", "A Slurm cluster with shaped links on this machine."),
    Command("capture", "fabricheck.commands.site", "Keep what this node says of itself, for discover."),
    Command("discover", "fabricheck.commands.site", "Write a first topology.yaml and settings.py of a node."),
)


def _add_site(_: click.Context, __: click.Parameter, folder: Path | None) -> None:
    """Has this command and what it starts look for systems in `folder` first."""
    if folder is None:
        return
    if not (folder / "site_configs").is_dir():
        raise UserError(f"--site {folder}: has no site_configs/: name the folder that `fabricheck init` wrote to")
    os.environ[SITES] = os.pathsep.join([str(folder), *filter(None, [os.environ.get(SITES)])])


#: What every command has.
_SITE = click.Option(
    ["--site"],
    type=click.Path(file_okay=False, resolve_path=True, path_type=Path),
    callback=_add_site,
    expose_value=False,
    is_eager=True,
    help="A folder with site_configs/ and reference_values/ of your own systems; FABRICHECK_SITES names several.",
)


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [each.name for each in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = next((each for each in COMMANDS if each.name == cmd_name), None)
        if found is None:
            return None
        command = getattr(importlib.import_module(found.module), found.attribute or found.name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{found.module} has no command {found.name}")
        if not any(each.name == _SITE.name for each in command.params):
            command.params.append(_SITE)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(each.name, each.help) for each in COMMANDS])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fabricheck")
def cli() -> None:
    """Acceptance, nightly and upgrade checks for the paths between GPUs."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    try:
        cli.main(args=list(arguments) if arguments is not None else None, prog_name="fabricheck")
    except UserError as error:
        click.echo(f"fabricheck: {error}", err=True)
        sys.exit(EXIT_USER_ERROR)
