"""Writes docs/commands.md and lab/commands.md, the reference of the command line, from the commands: `make docs`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from fabricheck.cli import cli

PAGE, PAGE_OF_LAB = Path("docs/commands.md"), Path("lab/commands.md")
_LAB = "fabricheck emulate"
_FAULT, _CLUSTER = f"{_LAB} fault", "--name TEXT"
_HEAD = """# Commands

Made by `make docs`: what each command does, its examples and the names of its options; `--help` of a command says
when to use it, what it exits with and what each option means. Every command also takes `--site FOLDER`: a folder with
`site_configs/` and `reference_values/` of your own systems (`FABRICHECK_SITES` names several).

Variables:

- `FABRICHECK_MPI`: `machine` uses only the MPI on the search path, `wheel` only the MPI from PyPI. If it is not set,
  the MPI on the search path is used first, except versions that are known to fail (`fabricheck/mpi.py`).
  `python -m fabricheck.mpi` lists the MPI libraries.
- `FABRICHECK_SUITE`: the folder with `site_configs/` and `config/` to use instead of the suite it was installed with.
- `FABRICHECK_SITES`: folders with `site_configs/` and `reference_values/` of systems outside the suite, separated by
  colons ([your own ReFrame](your-own-reframe.md)).
- `FABRICHECK_CACHE`: the folder of built programs. If it is not set: `cache/` below the output folder.
- `FABRICHECK_BUILT`, `FABRICHECK_LAUNCHES`: the same as `fabricheck run --built` and `--launches`.
"""
_HEAD_OF_LAB = """# Commands of the lab

Made by `make docs`: what each command does, with its examples; `--help` of a command has the rest.
"""


def commands() -> Iterator[click.Context]:
    """A context for each command and group of commands below `fabricheck`, in the order of the help."""
    yield from _below(click.Context(cli, info_name="fabricheck"))


def render() -> str:
    """The page of what a site runs, as Markdown."""
    return _page(_HEAD, [context for context in commands() if not _is_of_lab(context)])


def render_lab() -> str:
    """The page of the lab's commands, as Markdown."""
    return _page(_HEAD_OF_LAB, [context for context in commands() if _is_of_lab(context)])


def _is_of_lab(context: click.Context) -> bool:
    return context.command_path.startswith(_LAB)


def _page(head: str, contexts: list[click.Context]) -> str:
    page = "\n".join([head, *map(_section, contexts)])
    return re.sub(r"([^\n])\n(#+ )", r"\1\n\n\2", page)  # after a list, too


def _fault(context: click.Context) -> str:
    """A command that plants a fault: usage, what it does, its example and own options, in few lines."""
    command = context.command
    usage = " ".join(command.collect_usage_pieces(context)).replace("[OPTIONS] ", "").replace("[OPTIONS]", "")
    what, _, rest = inspect.cleandoc(command.help or "").partition("\n\n\b\n")
    lines = [f"- `{f'{context.info_name} {usage}'.strip()}`", f"  {what} Example: `{rest.strip()}`"]
    for names, text in _options(context):
        if names != _CLUSTER:
            lines.append(f"  `{names}`: {text}")
    return "\n".join(lines)


def _options(context: click.Context) -> Iterator[tuple[str, str]]:
    for option in context.command.get_params(context):
        # --help and the --site of every command are eager.
        if isinstance(option, click.Option) and not option.is_eager and (record := option.get_help_record(context)):
            yield record


def _below(context: click.Context) -> Iterator[click.Context]:
    group = context.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        own = click.Context(command, info_name=name, parent=context)
        yield own
        if isinstance(command, click.Group):
            yield from _below(own)


def _section(context: click.Context) -> str:
    command, path = context.command, context.command_path
    if context.parent and context.parent.command_path == _FAULT:
        return _fault(context)
    parts = [f"{'#' * (len(path.split()))} {path}"]
    summary, *rest = inspect.cleandoc(command.help or "").split("\n\n")
    parts.append(summary)
    for paragraph in rest:
        example = paragraph.removeprefix("\b\n")
        if example.startswith("fabricheck "):
            parts.append(f"```\n{example}\n```")
    if path == _FAULT:
        parts.append(f"Each takes `{_CLUSTER}`, the name of the cluster (`emulated`).")
    names = [f"`{names.split()[0].rstrip(',')}`" for names, _ in _options(context)]
    if names:
        parts.append(f"Options: {', '.join(names)}.")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    PAGE_OF_LAB.write_text(render_lab(), encoding="utf-8")
