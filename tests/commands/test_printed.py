"""What commands print to be pasted: each `next:` line, each command that a paste lacks an option of, each FILL IN."""

from __future__ import annotations

import contextlib
import random
import re
import shlex
import sys
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.judge.compare_part import NodeDescription
from fabricheck.report.normal import is_normal
from tests.support.commands import run
from tests.support.effort import effort
from tests.support.machines import draw_machine, write_texts
from tests.support.nodes import ROOT
from tests.support.words import parse_command
from tests.vendor.pastes import TOOLS, draw_paste
from tests.vendor.reading import read_all

ASKS = re.compile(r"  missing +fabricheck ")
#: What a reader has in hand in place of a word that is not one of a list.
_IN_HAND = {"N": "8", "PART": "H200"}


@pytest.fixture(autouse=True)
def _this_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)


def pasted(line: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of a printed command after the program's, as a shell has them, once its own parser took them; a word in
    capitals is the first of those that the comment lists."""
    listed = re.split(r" # (?:one of|such as) |, |$", line)[1]
    words = shlex.split(line, comments=True)
    words = [_IN_HAND.get(word, listed) if re.fullmatch("[A-Z]+", word) else word for word in words]
    assert words[0] == "fabricheck" and all(words), line
    with monkeypatch.context() as patched:
        parse_command(shlex.join(words), patched)
    return words[1:]


@pytest.mark.parametrize("kind", TOOLS)
def test_what_a_paste_does_not_say_is_asked_for_by_a_command(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pasted, it is not asked for again; and no line has a word that this reader has nothing for."""
    file = tmp_path / "o'brien's mail.txt"
    for seed in range(effort(30)):
        text = draw_paste(kind, seed).text
        with contextlib.suppress(UserError):
            lines = list(is_normal(read_all(text, str(file)), text, str(file), NodeDescription(None, None), ROOT).lines)
            given: set[str] = set()
            while command := next((line.split(maxsplit=1)[1] for line in lines if ASKS.match(line)), ""):
                words = pasted(command, monkeypatch)
                options = {word for word in words if word.startswith("--")}
                assert options > given, (seed, lines)
                given = options
                file.write_text(text, encoding="utf-8", newline="")
                run(*words)
                lines = capsys.readouterr().out.splitlines()
            assert not any(re.search(r"\b(NODE|SYSTEM|TEST|RUN|FILE)\b", line) for line in lines), (seed, lines)


def nexts(text: str) -> list[str]:
    return re.findall(r"(?m)^next: (.*)$", text)


@pytest.mark.parametrize("seed", range(3, 3 + effort(3)))
def test_a_new_system_is_filled_in_and_its_printed_commands_run(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a node whose tools say less than is needed, or more."""
    monkeypatch.setenv("FABRICHECK_SITES", "")
    rng = random.Random(seed)
    folder = write_texts(draw_machine(rng), tmp_path / "texts")
    for name in ("lscpu", "ibstat", "list"):
        if rng.random() < 0.4:
            (folder / f"{name}.txt").unlink(missing_ok=True)
    site = tmp_path / rng.choice(["mine", "my sites"])
    status = run("init", "--system", "new", "--from", folder, "--site", site)
    said = capsys.readouterr()
    if status == 2:
        assert " " in site.name and not site.exists(), said.err
        return
    (next_,) = nexts(said.out)
    words = pasted(next_.rpartition(": ")[2], monkeypatch)
    if "validate" in words:
        file = site / "site_configs" / "new" / "topology.yaml"
        assert "FILL IN" in said.err
        lines = re.sub(r"(?m)^ *# (?=nics:|gpu_memory:)", "", file.read_text())
        file.write_text(lines.replace("FILL IN Gb/s", "100 Gb/s"))
        assert run(*words) == 0, capsys.readouterr().err
    else:
        assert "run" in words and run(*words, "--list") == 0, capsys.readouterr().err


def test_a_program_for_nodes_is_started_and_its_folder_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("capture", "--script", "my capture.py") == 0
    first, second = nexts(capsys.readouterr().out)
    assert "python3 'my capture.py' FOLDER" in first
    assert pasted(second.partition(": ")[2].replace("FOLDER", "kept"), monkeypatch)[0] == "init"
