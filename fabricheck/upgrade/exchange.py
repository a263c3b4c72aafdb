"""Packages and variables of a new stack exchanged some at a time in the environment of the old one, and measured beside
it in one job, to find those that cost what `upgrade` found.

An exchange preloads the libraries of its packages: whatever needs a library of that name gets it, also where a path is
linked into a program. Those of the other packages are the old ones, likewise. Plugins follow the library that loads
them. Whether it came so is read from what each run had loaded.
"""

from __future__ import annotations

import math
import re
import runpy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError
from fabricheck.fleet.settings import system_in
from fabricheck.judge.system import SystemJudge
from fabricheck.session.reframe import Selection, use_built
from fabricheck.session.reframe_report import FinishedSession
from fabricheck.session.suite_run import Launcher
from fabricheck.state.programs import ask
from fabricheck.statistics.constants import FEWEST
from fabricheck.store.changes import NOTHING, StackDifference
from fabricheck.suite import Suite
from fabricheck.tuning import TRIED, Profile, load_profiles, removed, require_accepted
from fabricheck.upgrade.bisection import BisectionOutcome, Exchange, SearchEnded, bisect
from fabricheck.upgrade.comparison import Exchanged, Upgrade, UpgradeCause, UpgradeComparison
from fabricheck.upgrade.decision import UpgradeChange, changes_of

# How Spack names an installed package, and what a user writes for a module, and for a variable of the tuning profile
# that is left out, or all of it.
_HASH, _MODULE, _WITHOUT, _PROFILE = re.compile(r"/[a-z0-9]{3,32}"), "module:", "without:", "profile"
# Where the libraries of a prefix are.
_FOLDERS = ("lib", "lib64")
# What a job script takes as it stands.
_PLAIN = re.compile(r"[\w./:,=+@^-]+")
_VARIABLE = re.compile(r"(?!LD_)[A-Z][A-Za-z0-9_]*")
_NOT_LOADED = "other libraries or settings were in effect"
# The name of a library, and the number of its ABI.
_LIBRARY = re.compile(r"(.+)\.so(?:\.(\d+))?")

_SETTINGS = '''"""Written by `fabricheck upgrade`: the site's settings, and OLD with parts of NEW."""

from pathlib import Path

from fabricheck.upgrade.exchange import with_exchanges

site_configuration = with_exchanges(Path({site!r}), {system!r}, {environment!r}, {exchanges!r})
'''

