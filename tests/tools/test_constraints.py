"""pyproject.toml has ranges, beside a site's own ReFrame; tools/constraints.txt has the versions that are tested."""

from __future__ import annotations

import sys
from itertools import chain

import pytest
from packaging.requirements import Requirement

from tools.setup import CONSTRAINTS, ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def asked_for() -> list[Requirement]:
    """What pyproject.toml asks for, with all extras and what builds the package."""
    content = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))
    project, extras = content["project"], content["project"]["optional-dependencies"].values()
    return [*map(Requirement, chain(content["build-system"]["requires"], project["dependencies"], *extras))]


def key(requirement: Requirement) -> str:
    return requirement.name.lower().replace("_", "-").replace(".", "-")


def test_what_is_asked_for_has_no_exact_version() -> None:
    exact = {"==", "==="}
    assert [str(wanted) for wanted in asked_for() if exact & {part.operator for part in wanted.specifier}] == []


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_everything_has_one_tested_version_and_it_is_in_the_range(python: str) -> None:
    tested: dict[str, str] = {}
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    for pin in (Requirement(line.rstrip(" \\")) for line in lines if line[0] not in "# "):
        if pin.marker is None or pin.marker.evaluate({"python_version": python, "python_full_version": f"{python}.0"}):
            (version,) = pin.specifier
            assert version.operator == "==" and key(pin) not in tested, str(pin)
            tested[key(pin)] = version.version
    for wanted in asked_for():
        assert wanted.specifier.contains(tested[key(wanted)]), str(wanted)
