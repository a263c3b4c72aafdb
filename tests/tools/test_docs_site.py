"""The documentation builds as a site, and no link in it, nor in the README, leads nowhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


@pytest.mark.full
def test_the_site_is_whole_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|link|img|iframe)[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\"'> ]*)", text)
        assert not loaded, page


@pytest.mark.full
def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    """In a copy of what the site is made of; also a link to a file that the site leaves out."""
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "mkdocs.yml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("*.tar.xz"))
    for name in ("config", "fabricheck", "lab", "site_configs", "src", "tests", "tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    with (tmp_path / "README.md").open("a", encoding="utf-8") as readme:
        readme.write("\n[a](docs/none.md) [b](docs/state.md#none) [c](config/none.yaml)\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    for wrong in ("docs/none.md", "state.md#none", "config/none.yaml"):
        assert wrong in done.stderr
