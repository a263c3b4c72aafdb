"""Where the suite lies, the folder with checks/, config/, src/, site_configs/ and reference_values/, and where the
files of a system do, which may be outside of it."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from fabricheck.errors import UserError, suggest
from fabricheck.trust import why_untrusted_tree

_Row = TypeVar("_Row")

#: What describes a system in miniature, beside its settings.
MINIATURE = "miniature.json"
#: Names the folder of a suite that is used instead of the one that Fabricheck was installed with.
SUITE = "FABRICHECK_SUITE"
#: Names folders with site_configs/ and reference_values/ of systems that are not in the suite, separated by colons.
SITES = "FABRICHECK_SITES"
OUTPUT = "RFM_PREFIX"
#: What commands that this command prints need, too: its `SITES` from --site, and its `OUTPUT`.
GIVEN: dict[str, str] = {}
_PLAIN = re.compile(r"[\w./+,=@~-]")
#: Where an installed package has the suite (tools/wheel.py).
INSTALLED = Path(__file__).resolve().parent / "installed"


#: The folders of a suite whose content is run, or decides verdicts.
_DECIDE = ("checks", "config", "reference_values", "site_configs", "src")


def suite_root() -> Path:
    """The suite that FABRICHECK_SUITE names, else the one that this package was installed from in place, else the one
    that was installed with it.

    Never one that the current folder lies in: its settings are code, and whoever can write to a folder above could
    plant one. Raises UserError where there is none, or the one that is named can be changed by others.
    """
    named = os.environ.get(SUITE)
    if named is not None:
        if not (Path(named) / "site_configs").is_dir():
            raise UserError(f"{SUITE} is {named!r}, which has no site_configs/: name the folder of a suite")
        return _trusted(SUITE, Path(named).absolute())
    for folder in (INSTALLED.parent.parent, INSTALLED):
        if (folder / "site_configs").is_dir() and (folder / "config").is_dir():
            return folder
    raise UserError(f"this Fabricheck was installed without a suite: name the folder of one in {SUITE}")


@cache
def _trusted(variable: str, folder: Path) -> Path:
    """The folder that a variable names. Raises UserError where somebody else may change what is run of it."""
    for name in _DECIDE:
        if why := why_untrusted_tree(folder / name):
            raise UserError(f"{variable} names {folder}, and {why}")
    return folder.resolve()


def config_file(name: str) -> Path:
    """A file of config/: that of the suite, else, as all suites are on the same hardware, the installed one."""
    files = [suite / "config" / name for suite in (suite_root(), INSTALLED.parent.parent, INSTALLED)]
    return next((file for file in files if file.exists()), files[0])


@cache
def config_rows(name: str, row: type[_Row]) -> tuple[_Row, ...]:
    """The rows of a file of config/ that is a list. Raises UserError for a mistake in it."""
    from pydantic import TypeAdapter  # which `--help` does without

    from fabricheck.yamlfile import read_yaml

    file = read_yaml(config_file(name))
    adapter: TypeAdapter[tuple[_Row, ...]] = TypeAdapter(tuple[row, ...])  # type: ignore[valid-type]
    return file.validated(adapter.validate_json, file.as_json)


def require_plain(what: str, path: Path) -> None:
    """Raises UserError for a path with more in it than ReFrame and the scripts of jobs take for a name.

    ReFrame runs what stands in `$(…)`, and takes `:` and `%` for its own.
    """
    if odd := sorted(each for each in set(str(path)) if not _PLAIN.match(each)):
        raise UserError(
            f"{what} is in {str(path)!r}, and ReFrame reads {' '.join(map(repr, odd))} in a path as more than a name: "
            "choose a folder with letters, digits and . _ - + , = @ in its path"
        )


def output_folder(root: Path | None = None) -> Path:
    """Where what a run of the suite at `root` leaves behind lies: `OUTPUT`, else `output` in the suite, or in the
    current directory where the suite is an installed one, which is not written to."""
    named = os.environ.get(OUTPUT)
    root = root or suite_root()
    return Path(named) if named else (Path.cwd() if root == INSTALLED else root) / "output"


def remember_output(output: Path) -> Path:
    """This output, which printed commands will use where it is not the usual one."""
    if output.resolve() != output_folder().resolve():
        GIVEN[OUTPUT] = str(output.resolve())
    return output


def outside_roots() -> tuple[Path, ...]:
    """The folders that FABRICHECK_SITES names. Raises UserError for one without site_configs/, or that others own."""
    named = [Path(each).absolute() for each in os.environ.get(SITES, "").split(os.pathsep) if each]
    for folder in named:
        if not (folder / "site_configs").is_dir():
            raise UserError(f"{SITES} names {folder}, which has no site_configs/: name the folder above it")
    return tuple(_trusted(SITES, each) for each in named)


def site_root(system: str, root: Path | None = None) -> Path:
    """The folder whose site_configs/ and reference_values/ have the files of a system, which may be
    `system:partition`.

    The first of FABRICHECK_SITES that has the system, else the suite `root` (default: the suite that we are in). A
    miniature is always the suite's own: a rehearsal must not read the files of the machine that it stands for.
    """
    name, root = system.partition(":")[0], root or suite_root()
    # Unlike Path's, these are false also of a name that no file can have: one of 300 characters.
    if os.path.isfile(root / "site_configs" / name / MINIATURE):
        return root
    return next((each for each in outside_roots() if os.path.isdir(each / "site_configs" / name)), root)


def program() -> str:
    """How a shell starts Fabricheck for the sites and the output of this command: by its name, or by its path where its
    virtual environment is not activated and may be on the search path of this process alone, as `make demo` and
    ci/nightly.sh put it there."""
    words = [_own("fabricheck")]
    if OUTPUT in GIVEN:
        words.insert(0, f"{OUTPUT}={shlex.quote(GIVEN[OUTPUT])}")
    if SITES in GIVEN:
        words.append(f"--site {shlex.quote(GIVEN[SITES])}")
    return " ".join(words)


def script(name: str) -> str:
    """How a shell starts a script of the suite, such as `ci/drain.py`; by its path where that is not below us."""
    file = suite_root() / name
    there = file.exists() and Path.cwd() != suite_root()
    return f"{_own('python')} {shlex.quote(str(file)) if there else name}"


def _own(program: str) -> str:
    """A program of this virtual environment: by its path where that is not activated."""
    own = Path(sys.prefix) / "bin" / program
    is_inactive = sys.prefix != sys.base_prefix and os.environ.get("VIRTUAL_ENV") != sys.prefix
    return shlex.quote(str(own)) if is_inactive and own.exists() else program


def described(system: str) -> bool:
    """Whether a system, which may be `system:partition`, has a folder here or in FABRICHECK_SITES."""
    name = system.partition(":")[0]
    return bool(name) and os.path.isdir(site_root(system) / "site_configs" / name)


@dataclass(frozen=True)
class Suite:
    """The folders of a Fabricheck repository: `checks/`, `config/`, `site_configs/` and `reference_values/`."""

    root: Path

    def systems(self) -> tuple[str, ...]:
        """Names of all that have settings, here and in FABRICHECK_SITES."""
        roots = (self.root, *outside_roots())
        return tuple(sorted({file.parent.name for each in roots for file in each.glob("site_configs/*/settings.py")}))

    def require(self, system: str) -> None:
        """Raises UserError where there is no such system."""
        known = self.systems()
        if system not in known:
            raise UserError(
                f"unknown system '{system}': systems are {', '.join(known) or 'none'}{suggest(system, known)}"
            )

    def settings(self, system: str) -> Path:
        """The path of ReFrame's settings of a system. Raises UserError as `site`."""
        return self.site(system) / "settings.py"

    def site(self, system: str) -> Path:
        """The folder of a system's settings and topology."""
        return site_root(system, self.root) / "site_configs" / system

    def is_miniature(self, system: str) -> bool:
        """Whether the system is one in miniature: all that runs there is a rehearsal, also what uses no GPU."""
        return (self.site(system) / MINIATURE).is_file()

    def config_files(self, system: str) -> tuple[Path, ...]:
        """The paths of ReFrame's configuration files for a system, in the order of `reframe -C`."""
        return (self.root / "config" / "common.py", self.settings(system))
