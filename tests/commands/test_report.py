"""`fabricheck report` as a user calls it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fabricheck.cli import main
from tests.support.commands import run
from tests.support.result_files import CUDA, HOST

ROOT = Path(__file__).resolve().parents[2]
REFERENCES = """
$sources:
  run1: {kind: vendor, source: made up}
$provenance: {Ping: run1}
Ping:
  $index: [transport]
  mpi:
    pingpong_uncontended_0_1_1mib_goodput: [GOODPUT, -0.05, 0.05, Gb/s]
"""


@pytest.mark.parametrize("name", ["", ".", "file/report.html", "nowhere/report.html", 300 * "x"])
def test_a_report_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setenv("FABRICHECK_SUITE", str(ROOT))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended:
        main(["report", str(HOST), "--system", "local", "--output", name])
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) <= 4


def test_what_is_no_page_is_not_written_over(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Such as the first of `--output *.jsonl`."""
    result = Path(shutil.copy(HOST, suite / "a.jsonl"))
    assert run("report", HOST, "--system", "local", "--output", result) == 2
    assert "a.jsonl exists already and is not an HTML page" in capsys.readouterr().err
    assert result.read_bytes() == HOST.read_bytes()


def test_it_writes_a_page_and_says_the_verdict(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = suite / "report.html"
    assert run("report", HOST, "--system", "local", "--output", page) == 0
    out = capsys.readouterr().out
    assert out.startswith("PASS")
    assert out.splitlines()[-1] == f"the report is in {page}"
    assert "<title>PASS" in page.read_text()


def test_several_files_have_one_page_and_the_worst_verdict(suite: Path) -> None:
    cut = suite / "cut.jsonl"
    cut.write_text("".join(CUDA.read_text().splitlines(keepends=True)[:-1]))
    page = suite / "report.html"
    assert run("report", CUDA, cut, "--system", "hgx-h200", "--output", page, "--title", "Tuesday") == 4
    text = page.read_text()
    assert "<title>INCOMPLETE: Tuesday</title>" in text
    assert text.count('<details class="run"') == 2


def test_it_judges_by_the_references_of_the_system_as_judge_does(suite: Path) -> None:
    """A reference that exists may not be left out: the report would be green where the judge is not."""
    file = suite / "reference_values" / "local.yaml"
    arguments = ["report", str(HOST), "--system", "local", "--output", str(suite / "report.html")]
    file.write_text(REFERENCES.replace("GOODPUT", "98"))
    assert run(*arguments) == 0
    file.write_text(REFERENCES.replace("GOODPUT", "110"))
    assert run(*arguments) == 1
    assert "DEGRADED" in (suite / "report.html").read_text()
    assert run("judge", HOST, "--system", "local") == 1


def test_mistakes_are_one_line(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (suite / "reference_values" / "hgx-h200.yaml").write_text(
        REFERENCES.replace("GOODPUT", "98").replace("{Ping: run1}", "{Ping: run1, Pong: run1}")
        + "Pong:\n  $index: [$partition]\n  here:\n    a: [1, -0.05, 0.05, Gb/s]\n"
    )
    result = suite / "result.jsonl"
    shutil.copy(HOST, result)
    page = suite / "report.html"
    for arguments, message in (
        ((suite / "none", "--system", "local"), "cannot be read"),
        ((HOST, "--system", "nowhere"), "no system 'nowhere'"),
        ((HOST, "--system", "local", "--test", "Ping"), "local"),
        ((HOST, "--system", "hgx-h200", "--test", "Pang"), "has no references of 'Pang'"),
        ((HOST, "--system", "hgx-h200", "--test", "Pong"), "give $partition"),
        (
            (HOST, "--system", "hgx-h200", "--test", "Ping %transport=ccl"),
            "transport is mpi in the file and ccl in --test",
        ),
        ((HOST, "--system", "local", "--key", "transport"), "--key 'transport' is not NAME=VALUE"),
    ):
        assert run("report", *arguments, "--output", page) == 2
        captured = capsys.readouterr()
        (line,) = captured.err.splitlines()
        assert message in line
        assert not page.exists()
    assert run("report", result, "--system", "local", "--output", result) == 2
    assert "is a result file" in capsys.readouterr().err
    assert result.read_bytes() == HOST.read_bytes()


def test_an_acceptance_document_is_of_a_run_and_a_page_of_files(suite: Path) -> None:
    assert run("report", HOST, "--acceptance", "--output", suite / "acceptance.html") == 2
    assert run("report", suite, "--acceptance", "--output", suite / "acceptance.html") == 2
    assert run("report", suite, "--output", suite / "page.html") == 2
    assert not (suite / "acceptance.html").exists() and not (suite / "page.html").exists()
