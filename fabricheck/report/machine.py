"""What a run came to, for programs: JSON, JUnit's XML for CI servers, and a text file for Prometheus."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypedDict
from xml.etree import ElementTree

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from fabricheck.diagnosis.causes import Diagnosis
from fabricheck.diagnosis.coverage import coverage_of
from fabricheck.fleet.node_verdicts import FleetVerdict, as_json
from fabricheck.judge.as_json import RunJson, run_as_json
from fabricheck.judge.overall import rehearsed
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.coverage import CoverageJson
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Judgement
from fabricheck.records.rehearsal import EMULATED, is_rehearsal, marked
from fabricheck.records.verdict import EXIT_CODES, Verdict
from fabricheck.report.content import facts_of, plain, printable, quantity_of
from fabricheck.report.lines import summary
from fabricheck.units import size_label
from fabricheck.wholefile import whole_file

# How many metrics that differ in nothing but their ranks are exported to Prometheus one by one (the pairs of four GPUs
# are twelve), and how many of the others of a run because they did not pass.
_FEW = 12
_MOST_NAMED = 10


class JudgedTestJson(RunJson):
    """A judged run with the test that it belongs to."""

    test: str
    """the name of the check, with its parameters"""


class _OfFleet(TypedDict, total=False):
    fleet: Mapping[str, object]
    """only of `run --nodes`: the verdict of each node ([fleet](fleet.md))"""


class VerdictJson(_OfFleet):
    """The verdict of a session, what explains it, and every judged run."""

    system: str
    """as in `site_configs/`"""
    session: dict[str, str]
    """`id` (ReFrame's uuid), `started`, `ended`, and `suite`, the folder of the checks"""
    rehearsal: bool
    """whether any run was on emulated GPUs"""
    verdict: str
    """PASS, DEGRADED, FAIL, INCOMPLETE or INVALID"""
    exit_status: int
    """0 PASS, 1 DEGRADED, 3 FAIL, 4 INCOMPLETE, 5 INVALID"""
    coverage: CoverageJson
    """what the session could see"""
    causes: list[dict[str, Any]]
    """what explains the verdict, the most probable first: a list of [finding](#verdict-finding)"""
    problems: list[dict[str, Any]]
    """what keeps the session from PASS: a list of [finding](#verdict-finding)"""
    findings: list[dict[str, Any]]
    """what changes no verdict: a list of [finding](#verdict-finding)"""
    runs: list[JudgedTestJson]
    """every judged run"""


def write_json(
    runs: Sequence[RunJudgement],
    path: Path,
    *,
    system: str,
    diagnosis: Diagnosis,
    fleet: FleetVerdict | None = None,
    session: Mapping[str, str] | None = None,
) -> None:
    """Write the verdict, what explains it, the problems and the findings of the session, and every judged run with its
    metrics.

    With `fleet` also the verdict of each of its nodes. `session`: which one this is, in a few words each.
    """
    verdict = diagnosis.verdict
    content: VerdictJson = {
        "system": system,
        "session": {**(session or {})},
        "rehearsal": rehearsed(runs),
        "verdict": verdict.value,
        "exit_status": EXIT_CODES[verdict],
        "coverage": coverage_of(runs).as_json(),
        "causes": [each.finding.as_json() for each in diagnosis.causes],
        "problems": [each.as_json() for each in diagnosis.problems],
        "findings": [each.as_json() for each in diagnosis.findings],
        "runs": [{"test": each.test, **run_as_json(each)} for each in runs],
    }
    if fleet is not None:
        content["fleet"] = as_json(fleet)
    # Renamed in place: that the file is there says that the session was judged.
    with whole_file(path) as new:
        new.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def write_junit(runs: Sequence[RunJudgement], path: Path, *, system: str, diagnosis: Diagnosis) -> None:
    """Write a test suite for the session and one for each run, with a test case for each metric.

    Everything that is not PASS is a failure: its type is the verdict, its message the line for people, and its text
    the message of the finding and the command that explains its code.
    """
    rehearsal = rehearsed(runs)
    root = ElementTree.Element("testsuites", name=marked(f"fabricheck {system}", rehearsal=rehearsal))
    _suite(root, marked("session", rehearsal=rehearsal), [("everything was measured", diagnosis.problems)], system)
    for run in runs:
        cases = [("results", run.all_problems)]
        for judgement in run.judgements:
            cases.append((judgement.name, () if judgement.verdict is Verdict.PASS else (judgement.finding,)))
        _suite(root, marked(run.test or run.run.path, rehearsal=is_rehearsal(run.run)), cases, system)
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _suite(root: ElementTree.Element, name: str, cases: Sequence[tuple[str, Sequence[Finding]]], system: str) -> None:
    suite = ElementTree.SubElement(root, "testsuite", name=printable(name), tests=str(len(cases)))
    for title, failures in cases:
        case = ElementTree.SubElement(suite, "testcase", classname=printable(name), name=printable(title))
        for failed in failures:
            line = printable(plain(summary(failed, system=system)))
            failure = ElementTree.SubElement(case, "failure", type=failed.verdict.value, message=line)
            failure.text = f"{printable(failed.message)}\nfabricheck explain {failed.code}"
    suite.set("failures", str(sum(bool(failures) for _, failures in cases)))


def write_prometheus(runs: Sequence[RunJudgement], path: Path, *, system: str, diagnosis: Diagnosis) -> None:
    """Write the metrics in Prometheus' text format, in its base units, for node_exporter's textfile collector.

    A metric that does not exist this time has no line: alert on `fabricheck_exit_status` and on absent metrics. All of
    a rehearsal have the label `platform="emulated"`, which no measurement has. Of a question that a run has answered
    for more than a dozen pairs or groups there is the lowest, the median and the highest value, with `many` and the
    statistic in place of ranks, and in addition the worst metrics that did not pass, ten of a run at most: a session
    has as many lines as runs, and not as pairs of nodes. Of the findings of a code ten
    components are named.
    """
    registry = CollectorRegistry()
    session = {"system": system, **({"platform": EMULATED} if rehearsed(runs) else {})}

    def gauge(name: str, text: str, *more: str) -> Gauge:
        return Gauge(f"fabricheck_{name}", text, [*session, *more], registry=registry)

    of_metric = ("run", "nodes", "metric")
    values = {
        "goodput": gauge("goodput_bits_per_second", "Median goodput of a metric", *of_metric),
        "latency": gauge("latency_seconds", "Median latency of a metric", *of_metric),
    }
    metric_passed = gauge("metric_passed", "Whether the verdict on a metric is PASS", *of_metric)
    count = len(diagnosis.problems) + sum(len(each.all_problems) for each in runs)
    for name, text, number in (
        ("exit_status", "0 PASS, 1 DEGRADED, 3 FAIL, 4 INCOMPLETE, 5 INVALID", EXIT_CODES[diagnosis.verdict]),
        ("problems", "Problems of the session and of its runs", count),
        ("runs", "Result files that were judged", len(runs)),
        ("runs_passed", "Result files whose verdict is PASS", sum(each.final_verdict is Verdict.PASS for each in runs)),
    ):
        gauge(name, text).labels(*session.values()).set(number)
    of_finding = gauge("finding", "1 for each finding that keeps the session from PASS", "code", "component", "verdict")
    for finding in _named([*diagnosis.problems, *(one for run in runs for one in run.findings)]):
        of_finding.labels(*session.values(), *finding).set(1)
    for run in runs:
        labels = (*session.values(), marked(facts_of(run).name, rehearsal=is_rehearsal(run.run)), _nodes(run))
        for name, quantity, value, passed in _exported(run.judgements):
            values[quantity].labels(*labels, name).set(value * (1e9 if quantity == "goodput" else 1e-6))
            metric_passed.labels(*labels, name).set(passed)
    write_to_textfile(str(path), registry)


def _named(findings: Iterable[Finding]) -> Iterator[tuple[str, str, str]]:
    """Code, component and verdict of each finding, of ten components of a code and a verdict at most."""
    left: Counter[tuple[str, Verdict]] = Counter()
    for code, component, verdict in dict.fromkeys((each.code, each.place, each.verdict) for each in findings):
        left[code, verdict] += 1
        if left[code, verdict] <= _MOST_NAMED:
            yield code, component, verdict.value


def _nodes(run: RunJudgement) -> str:
    """The node of a run, or how many it has: never a list."""
    hosts = {each.host for each in run.run.ranks}
    return hosts.pop() if len(hosts) == 1 else f"{len(hosts)} nodes"


def _exported(judgements: Sequence[Judgement]) -> Iterator[tuple[str, str, float, bool]]:
    """Name, quantity, value in the metric's unit and whether it passed, of all lines about the metrics of a run."""
    questions: dict[tuple[str, ...], list[Judgement]] = {}
    for judgement in judgements:
        samples = judgement.samples
        key = (samples.operation, samples.schedule, size_label(samples.bytes), quantity_of(judgement))
        questions.setdefault(key, []).append(judgement)
    left = _MOST_NAMED
    for (operation, schedule, size, quantity), judged in questions.items():
        ordered = sorted(judged, key=lambda judgement: judgement.value, reverse=quantity == "latency")
        if len(judged) <= _FEW:
            yield from ((each.name, quantity, each.value, each.verdict is Verdict.PASS) for each in judged)
            continue
        name = f"{operation}_{schedule}_many_{size}_{quantity}"
        values = [each.value for each in ordered]
        passed = all(each.verdict is Verdict.PASS for each in judged)
        for statistic, value in (("lowest", min(values)), ("median", median(values)), ("highest", max(values))):
            yield f"{name}_{statistic}", quantity, value, passed
        failed = [each for each in ordered if each.verdict is not Verdict.PASS][:left]
        left -= len(failed)
        yield from ((each.name, quantity, each.value, False) for each in failed)
