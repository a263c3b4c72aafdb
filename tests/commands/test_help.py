"""The help of each command: an example that parses, every tag of the checks, and the reference that is made of it."""

from __future__ import annotations

import re
from pathlib import Path

import click

from tools.commands_page import commands

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {context.command_path: context for context in commands() if not isinstance(context.command, click.Group)}


def test_every_command_takes_a_system_as_the_same_option() -> None:
    parameters = {path: COMMANDS[path].command.params for path in COMMANDS}
    arguments = {
        (path, each.name) for path in parameters for each in parameters[path] if isinstance(each, click.Argument)
    }
    assert not [path for path, name in arguments if "system" in str(name)]


def test_the_help_of_run_tells_what_each_tag_is() -> None:
    tags: set[str] = set()
    for file in (ROOT / "checks").glob("*.py"):
        lines = re.findall(r"^    tags = \{(.*?)\}", file.read_text(encoding="utf-8"), re.MULTILINE)
        tags.update(re.findall(r'"([\w-]+)"', " ".join(lines)))
    text = COMMANDS["fabricheck run"].command.help or ""
    told = re.findall(r"^ *([\w-]+) {2,}(?:\d+ s  )?(?=\S)", text, re.MULTILINE)
    assert sorted(told) == sorted(tags)
