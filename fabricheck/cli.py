"""The command line: `fabricheck COMMAND`. A user's mistake ends with exit status 2 and one line, never a traceback."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from fabricheck import __version__
from fabricheck.errors import EXIT_USER_ERROR, UserError


@dataclass(frozen=True)
class Command:
    """Where a command is: the module is imported only when the command runs, so that `--help` stays quick."""

    name: str
    module: str
    help: str
    attribute: str = ""  # the command in the module, where it is not called as the command is


COMMANDS: tuple[Command, ...] = (
    Command("init", "fabricheck.commands.site", "Write the files of a new system, from what its nodes say."),
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
    Command("doctor", "fabricheck.commands.doctor", "Whether this node is fit: its state, and one rank on each GPU."),
    Command("capture", "fabricheck.commands.site", "Keep what a node says of itself, for init --from."),
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
