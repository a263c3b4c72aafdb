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


def call(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    own = ("PYTHONPATH", "FABRICHECK_SUITE", "FABRICHECK_SITES", "RFM_PREFIX")
    variables = {name: value for name, value in os.environ.items() if name not in own}
    job = subprocess.run(
        list(map(str, command)), cwd=folder, capture_output=True, text=True, check=False, env=variables, timeout=500
    )
    assert job.returncode == 0, job.stdout + job.stderr
    return job


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that has the wheel, and of this one the libraries only. Nothing is downloaded."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    files = call(suite_root(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "-z").stdout
    for name in files.split("\0"):
        if name.startswith((*(f"{each}/" for each in FOLDERS), "fabricheck/", "tools/wheel.py")) or "/" not in name:
            file = suite_root() / name
            if file.is_file():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                (source / name).write_bytes(file.read_bytes())
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    call(source, *pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", folder, ".")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    call(folder, *pip, "--python", python, "install", "--no-deps", "--no-index", wheel)
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
    variables = f"FABRICHECK_CACHE={tmp_path / 'cache'}"
    name = "SmokeLibraries"
    empty = tmp_path / "empty"
    empty.mkdir()
    program = installed / "fabricheck"
    job = call(empty, "env", variables, program, "run", "--name", name, "--environment", "openmpi")
    assert job.stdout.splitlines()[-1].startswith(f"PASS: the report is {empty / 'output' / 'runs'}")
    assert [each.name for each in empty.iterdir()] == ["output"]
    assert len(list((tmp_path / "cache").glob("fabricbench-*/installed/fabricbench"))) == 1
