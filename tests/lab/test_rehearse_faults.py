"""Faults of clusters of GPUs: the table has each of them on each system, red and named. Nothing is brought up here."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fabricheck.suite import suite_root
from fabricheck_lab import rehearse_faults
from fabricheck_lab.cluster import Cluster
from fabricheck_lab.emulate_faults import fault as command
from fabricheck_lab.rehearse_faults import SHAPES, Fault, Row, Told, faults_of, grouped, lines_of, main, read_rows

ROW = Row(
    "alps", "a hung GPU", "fault x", "SmokePeers", "INCOMPLETE", 4, "INCOMPLETE: x", True, 9.5, "2026-11-22", "abc"
)
DOCUMENT = suite_root() / "docs" / "faults-of-gpus.md"


def test_every_fault_of_every_system_is_red_and_named_in_the_document() -> None:
    """As `python -m fabricheck_lab.rehearse_faults` recorded it; a row without the line that it has to have says so."""
    cells = [line.split(" | ") for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    found = {(row[0].removeprefix("| "), row[1]): row for row in cells[1:]}
    for shape in SHAPES:
        for each in (one for one in faults_of(shape) if (one.what, shape.system) in found):
            row = found[each.what, shape.system]
            assert row[2].startswith(each.how)
            assert row[3] == each.check
            assert row[4] != "PASS"
            assert row[5] != "0"
            assert rehearse_faults.NOT_NAMED not in row[6], row


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.system)
def test_faults_are_planted_by_commands_that_are_there(shape: rehearse_faults.Shape) -> None:
    faults = list(faults_of(shape))
    assert len({each.what for each in faults}) == len(faults)
    for words in (shlex.split(each) for one in faults for each in one.plant):
        assert words[0] in command.commands


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.system)
def test_what_is_planted_at_once_is_looked_for_with_one_check(shape: rehearse_faults.Shape) -> None:
    faults = list(faults_of(shape))
    together = grouped(faults)
    assert len(together) < len(faults)
    assert sorted(one.what for each in together for one in each) == sorted(each.what for each in faults)
    for each in together:
        assert len({one.check for one in each}) == 1
        assert len(each) == 1 or not any(one.during or one.impatient for one in each)


def test_a_line_counts_with_all_its_words_and_its_verdict() -> None:
    fault = Fault("x", (), "SmokePeers", ("nid001: GPU 0", "0000:08:00.0"), ("DEGRADED",))
    right = ("DEGRADED", "nid001: GPU 0: is slow, at 0000:08:00.0")
    others = (("DEGRADED", "nid001: GPU 0: is slow"), ("FAIL", right[1]))
    assert Told(1, "", {}, others).line(fault) is None
    assert Told(1, "", {}, (*others, right)).line(fault) == right


def test_lines_are_those_of_the_session_of_runs_and_of_metrics_that_are_not_green() -> None:
    gpu = {"kind": "gpu", "node": "nid001", "name": "gpu0"}
    problem = {"verdict": "DEGRADED", "code": "slow-gpu", "message": "of a run", "components": [gpu]}
    metrics = [
        {"name": "a", "verdict": "PASS", "reason": "good"},
        {"name": "b", "verdict": "FAIL", "reason": "too slow", "code": "below-floor"},
    ]
    told = {
        "problems": [{"verdict": "INCOMPLETE", "code": "no-result", "message": "whole", "components": []}],
        "runs": [{"problems": [problem], "metrics": metrics}],
    }
    assert list(lines_of(told)) == [
        ("INCOMPLETE", "whole [no-result]"),
        ("DEGRADED", "of a run [slow-gpu nid001:gpu0]"),
        ("FAIL", "b: too slow [below-floor]"),
    ]


def test_what_has_a_row_is_not_planted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, table = tmp_path / "rows.jsonl", tmp_path / "table.md"
    rows.write_text(json.dumps(asdict(replace(ROW, named=False))) + "\n" + json.dumps(asdict(ROW)) + "\n")
    planted: list[str] = []

    def measured(_: Cluster, faults: Sequence[Fault]) -> tuple[Told, list[Row]]:
        planted.extend(fault.what for fault in faults)
        return Told(0, "", {}, ()), [replace(ROW, fault=fault.what, named=False) for fault in faults]

    class Nothing:
        def down_now(self) -> None:
            pass

    monkeypatch.setattr(rehearse_faults, "measure", measured)
    monkeypatch.setattr(rehearse_faults, "up_in_miniature", lambda *_: Nothing())
    monkeypatch.setattr(Cluster, "down", lambda *_: False)
    options = ["--systems=alps", "--faults=hung", f"--rows={rows}", f"--output={table}"]
    assert main(options) == 1
    assert planted == ["a hung GPU on another node"]
    assert read_rows(rows)["alps", "a hung GPU"].named
    assert f"INCOMPLETE: x{rehearse_faults.NOT_NAMED} |" in table.read_text(encoding="utf-8")
