"""The job script beside a result file: what it loaded, set and started, for those who start it again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fabricheck.results.node_state import FOLDER as STATES
from fabricheck.wholefile import read_file

#: As ReFrame calls it.
NAME = "rfm_job.sh"
_LARGEST = 1 << 20


def read_script(file: Path) -> list[str]:
    """The lines of a script; none where it cannot be read."""
    try:
        return read_file(file, _LARGEST).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def set_up(script: list[str]) -> list[str]:
    """The lines that load and set something before the measurement."""
    return [
        line for line in dict.fromkeys(script) if line.startswith(("export ", "module ", "spack ", ". ", "source "))
    ]


def launches(script: list[str]) -> Iterator[tuple[str, str]]:
    """The lines that started ranks of fabricbench, with their launcher, and how each calls the program."""
    for line in script:
        program = next((word for word in line.split() if word.strip("'").endswith("/fabricbench")), "")
        if program and STATES not in line:
            yield line, program