#: Measures the tests that these patterns name with the old environment and these, by these settings of ReFrame. It may
#: raise SearchEnded.
Run = Callable[[Sequence[str], Sequence[str], Path], FinishedSession]
#: By the name of an environment, what it has beside the old one, as ReFrame's settings write it: `env_vars`, `modules`
#: and `extras`.
_Exchanges = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Stacks:
    """The environment `old` and others, measured interleaved by the tests of `selection`: in jobs of so many rounds,
    of each of which the session is kept. `built`: the folder of programs that are not to be built."""

    launcher: Launcher
    selection: Selection
    old: str
    built: Path | None = None
    sessions: list[FinishedSession] = field(default_factory=list)

    def measure(
        self, environments: Sequence[str], rounds: int, *, settings: Path | None = None, patterns: Sequence[str] = ()
    ) -> FinishedSession:
        """Measures old and other environments in one job, by the tests that `patterns` name, where given.

        `settings`: those of ReFrame in which the environments are the old one with something changed: its program is
        theirs too.
        """
        names = (self.old, *environments)
        programs = self._programs(names, settings.parent / "programs") if settings is not None else self.built
        chosen = replace(
            self.selection,
            environments=tuple(f"^{name}$" for name in names),
            more=(*use_built(programs), f"--repeat={rounds}", *self.selection.more),
        )
        if patterns:
            chosen = replace(chosen, tags=(), names=tuple(patterns))
        self.sessions.append(self.launcher.run(chosen, settings=settings))
        return self.sessions[-1]

    def _programs(self, environments: Sequence[str], folder: Path) -> Path | None:
        """A folder as `built`, in which all environments have the program of the old one."""
        if self.built is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        for name in environments:
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to((self.built / self.old).resolve())
        return folder

    def exchange(
        self, upgrade: Upgrade, deadline: float, environments: Sequence[str], patterns: Sequence[str], settings: Path
    ) -> FinishedSession:
        """Measures exchanges of the old environment beside it, in as many rounds as it took to find the loss, or as
        end before the `deadline` (monotonic clock).

        Raises SearchEnded where those are too few, and where a signal ended this session or the last one.
        """
        if self.sessions[-1].interrupted:
            raise SearchEnded(BisectionOutcome.INTERRUPTED)
        # A round of the upgrade has two stacks.
        seconds = max(upgrade.round_seconds, 1) * (1 + len(environments)) / 2
        rounds = min(upgrade.rounds, int((deadline - time.monotonic()) / seconds) // 2 * 2)
        if rounds < min(upgrade.rounds, FEWEST):
            raise SearchEnded(BisectionOutcome.NO_TIME)
        session = self.measure(environments, rounds, settings=settings, patterns=patterns)
        if session.interrupted:
            raise SearchEnded(BisectionOutcome.INTERRUPTED)
        return session


def find_causes(upgrade: Upgrade, suite: Suite, folder: Path, run: Run) -> tuple[UpgradeCause, ...]:
    """Bisects the packages and variables that differ, unless only one of them can be exchanged, and then the defaults,
    with ReFrame's settings in `folder`."""
    causes = (
        _cause(upgrade, (*upgrade.packages, *upgrade.variables), suite, folder, run, fewest=2),
        _cause(upgrade, upgrade.defaults, suite, folder, run, fewest=1),
    )
    return tuple(cause for cause in causes if cause)


def _cause(
    upgrade: Upgrade, different: Sequence[StackDifference], suite: Suite, folder: Path, run: Run, *, fewest: int
) -> UpgradeCause | None:
    """None where fewer than `fewest` can be exchanged."""
    differences = [each for each in different if _preloaded(each) or _is_variable(each)]
    worst = upgrade.worst
    if worst is None or len(differences) < fewest:
        return None
    smallest = SystemJudge.of(upgrade.system, suite.root).policy.smallest_effect
    tests = {each.test for each in upgrade.changes.metrics if each.of == worst.of and worst.test in ("", each.test)}
    patterns = sorted({rf"^{re.escape(test.partition(' @')[0].replace(' ', ''))}(%|$)" for test in tests})

    problems: dict[Exchange, str] = {}

    def measure(exchanges: Sequence[Exchange]) -> list[UpgradeChange | None]:
        names = {f"exchange-{number}": exchange for number, exchange in enumerate(exchanges, start=1)}
        exchanged = {name: _environment(differences, exchange) for name, exchange in names.items()}
        system, old = upgrade.system, upgrade.old
        session = run(list(names), patterns, write_settings(folder / "exchange.py", suite, system, old, exchanged))

        def changed(name: str, exchange: Exchange) -> UpgradeChange | None:
            comparison = UpgradeComparison.of([session], suite, system, (old, name))
            runs = [after for rounds in comparison.pairs.values() for _, after in rounds]
            came = all(_came(differences, exchange, run.footer or {}) for run in runs)
            problems[exchange] = next(iter((*comparison.failures, *comparison.left_out)), "" if came else _NOT_LOADED)
            if problems[exchange]:
                return None
            changes = changes_of(comparison.pairs, smallest_effect=smallest, margin=upgrade.margin)
            same = [
                each for each in changes.all if (each.of, each.test, each.name) == (worst.of, worst.test, worst.name)
            ]
            return same[0] if same else None

        return [changed(name, exchange) for name, exchange in names.items()]

    result = bisect(len(differences), measure, loss=-math.log(worst.gain), smallest_effect=smallest)
    return UpgradeCause(
        result.outcome,
        " ".join(filter(None, (worst.of, worst.name))),
        tuple(differences[number] for number in result.guilty),
        tuple(
            Exchanged(
                tuple(differences[number].name for number in step.exchanged),
                step.change,
                step.answer,
                problems.get(step.exchanged, ""),
            )
            for step in result.steps
        ),
        tuple(each for each in different if each not in differences and _counts(each)),
        tuple(differences[number] for number in result.to_try),
    )


@dataclass(frozen=True)
class AddedPart:
    """What makes the environment `name` of another one: what is installed below a `prefix`, a `module`, or variables
    that are `tried` (None: unset)."""

    name: str
    prefix: str = ""
    module: str = ""
    tried: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str, suite: Suite, system: str) -> AddedPart | None:
        """As a user names it: a folder, /HASH of Spack, module:NAME, NAME=VALUE, without:NAME or without:profile; None
        for what is none of these.

        Raises UserError for a folder that does not exist or has no libraries, what Spack does not know, a value that a
        variable does not take, and a variable that no tuning profile of the `system` sets.
        """
        if text.startswith(_MODULE):
            module = text.removeprefix(_MODULE)
            return cls(_named("with", Path(module).name), module=module)
        if text.startswith(_WITHOUT):
            variable = text.removeprefix(_WITHOUT)
            tried = removed(_profiles(suite, system), "" if variable == _PROFILE else variable)
            return cls(_named("without", variable), tried=tried)
        variable, equals, value = text.partition("=")
        if equals and _VARIABLE.fullmatch(variable):
            require_accepted(variable, value)
            if _PLAIN.fullmatch(value) is None:
                raise UserError(f"{text}: a job script does not take this value as it stands")
            return cls(_named("with", text), tried={variable: value})
        if "/" not in text:
            return None
        prefix = _prefix(text)
        return cls(_named("with", prefix.name), prefix=str(prefix))

    def settings(self, folder: Path, suite: Suite, system: str, environment: str) -> Path:
        """ReFrame's settings in `folder`, in which a further environment has all of `environment` and this."""
        added: dict[str, Any] = {"extras": {TRIED: dict(self.tried)}}
        if self.module:
            added["modules"] = [self.module]
        if self.prefix:
            folders = ":".join(f"{self.prefix}/{name}" for name in _FOLDERS)
            path = ["PATH", f"{self.prefix}/bin:$PATH"]
            added["env_vars"] = [path, ["LD_LIBRARY_PATH", f"{folders}:$LD_LIBRARY_PATH"]]
        return write_settings(folder / "with-part.py", suite, system, environment, {self.name: added})

    def checked(self, upgrade: Upgrade) -> Upgrade:
        """The upgrade, in which nothing is compared where the new runs did not have this."""
        missing = self.missing(upgrade) if upgrade.changes.metrics else ""
        return replace(upgrade, left_out=(missing, *upgrade.left_out)) if missing else upgrade

    def missing(self, upgrade: Upgrade) -> str:
        """Why the new runs did not have it; empty where they had."""
        loaded = [file for package in upgrade.packages for file in package.new_files]
        if self.prefix and not any(Path(self.prefix) in Path(file).parents for file in loaded):
            return f"no library below {self.prefix} was loaded: fabricbench does not use it, or is linked to a path"
        if self.module and not (upgrade.packages or upgrade.software or upgrade.variables):
            return f"nothing differs with the module {self.module}: is there one, and does it load?"
        if self.tried and self.tried.keys().isdisjoint(each.name for each in upgrade.variables):
            return f"{' and '.join(self.tried)} did not change: {upgrade.old} has that already, or no test here sets it"
        return ""


