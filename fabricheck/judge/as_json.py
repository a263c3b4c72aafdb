"""A judged run as JSON, for programs."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from fabricheck.judge.evidence import busy_hosts
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.rehearsal import EMULATED, is_rehearsal


def run_as_json(judged: RunJudgement) -> dict[str, Any]:
    """The verdict on a run with all that it rests on. What is not finite is null."""
    return {
        "file": judged.run.path,
        "run_id": judged.run.header.get("run_id"),
        "hosts": list(dict.fromkeys(each.host for each in judged.run.ranks)),
        "busy": busy_hosts(judged.run),
        "platform": EMULATED if is_rehearsal(judged.run) else judged.run.header.get("platform"),
        "verdict": judged.verdict.value,
        "problems": [each.as_json() for each in judged.problems],
        "metrics": [_metric(each) for each in judged.judgements],
    }


def _metric(judged: Judgement) -> dict[str, Any]:
    return {
        "name": judged.name,
        "verdict": judged.verdict.value,
        **({"code": judged.code} if judged.code else {}),
        "reason": judged.reason,
        "value": _finite(judged.value),
        "unit": judged.unit,
        "better": judged.better,
        "interval": [_finite(bound) for bound in judged.interval],
        "iterations": judged.samples.count,
        "calibrated": judged.calibrated,
        "judged_by": judged.judged_by,
        "yardstick": asdict(judged.yardstick) if judged.yardstick is not None else None,
        "expectation": asdict(judged.expectation),
        "reference": asdict(judged.reference) if judged.reference is not None else None,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
