"""Which software the data of a metric pass, as stored sessions tell it: the one reader of their names of software."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from fabricheck.records.component import Component, Kind, either
from fabricheck.store.changes import NOTHING, StackDifference
from fabricheck.units import few

#: The name of a test whose data may pass any software, for `software_crossed`.
ANY_MOVER = "%transport=mpi"

# A header names the collective library only of a run that used it.
_COLLECTIVE = ("NCCL", "RCCL", "oneCCL")
# All names that a header can have for the MPI library, which every run has, if only to start its ranks.
_MPI = ("Open MPI", "Cray MPICH", "MVAPICH", "Intel MPI", "MPICH")
_BY_MPI = ("%transport=mpi", "%transport=staging")
_PROGRAMS_OF_MPI = ("osu", "IMB")
_DRIVER = " driver"
# The benchmark itself: another version may measure otherwise.
_PROGRAM = "fabricbench"
# The library of software that a header names with its version; that of any MPI begins with `libmpi`.
_LIBRARIES = {"libnccl": "NCCL", "librccl": "RCCL", "libccl": "oneCCL", "libcudart": "CUDA", "libamdhip64": "HIP"}


@lru_cache(maxsize=4096)
def software_crossed(test: str, software: str) -> Mapping[Component, str]:
    """The software that the data of a run of a test pass, without its version, which is the value.

    `test` is its name with parameters, `software` the stored JSON of names and versions. Where the name does not tell
    that MPI moves the data, and the run used no tool of MPI's, the MPI library is not among it.
    """
    known: dict[str, str] = json.loads(software)
    by_mpi = any(each in test.split() for each in _BY_MPI) or any(each.startswith(_PROGRAMS_OF_MPI) for each in known)
    versions: dict[Component, str] = {}
    for name, version in known.items():
        if name in (*_COLLECTIVE, _PROGRAM) or f"{name}{_DRIVER}" in known:
            versions[Component(Kind.LIBRARY, name)] = version
        elif name.endswith(_DRIVER):
            versions[Component(Kind.DRIVER, name)] = version
        elif name in _MPI and by_mpi:
            versions[Component(Kind.MPI, name)] = version
        elif name == "kernel":
            versions[Component(Kind.KERNEL, name)] = version
    return MappingProxyType(versions)


def library_owner(component: Component) -> str:
    """The name by which `owners_of_packages` has a piece of software."""
    return Kind.MPI.value if component.kind is Kind.MPI else component.name


def owners_of_packages(packages: Sequence[StackDifference]) -> list[frozenset[str]]:
    """Of each package the software that it is of: by its own libraries, or else by those that lie in the same folder;
    none where no metric names it."""

    def owner(file: str) -> str:
        name = Path(file).name.split(".so")[0]
        return Kind.MPI.value if name.startswith("libmpi") else _LIBRARIES.get(name, "")

    own = [frozenset(map(owner, (*each.old_files, *each.new_files))) - {""} for each in packages]
    of_folder: dict[str, frozenset[str]] = {}
    for package, names in zip(packages, own, strict=True):
        for folder in (package.old, package.new):
            of_folder[folder] = of_folder.get(folder, frozenset()) | names
    return [
        names or of_folder[package.old if package.new == NOTHING else package.new]
        for package, names in zip(packages, own, strict=True)
    ]


@dataclass(frozen=True)
class Changed:
    """Versions of one piece of software before and after; several of a side are joined by commas."""

    before: str
    after: str


def named_with_versions(
    components: Iterable[Component], changed: Mapping[Component, Changed], versions: Mapping[Component, str]
) -> tuple[Component, ...]:
    """The components, software with the version that it had when something got slow."""
    return tuple(
        replace(each, version=changed[each].after if each in changed else versions.get(each, "")) for each in components
    )


def upgrades(components: Iterable[Component], changed: Mapping[Component, Changed]) -> dict[Component, Changed]:
    """Those of the components, as `named_with_versions` has them, that changed."""
    versions_of = {each: changed.get(replace(each, version="")) for each in components}
    return {each: versions for each, versions in versions_of.items() if versions is not None}


def changed_untraced(
    base: Mapping[str, str], candidate: Mapping[str, str], components: Iterable[Component]
) -> tuple[str, ...]:
    """Modules and firmware, by name with their versions, that changed beside these components: which metrics use them
    is unknown. The module of a component has its name."""
    own = {_plain(each.name) for each in components}
    names = [name for name in sorted({*base, *candidate}) if name.startswith(("module ", "firmware "))]
    return tuple(
        name
        for name in names
        if base.get(name) != candidate.get(name) and _plain(name.removeprefix("module ")) not in own
    )


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


def what_to_try(
    components: Sequence[Component], changed: Mapping[Component, Changed], beside: Sequence[str] = ()
) -> str:
    """What tells more of the software among components that `named_with_versions` gave; empty where there is none.

    `beside`: the names of what else changed then.
    """
    software = [each for each in components if each.kind.is_software]
    upgraded = upgrades(software, changed)
    if not software:
        return ""
    if not upgraded:
        return (
            f"no version changed; suspect {either(replace(each, version='') for each in software)} or a setting of it"
        )
    earlier = either(replace(each, version=old.before) for each, old in upgraded.items())
    if beside:
        return f"{few(beside)} changed, too: run again with {earlier} alone"
    if len(components) > 1:
        return f"cannot be told apart: run again with {earlier} alone"
    return f"run with {earlier}: does the loss go away?"
