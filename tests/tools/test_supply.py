"""What is said of the packages that Fabricheck runs with: hashes, the SBOM, known vulnerabilities."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tools.setup import CONSTRAINTS, ROOT


def test_every_version_has_hashes() -> None:
    text = CONSTRAINTS.read_text(encoding="utf-8")
    pins = re.findall(r"^\S+==.*(?:\n .*)*", text, re.MULTILINE)
    assert len(pins) == len(re.findall("==.*\\\\$", text, re.MULTILINE)) > 100
    assert [pin for pin in pins if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", pin)] == []


def test_the_sbom_has_what_is_installed(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "sbom.py"], cwd=tmp_path, capture_output=True, check=True)
    found = json.loads(done.stdout)
    assert (found["bomFormat"], found["metadata"]["component"]["name"]) == ("CycloneDX", "fabricheck")
    versions = {each["purl"].partition("@")[0]: each["version"] for each in found["components"]}
    for name in ("reframe-hpc", "numpy", "pydantic-core", "markupsafe"):  # the last two by others
        assert versions[f"pkg:pypi/{name}"] == version(name)
    assert not {"pkg:pypi/pytest", "pkg:pypi/mypy", "pkg:pypi/fabricheck"} & versions.keys()


@pytest.mark.parametrize(
    ("said", "ends", "status", "lines"),
    [
        ("No known vulnerabilities found", 0, 0, (1, 0)),
        ("Found 1 known vulnerability in 1 package\na 1.0 PYSEC-1 1.1\nb could not be audited", 1, 1, (3, 0)),
        ("No known vulnerabilities found\na could not be audited", 0, 0, (0, 1)),  # which is not "none found"
        ("Traceback\nConnectionError: no such host", 1, 0, (0, 1)),
    ],
)
def test_what_cannot_be_audited_is_one_line(
    tmp_path: Path, said: str, ends: int, status: int, lines: tuple[int, int]
) -> None:
    (tmp_path / "said").write_text(said)
    (tmp_path / "pip-audit").write_text(f"#!/bin/sh\ncat {tmp_path / 'said'} >&2\nexit {ends}\n")
    (tmp_path / "pip-audit").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    script = [str(ROOT / "tools" / "audit.sh")]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert (len(done.stdout.splitlines()), len(done.stderr.splitlines())) == lines
