"""The folders of the runs of a system, in the order of their time."""

from __future__ import annotations

import re
from pathlib import Path

#: The name of ReFrame's run report in the folder of a session.
REPORT = "reframe.json"
#: What a session came to, in its folder: a run that was judged has it.
VERDICT = "verdict.json"


def runs_of(runs: Path, system: str) -> list[Path]:
    """The folders below `runs` of all runs of a system, whatever came of them."""
    # The name of another system may begin like this one.
    name = re.compile(re.escape(system) + r"-(\d{8}T\d{6}Z)(?:-(\d+))?")
    by_time = {}
    for folder in runs.glob(f"{system}-*"):
        if (match := name.fullmatch(folder.name)) is not None:
            by_time[match[1], int(match[2] or 1)] = folder
    return [by_time[time] for time in sorted(by_time)]


def judged_runs(runs: Path, system: str) -> list[Path]:
    """Those of the runs that were judged."""
    return [folder for folder in runs_of(runs, system) if (folder / VERDICT).exists()]


def runs_before(folder: Path, system: str) -> list[Path]:
    """Those beside the run in `folder` that are older."""
    return [run for run in runs_of(folder.parent, system) if run.name < folder.name]
