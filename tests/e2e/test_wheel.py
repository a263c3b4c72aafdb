"""The wheel, as a user has it: built, installed into a new environment, and run from an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from fabricheck.suite import suite_root
from tools.wheel import FOLDERS

pytestmark = [pytest.mark.e2e, pytest.mark.full]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def call(folder: Path, *command: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    own = ("PYTHONPATH", "FABRICHECK_SUITE", "FABRICHECK_SITES", "RFM_PREFIX")
    variables = {name: value for name, value in os.environ.items() if name not in own}
    job = subprocess.run(
        list(map(str, command)), cwd=folder, capture_output=True, text=True, check=False, env=variables, timeout=500
    )
    assert job.returncode == status, job.stdout + job.stderr
    return job


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that has the wheel, and of this one the libraries only. Nothing is downloaded."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    files = call(suite_root(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "-z").stdout
    needed = (*(f"{each}/" for each in FOLDERS), "fabricheck/", "lab/", "tools/wheel.py")
    for name in files.split("\0"):
        if name.startswith(needed) or "/" not in name:
            file = suite_root() / name
            if file.is_file():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                (source / name).write_bytes(file.read_bytes())
    for path in (".", "./lab"):
        call(source, *PIP, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", folder, path)
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = folder.glob("fabricheck-*.whl")
    call(folder, *PIP, "--python", python, "install", "--no-deps", "--no-index", wheel)
    packages = next((folder / "venv").glob("lib/python*/site-packages"))
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


def test_it_brings_all_that_the_repository_has(installed: Path, tmp_path: Path) -> None:
    package = call(tmp_path, installed / "python", "-c", "import fabricheck; print(fabricheck.__path__[0])")
    root = Path(package.stdout.strip()) / "installed"
    assert root.is_relative_to(installed.parent)
    tracked = call(suite_root(), "git", "ls-files", "--", *FOLDERS).stdout.split()
    there = {str(file.relative_to(root)) for file in root.rglob("*") if "__pycache__" not in file.parts}
    assert {name for name in tracked if (suite_root() / name).is_file()} <= there


def test_a_run_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    """Its checks are found, fabricbench is built from its sources, measured and judged."""
    # How fast it is, nobody asks: compilers need half the time where they do not optimize.
    variables = (f"FABRICHECK_CACHE={tmp_path / 'cache'}", "CMAKE_BUILD_TYPE=None")
    name = "SmokeLibraries"
    empty = tmp_path / "empty"
    empty.mkdir()
    program = installed / "fabricheck"
    job = call(empty, "env", *variables, program, "run", "--name", name, "--environment", "openmpi")
    assert job.stdout.splitlines()[-1].startswith(f"PASS: the report is {empty / 'output' / 'runs'}")
    assert [each.name for each in empty.iterdir()] == ["output"]
    assert len(list((tmp_path / "cache").glob("fabricbench-*/installed/fabricbench"))) == 1


def test_emulate_comes_with_the_lab(installed: Path, tmp_path: Path) -> None:
    """Last, since it installs that."""
    without = call(tmp_path, installed / "fabricheck", "emulate", "up", status=2)
    assert "fabricheck-lab" in without.stderr and without.stderr.count("\n") == 1
    (wheel,) = installed.parents[1].glob("fabricheck_lab-*.whl")
    call(tmp_path, *PIP, "--python", installed / "python", "install", "--no-deps", "--no-index", wheel)
    assert "--system" in call(tmp_path, installed / "fabricheck", "emulate", "up", "--help").stdout
    where = call(tmp_path, installed / "python", "-c", "from fabricheck_lab.node import SOURCES; print(SOURCES)")
    sources = Path(where.stdout.strip())
    tracked = call(suite_root() / "lab/fabricheck_lab/standins", "git", "ls-files").stdout.split()
    assert sources.is_relative_to(installed.parent)
    assert [name for name in tracked if not (sources / name).is_file()] == []
