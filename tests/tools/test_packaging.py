"""Spack's package has the ranges of pyproject.toml, EasyBuild's the archive; what images and pods call exists."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
import subprocess
from typing import Any

import click
from ruamel.yaml import YAML

from fabricheck import __version__
from fabricheck.cli import cli
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


def scripts() -> dict[str, str]:
    """The shell scripts of the Containerfile and of Kubernetes' examples, by their place."""
    text = (ROOT / "ci/Containerfile").read_text().replace("\\\n", "")
    found = {f"RUN {number}": line for number, line in enumerate(re.findall(r"^RUN (.*)$", text, re.MULTILINE))}
    job, mpi_job = (YAML(typ="safe").load(ROOT / f"ci/kubernetes-{kind}.yaml") for kind in ("job", "mpijob"))
    launcher = mpi_job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]
    for name, pod in (("job", job["spec"]["template"]), ("launcher", launcher)):
        (container,) = pod["spec"]["containers"]
        (found[name],) = container["args"]
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    return found


def command_of(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None, name
    return command


def test_scripts_of_containers_and_pods_call_what_exists() -> None:
    for place, script in scripts().items():
        assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0, place
        for words in (shlex.split(line) for line in script.replace("\\\n", "").splitlines()):
            for at in [at for at, word in enumerate(words) if word == "fabricheck"]:
                call = list(itertools.takewhile(lambda word: word != "||", words[at + 1 :]))
                options = {name for parameter in command_of(call[0]).params for name in parameter.opts}
                assert {word for word in call if word.startswith("--")} <= options, call
            if "fabricbench" in words and "mpirun" in words:
                own = {word for word in words[words.index("fabricbench") :] if word.startswith("--")}
                assert own <= {*re.findall(r"  (--[a-z-]+)", (ROOT / "src/fabricbench/help.cpp").read_text())}
