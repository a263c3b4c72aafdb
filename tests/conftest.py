"""The plugins of this project's tests, and how many examples a property gets where its test does not say."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from hypothesis import settings

from fabricheck.suite import GIVEN, SITES
from tests.support.effort import is_ci, is_full

# What is planted here stays where it is; tests/e2e/test_launches.py has what does not.
os.environ["FABRICHECK_LAUNCHES"] = "1"
# As where the environment is activated: commands are printed by their names.
os.environ["VIRTUAL_ENV"] = sys.prefix

settings.register_profile("quick", max_examples=30, deadline=None)
settings.register_profile("full", max_examples=100, deadline=None)
# The same examples each time in continuous integration; new ones each time on a developer's machine.
settings.register_profile("ci", settings.get_profile("full"), derandomize=True)
settings.load_profile("ci" if is_ci() else "full" if is_full() else "quick")

# Tests that are ended from outside end their clusters first.
signal.signal(signal.SIGTERM, signal.default_int_handler)

pytest_plugins = [
    "pytester",
    "tests.support.not_run",
    "tests.support.cluster",
    "tests.support.toy",
    "tests.support.browsers",
    "tests.support.users",
]


@pytest.fixture(autouse=True)
def no_sites_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that run in a test's own process put their `--site` into its environment."""
    monkeypatch.delenv(SITES, raising=False)
    GIVEN.clear()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of several processes none is left with what takes minutes while the others have ended: that comes first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: [item.get_closest_marker(mark) is None for mark in ("compile", "e2e")])
