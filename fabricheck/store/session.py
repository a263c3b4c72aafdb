"""session.json: what an entry says of its session as a whole."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from fabricheck.results.fabricbench_format import parse_utc
from fabricheck.store.folders import SESSION, Entry


def _is_utc(text: str) -> str:
    parse_utc(text)
    return text


# 2026-11-21T08:36:32Z is 20261121T083632Z in the name of an entry.
_COMPACT = str.maketrans("", "", "-:")

Moment = Annotated[str, AfterValidator(_is_utc)]
VerdictName = Literal["PASS", "DEGRADED", "FAIL", "INCOMPLETE", "INVALID"]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ProblemRecord(_Model):
    """A problem of the session, not of one run."""

    verdict: VerdictName
    message: str


class Yardsticks(_Model):
    """SHA-256 of the files that the runs were judged by; null where the system has none."""

    topology: str | None
    references: str | None
    policy: str | None


class SessionRecord(_Model):
    """The session: when and where it was, what it came to, and which runs are in the entry.

    `stored` is when the entry was written. `software` are versions that all its runs share,
    `judged_by` those of the program and the suite that judged them.
    """

    format: Literal[1] = 1
    session: str
    system: str
    started: Moment
    ended: Moment
    stored: Moment
    host: str
    software: dict[str, str]
    judged_by: dict[str, str]
    yardsticks: Yardsticks
    verdict: VerdictName
    problems: list[ProblemRecord]
    runs: list[str]
    metrics: Annotated[int, Field(ge=0)]


def read_record(entry: Entry, content: bytes | None = None) -> SessionRecord:
    """The record of an entry, whose bytes may have been read before. Raises UserError where it is damaged."""
    content = entry.read(SESSION) if content is None else content
    try:
        record = SessionRecord.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or SESSION
        raise entry.damage(f"{SESSION} is not of this format: {where}: {first['msg']}") from None
    if record.system != entry.path.parent.name:
        raise entry.damage(f"holds data of the system {record.system!r} and lies with another one's")
    if record.session != entry.session or record.started.translate(_COMPACT) != entry.started:
        raise entry.damage(f"holds session {record.session} of {record.started}, which is not what its name says")
    return record
