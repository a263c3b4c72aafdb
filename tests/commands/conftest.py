"""The suite and store of the store's own tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.history.conftest import root, store

__all__ = ["root", "store"]


@pytest.fixture
def suite(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(root)
    monkeypatch.setenv("FABRICHECK_SUITE", str(root))
    return root
