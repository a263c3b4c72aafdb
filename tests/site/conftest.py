"""A suite to write the files of a site to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.nodes import ROOT


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite without systems."""
    folder = tmp_path / "suite"
    folder.mkdir()
    for name in ("checks", "config", "src"):
        (folder / name).symlink_to(ROOT / name)
    for name in ("site_configs", "reference_values"):
        (folder / name).mkdir()
    monkeypatch.setenv("FABRICHECK_SUITE", str(folder))
    return folder