def _named(how: str, what: str) -> str:
    return f"{how}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', what)}"


def _prefix(text: str) -> Path:
    prefix = Path(text).absolute()
    if not prefix.is_dir() and _HASH.fullmatch(text):
        spack = ask(["spack", "location", "-i", text])
        if spack.problem:
            raise UserError(f"spack knows no {text}: {spack.problem}")
        prefix = prefix if spack.missing else Path(spack.output.strip())
    if not prefix.is_dir():
        what = "a name, a prefix, /HASH of Spack, module:NAME, NAME=VALUE, without:NAME"
        raise UserError(f"{text}: no such folder, and no environment: give {what}")
    if not any(file for folder in _FOLDERS for file in prefix.glob(f"{folder}/*.so*")):
        raise UserError(f"{prefix} has no libraries in {' or '.join(_FOLDERS)}: give the folder above them")
    return prefix


def _profiles(suite: Suite, system: str) -> list[Profile]:
    """The tuning profiles of a system's partitions, or of the one that is named."""
    name, _, wanted = system.partition(":")
    content = runpy.run_path(str(suite.settings(name)))["site_configuration"]
    partitions = [each for each in system_in(content, name)["partitions"] if wanted in ("", each["name"])]
    names = {str(each.get("extras", {}).get("tuning_profile", "default")) for each in partitions}
    profiles = load_profiles(suite.root / "config" / "tuning.yaml")
    return [profiles.profile(profile) for profile in sorted(names)]


