"""What holds for the words that users read: a few that are banned, and commands that have to parse."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from ci.drain import options
from fabricheck.cli import cli

#: Words of no field: people search for others, or read the sentence twice.
BANNED = re.compile(
    r"\b(lacks?|witness(es)?|by turns|mends?|anew|chance [\d.]|nothing went on|(said|says) nothing|last words"
    r"|none alone|equals|alike|wholly|says of (them|it)sel(ves|f)|others' work|nobody|found out|what is slow"
    r"|nothing (says|shows|tells|came)|asked for|stood still|as ever|brought|none of them|to be looked at"
    r"|does not say|all the same|handed in)\b"
    r"|(?<!here )\b(is|are|was) no (?!longer|slower|faster)",  # "is not a"; but "there is no"
    re.IGNORECASE,
)
#: Characters of a message without the values that are put in.
LONGEST = 160
#: Modules that quote a paper and a licence.
QUOTED = ("plot.py",)


def parse_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user types it, of `fabricheck` or ci/drain.py, but files need not be there.

    Raises click.UsageError for what the command does not take, and where something that it requires is missing.
    """
    words = shlex.split(command, comments=True)
    if words[:2] == ["python", "ci/drain.py"]:
        try:
            options().parse_args(words[2:])
        except SystemExit:
            raise click.UsageError(f"ci/drain.py takes no such options: {command}") from None
        return
    monkeypatch.setattr(click.Path, "convert", lambda self, value, param, ctx: value)
    monkeypatch.setattr("fabricheck.cli._SITE.callback", None)
    context: click.Context = cli.make_context("fabricheck", words[1:])
    while isinstance(group := context.command, click.Group):
        name, own, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        assert name is not None and own is not None
        context = own.make_context(name, rest, parent=context)
