"""`make bundle-offline`: an archive that installs where there is no network."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from fabricheck.suite import suite_root
from tools import offline, setup


def test_the_archive_has_the_suite_and_the_wheels(tmp_path: Path) -> None:
    wheels = tmp_path / "downloaded"
    wheels.mkdir()
    (wheels / "some-1.0-py3-none-any.whl").write_text("a wheel")
    offline.write(tmp_path / "o.tar.gz", wheels)
    with tarfile.open(tmp_path / "o.tar.gz") as archive:
        names = {*archive.getnames()}
    assert {"fabricheck/Makefile", "fabricheck/src/CMakeLists.txt", "fabricheck/checks/smoke.py"} <= names
    assert "fabricheck/wheels/some-1.0-py3-none-any.whl" in names
    assert not any(name.startswith(("fabricheck/.venv", "fabricheck/.git/", "fabricheck/output")) for name in names)


@pytest.mark.parametrize("has_wheels", [True, False])
def test_no_registry_is_asked_where_there_are_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_wheels: bool
) -> None:
    seen: dict[str, str] = {}
    monkeypatch.setattr(setup, "setup_run", lambda: seen.update(os.environ))
    monkeypatch.setattr(setup, "WHEELS", tmp_path if has_wheels else tmp_path / "none")
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "DEBIAN_FRONTEND"):
        monkeypatch.setenv(name, "")
    assert setup.main(["run"]) == 0
    assert (seen["PIP_NO_INDEX"], seen["PIP_FIND_LINKS"]) == (("1", str(tmp_path)) if has_wheels else ("", ""))


@pytest.mark.full
def test_it_installs_without_a_network(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine allows no network namespaces")
    wheels = tmp_path / "downloaded"
    wheels.mkdir()
    offline.fetch(wheels)
    offline.write(tmp_path / "o.tar.gz", wheels)
    subprocess.run(["tar", "xzf", "o.tar.gz"], cwd=tmp_path, check=True)
    suite = tmp_path / "fabricheck"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHON": sys.executable}
    subprocess.run(["unshare", "-rn", "tools/setup.sh", "run"], cwd=suite, env=environment, check=True)
    job = subprocess.run(
        [suite / ".venv/bin/fabricheck", "validate", "local"], capture_output=True, text=True, check=True
    )
    assert job.stdout == "local: ok\n"
    assert suite != suite_root()
