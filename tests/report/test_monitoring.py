"""Alert rules and dashboard ask for metrics and labels that metrics.prom has."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from fabricheck.records.verdict import Verdict
from fabricheck.report.machine import write_prometheus
from tests.support.synthetic import pair_run

CONFIG = Path(__file__).resolve().parents[2] / "config"


def exported(tmp_path: Path) -> dict[str, set[str]]:
    """The labels of each metric that a session exports."""
    write_prometheus([pair_run(bad={(0, 1): Verdict.FAIL})], tmp_path / "metrics.prom", system="s", problems=[])
    families = text_string_to_metric_families((tmp_path / "metrics.prom").read_text())
    return {one.name: {*one.labels} for family in families for one in family.samples}


def check(expression: str, known: dict[str, set[str]]) -> None:
    names = re.findall(r"\bfabricheck_\w+", expression)
    assert names or "node_textfile_mtime_seconds" in expression
    assert {*names} <= known.keys()
    for name, matchers in re.findall(r"\b(fabricheck_\w+){([^}]*)}", expression):
        # Of rehearsals alone, which have this label in addition.
        assert {*re.findall(r"(\w+)!?=", matchers)} - {"platform"} <= known[name]


def test_the_alerts_ask_for_what_is_exported(tmp_path: Path) -> None:
    known = exported(tmp_path)
    (group,) = YAML(typ="safe").load((CONFIG / "prometheus-alerts.yaml").read_text())["groups"]
    assert len(group["rules"]) == 4
    for rule in group["rules"]:
        check(rule["expr"], known)
        assert rule["annotations"]["summary"]


def test_the_dashboard_asks_for_what_is_exported(tmp_path: Path) -> None:
    known = exported(tmp_path)
    dashboard = json.loads((CONFIG / "grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(expressions) == 7
    for each in expressions:
        check(each, known)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len({*places}) == len(places)
