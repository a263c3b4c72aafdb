"""A suite of its own for each test of the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sessions import make_suite


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return use_suite(tmp_path / "suite", monkeypatch)


def use_suite(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite that commands use, which are called in its folder."""
    root = make_suite(folder)
    monkeypatch.chdir(root)
    monkeypatch.setenv("FABRICHECK_SUITE", str(root))
    return root


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"
