"""judgement.json: what a check came to, beside its result files. The session reads it and judges no check twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter

from fabricheck.errors import UserError
from fabricheck.jsonfile import STRICT, read_as
from fabricheck.records.case import CheckJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict, worst

#: In the folder of a test.
JUDGEMENT = "judgement.json"


@dataclass(frozen=True)
class _File:
    format: Literal[1]
    verdict: Verdict
    findings: tuple[Finding, ...]
    __pydantic_config__: ClassVar[ConfigDict] = STRICT


@lru_cache
def _adapter() -> TypeAdapter[_File]:
    return TypeAdapter(_File)


def write_judgement(folder: Path, findings: Iterable[Finding]) -> CheckJudgement:
    """Writes what was found, with the names of files relative to the folder. OSError where that cannot be."""
    judged = CheckJudgement.of(findings)
    told = tuple(_with_files(each, lambda file: os.path.relpath(file, folder)) for each in judged.findings)
    (folder / JUDGEMENT).write_bytes(_adapter().dump_json(_File(1, judged.verdict, told), indent=1) + b"\n")
    return judged


def _with_files(finding: Finding, named: Callable[[str], str]) -> Finding:
    return replace(finding, files=tuple(map(named, finding.files)))


def read_judgement(folder: Path) -> CheckJudgement | None:
    """What the check came to whose files are in a folder; None where it left no judgement.

    A file that is damaged is INCOMPLETE: it is unknown what the check found.
    """
    file = folder / JUDGEMENT
    if not file.exists():
        return None
    try:
        content = read_as(file, _adapter())
    except UserError:
        text = f"{file}: the check's judgement is damaged; run the check again"
        return CheckJudgement.of([Finding("result-damaged", Verdict.INCOMPLETE, text, files=(str(file),))])
    judgement = CheckJudgement.of(
        _with_files(each, lambda name: os.path.normpath(folder / name)) for each in content.findings
    )
    return replace(judgement, verdict=worst([content.verdict, judgement.verdict]))