def write_settings(file: Path, suite: Suite, system: str, environment: str, exchanges: _Exchanges) -> Path:
    """ReFrame's settings of the site with those of `with_exchanges`, in `file`."""
    names = {"site": str(suite.settings(system)), "system": system, "environment": environment}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_SETTINGS.format(**names, exchanges=dict(exchanges)), encoding="utf-8")
    return file


def with_exchanges(site: Path, system: str, environment: str, exchanges: _Exchanges) -> dict[str, Any]:
    """The site_configuration of `site` with further environments: `environment`, and what an exchange has beside it."""
    content: dict[str, Any] = runpy.run_path(str(site))["site_configuration"]
    more = []
    for given in content["environments"]:
        for name, added in exchanges.items() if given["name"] == environment else ():
            variables = [*map(list, dict(given.get("env_vars", ())).items()), *added.get("env_vars", ())]
            modules = [*given.get("modules", ()), *added.get("modules", ())]
            extras = {**given.get("extras", {}), **added.get("extras", {})}
            more.append({**given, "name": name, "env_vars": variables, "modules": modules, "extras": extras})
    own = system_in(content, system)
    own["partitions"] = [
        {**each, "environs": [*each["environs"], *(exchanges if environment in each["environs"] else ())]}
        for each in own["partitions"]
    ]
    return {**content, "systems": [own], "environments": [*content["environments"], *more]}


def _preloaded(difference: StackDifference, *, old: bool = False) -> tuple[str, ...]:
    """The libraries of a package that are preloaded; not those in folders below them, which are plugins. None where a
    library has another ABI than its namesake: what was linked with one cannot use the other."""
    files = difference.old_files if old else difference.new_files
    folders = {Path(file).parent for file in files}
    before, after = map(_abis, (difference.old_files, difference.new_files))
    other_abi = any(before[name] != after[name] for name in before.keys() & after.keys())
    if other_abi or not all(_PLAIN.fullmatch(file) for file in files):
        return ()
    return tuple(file for file in files if folders.isdisjoint(Path(file).parent.parents))


def _abis(files: Sequence[str]) -> dict[str, str | None]:
    named = (_LIBRARY.match(Path(file).name) for file in files)
    return {match[1]: match[2] for match in named if match}


def _is_variable(difference: StackDifference) -> bool:
    return (
        not (difference.old_files or difference.new_files)
        and _VARIABLE.fullmatch(difference.name) is not None
        and _PLAIN.fullmatch(difference.new) is not None
    )


def _counts(difference: StackDifference) -> bool:
    """Whether it is more than where libraries are looked for, which says itself what was loaded."""
    return not difference.name.startswith("LD_")


def _environment(differences: Sequence[StackDifference], exchange: Exchange) -> Mapping[str, Any]:
    """What makes an exchange, beside the old environment."""
    files = [
        file
        for number, difference in enumerate(differences)
        for file in _preloaded(difference, old=number not in exchange)
    ]
    preload = [["LD_PRELOAD", ":".join([*files, "$LD_PRELOAD"])]] if files else []
    variables = [differences[number] for number in exchange if not differences[number].new_files]
    return {"env_vars": preload, "extras": {TRIED: {each.name: _value(each) for each in variables}}}


def _value(difference: StackDifference) -> str | None:
    return None if difference.new == NOTHING else difference.new


def _came(differences: Sequence[StackDifference], exchange: Exchange, footer: Mapping[str, Any]) -> bool:
    """Whether the libraries that were loaded, and the settings where they are recorded, are those of the exchange.

    A library of which the old stack has none may come along: another that is exchanged needs it.
    """
    loaded = {str(each["path"]) for each in footer.get("loaded", ())}
    settings: Mapping[str, str] = footer.get("settings", {})
    new = {differences[number].name: _value(differences[number]) for number in exchange}
    return all(value in (None, settings.get(name, value)) for name, value in new.items()) and all(
        loaded.issuperset(_preloaded(difference))
        if number in exchange
        else not difference.old_files or loaded.isdisjoint(_preloaded(difference))
        for number, difference in enumerate(differences)
    )
