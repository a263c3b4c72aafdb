"""From a page to its answer, command by command as a person pastes them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from fabricheck.suite import suite_root
from tests.support.bench import built

pytestmark = [pytest.mark.e2e, pytest.mark.quiet]

# It configures, and leaves a program that was built before: the wheel's test compiles (tests/e2e/test_wheel.py).
CMAKE = """#!/bin/sh
[ "$1" = --build ] || exec "{cmake}" "$@"
cp "{program}" build
"""


def paste(lines: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **variables}
    command = ["bash", "-c", lines]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=400
    )


@pytest.mark.full
def test_a_vendor_with_the_bundle(tmp_path: Path) -> None:
    """REPRODUCE.md alone says which file is the run, configures the benchmark, measures the same again, judges both."""
    programs = tmp_path / "built" / "openmpi"
    programs.mkdir(parents=True)
    shutil.copy(built("openmpi").program, programs)
    run = "fabricheck run --tag smoke --environment openmpi --output out --built built"
    assert paste(run, tmp_path).returncode in (0, 4)
    (folder,) = (tmp_path / "out" / "runs").glob("local-*")
    job = paste(f"fabricheck bundle {folder} --hide-names --output bundle.tar.gz", tmp_path)
    assert job.returncode == 0, job.stderr
    with tarfile.open(tmp_path / "bundle.tar.gz") as archive:
        archive.extractall(tmp_path / "vendor")
    (vendor,) = (tmp_path / "vendor").iterdir()
    sources = suite_root() / "src"
    assert all((vendor / "src" / file.relative_to(sources)).is_file() for file in sources.rglob("*") if file.is_file())
    cmake = tmp_path / "bin" / "cmake"
    cmake.parent.mkdir()
    cmake.write_text(CMAKE.format(cmake=shutil.which("cmake"), program=programs / "fabricbench"))
    cmake.chmod(0o755)
    page = (vendor / "REPRODUCE.md").read_text()
    first, *_, judge = re.findall(r"^```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    job = paste(f"set -e\nPATH={cmake.parent}:$PATH\n{first}", vendor)
    assert job.returncode == 0, job.stdout + job.stderr
    for line in judge.splitlines():
        job = paste(line, vendor)
        assert job.returncode == 0, job.stdout + job.stderr
        assert "@local:default+openmpi" in job.stdout
