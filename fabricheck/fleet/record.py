"""What is known of a fleet while its job goes on: its nodes, and which of them are excluded and why.

It is a folder, since the tests that share the job are processes of their own.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.jsonfile import read_json

#: In the folder of a fleet, and in that of a run.
FILE, EXCLUDED, FOLDER = "fleet.json", "excluded.jsonl", "fleet"
#: What a sweep or a screen leaves in the folder of its test: a `Trouble` a line.
TROUBLES = "troubles.log"


@dataclass(frozen=True)
class Trouble:
    """What a node did that is no measurement. `guilty`: it was proved, so nothing more is measured there."""

    node: str
    what: str
    guilty: bool = True


@dataclass(frozen=True)
class Unchecked:
    """A node that was asked for, or that the partition has, and that the job does not have."""

    node: str
    why: str


@dataclass(frozen=True)
class Fleet:
    """The job (`job`, of the scheduler) and its `nodes`; `asked`: what the user gave; `partition`: of ReFrame."""

    folder: Path
    system: str
    partition: str
    asked: str
    job: str
    nodes: tuple[str, ...]
    unchecked: tuple[Unchecked, ...] = ()

    def write(self) -> None:
        content = {**dataclasses.asdict(self), "folder": None}
        (self.folder / FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def of_run(cls, folder: Path) -> Fleet | None:
        """The fleet of the run in a folder; None where that has none. Raises `UserError` as `read`."""
        return cls.read(folder / FOLDER) if (folder / FOLDER / FILE).exists() else None

    @classmethod
    def read(cls, folder: Path) -> Fleet:
        """The fleet in a folder. Raises `UserError` where there is none."""
        content = read_json(folder / FILE)
        try:
            left = tuple(Unchecked(**each) for each in content["unchecked"])
            return cls(**{**content, "folder": folder, "nodes": tuple(content["nodes"]), "unchecked": left})
        except (KeyError, TypeError):
            raise UserError(f"{folder / FILE}: is no description of a fleet") from None

    def exclude(self, troubles: Sequence[Trouble]) -> None:
        """Nothing more is measured on the guilty ones."""
        write_troubles(self.folder / EXCLUDED, [each for each in troubles if each.guilty])

    @property
    def excluded(self) -> tuple[Trouble, ...]:
        return read_troubles(self.folder / EXCLUDED)

    @property
    def good(self) -> tuple[str, ...]:
        """The nodes that are not excluded, in their order."""
        bad = {each.node for each in self.excluded}
        return tuple(node for node in self.nodes if node not in bad)


def write_troubles(file: Path, troubles: Sequence[Trouble]) -> None:
    """Adds to a file, in one write each, so that what is there stays whole."""
    with file.open("a", encoding="utf-8") as stream:
        for each in troubles:
            stream.write(json.dumps(dataclasses.asdict(each)) + "\n")
            stream.flush()
            os.fsync(stream.fileno())


def read_troubles(file: Path) -> tuple[Trouble, ...]:
    """Those in a file, each once; none where it is not there."""
    if not file.exists():
        return ()
    lines = file.read_text(encoding="utf-8").splitlines()
    return tuple(dict.fromkeys(Trouble(**json.loads(line)) for line in lines))
