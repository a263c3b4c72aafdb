"""Alert rules and dashboard ask for metrics and labels that metrics.prom has."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from fabricheck.records.verdict import Verdict
from tests.support.pages import write_prometheus
from tests.support.synthetic import pair_run

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
ALERTS = CONFIG / "prometheus-alerts.yaml"


def exported(tmp_path: Path) -> dict[str, set[str]]:
    """The labels of each metric that a session exports."""
    write_prometheus([pair_run(bad={(0, 1): Verdict.FAIL})], tmp_path / "metrics.prom", system="s")
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
    (group,) = YAML(typ="safe").load(ALERTS.read_text())["groups"]
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


def promtool(*arguments: str | Path, text: str | None = None, status: int = 0) -> str:
    """What promtool prints; the test fails where it ends with another exit status."""
    program = shutil.which("promtool", path=f"{ROOT / '.venv' / 'promtool'}:{os.environ['PATH']}")
    if program is None:
        message = "there is no promtool; on Debian `make test FULL=1` unpacks it"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    ended = subprocess.run([program, *arguments], input=text, capture_output=True, text=True, check=False)
    assert ended.returncode == status, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.mark.full
def test_promtool_takes_alerts_and_metrics(tmp_path: Path) -> None:
    """Prometheus itself fires the alerts for a session that failed and for none of a rehearsal."""
    exported(tmp_path)
    # It reads all, and would have bytes where this field counts bits (3: a matter of style).
    found = promtool("check", "metrics", text=(tmp_path / "metrics.prom").read_text(), status=3)
    assert found.splitlines() == ['fabricheck_goodput_bits_per_second use base unit "bytes" instead of "bits"']
    assert "4 rules found" in promtool("check", "rules", ALERTS)

    exported_values = {
        'fabricheck_exit_status{system="ours"}': 3,
        'fabricheck_exit_status{system="rehearsed", platform="emulated"}': 3,
        'fabricheck_exit_status{system="theirs"}': 0,
        'fabricheck_metric_passed{system="ours", run="PeerCopies", metric="a"}': 0,
        'fabricheck_metric_passed{system="theirs", run="PeerCopies", metric="a"}': 1,
    }
    case = {
        "interval": "1h",
        "input_series": [{"series": one, "values": f"{value}x48"} for one, value in exported_values.items()],
        "promql_expr_test": [
            {
                "expr": "sum by (alertname, system, run) (ALERTS)",
                "eval_time": "2d",
                "exp_samples": [
                    {"labels": '{alertname="FabricheckNotGreen", system="ours"}', "value": 1},
                    {"labels": '{alertname="FabricheckMetricNotPassed", system="ours", run="PeerCopies"}', "value": 1},
                ],
            }
        ],
    }
    cases = tmp_path / "cases.json"  # which is YAML, too
    cases.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1h", "tests": [case]}))
    assert "SUCCESS" in promtool("test", "rules", cases)
