"""judgement.json: what a check came to, beside its result files. The session reads it and judges no check twice."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError
from fabricheck.jsonfile import read_json
from fabricheck.records.case import CheckJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict, worst

#: In the folder of a test.
JUDGEMENT = "judgement.json"
FORMAT = 1

# What the reason for which a check failed began with, before there was a judgement.json.
_NAMED = re.compile(rf"(?:(?:\w+ )*error: )?({'|'.join(each.value for each in Verdict if each is not Verdict.PASS)}): ")


def write_judgement(folder: Path, findings: Iterable[Finding]) -> CheckJudgement:
    """Writes what was found, with the names of files relative to the folder. OSError where that cannot be."""
    judged = CheckJudgement.of(findings)
    content = {
        "format": FORMAT,
        "verdict": judged.verdict.value,
        "findings": [
            replace(each, files=tuple(os.path.relpath(file, folder) for file in each.files)).as_json()
            for each in judged.findings
        ],
    }
    (folder / JUDGEMENT).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return judged


def read_judgement(folder: Path) -> CheckJudgement | None:
    """What the check came to whose files are in a folder; None where it left no judgement.

    A file that is damaged is INCOMPLETE: it is unknown what the check found.
    """
    file = folder / JUDGEMENT
    if not file.exists():
        return None
    try:
        content = read_json(file)
        findings = tuple(
            replace(found, files=tuple(os.path.normpath(folder / each) for each in found.files))
            for found in map(Finding.from_json, content["findings"])
        )
        verdict = worst([Verdict(content["verdict"]), *(each.verdict for each in findings)])
        return CheckJudgement(verdict, findings)
    except (UserError, OSError, KeyError, TypeError, ValueError, AttributeError):
        text = f"{file}: the check's judgement is damaged; run the check again"
        return CheckJudgement.of([Finding("result-damaged", Verdict.INCOMPLETE, text, files=(str(file),))])


def judgement_of_old_reason(reason: str | None) -> CheckJudgement | None:
    """What a check came to that ran before there was a judgement.json, by the reason in ReFrame's report or in a store.

    For what was stored then, and for nothing that runs today. None where the reason names no verdict.
    """
    named = _NAMED.match(reason or "")
    return CheckJudgement(Verdict(named[1])) if named else None


def is_of_before(record: Mapping[str, Any]) -> bool:
    """Whether a test case of ReFrame's report is of a check of Fabricheck that wrote no judgement.json."""
    return "left_out" in record and "judgement_file" not in record


def is_foreign(record: Mapping[str, Any]) -> bool:
    """Whether a test case of ReFrame's report is of no check of Fabricheck."""
    return "left_out" not in record
