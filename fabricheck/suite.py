"""Where the suite lies, the folder with checks/, config/, src/, site_configs/ and reference_values/, and where the
files of a system do, which may be outside of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fabricheck.errors import UserError

#: What describes a system in miniature, beside its settings.
MINIATURE = "miniature.json"
#: Names folders with site_configs/ and reference_values/ of systems that are not in the suite, separated by colons.
SITES = "FABRICHECK_SITES"
#: Where an installed package has the suite (tools/wheel.py).
INSTALLED = Path(__file__).resolve().parent / "installed"


def suite_root() -> Path:
    """The suite that FABRICHECK_SUITE names, else the one that holds the current directory, else the one that this
    package was installed from in place, else the one that was installed with it.

    Raises UserError where there is none of them.
    """
    named = os.environ.get("FABRICHECK_SUITE")
    if named is not None:
        if not (Path(named) / "site_configs").is_dir():
            raise UserError(f"FABRICHECK_SUITE is {named!r}, which has no site_configs/: name the folder of a suite")
        return Path(named).resolve()
    here = Path.cwd()
    for each in (here, *here.parents, INSTALLED.parent.parent, INSTALLED):
        if (each / "site_configs").is_dir() and (each / "config").is_dir():
            return each
    raise UserError(f"{here} is not in a Fabricheck suite: change to the directory that has site_configs/ and config/")


def output_folder(root: Path | None = None) -> Path:
    """Where what a run of the suite at `root` leaves behind lies: RFM_PREFIX, else `output` in the suite, or in the
    current directory where the suite is an installed one, which nobody writes to."""
    named = os.environ.get("RFM_PREFIX")
    root = root or suite_root()
    return Path(named) if named else (Path.cwd() if root == INSTALLED else root) / "output"


def outside_roots() -> tuple[Path, ...]:
    """The folders that FABRICHECK_SITES names. Raises UserError for one without site_configs/."""
    named = [Path(each).resolve() for each in os.environ.get(SITES, "").split(os.pathsep) if each]
    for each in named:
        if not (each / "site_configs").is_dir():
            raise UserError(f"{SITES} names {each}, which has no site_configs/: name the folder above it")
    return tuple(named)


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


def described(system: str) -> bool:
    """Whether a system, which may be `system:partition`, has a folder here or in FABRICHECK_SITES."""
    return os.path.isdir(site_root(system) / "site_configs" / system.partition(":")[0])


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
        if system not in self.systems():
            raise UserError(f"unknown system '{system}': systems are {', '.join(self.systems()) or 'none'}")

    def settings(self, system: str) -> Path:
        return self.site(system) / "settings.py"

    def site(self, system: str) -> Path:
        """The folder of a system's settings and topology."""
        return site_root(system, self.root) / "site_configs" / system

    def is_miniature(self, system: str) -> bool:
        """Whether the system is one in miniature: all that runs there is a rehearsal, also what uses no GPU."""
        return (self.site(system) / MINIATURE).is_file()

    def config_files(self, system: str) -> tuple[Path, ...]:
        return (self.root / "config" / "common.py", self.settings(system))
