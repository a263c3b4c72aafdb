"""The package for Spack has the ranges of pyproject.toml, and the one for EasyBuild the name of the archive."""

from __future__ import annotations

import ast
import re
from typing import Any

from fabricheck import __version__
from tests.support.nodes import ROOT
from tools import offline

PACKAGING = ROOT / "tools" / "packaging"


def test_spack_asks_for_what_pyproject_asks_for() -> None:
    source = (PACKAGING / "spack_repo/fabricheck/packages/py_fabricheck/package.py").read_text()
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]

    def first_words(name: str) -> list[str]:
        of_name = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == name]
        return [word.value for word in of_name if isinstance(word, ast.Constant) and isinstance(word.value, str)]

    text = (ROOT / "pyproject.toml").read_text()
    listed = re.findall(r'^    "([^"]+)"', text.split("\ndependencies = [")[1].split("\n]")[0], re.MULTILINE)
    wanted = {"python@3.10:", "py-setuptools@77:", "cmake@3.18:"}
    for requirement in listed:
        name, _, least = requirement.partition(",")[0].partition(">=")
        most = requirement.partition(",<")[2]
        spack = {"reframe-hpc": "reframe"}.get(name, "py-" + name.lower().replace(".", "-"))
        wanted.add(f"{spack}@{least}:{int(most) - 1 if most else ''}" if least else spack)
    assert {*first_words("depends_on")} == wanted
    assert first_words("version") == [__version__]


def test_easybuild_installs_the_offline_archive() -> None:
    (file,) = (PACKAGING / "easybuild").glob("*.eb")
    values: dict[str, Any] = {"SYSTEM": {}}
    exec(compile(file.read_text(), str(file), "exec"), values)
    assert (file.name, values["version"]) == (f"Fabricheck-{__version__}.eb", __version__)
    assert values["sources"] == [offline.ARCHIVE.name]
