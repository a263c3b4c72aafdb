"""What a program can hold of the words that users read; CONTRIBUTING.md has the rest."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from tests.support.words import BANNED, LONGEST, QUOTED, parse_command
from tools.commands_page import commands

ROOT = Path(__file__).resolve().parents[1]
GUIDE = ("first-run", "your-system", "every-night", "after-an-upgrade", "when-it-is-red")
#: Words of before, by which results of older versions of fabricbench are read.
_OLD = "guards.py"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def words(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").split())


def commands_in(page: Path) -> Iterator[str]:
    """The lines of code blocks and the code in running text that begin as a command does, without a prompt."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^ {4,}(\S.*)$", text, re.MULTILINE)
    for line in [line for block in blocks for line in block.splitlines()] + indented + re.findall(r"`([^`\n]+)`", text):
        yield line.strip().removeprefix("$ ").removeprefix(".venv/bin/")


def test_the_readme_is_one_screen_and_the_guide_an_hour() -> None:
    assert words(ROOT / "README.md") <= 500
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 70
    assert sum(words(ROOT / "docs" / f"{name}.md") for name in GUIDE) <= 6000


@pytest.mark.parametrize("name", ["README.md", *(f"docs/{name}.md" for name in GUIDE)])
def test_the_guide_has_no_word_of_our_own(name: str) -> None:
    assert [found[0] for found in BANNED.finditer((ROOT / name).read_text(encoding="utf-8"))] == []


def messages() -> Iterator[tuple[str, str]]:
    """Place and text of what users may read, without values: of Python, templates and fabricbench."""
    for file in (ROOT / "fabricheck").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # those are for developers
        parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            if id(node) in docstrings | parts or not isinstance(node, (ast.Constant, ast.JoinedStr)):
                continue
            values = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "…".join(str(part.value) for part in values if isinstance(part, ast.Constant))
            if isinstance(node, ast.JoinedStr) or isinstance(node.value, str):
                yield f"{file.name}:{node.lineno}", text
    for file in (ROOT / "fabricheck").rglob("*.j2"):
        yield file.name, re.sub(r"<[^>]*>|\{.*?\}", "\n", file.read_text(encoding="utf-8"))
    for file in (ROOT / "src" / "fabricbench").rglob("*.[ch]*"):
        code = re.sub(r"//.*|\bR\"\(|\)\"", "", file.read_text(encoding="utf-8"))
        for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', re.sub(r'"\s*\n\s*"', "", code)):
            yield file.name, text


def test_messages_have_no_word_of_our_own() -> None:
    found = [f"{place}: {match[0]}" for place, text in messages() for match in BANNED.finditer(text) if " " in text]
    assert [each for each in found if not each.startswith(_OLD)] == []


def test_docstrings_have_no_word_of_our_own() -> None:
    """Names of the code, in backticks, and what they quote may be such words."""
    found = []
    for file in sorted((ROOT / "fabricheck").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                text = re.sub(r"`[^`]*`|\"[^\"]*\"", "", node.value.value)
                found += [f"{file.name}:{node.lineno}: {match[0]}" for match in BANNED.finditer(text)]
    assert found == []


def test_a_message_fits_into_a_line_of_a_terminal() -> None:
    """A line of a terminal of 160 columns; the reasons of a longer one are in the HTML page or in the documentation."""
    code = re.compile(r"\\[bdswS.]|\$\(|\(\?|\n")
    long = [
        f"{place}: {text}"
        for place, text in messages()
        if len(text) > LONGEST and " " in text and not code.search(text)
    ]
    assert [each for each in long if not each.startswith(QUOTED)] == []


@pytest.mark.parametrize("command", list(commands()), ids=lambda command: command.command_path)
def test_help_says_when_to_use_a_command_and_gives_an_example(command: click.Context) -> None:
    """A fault of the lab has an example; when to plant it stands with the group."""
    text = inspect.cleandoc(command.command.help or "")
    assert re.search(rf"\n\x08\n(fabricheck .*\n)*{command.command_path}( |$)", text, re.MULTILINE)
    assert "\nWhen: " in text or command.command_path.startswith("fabricheck emulate fault ")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_exist(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for line in commands_in(page):
        if match := re.match(r"make ([a-z-]+)\b(?!=)", line):
            assert match[1] in targets, line
        if match := re.match(r"(?:nice )?python -m (fabricheck|tools|benchmarks)([\w.]+)", line):
            assert find_spec(f"{match[1]}{match[2]}"), line
        if match := re.match(r"(?:python |sh )?((?:ci|tools)/[\w-]+\.(?:sh|py))", line):
            assert (ROOT / match[1]).is_file(), line
        if re.match(r"python ci/drain.py .*[.]json", line) and "[" not in line:
            parse_command(line, monkeypatch)
        if re.match(r"fabricheck [a-z]+ .*-", line) and not re.search(r"[…<|*$]|\[[A-Z-]|OPTION|\.\.\.", line):
            with suppress(click.MissingParameter, click.BadOptionUsage):  # in running text, the beginning of a command
                parse_command(line, monkeypatch)
