"""ReFrame's settings of a partition whose tests all run inside one job that is there already.

Kept is all that the site says. Replaced is the scheduler: tests are started on this machine, and what starts their
ranks (fabricheck.fleet.sweep and screen) makes steps of the job.
"""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError
from fabricheck.fleet.record import Fleet

#: The key of a partition's `extras` that names the folder of the fleet.
KEY = "fleet"

_SETTINGS = '''"""Written by `fabricheck run`: the site's settings, inside of one job."""

from pathlib import Path

from fabricheck.fleet.settings import in_the_job

site_configuration = in_the_job(Path({site!r}), Path({folder!r}))
'''


def write_settings(fleet: Fleet, site: Path) -> Path:
    """Writes the settings of a fleet, beside its description; `site`: the site's own. Returns the file."""
    file = fleet.folder / "settings.py"
    file.write_text(_SETTINGS.format(site=str(site), folder=str(fleet.folder)), encoding="utf-8")
    return file


def in_the_job(site: Path, folder: Path) -> dict[str, Any]:
    """The site_configuration of `site` with the partition of the fleet in `folder` inside its job."""
    fleet = Fleet.read(folder)
    content: dict[str, Any] = runpy.run_path(str(site))["site_configuration"]
    system = system_in(content, fleet.system)
    system["partitions"] = [
        _inside(each, fleet) for each in system["partitions"] if f"{fleet.system}:{each['name']}" == fleet.partition
    ]
    return {**content, "systems": [system]}


def _inside(partition: Mapping[str, Any], fleet: Fleet) -> dict[str, Any]:
    extras = {**partition.get("extras", {}), "nodes": len(fleet.nodes), KEY: str(fleet.folder)}
    launcher = "local" if partition["scheduler"] == "flux" else partition["launcher"]
    inside: dict[str, Any] = {"scheduler": "local", "launcher": launcher, "access": [], "max_jobs": 1, "extras": extras}
    return {**partition, **inside}


def system_in(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The entry of a system in a site_configuration. Raises `UserError` where there is none."""
    for system in content["systems"]:
        if system["name"] == name:
            return dict(system)
    raise UserError(f"the settings of {name} have no system of that name")


def partition_in(site: Path, where: str) -> dict[str, Any]:
    """The partition `system:partition` in a site's settings, or the only one of `system`. Raises `UserError`."""
    name, _, wanted = where.partition(":")
    partitions = system_in(runpy.run_path(str(site))["site_configuration"], name)["partitions"]
    matching = [each for each in partitions if not wanted or each["name"] == wanted]
    if len(matching) != 1:
        names = ", ".join(f"{name}:{each['name']}" for each in partitions)
        raise UserError(f"{where} is not one partition: give one of {names}")
    return dict(matching[0])
