"""session.json: the session of an entry as a whole."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from fabricheck.jsonfile import first_mistake
from fabricheck.results.fabricbench_format import Moment
from fabricheck.store.folders import SESSION, SessionFolder

# 2026-11-21T08:36:32Z is 20261121T083632Z in the name of an entry.
_COMPACT = str.maketrans("", "", "-:")

VerdictName = Literal["PASS", "DEGRADED", "FAIL", "INCOMPLETE", "INVALID"]


def _clean(value: object) -> object:
    """Return a text as UTF-8 can hold it: names come from elsewhere and may have lone surrogates."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_clean)]


class StoredModel(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class FindingRecord(StoredModel):
    """A finding of the session, not of one run. Before format 3 there were no codes and no components, and those that
    changed no verdict had none; in format 1 they stood among the others."""

    verdict: VerdictName = "PASS"
    message: Text
    code: Text = "recorded"
    components: list[dict[str, Text]] = []
    measured: float | None = None
    expected: float | None = None
    unit: Text = ""
    metrics: list[Text] = []
    files: list[Text] = []
    p: float | None = None


class NodeRecord(StoredModel):
    """The result of a session on one node. Older files also have `links`, which is ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)
    verdict: VerdictName


class SessionRecord(StoredModel):
    """The session: when and where it was, its verdict, and which runs are in the entry.

    `stored` is when the entry was written. `software` are versions that all its runs share, `judged_by` those of the
    program and the suite that judged them. `rehearsal`: whether any run was on emulated GPUs;
    the store of before emulation has none. `level`: which checks were requested, by their tags. `nodes`: each that had
    a part. Either is null where it was not recorded, as in all older entries. Older files also have `yardsticks`, which
    is ignored.
    """

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)
    format: Literal[1, 2, 3] = 3
    session: Text
    """ReFrame's uuid"""
    system: Text
    started: Moment
    """UTC, such as `2026-11-21T08:36:32Z`"""
    ended: Moment
    """UTC"""
    stored: Moment
    host: Text
    """where ReFrame ran"""
    software: dict[Text, Text]
    judged_by: dict[Text, Text]
    """versions of the program and of the suite that judged"""
    verdict: VerdictName
    problems: list[FindingRecord]
    """those that kept it from PASS"""
    findings: list[FindingRecord] = []
    """those that changed no verdict"""
    rehearsal: bool = False
    level: Text | None = None
    nodes: dict[Text, NodeRecord] | None = None
    runs: list[Text]
    """ids of its runs"""
    metrics: Annotated[int, Field(ge=0)]
    """how many metrics the runs have"""


def read_record(entry: SessionFolder) -> SessionRecord:
    """The record of an entry. Raises UserError where it is damaged."""
    try:
        record = SessionRecord.model_validate_json(entry.read(SESSION))
    except ValidationError as error:
        raise entry.damage(f"{SESSION} is not of this format: {first_mistake(error)}") from None
    if record.system != entry.path.parent.name:
        raise entry.damage(f"has data of the system {record.system!r} and is in the folder of another system")
    if record.session != entry.session or record.started.translate(_COMPACT) != entry.started:
        raise entry.damage(f"holds session {record.session} of {record.started}, which contradicts its name")
    return record
