"""What continuous integration adds: with CI=true a skipped test fails the run, and the examples are always the same."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# The same examples each time in continuous integration; new ones each time on a developer's machine.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI") == "true":
    settings.load_profile("ci")

pytest_plugins = ["pytester", "tests.cluster", "tests.toy"]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_NothingSkipped(), "nothing-skipped")


class _NothingSkipped:
    def __init__(self) -> None:
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.skipped.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.skipped and os.environ.get("CI") == "true" and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.skipped and os.environ.get("CI") == "true":
            terminalreporter.section("skipped although CI=true: this is a failure", red=True)
            for nodeid in self.skipped:
                terminalreporter.line(nodeid)
