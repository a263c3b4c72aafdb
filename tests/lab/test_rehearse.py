"""The table of rehearsals: what was measured is kept and not measured again. Nothing is brought up here."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fabricheck.suite import suite_root
from fabricheck_lab import rehearse
from fabricheck_lab.rehearse import Deviation, Row, main, read_rows

GOOD = Row(
    "alps",
    "smoke",
    2,
    "PASS",
    "2026-11-22 15:00",
    "abc",
    up_s=1.5,
    wall_s=30.4,
    selected=6,
    passed=5,
    not_applicable=("HostTogether (2), SmokeNodes: there is none",),
    within=Deviation(-0.031, "SmokePeers: a_goodput"),
    load=7.21,
)
BAD = replace(GOOD, system="lumi", verdict="FAIL", not_applicable=(), problems=("SmokePeers: too slow",), within=None)


def keep(rows: Path, *kept: Row) -> None:
    with rows.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(row)) + "\n" for row in kept)


def test_what_has_a_row_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, table = tmp_path / "rows.jsonl", tmp_path / "table.md"
    keep(rows, GOOD)
    measured: list[tuple[str, str, int]] = []

    def rehearsed(system: str, tag: str, nodes: int) -> tuple[Row, ...]:
        measured.append((system, tag, nodes))
        row = replace(BAD, system=system, tag=tag, nodes=nodes)
        return (row, replace(row, tag="nightly", part_of=tag)) if tag == "acceptance" else (row,)

    monkeypatch.setattr(rehearse, "rehearse", rehearsed)
    options = ["--systems=alps,lumi,dardel", "--tags=smoke", f"--rows={rows}", f"--output={table}"]
    assert main(options) == 1
    assert measured == [("lumi", "smoke", 2), ("dardel", "smoke", 1)]
    assert len(read_rows(rows)) == 3
    assert main(["--again", *options]) == 1
    assert len(measured) == 5
    assert main(["--systems=lumi", *options[2:]]) == 1  # of all tags, and nightly is not run by itself
    assert measured[5:] == [("lumi", "acceptance", 2), ("lumi", "large", 2), ("lumi", "four-nodes", 4)]
    assert read_rows(rows)["lumi", "nightly"].part_of == "acceptance"


def test_each_check_of_nightly_is_one_of_acceptance() -> None:
    checks = "\n".join(each.read_text(encoding="utf-8") for each in (suite_root() / "checks").glob("*.py"))
    tags = re.findall(r"^    tags = (\{.*\})$", checks, re.MULTILINE)
    nightly = [line for line in tags if '"nightly"' in line]
    assert nightly and all('"acceptance"' in line for line in nightly)
