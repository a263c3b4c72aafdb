"""Where the suite lies: the directory with config/, site_configs/ and reference_values/."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fabricheck.errors import UserError

#: What describes a system in miniature, beside its settings.
MINIATURE = "miniature.json"


def suite_root() -> Path:
    """The suite that FABRICHECK_SUITE names, else the one that holds the current directory, else the one that this
    package was installed from in place.

    Raises UserError where there is none of them.
    """
    named = os.environ.get("FABRICHECK_SUITE")
    if named is not None:
        if not (Path(named) / "site_configs").is_dir():
            raise UserError(f"FABRICHECK_SUITE is {named!r}, which has no site_configs/: name the folder of a suite")
        return Path(named).resolve()
    here = Path.cwd()
    for each in (here, *here.parents, Path(__file__).resolve().parent.parent):
        if (each / "site_configs").is_dir() and (each / "config").is_dir():
            return each
    raise UserError(f"{here} is not in a Fabricheck suite: change to the directory that has site_configs/ and config/")


@dataclass(frozen=True)
class Suite:
    """The folders of a Fabricheck repository: `checks/`, `config/`, `site_configs/` and `reference_values/`."""

    root: Path

    def systems(self) -> tuple[str, ...]:
        return tuple(sorted(file.parent.name for file in self.root.glob("site_configs/*/settings.py")))

    def settings(self, system: str) -> Path:
        return self.root / "site_configs" / system / "settings.py"

    def is_miniature(self, system: str) -> bool:
        """Whether the system is one in miniature: all that runs there is a rehearsal, also what uses no GPU."""
        return (self.root / "site_configs" / system / MINIATURE).is_file()

    def config_files(self, system: str) -> tuple[Path, ...]:
        return (self.root / "config" / "common.py", self.settings(system))
