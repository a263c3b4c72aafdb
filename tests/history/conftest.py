"""A suite of its own for each test of the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sessions import make_suite


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_suite(tmp_path / "suite")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"
