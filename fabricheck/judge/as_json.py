"""A judged run as JSON, for programs."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, TypedDict

from fabricheck.judge.evidence import busy_hosts
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.rehearsal import EMULATED, is_rehearsal


class _Coded(TypedDict, total=False):
    code: str
    """of its [finding](findings.md); only where it did not pass"""


class MetricJson(_Coded):
    """A judged metric. Values are in its unit."""

    name: str
    """[what the name says](metrics.md)"""
    verdict: str
    """PASS, DEGRADED, FAIL, INCOMPLETE or INVALID"""
    reason: str
    """one line for people"""
    value: float | None
    """the median of the iterations; null where it is not finite"""
    unit: str
    """`Gb/s` or `us`"""
    better: str
    """`higher` or `lower`"""
    interval: list[float | None]
    """nonparametric 95% confidence interval of the median"""
    iterations: int
    calibrated: bool
    """whether the system has a reference of it"""
    judged_by: str
    """the kind of yardstick that decided, or `unjudged`; empty where no speed was judged"""
    yardstick: dict[str, Any] | None
    """the baseline that decided: [yardstick](#verdict-yardstick)"""
    expectation: dict[str, Any]
    """what the link graph allows: [expectation](#verdict-expectation)"""
    reference: dict[str, Any] | None
    """measured here when the system was healthy: [reference](#verdict-reference)"""


class RunJson(TypedDict):
    """A judged run: one launch of a benchmark."""

    file: str
    """the result file"""
    run_id: str | None
    """the id that the benchmark drew; null where there is none"""
    hosts: list[str]
    """nodes, in the order of the ranks"""
    busy: list[str]
    """nodes on which other programs used more than a third of the cores"""
    platform: str | None
    """as in the result's [header](#result-header)"""
    verdict: str
    """the worst of its metrics and problems"""
    problems: list[dict[str, Any]]
    """what concerns the run as a whole: a list of [finding](#verdict-finding)"""
    metrics: list[MetricJson]


def run_as_json(judged: RunJudgement) -> RunJson:
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


def _metric(judged: Judgement) -> MetricJson:
    content: MetricJson = {
        "name": judged.name,
        "verdict": judged.verdict.value,
        "code": judged.code,
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
    if not judged.code:
        del content["code"]
    return content


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
