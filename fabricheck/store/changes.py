"""What may have changed between two runs, and which parts of the machine a metric depends on."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fabricheck import __version__
from fabricheck.records.case import Case
from fabricheck.records.run import Run
from fabricheck.results.environment import set_by_launcher
from fabricheck.statistics.constants import SHORT
from fabricheck.units import few

_LOAD = re.compile(r"^[ \t]*(?:module|ml)\s+load\s+(.+)$", re.MULTILINE)
#: What a StackDifference has for a side without it.
NOTHING = "none"
_JOB_SCRIPTS = ("rfm_job.sh", "rfm_build.sh")


def canonical_json(values: Mapping[str, str]) -> str:
    """One text for one set of names and values: JSON with sorted names."""
    return json.dumps(dict(values), sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def versions_of_suite(root: Path) -> dict[str, str]:
    """Version of this program, and git revision of a suite: with `-dirty` where files differ from it, `unknown` outside
    of git."""
    return {"fabricheck": __version__, "suite": _revision(root)}


def _revision(root: Path) -> str:
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else "unknown"


def facts_of_this_host() -> dict[str, str]:
    """What this machine says of its kernel and of the firmware of its network adapters, by name."""
    facts = {"kernel": os.uname().release}
    for file in sorted(Path("/sys/class/infiniband").glob("*/fw_ver")):
        try:
            facts[f"firmware {file.parent.name}"] = file.read_text().strip()
        except (OSError, UnicodeDecodeError):
            continue
    return facts


def software_of(run: Run, case: Case | None, session: Mapping[str, str], host_facts: Mapping[str, str]) -> str:
    """Versions by name that were in effect in a run, as canonical JSON.

    Libraries and drivers as the benchmark found them, modules as the job script loaded them, and what `session` says
    of all runs of a session (the suite's revision, ReFrame's extras). `host_facts` are those of this host: they count
    only for a run that was on this host alone.
    """
    versions = dict(session)
    if run.header:
        versions[str(run.header.get("program", "benchmark"))] = str(run.header.get("version", "unknown"))
        for library in run.header.get("libraries", {}).values():
            versions[str(library["name"])] = str(library["version"])
            if library.get("driver"):
                versions[f"{library['name']} driver"] = str(library["driver"])
    versions.update(_modules(case.folder if case else None))
    if {each.host for each in run.ranks} == {socket.gethostname()}:
        versions.update(host_facts)
    return canonical_json(versions)


def _modules(folder: Path | None) -> dict[str, str]:
    versions = {}
    for script in (folder / name for name in _JOB_SCRIPTS) if folder else ():
        if script.is_file():
            for line in _LOAD.findall(script.read_text(errors="replace")):
                for word in line.split():
                    name, _, version = word.partition("/")
                    versions[f"module {name}"] = version or "default"
    return versions


def tuning_of(run: Run, case: Case | None) -> str:
    """The tuning that was in effect, as canonical JSON: variables of the environment by name, and the `profile`.

    Variables that the launcher sets itself are left out: they differ from run to run and tune nothing.
    """
    environment: Mapping[str, object] = run.header.get("environment", {})
    variables = {name: str(value) for name, value in environment.items() if not set_by_launcher(name)}
    profile = case.attributes.get("tuning_profile") if case else None
    return canonical_json({**variables, **({"profile": str(profile)} if profile is not None else {})})


@dataclass(frozen=True)
class StackDifference:
    """What differs between two stacks: a version, a variable or a package; `old` and `new` say how, `none` for nothing.

    Of a package also the paths of its libraries in either.
    """

    name: str
    old: str
    new: str
    old_files: tuple[str, ...] = ()
    new_files: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.old} -> {self.new}"


def packages_changed(old: Iterable[Run], new: Iterable[Run]) -> tuple[StackDifference, ...]:
    """Libraries that other files hold in the new runs than in the old ones, those of one package together.

    `libucp, libuct: /opt/ucx-1.15 -> /opt/ucx-1.17`: a file at another path with the same build id is the same. Empty
    where the runs of either side do not say what they had loaded.
    """
    before, after = _loaded(old), _loaded(new)
    if not before or not after:
        return ()
    packages: dict[tuple[str, str], list[str]] = {}
    for name in sorted({*before, *after}):
        sides = before.get(name, {}), after.get(name, {})
        if set(sides[0]) == set(sides[1]):
            continue
        # The first that tells them apart: the folder of the package, the file, the build.
        for shown in (_packages, _files, _builds):
            left, right = map(shown, sides)
            if left != right:
                break
        packages.setdefault((left, right), []).append(name)
    return tuple(
        StackDifference(few(names), *texts, _files_of(names, before), _files_of(names, after))
        for texts, names in packages.items()
    )


def _files_of(names: Iterable[str], side: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    return tuple(path for name in names for path in side.get(name, {}).values())


def _packages(side: Mapping[str, str]) -> str:
    return _texts(map(_package, side.values()))


def _files(side: Mapping[str, str]) -> str:
    return _texts(side.values())


def _builds(side: Mapping[str, str]) -> str:
    return _texts(f"{path} (build {identity[:SHORT]})" for identity, path in side.items())


def settings_changed(old: Iterable[Run], new: Iterable[Run]) -> tuple[StackDifference, ...]:
    """Settings that the libraries of both sides have, and that are others in the new runs, by the variable that sets
    them: where no variable does, the default changed.

    What differs among the runs of one side, such as the number of a process, is left out, and so is where a file lies.
    """
    before, after = _settings(old), _settings(new)
    return tuple(
        StackDifference(name, before[name], after[name])
        for name in sorted(before.keys() & after.keys())
        if before[name] != after[name] and "/" not in before[name] + after[name]
    )


def _settings(runs: Iterable[Run]) -> dict[str, str]:
    """Those that are the same in all runs that tell."""
    values: dict[str, set[str]] = {}
    for run in runs:
        for name, value in (run.footer or {}).get("settings", {}).items():
            values.setdefault(name, set()).add(str(value))
    return {name: next(iter(told)) for name, told in values.items() if len(told) == 1}


def _loaded(runs: Iterable[Run]) -> dict[str, dict[str, str]]:
    """Paths by what identifies the file, by the name of the library."""
    files: dict[str, dict[str, str]] = {}
    for run in runs:
        for library in (run.footer or {}).get("loaded", ()):
            path = str(library["path"])
            name = Path(path).name.split(".so")[0]
            files.setdefault(name, {})[str(library.get("build_id") or path)] = path
    return files


def _package(path: str) -> str:
    """The folder that a library was installed below."""
    folder = Path(path).parent
    above = [each.parent for each in (folder, *folder.parents) if each.name in ("lib", "lib64")]
    return str(above[0] if above else folder)


def _texts(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values))) or NOTHING
