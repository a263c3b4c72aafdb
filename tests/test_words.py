"""What a program can hold of the words that users read; CONTRIBUTING.md has the rest."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
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
PAGES = [ROOT / "README.md", ROOT / "lab" / "commands.md", *sorted((ROOT / "docs").glob("*.md"))]


def words(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").split())


def lines_of_blocks(text: str) -> list[str]:
    """The lines of code blocks, without the prompt before a command."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()] + re.findall(r"^ {4,}(\S.*)$", text, re.MULTILINE)
    return [line.strip().removeprefix("$ ").removeprefix(".venv/bin/") for line in lines]


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
            text = "".join(map(_part, values))
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


#: A command in a text: up to a mark of the sentence, or to the end of the code.
_NAMES = "|".join(sorted({command.command_path.split()[1] for command in commands()}))
_COMMAND = re.compile(rf"\b(fabricheck (?:{_NAMES})|python ci/drain\.py)\b((?: [^`;)\n]*)?)")
#: Words in capitals that a reader replaces by what he has in hand; any other would be a command that is none.
_IN_HAND = {"FILE", "FOLDER", "RUN", "SYSTEM"}


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    text = ast.unparse(part)
    return "fabricheck" if "program()" in text else "python ci/drain.py" if "drain.py" in text else "…"


def test_what_is_printed_as_a_command_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every text of the package: steps of the catalogue, next lines, mistakes."""
    commands_in_texts = []
    for _, text in messages():
        for match in _COMMAND.finditer(re.sub(r"\{\w+\}|…", "x", text).replace("x--", "--")):
            options = re.split(r"[:?,] ", match[2])[0].rstrip(" .:?'\"")
            if options and not options.endswith("--help"):
                commands_in_texts.append(f"{match[1]}{options}")
    for command in commands_in_texts:
        assert not set(re.findall(r"\b[A-Z]{3,}\b(?!=)", command)) - _IN_HAND, command
        parse_command(command, monkeypatch)
    assert len(commands_in_texts) > 40


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_are_commands(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in code blocks can be pasted; of code in running text the program is there."""
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    blocks = lines_of_blocks(text)
    for line in blocks:
        if line.startswith("fabricheck ") and not re.search(r"\[(?:--|[A-Z]+)", line):
            parse_command(line, monkeypatch)
    for line in blocks + re.findall(r"`([^`\n]+)`", text):
        if match := re.match(r"make ([a-z-]+)\b(?!=)", line):
            assert match[1] in targets, line
        if match := re.match(r"(?:nice )?python -m (fabricheck|tools|benchmarks)([\w.]+)", line):
            assert find_spec(f"{match[1]}{match[2]}"), line
        if match := re.match(r"(?:python |sh )?((?:ci|tools)/[\w-]+\.(?:sh|py))", line):
            assert (ROOT / match[1]).is_file(), line
        if re.match(r"python ci/drain.py .*[.]json", line) and "[" not in line:
            parse_command(line, monkeypatch)
