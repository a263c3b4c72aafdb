"""Small source trees and archives that look like a vendor suite's."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.suite import suite_root
from fabricheck.suites.sources import Tool, load_tools


@pytest.fixture
def osu() -> Tool:
    return load_tools(suite_root() / "config" / "vendor.yaml")["osu"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A stand-in for the source of OMB: a configure script, and nothing behind it."""
    folder = tmp_path / "osu-micro-benchmarks-0"
    folder.mkdir()
    (folder / "configure").write_text("#!/bin/sh\n")
    return folder


@pytest.fixture
def tarball(tree: Path) -> Path:
    file = tree.with_suffix(".tar.gz")
    with tarfile.open(file, "w:gz") as tar:
        tar.add(tree, tree.name)
    return file


def without_sum(tool: Tool) -> Tool:
    assert tool.release is not None
    return replace(tool, release=replace(tool.release, sha256=None, sha256_from=None))
