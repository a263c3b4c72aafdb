"""What programs read: the same verdict as on the page, and nothing that is not PASS looks like it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fabricheck.records.verdict import EXIT_CODES, Finding, Problem, Verdict
from fabricheck.report.machine import write_json, write_junit, write_prometheus
from tests.report.synthetic import pair_run

LOST = Problem(Verdict.INCOMPLETE, "12 test cases were selected and 11 were run")


def prometheus(path: Path) -> dict[str, list[tuple[dict[str, str], float]]]:
    families = text_string_to_metric_families(path.read_text(encoding="utf-8"))
    return {one.name: [(sample.labels, sample.value) for sample in one.samples] for one in families}


def test_json_holds_the_verdict_the_problems_and_every_metric(tmp_path: Path) -> None:
    run = pair_run(bad={(2, 1): Verdict.FAIL})
    write_json([run], tmp_path / "verdict.json", system="example", problems=[LOST], findings=[Finding("it scales")])
    content = json.loads((tmp_path / "verdict.json").read_text(encoding="utf-8"))
    assert (content["verdict"], content["exit_status"]) == ("INCOMPLETE", EXIT_CODES[Verdict.INCOMPLETE])
    assert content["problems"] == [{"verdict": "INCOMPLETE", "message": LOST.message}]
    assert content["findings"] == [{"message": "it scales"}]
    (only,) = content["runs"]
    assert only["hosts"] == ["nid001"]
    assert [each["name"] for each in only["metrics"]] == [each.name for each in run.judgements]
    assert [each["verdict"] for each in only["metrics"]].count("FAIL") == 1


@pytest.mark.parametrize("bad", [Verdict.DEGRADED, Verdict.FAIL, Verdict.INCOMPLETE, Verdict.INVALID])
def test_junit_counts_every_verdict_but_pass_as_a_failure(tmp_path: Path, bad: Verdict) -> None:
    run = pair_run(bad={(2, 1): bad}, problems=[Problem(bad, 'a "<problem>" \x1b[2J')])
    write_junit([run], tmp_path / "junit.xml", system="example", problems=[])
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    session, suite = root.findall("testsuite")
    assert session.get("failures") == "0"
    assert suite.get("failures") == "2"
    assert int(suite.get("tests", "")) == len(run.judgements) + 1 == len(suite.findall("testcase"))
    assert {each.get("type") for each in suite.iter("failure")} == {bad.value}
    assert "\x1b" not in (tmp_path / "junit.xml").read_text(encoding="utf-8")


def test_junit_of_a_session_that_measured_nothing_fails(tmp_path: Path) -> None:
    write_junit([], tmp_path / "junit.xml", system="example", problems=[])
    (suite,) = ElementTree.parse(tmp_path / "junit.xml").getroot().findall("testsuite")
    assert suite.get("failures") == "1"


def test_prometheus_has_base_units_and_the_exit_status(tmp_path: Path) -> None:
    run = pair_run(bad={(2, 1): Verdict.FAIL})
    write_prometheus([run], tmp_path / "metrics.prom", system="example", problems=[])
    found = prometheus(tmp_path / "metrics.prom")
    assert found["fabricheck_exit_status"] == [({"system": "example"}, EXIT_CODES[Verdict.FAIL])]
    assert found["fabricheck_runs_passed"] == [({"system": "example"}, 0)]
    for each in run.judgements:
        family, base = ("goodput_bits_per_second", 1e9) if each.better == "higher" else ("latency_seconds", 1e-6)
        values = {labels["metric"]: value for labels, value in found[f"fabricheck_{family}"]}
        assert values[each.name] == pytest.approx(each.value * base)
    passed = {labels["metric"]: value for labels, value in found["fabricheck_metric_passed"]}
    assert [name for name, value in passed.items() if value == 0] == [
        each.name for each in run.judgements if each.verdict is not Verdict.PASS
    ]
    assert not list(tmp_path.glob("*.prom.*"))
