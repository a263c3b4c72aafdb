"""The rule of tests/conftest.py: with CI=true a skip is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = ROOT / "tests" / "conftest.py"
SKIPS = {
    "by the test": "import pytest\ndef test_fine(): pass\ndef test_one(): pytest.skip('why')",
    "by a mark": "import pytest\ndef test_fine(): pass\n@pytest.mark.skip\ndef test_one(): pass",
    "by the module": "import pytest\npytest.importorskip('no_such_module')",
}


@pytest.fixture(autouse=True)
def _plugins_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def run(pytester: pytest.Pytester, test: str, *options: str) -> pytest.RunResult:
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makepyfile(test_fine="def test_fine(): pass", test_it=test)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("test", SKIPS.values(), ids=SKIPS.keys())
def test_a_skip_fails_the_run_in_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, test: str, processes: int
) -> None:
    monkeypatch.setenv("CI", "true")
    result = run(pytester, test, f"--numprocesses={processes}")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*skipped although CI=true: this is a failure*", "test_it.py*"])


@pytest.mark.parametrize("test", SKIPS.values(), ids=SKIPS.keys())
def test_a_skip_is_no_failure_elsewhere(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, test: str) -> None:
    monkeypatch.delenv("CI", raising=False)
    assert run(pytester, test).ret == pytest.ExitCode.OK


def test_ci_without_skips_is_green(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert run(pytester, "def test_one(): pass").ret == pytest.ExitCode.OK


def test_an_expected_failure_is_no_skip(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert run(pytester, "import pytest\n@pytest.mark.xfail\ndef test_one(): assert False").ret == pytest.ExitCode.OK
