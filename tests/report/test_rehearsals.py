"""A rehearsal says that it is one in everything that shows a verdict, and a measurement nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fabricheck.cli import main
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.rehearsal import REHEARSAL
from fabricheck.records.verdict import Verdict
from fabricheck.suite import suite_root
from tests.support.pages import render, render_html, write_json, write_junit, write_prometheus
from tests.support.result_files import CUDA, lines_of, write
from tests.support.schedulers import knows
from tests.support.synthetic import pair_run


def terminal(runs: list[RunJudgement], _: Path) -> str:
    return render(runs, width=120, color=False)


def page(runs: list[RunJudgement], _: Path) -> str:
    return render_html(runs, title="alps", system="alps")


def junit(runs: list[RunJudgement], folder: Path) -> str:
    write_junit(runs, folder / "junit.xml", system="alps")
    return (folder / "junit.xml").read_text(encoding="utf-8")


SHOWN = (terminal, page, junit)


@pytest.mark.parametrize("show", SHOWN)
def test_a_rehearsal_says_so_and_a_measurement_does_not(
    show: Callable[[list[RunJudgement], Path], str], tmp_path: Path
) -> None:
    assert REHEARSAL in show([pair_run(platform="emulated")], tmp_path)
    assert REHEARSAL not in show([pair_run()], tmp_path)


def test_the_first_line_of_a_terminal_says_verdict_then_rehearsal() -> None:
    first, *_ = render([pair_run(platform="emulated")], width=120, color=False).splitlines()
    assert first.split(maxsplit=1)[0] == "PASS"
    assert first.split(maxsplit=1)[1].startswith(f"{REHEARSAL}: 24 of 24 metrics not judged")


def test_each_run_of_a_mixed_report_says_what_it_is() -> None:
    runs = [pair_run(platform="emulated", path="a.jsonl"), pair_run(path="b.jsonl", bad={(0, 1): Verdict.FAIL})]
    head, *lines = render(runs, width=160, color=False).splitlines()
    assert REHEARSAL in head
    assert sum(REHEARSAL in line for line in lines) == 1


def test_every_suite_of_junit_is_marked(tmp_path: Path) -> None:
    root = ElementTree.fromstring(junit([pair_run(platform="emulated")], tmp_path))
    assert all(each.get("name", "").startswith(REHEARSAL) for each in [root, *root.iter("testsuite")])


def test_json_has_the_platform_of_each_run(tmp_path: Path) -> None:
    for platform, rehearsal in (("emulated", True), ("nvidia", False)):
        file = tmp_path / "verdict.json"
        write_json([pair_run(platform=platform)], file, system="alps")
        content = json.loads(file.read_text(encoding="utf-8"))
        assert content["rehearsal"] is rehearsal
        assert [run["platform"] for run in content["runs"]] == [platform]


def test_every_line_for_prometheus_is_labelled(tmp_path: Path) -> None:
    for platform, label in (("emulated", "emulated"), ("nvidia", None)):
        write_prometheus([pair_run(platform=platform)], tmp_path / "metrics.prom", system="alps")
        text = (tmp_path / "metrics.prom").read_text(encoding="utf-8")
        samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
        assert len(samples) > 4
        assert {one.labels.get("platform") for one in samples} == {label}


def test_no_node_is_drained_for_a_rehearsal(tmp_path: Path) -> None:
    drain = [sys.executable, str(suite_root() / "ci" / "drain.py"), str(tmp_path / "verdict.json"), "--system=alps"]
    session = {"id": "1a2b3c4d", "ended": datetime.now(timezone.utc).isoformat()}
    for platform, status in (("nvidia", 0), ("emulated", 2)):
        run = replace(pair_run(platform=platform, bad={(0, 1): Verdict.FAIL}), test="PingPong")
        write_json([run], tmp_path / "verdict.json", system="alps", session=session)
        environment = {**os.environ, "PATH": knows(tmp_path / "bin", run.run.ranks[0].host)}
        done = subprocess.run(drain, capture_output=True, text=True, check=False, env=environment)
        assert (done.returncode, "State=DRAIN" in done.stdout) == (status, status == 0)


def test_figures_of_a_rehearsal_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(CUDA)
    for each in lines[0]["ranks"]:
        each["device"]["name"] = "emulated NVIDIA H200"
    for file, times in ((write(tmp_path / "rehearsal.jsonl", lines), 1), (CUDA, 0)):
        with pytest.raises(SystemExit) as ended:
            main(["reproduce", "sc24-6", "--from", str(file), "--system", "hgx-h200", "--output", str(tmp_path)])
        assert ended.value.code == 0
        assert capsys.readouterr().err.count(REHEARSAL) == times
