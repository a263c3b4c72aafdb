"""Where the suite lies: the directory with config/, site_configs/ and reference_values/."""

from __future__ import annotations

from pathlib import Path

from fabricheck.errors import UserError


def suite_root() -> Path:
    """The suite that holds the current directory, else the one that this package was installed from in place.

    Raises UserError where there is neither.
    """
    here = Path.cwd()
    for each in (here, *here.parents, Path(__file__).resolve().parent.parent):
        if (each / "site_configs").is_dir() and (each / "config").is_dir():
            return each
    raise UserError(f"{here} is not in a Fabricheck suite: change to the directory that has site_configs/ and config/")
