"""What programs read: the same verdict as on the page, and nothing that is not PASS looks like it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fabricheck.diagnosis.causes import Cause, Diagnosis
from fabricheck.records.finding import Finding
from fabricheck.records.node_state import GpuProcess, States
from fabricheck.records.verdict import EXIT_CODES, Verdict
from fabricheck.report import machine
from fabricheck.report.content import plain
from fabricheck.report.lines import summary
from tests.support.findings import bad_finding, note
from tests.support.pages import write_json, write_junit, write_prometheus
from tests.support.states import gpu, node
from tests.support.synthetic import pair_run

LOST = bad_finding(Verdict.INCOMPLETE, "12 test cases were selected and 11 were run")


def prometheus(path: Path) -> dict[str, list[tuple[dict[str, str], float]]]:
    families = text_string_to_metric_families(path.read_text(encoding="utf-8"))
    return {one.name: [(sample.labels, sample.value) for sample in one.samples] for one in families}


def test_json_holds_the_verdict_the_problems_and_every_metric(tmp_path: Path) -> None:
    run = pair_run(bad={(2, 1): Verdict.FAIL})
    slow = Finding("all-slow", Verdict.FAIL, "")
    found = Diagnosis((Cause(slow),), (LOST,), (note("it scales"),), Verdict.FAIL)
    machine.write_json([run], tmp_path / "verdict.json", system="example", diagnosis=found)
    content = json.loads((tmp_path / "verdict.json").read_text(encoding="utf-8"))
    assert (content["verdict"], content["exit_status"]) == ("INCOMPLETE", EXIT_CODES[Verdict.INCOMPLETE])
    assert content["problems"] == [LOST.as_json()]
    assert content["causes"] == [slow.as_json()]
    assert content["findings"] == [note("it scales").as_json()]
    (only,) = content["runs"]
    assert (only["hosts"], only["busy"]) == (["nid001"], [])
    assert [each["name"] for each in only["metrics"]] == [each.name for each in run.judgements]
    assert [each["verdict"] for each in only["metrics"]].count("FAIL") == 1
    assert {each["verdict"]: each.get("code") for each in only["metrics"]} == {"PASS": None, "FAIL": "below-floor"}


@pytest.mark.parametrize("used", [{"busy_cores": 60.0}, {"gpus": (gpu(processes=(GpuProcess(7, "python"),)),)}])
def test_json_says_which_nodes_others_used(tmp_path: Path, used: dict[str, Any]) -> None:
    """They are not drained for what was measured."""
    judged = pair_run()
    states = States(before={"nid001": node("nid001", **used)}, asked=True)
    judged = replace(judged, run=replace(judged.run, states=states))
    write_json([judged], tmp_path / "v.json", system="x")
    (only,) = json.loads((tmp_path / "v.json").read_text())["runs"]
    assert only["busy"] == ["nid001"]


@pytest.mark.parametrize("bad", [Verdict.DEGRADED, Verdict.FAIL, Verdict.INCOMPLETE, Verdict.INVALID])
def test_junit_counts_every_verdict_but_pass_as_a_failure(tmp_path: Path, bad: Verdict) -> None:
    run = pair_run(bad={(2, 1): bad}, problems=[bad_finding(bad, 'a "<problem>" \x1b[2J')])
    machine.write_junit([run], tmp_path / "junit.xml", system="example", diagnosis=Diagnosis())
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    session, suite = root.findall("testsuite")
    assert session.get("failures") == "0"
    assert suite.get("failures") == "2"
    assert int(suite.get("tests", "")) == len(run.judgements) + 1 == len(suite.findall("testcase"))
    assert {each.get("type") for each in suite.iter("failure")} == {bad.value}
    of_metric = next(each for each in run.judgements if each.verdict is bad).finding
    *_, failure = suite.iter("failure")
    assert failure.get("message") == plain(summary(of_metric, system="example"))
    assert failure.text == f"{of_metric.message}\nfabricheck explain {of_metric.code}"
    assert "\x1b" not in (tmp_path / "junit.xml").read_text(encoding="utf-8")


def test_junit_of_a_session_that_measured_nothing_fails(tmp_path: Path) -> None:
    write_junit([], tmp_path / "junit.xml", system="example")
    (suite,) = ElementTree.parse(tmp_path / "junit.xml").getroot().findall("testsuite")
    assert suite.get("failures") == "1"


def test_prometheus_has_base_units_and_the_exit_status(tmp_path: Path) -> None:
    run = pair_run(bad={(2, 1): Verdict.FAIL})
    write_prometheus([run], tmp_path / "metrics.prom", system="example")
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


def test_prometheus_names_findings_by_code_and_component(tmp_path: Path) -> None:
    gpus = tuple(bad_finding(Verdict.DEGRADED, "slow", f"nid001:gpu{each}", code="slow-gpu") for each in range(30))
    either = bad_finding(Verdict.DEGRADED, "slow", "nid002, nid002:hsn0 or leaf0", code="slow-part")
    run = pair_run(bad={(2, 1): Verdict.FAIL, (1, 2): Verdict.FAIL}, problems=[either, either])
    machine.write_prometheus([run], tmp_path / "metrics.prom", system="example", diagnosis=Diagnosis((), gpus))
    found = prometheus(tmp_path / "metrics.prom")["fabricheck_finding"]
    assert {value for _, value in found} == {1}
    assert sorted((labels["code"], labels["component"], labels["verdict"]) for labels, _ in found) == [
        ("below-floor", "", "FAIL"),
        *(("slow-gpu", f"nid001:gpu{each}", "DEGRADED") for each in range(10)),
        ("slow-part", "nid002, nid002:hsn0 or leaf0", "DEGRADED"),
    ]
    write_prometheus([pair_run()], tmp_path / "green.prom", system="example")
    assert prometheus(tmp_path / "green.prom")["fabricheck_finding"] == []


def test_prometheus_names_a_few_of_many_pairs_and_no_list_of_hosts(tmp_path: Path) -> None:
    bad = {(a, b): Verdict.DEGRADED for a in range(4) for b in range(8, 12)}
    run = pair_run(ranks=64, sizes=(8, 1 << 30), bad=bad)
    ranks = tuple(replace(each, host=f"nid{each.rank // 4:06}") for each in run.run.ranks)
    run = replace(run, run=replace(run.run, ranks=ranks))
    write_prometheus([run], tmp_path / "metrics.prom", system="example")
    found = prometheus(tmp_path / "metrics.prom")
    goodput = {labels["metric"]: value for labels, value in found["fabricheck_goodput_bits_per_second"]}
    name = "pingpong_uncontended_many_1gib_goodput"
    values = [each.value * 1e9 for each in run.judgements if each.better == "higher"]
    assert goodput[f"{name}_lowest"] == pytest.approx(min(values))
    assert goodput[f"{name}_median"] == pytest.approx(np.median(values))
    assert goodput[f"{name}_highest"] == pytest.approx(max(values))
    assert len(goodput) == 3 + 10
    passed = {labels["metric"]: value for labels, value in found["fabricheck_metric_passed"]}
    assert {each for each, value in passed.items() if value} == {
        f"pingpong_uncontended_many_8b_latency_{each}" for each in ("lowest", "median", "highest")
    }
    assert {labels["nodes"] for labels, _ in found["fabricheck_metric_passed"]} == {"16 nodes"}
