"""The rules of tests/support/not_run.py: what FULL=1 adds is counted, and with CI=true a skip is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FINE = "def test_fine(): pass"
SKIPS = {
    "test_by_itself": "import pytest\ndef test_fine(): pass\ndef test_one(): pytest.skip('no network')",
    "test_by_a_mark": "import pytest\n@pytest.mark.skip(reason='no network')\ndef test_one(): pass",
    "test_by_the_module": "import pytest\npytest.importorskip('no_such_module')",
}
LONG = """
import pytest
@pytest.mark.full
def test_long(): pass
@pytest.mark.parametrize("each", [1, pytest.param(2, marks=pytest.mark.full), pytest.param(3, marks=pytest.mark.full)])
def test_of(each): pass
"""


@pytest.fixture(autouse=True)
def _as_if_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("CI", "FULL", "FABRICHECK_NOT_RUN"):
        monkeypatch.delenv(name, raising=False)


def run(pytester: pytest.Pytester, files: dict[str, str], *options: str) -> pytest.RunResult:
    pytester.makepyfile(**files)
    return pytester.runpytest_inprocess("-p", "tests.support.not_run", "-p", "no:cacheprovider", *options)


@pytest.mark.parametrize("processes", [0, 2])
def test_a_skip_fails_the_run_in_ci(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, processes: int) -> None:
    monkeypatch.setenv("CI", "true")
    result = run(pytester, {"test_fine": FINE, **SKIPS}, f"--numprocesses={processes}")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines_random([f"{name}.py*" for name in SKIPS])
    result.stdout.fnmatch_lines(["*skipped although CI=true: this is a failure*"])


def test_a_skip_is_no_failure_elsewhere_and_its_reason_is_said(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FABRICHECK_NOT_RUN", str(pytester.path / "not-run"))
    assert run(pytester, {"test_fine": FINE, **SKIPS}).ret == pytest.ExitCode.OK
    said = (pytester.path / "not-run").read_text().splitlines()
    assert "2 skipped: no network" in said
    assert any(line.startswith("1 skipped: could not import 'no_such_module'") for line in said)


@pytest.mark.parametrize("options", [["--numprocesses=0"], ["--numprocesses=2"], ["-m", "not full"]])
def test_what_takes_long_is_left_out_and_counted(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setenv("FABRICHECK_NOT_RUN", str(pytester.path / "not-run"))
    result = run(pytester, {"test_long": LONG}, *options)
    result.assert_outcomes(passed=1, deselected=None if "=2" in options[0] else 3)
    line = "3 left out, since they take longer; `make test FULL=1` runs them"
    result.stdout.fnmatch_lines([line])
    assert {*(pytester.path / "not-run").read_text().splitlines()} == {line}


def test_what_is_left_out_of_files_that_are_named_is_counted_among_all(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FABRICHECK_NOT_RUN", str(pytester.path / "not-run"))
    run(pytester, {"test_long": LONG, **SKIPS}, "test_long.py", "test_by_a_mark.py")
    assert (pytester.path / "not-run").read_text() == "1 skipped: no network\n"


@pytest.mark.parametrize(("ci", "left_out"), [("true", 1), ("", 0)])
def test_the_matrix_runs_with_full_outside_of_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, left_out: int
) -> None:
    monkeypatch.setenv("FULL", "1")
    monkeypatch.setenv("CI", ci)
    result = run(pytester, {"test_matrix": LONG + "@pytest.mark.matrix\ndef test_fault(): pass\n"})
    result.assert_outcomes(passed=5 - left_out, deselected=left_out)
