"""What is known of a fleet while its job goes on: its nodes, and which of them are excluded and why.

It is a folder, since the tests that share the job are processes of their own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from fabricheck.errors import UserError
from fabricheck.jsonfile import Time, read_as
from fabricheck.records.component import Component
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.topology.network import fold

#: In the folder of a fleet, and in that of a run.
FILE, EXCLUDED, ENDED, FOLDER = "fleet.json", "excluded.jsonl", "ended.txt", "fleet"
#: What a sweep or a screen leaves in the folder of its test: a finding a line, each of one node.
TROUBLES = "troubles.log"
#: What the screen of the network launched: a list of file, operations and number of nodes.
LAUNCHES = "launches.json"


def did_not_start(node: str, what: str) -> Finding:
    """FAIL of a node that does not start what others start, which is worth a drain: nothing more is measured there."""
    return Finding("node-did-not-start", Verdict.FAIL, f"{node}: {what}", (Component.of_node(node),))


def not_run(node: str, what: str) -> Finding:
    """Of a node that left no result, and that nothing proves guilty."""
    return Finding("node-did-not-run", Verdict.INCOMPLETE, f"{node}: {what}", (Component.of_node(node),))


@dataclass(frozen=True)
class Fleet:
    """The job (`job`, of the scheduler) and its `nodes`; `asked`: what the user gave; `partition`: of ReFrame.

    `unchecked`: why, by node that was requested, or that the partition has, and that the job does not have.
    `options`: which checks, as ReFrame's. `began`: when its first job did; `until`: when this one's time is over.
    `earlier`: the folders of the runs that it resumes, the last one first.
    """

    folder: Path
    system: str
    partition: str
    asked: str
    job: Annotated[str, Field(pattern="^[0-9]*$")]  # a word of Slurm's commands, which read `--name=…` as an option
    nodes: tuple[str, ...]
    unchecked: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    began: Time | Literal[""] = ""
    until: Time | Literal[""] = ""
    earlier: tuple[str, ...] = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    def write(self) -> None:
        """Writes the record into its folder."""
        content = {**dataclasses.asdict(self), "folder": None}
        (self.folder / FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def of_run(cls, folder: Path) -> Fleet | None:
        """The fleet of the run in a folder; None where that has none. Raises `UserError` as `read`."""
        return cls.read(folder / FOLDER) if (folder / FOLDER / FILE).exists() else None

    @classmethod
    def read(cls, folder: Path) -> Fleet:
        """The fleet in a folder. Raises `UserError` where there is none."""

        def placed(content: Any) -> Any:
            return {**content, "folder": folder} if isinstance(content, dict) else content

        return read_as(folder / FILE, _FLEET, placed)

    def exclude(self, findings: Iterable[Finding]) -> None:
        """Nothing more is measured on nodes of which it was proved."""
        write_findings(self.folder / EXCLUDED, [each for each in findings if each.verdict is Verdict.FAIL])

    @property
    def wanted(self) -> str:
        """The nodes that a run which resumes this one is to have; those that were busy only where requested."""
        others = () if self.asked.startswith("idle") else self.unchecked
        return fold((*self.nodes, *others))

    @property
    def seconds_left(self) -> float:
        """Of the job's time; infinite where its length is unknown."""
        if not self.until:
            return math.inf
        return (datetime.fromisoformat(self.until) - datetime.now(timezone.utc)).total_seconds()

    def end(self, why: str) -> None:
        """Says that the job did not get to the end of what there is to measure; the first reason stays."""
        with contextlib.suppress(FileExistsError), (self.folder / ENDED).open("x", encoding="utf-8") as file:
            file.write(why)

    @property
    def ended(self) -> str:
        """Why the job did not get to the end; empty where that is unknown."""
        file = self.folder / ENDED
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    @property
    def excluded(self) -> tuple[Finding, ...]:
        """The findings for which nodes were excluded, one a node."""
        return read_findings(self.folder / EXCLUDED)

    @property
    def good(self) -> tuple[str, ...]:
        """The nodes that are not excluded, in their order."""
        bad = {each.node for each in self.excluded}
        return tuple(node for node in self.nodes if node not in bad)


_FLEET = TypeAdapter(Fleet)


def write_findings(file: Path, findings: Iterable[Finding]) -> None:
    """Adds to a file, in one write each, so that what is there stays whole."""
    with file.open("a", encoding="utf-8") as stream:
        for finding in findings:
            stream.write(json.dumps(finding.as_json()) + "\n")
            stream.flush()
            os.fsync(stream.fileno())


def read_findings(file: Path) -> tuple[Finding, ...]:
    """Those in a file, each once; none where it is not there. Raises `UserError` where a line of it is damaged."""
    if not file.exists():
        return ()
    findings = []
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        try:
            finding = Finding.from_json(json.loads(line))
            if not (finding.node and finding.is_problem):
                raise ValueError("does not name one bad node")
            findings.append(finding)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise UserError(f"{file}: line {number} is damaged: the excluded nodes are unknown") from None
    return tuple(dict.fromkeys(findings))
