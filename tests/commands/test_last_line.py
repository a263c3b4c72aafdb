"""However a command ends, its status is a verdict's only where there is a verdict, and nobody reads a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from fabricheck import cli as command_line
from fabricheck.cli import main
from fabricheck.records.verdict import EXIT_CODES
from fabricheck.visible import OutputError, escaped, visible
from tests.support.result_files import HOST

FABRICHECK = [sys.executable, "-m", "fabricheck"]


def ending(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    """The exit status of a command that ends with `error`."""

    @click.command()
    def broken() -> None:
        raise error

    monkeypatch.setattr(command_line.cli, "get_command", lambda *_: broken)
    with pytest.raises(SystemExit) as ended:
        main(["judge"])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KeyError("rank"), 70),
        (RecursionError("too deep"), 70),
        (MemoryError(), 70),
        (OSError(28, "No space left on device", "/somewhere/verdict.json"), 2),
        (click.ClickException("a bad word"), 2),
        (click.Abort(), 130),
        (KeyboardInterrupt(), 130),
        (OutputError(BrokenPipeError(32, "Broken pipe")), 141),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, BaseException) else "",
)
def test_no_exception_ends_with_the_status_of_a_verdict(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    error: BaseException,
    status: int,
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert ending(monkeypatch, error) == status
    assert status not in EXIT_CODES.values()
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert len(said.strip().splitlines()) == (status != 141)
    kept = list(tmp_path.iterdir())
    assert len(kept) == (status == 70)
    for file in kept:
        assert file.name in said
        assert type(error).__name__ in file.read_text()


@pytest.mark.parametrize(
    "words", [["report", "."], ["bogus"], ["run", "--tga", "smoke"], ["judge"], ["run", "--launches", "many"]]
)
def test_a_mistake_in_the_words_of_a_command_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fabricheck: ") and "--help" in line


@pytest.mark.parametrize("command", [["--help"], ["expected", "--system", "local"], ["judge", str(HOST), "--json"]])
def test_a_full_output_is_a_line_and_no_verdict(command: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*FABRICHECK, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        nothing = subprocess.run([*FABRICHECK, *command], stdout=full, stderr=full, check=False)
    assert done.returncode == nothing.returncode == 2
    assert done.stderr == "fabricheck: cannot write the output: No space left on device\n"


@pytest.mark.full
def test_a_closed_output_changes_no_status() -> None:
    job = f"{sys.executable} -m fabricheck judge {HOST}"
    assert subprocess.run(f"{job} >&- 2>&-", shell=True, check=False).returncode == 4
    assert subprocess.run(["bash", "-c", f"{job} | true; exit ${{PIPESTATUS[0]}}"], check=False).returncode in (4, 141)


def test_what_a_name_does_to_a_terminal_is_shown_and_not_done(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a\x1b]0;owned\x07\x1b[2J\u202e\udcff.jsonl"
    with pytest.raises(SystemExit):
        main(["judge", name])
    said = capsys.readouterr().err
    assert said.rstrip("\n").isprintable()
    assert "\\x1b" in said
    assert "\\u202e" in said
    assert len(said.splitlines()) == 1


def test_colours_of_verdicts_are_no_escapes(tmp_path: Path) -> None:
    file = tmp_path / "out"
    with file.open("w") as stream:
        shown = visible(stream)
        shown.write(click.style("PASS", fg="green") + "\x1b[8mhidden\x1b[0m → nid001\n")
    assert file.read_text() == "\x1b[32mPASS\x1b[0m\\x1b[8mhidden\x1b[0m → nid001\n"
    assert escaped("a\tb\n") == "a\tb\n"


def test_a_terminal_of_ascii_only_gets_escapes() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    command = [*FABRICHECK, "judge", "größe→.jsonl"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fabricheck: 'gr")
    assert "Traceback" not in done.stderr
