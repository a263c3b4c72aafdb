"""session.json: what an entry says of its session as a whole."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fabricheck.history.folders import SESSION, SessionFolder
from fabricheck.records.finding import Finding
from fabricheck.results.fabricbench_format import Moment

# 2026-11-21T08:36:32Z is 20261121T083632Z in the name of an entry.
_COMPACT = str.maketrans("", "", "-:")

VerdictName = Literal["PASS", "DEGRADED", "FAIL", "INCOMPLETE", "INVALID"]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class FindingRecord(_Model):
    """A finding of the session, not of one run. Before format 3 there were no codes and no components, and those that
    changed no verdict had none; in format 1 they stood among the others."""

    verdict: VerdictName = "PASS"
    message: str
    code: str = "recorded"
    components: list[dict[str, str]] = []
    measured: float | None = None
    expected: float | None = None
    unit: str = ""
    metrics: list[str] = []
    files: list[str] = []
    p: float | None = None

    @property
    def finding(self) -> Finding:
        """Raises ValueError where its code or components are none."""
        return Finding.from_json(self.model_dump())


class Yardsticks(_Model):
    """SHA-256 of the files that the runs were judged by; null where the system has none."""

    topology: str | None
    references: str | None
    policy: str | None


class NodeRecord(_Model):
    """The result of a session on one node. Older files also have `links`, which is ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)
    verdict: VerdictName


class SessionRecord(_Model):
    """The session: when and where it was, what it came to, and which runs are in the entry.

    Format 1 had no findings of their own; `read_record` brings it into the shape of later ones. `stored` is when the
    entry was written. `software` are versions that all its runs share,
    `judged_by` those of the program and the suite that judged them. `rehearsal`: whether any run was on emulated GPUs;
    the store of before emulation has none. `level`: which checks were requested, by their tags. `nodes`: each that had
    a part. Either is null where it was not recorded, as in all older entries.
    """

    format: Literal[1, 2, 3] = 3
    session: str
    """ReFrame's uuid"""
    system: str
    started: Moment
    """UTC, such as `2026-11-21T08:36:32Z`"""
    ended: Moment
    """UTC"""
    stored: Moment
    host: str
    """where ReFrame ran"""
    software: dict[str, str]
    judged_by: dict[str, str]
    """versions of the program and of the suite that judged"""
    yardsticks: Yardsticks
    verdict: VerdictName
    problems: list[FindingRecord]
    """what kept it from PASS"""
    findings: list[FindingRecord] = []
    """what changed no verdict"""
    rehearsal: bool = False
    level: str | None = None
    nodes: dict[str, NodeRecord] | None = None
    runs: list[str]
    """ids of its runs"""
    metrics: Annotated[int, Field(ge=0)]
    """how many metrics the runs have"""


def read_record(entry: SessionFolder, content: bytes | None = None) -> SessionRecord:
    """The record of an entry, whose bytes may have been read before. Raises UserError where it is damaged."""
    content = entry.read(SESSION) if content is None else content
    try:
        record = SessionRecord.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or SESSION
        raise entry.damage(f"{SESSION} is not of this format: {where}: {first['msg']}") from None
    if record.system != entry.path.parent.name:
        raise entry.damage(f"has data of the system {record.system!r} and is in the folder of another system")
    if record.session != entry.session or record.started.translate(_COMPACT) != entry.started:
        raise entry.damage(f"holds session {record.session} of {record.started}, which contradicts its name")
    return _findings_apart(record)


def _findings_apart(record: SessionRecord) -> SessionRecord:
    findings = [each for each in record.problems if each.verdict == "PASS"]
    problems = [each for each in record.problems if each.verdict != "PASS"]
    return record.model_copy(update={"problems": problems, "findings": [*findings, *record.findings]})
