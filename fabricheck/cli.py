"""The command line: `fabricheck COMMAND`. Nothing ends with a traceback."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import click

from fabricheck import __version__
from fabricheck.errors import (
    EXIT_BROKEN_PIPE,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_USER_ERROR,
    UserError,
    reason_of,
    reason_of_system,
)
from fabricheck.suite import GIVEN, SITES
from fabricheck.visible import OutputError, visible


@dataclass(frozen=True)
class Command:
    """Where a command is: the module is imported only when the command runs, so that `--help` stays quick."""

    name: str
    module: str
    help: str


COMMANDS: tuple[Command, ...] = (
    Command("init", "fabricheck.commands.site", "Write the files of a new system."),
    Command("run", "fabricheck.commands.run", "Run the checks of a system, judge them and write the report."),
    Command("upgrade", "fabricheck.commands.upgrade", "Old and new software interleaved in one job: go, or stay?"),
    Command("judge", "fabricheck.commands.judge", "Judge result files, or the output of a vendor's tool."),
    Command("reproduce", "fabricheck.commands.reproduce", "Put a paper's figure beside what was measured here."),
    Command("report", "fabricheck.commands.report", "Write the acceptance document of a run, to print and sign."),
    Command("explain", "fabricheck.commands.explain", "Explain what a finding means and what to do."),
    Command("bundle", "fabricheck.commands.bundle", "Pack a run into one archive for a vendor."),
    Command("store", "fabricheck.commands.store", "List, verify or import stored runs."),
    Command("calibrate", "fabricheck.commands.history", "Make references from runs while the system was healthy."),
    Command("compare", "fabricheck.commands.history", "Compare two sets of runs: did the upgrade cost anything?"),
    Command("watch", "fabricheck.commands.history", "Report what got worse in the history, and since when."),
    Command(
        "expected", "fabricheck.commands.topology", "Print the bandwidth that each pair and collective should reach."
    ),
    Command("validate", "fabricheck.commands.topology", "Check the files of a system together."),
    Command("emulate", "fabricheck_lab.emulate", "Build a Slurm cluster in miniature on this machine."),
    Command("doctor", "fabricheck.commands.doctor", "Check in seconds whether this node is fit."),
    Command("capture", "fabricheck.commands.site", "Store what a node reports, for init --from."),
)


#: The commands by what they are for, in the order of the help.
TASKS = {
    "Describe a system": ("init", "capture", "validate", "doctor"),
    "Measure": ("run", "upgrade"),
    "Understand a result": ("explain", "judge", "report", "expected", "reproduce"),
    "Over weeks": ("store", "calibrate", "compare", "watch"),
    "Beyond one run": ("bundle", "emulate"),
}

#: The distribution whose command `emulate` is: the only thing of it that is named in this package.
LAB = "fabricheck_lab"


def _without_lab(command: Command) -> click.Command:
    """Stands for a command of `LAB` where that is not installed, and takes whatever is given to it."""

    def say() -> NoReturn:
        raise UserError(
            f"`fabricheck {command.name}` needs fabricheck-lab, which is not installed: `make lab` in a checkout of "
            "Fabricheck installs it"
        )

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(command.name, anything, say, help=command.help, add_help_option=False)


def _add_site(_: click.Context, __: click.Parameter, folder: Path | None) -> None:
    """Has this command and what it starts look for systems in `folder` first."""
    if folder is None:
        return
    if not (folder / "site_configs").is_dir():
        raise UserError(f"--site {folder}: has no site_configs/: name the folder that `fabricheck init` wrote to")
    GIVEN[SITES] = str(folder)
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
        return [name for names in TASKS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = next((each for each in COMMANDS if each.name == cmd_name), None)
        if entry is None:
            return None
        try:
            command = getattr(importlib.import_module(entry.module), entry.name)
        except ModuleNotFoundError as error:
            if error.name not in (LAB, f"{LAB}.{entry.name}"):
                raise
            command = _without_lab(entry)
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.module} has no command {entry.name}")
        if not any(each.name == _SITE.name for each in command.params):
            command.params.append(_SITE)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        help_of = {command.name: command.help for command in COMMANDS}
        for task, names in TASKS.items():
            with formatter.section(task):
                formatter.write_dl([(name, help_of[name]) for name in names])


# Of the commands only the names are needed here: click names the nearest where there is none.
@click.group(
    cls=_Commands,
    commands={command.name: click.Command(command.name) for command in COMMANDS},
    params=[_SITE],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="fabricheck")
def cli() -> None:
    """Acceptance, nightly and upgrade checks for the paths between GPUs.

    When: on the day a system arrives, every night, and after each upgrade. COMMAND --help has when to use it and an
    example.

    \b
    fabricheck run --system alps --tag nightly
    fabricheck explain --system alps
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status, which is a verdict's only where there is a verdict.

    Whatever ends a command otherwise is one line on stderr: a mistake of the user and what the system refuses (a full
    disk, a folder that cannot be read) end with 2, a mistake of Fabricheck itself with 70 and a file that has the
    traceback. Python's own status of an exception is 1, which reads as DEGRADED.
    """
    sys.stdout, sys.stderr = visible(sys.stdout), visible(sys.stderr)
    # Nothing here is large enough for threads of BLAS, and each core's costs a command more than its work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    status = _end_of(arguments)
    try:
        sys.stdout.flush()
    except OutputError:
        # Python would write what is in the buffer at its end, fail, and end with a status of its own.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


def _end_of(arguments: Sequence[str] | None) -> int:
    """The exit status of the command."""
    try:
        status = cli.main(
            args=list(arguments) if arguments is not None else None, prog_name="fabricheck", standalone_mode=False
        )
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except OutputError as error:
        return EXIT_BROKEN_PIPE if error.pipe else _say(str(error), EXIT_USER_ERROR)
    except UserError as error:
        return _say(str(error), EXIT_USER_ERROR)
    except click.ClickException as error:
        text, context = error.format_message(), getattr(error, "ctx", None)
        if "\n" not in text:
            see = "" if context is None else f" See `{context.command_path} --help`."
            return _say(text + see, EXIT_USER_ERROR)
        with contextlib.suppress(OutputError):
            error.show()  # the help of a command that needs another word
        return EXIT_USER_ERROR
    except (KeyboardInterrupt, click.Abort):
        return _say("interrupted", EXIT_INTERRUPTED)
    except OSError as error:
        return _say(reason_of_system(error), EXIT_USER_ERROR)
    except Exception as error:
        return _say(f"a mistake in Fabricheck itself: {reason_of(error)}: {_keep_traceback()}", EXIT_INTERNAL)


def _say(text: str, status: int) -> int:
    # The status has to come through also where stderr is full or closed.
    with contextlib.suppress(OutputError):
        click.echo(f"fabricheck: {text}", err=True)
    return status


def _keep_traceback() -> str:
    """Writes the traceback into a file, and says where it is."""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="fabricheck-", suffix=".traceback", delete=False) as file:
            traceback.print_exc(file=file)
    except OSError as error:
        return f"its traceback could not be kept: {reason_of_system(error)}"
    return f"please report it with the traceback in {file.name}"
