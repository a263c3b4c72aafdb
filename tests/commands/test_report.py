"""`fabricheck judge --html` and `fabricheck report` as a user calls them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fabricheck.cli import main
from tests.support.commands import run
from tests.support.result_files import CUDA, HOST

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["", ".", "file/report.html", "nowhere/report.html", 300 * "x"])
def test_a_report_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setenv("FABRICHECK_SUITE", str(ROOT))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended:
        main(["judge", str(HOST), "--system", "local", "--html", name])
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) <= 4


def test_what_is_no_page_is_not_written_over(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Such as the first of `--output *.jsonl`."""
    result = Path(shutil.copy(HOST, suite / "a.jsonl"))
    assert run("judge", HOST, "--system", "local", "--html", result) == 2
    assert "a.jsonl exists already and is not an HTML page" in capsys.readouterr().err
    assert result.read_bytes() == HOST.read_bytes()


def test_it_writes_a_page_and_says_the_verdict(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = suite / "report.html"
    assert run("judge", HOST, "--system", "local", "--html", page) == 0
    said = capsys.readouterr()
    assert said.out.startswith("PASS") and str(page) in said.err
    assert "<title>PASS" in page.read_text()


def test_several_files_have_one_page_and_the_worst_verdict(suite: Path) -> None:
    cut = suite / "cut.jsonl"
    cut.write_text("".join(CUDA.read_text().splitlines(keepends=True)[:-1]))
    page = suite / "report.html"
    assert run("judge", CUDA, cut, "--system", "hgx-h200", "--html", page) == 4
    text = page.read_text()
    assert "<title>INCOMPLETE: hgx-h200</title>" in text
    assert text.count('<details class="run"') == 2


def test_an_acceptance_document_is_of_a_run(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = suite / "page.html"
    for words in (("report", HOST), ("report", suite)):
        assert run(*words, "--output", page) == 2
        assert len(capsys.readouterr().err.splitlines()) <= 2
    assert not page.exists()
