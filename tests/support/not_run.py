"""A pytest plugin: which tests do not run, and what is said of them.

- Without FULL=1, tests marked `full` or `matrix` are left out, and with CI=true those marked `matrix`: the summary says
  how many and how to run them.
- With CI=true a skipped test fails the run.
- With FABRICHECK_NOT_RUN=FILE, what was left out or skipped, and why, is appended to FILE: tools/test.sh repeats it.
  Where files are named, what is left out of them is no part of it: the whole suite counts that.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.effort import is_ci, is_full


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: takes long; runs with FULL=1 only")
    config.addinivalue_line("markers", "matrix: a further fault, system or variant; for FULL=1, not in CI")
    config.pluginmanager.register(_NotRun(), "what-does-not-run")


class _NotRun:
    def __init__(self) -> None:
        self.left_out = 0
        self.skipped: list[tuple[str, str]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Before `-m` and `-k` choose, so that what `-m` leaves to the other part of `make test` is counted too."""
        marks = [*([] if is_full() else ["full"]), *(["matrix"] if is_ci() or not is_full() else [])]
        left_out = [item for item in items if any(map(item.get_closest_marker, marks))]
        self.left_out = len(left_out)
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped.append((report.nodeid, _reason(report)))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.skipped.append((report.nodeid, _reason(report)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.skipped and is_ci() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["left_out"] = self.left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Each worker of pytest-xdist collects the whole suite; the process that starts them collects nothing."""
        self.left_out = max(self.left_out, getattr(node, "workeroutput", {}).get("left_out", 0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        skipped = [f"{count} skipped: {reason}" for reason, count in Counter(why for _, why in self.skipped).items()]
        left_out = []
        if self.left_out:
            left_out = [f"{self.left_out} left out, since they take longer; `make test FULL=1` runs them"]
        if skipped or left_out:
            terminalreporter.section("tests that did not run")
        for line in skipped + left_out:
            terminalreporter.line(line)
        if file := os.environ.get("FABRICHECK_NOT_RUN"):
            counts_all = config.args_source is not pytest.Config.ArgsSource.ARGS
            with Path(file).open("a", encoding="utf-8") as out:
                out.writelines(f"{line}\n" for line in (skipped + left_out if counts_all else skipped))
        if self.skipped and is_ci():
            terminalreporter.section("skipped although CI=true: this is a failure", red=True)
            for nodeid, _ in self.skipped:
                terminalreporter.line(nodeid)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test was skipped: pytest keeps file, line and "Skipped: " with the reason."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
