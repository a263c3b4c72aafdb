"""The table of rehearsals: what was measured is kept and not measured again. Nothing is brought up here."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fabricheck.records.case import Case
from fabricheck.session.reading import Session
from fabricheck.suite import suite_root
from fabricheck.topology.model import find_topology
from fabricheck_lab import rehearse
from fabricheck_lab.description import EFFICIENCY
from fabricheck_lab.rehearse import Deviation, Row, main, read_rows, with_payload, write_table

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


def test_rows_are_read_as_they_were_kept_and_the_last_one_counts(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    assert read_rows(rows) == {}
    keep(rows, GOOD, replace(BAD, verdict="INVALID"), BAD)
    found = read_rows(rows)
    assert set(found) == {("alps", "smoke"), ("lumi", "smoke")}
    assert found["alps", "smoke"].within == GOOD.within
    assert found["lumi", "smoke"].verdict == "FAIL"


def test_the_table_says_what_was_left_out_and_what_is_not_green(tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    write_table({(each.system, each.tag): each for each in (GOOD, BAD)}, table, "command")
    text = table.read_text(encoding="utf-8")
    assert "| alps | smoke | 2 | PASS | 5 of 6 | 3 | 1.5 s | 30 s | 7.2 | -3.1% SmokePeers: a_goodput | - |" in text
    assert "- alps smoke: HostTogether (2), SmokeNodes: there is none" in text
    assert "- lumi smoke: SmokePeers: too slow" in text
    assert "- 2026-11-22, commit abc, 2 cores: alps smoke, lumi smoke." in text


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


def test_the_row_of_nightly_is_that_of_its_checks_in_the_acceptance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a check that is not of it nothing is in its row; of a problem of the session, the verdict."""

    def case(name: str, result: str, *tags: str) -> Case:
        reason = None if result == "pass" else "DEGRADED: too slow"
        return Case(name, "e", "alps:gpu", {}, result, "performance", reason, None, False, tags)

    cases = (case("A", "pass", "nightly", "acceptance"), case("B", "fail", "acceptance"))
    session = tmp_path / "runs" / "alps-1"
    session.mkdir(parents=True)
    metric = {"name": "x_goodput", "verdict": "DEGRADED", "reason": "too slow"}
    told = {
        "verdict": "DEGRADED",
        "problems": [],
        "runs": [{"test": str(cases[1]), "problems": [], "metrics": [metric]}],
    }
    report = {"runs": [{"testcases": [{"name": each.name, "time_total": 3.5} for each in cases]}]}
    (session / "reframe.json").write_text(json.dumps(report))
    monkeypatch.setattr(rehearse, "read_session", lambda folder: Session(folder, cases, ()))
    monkeypatch.setattr(rehearse, "_deviations", lambda cases, system: [])

    def rows() -> tuple[Row, ...]:
        (session / "verdict.json").write_text(json.dumps(told))
        return rehearse.rows_of(Row("alps", "acceptance", 2, "", "2026-11-22 15:00", "abc", wall_s=9.0), tmp_path)

    whole, part = rows()
    assert (whole.verdict, whole.passed, whole.selected, whole.wall_s) == ("DEGRADED", 1, 2, 9.0)
    assert whole.problems == (f"{cases[1]}: x_goodput: too slow",)
    assert (part.tag, part.part_of, part.verdict, part.passed, part.selected) == ("nightly", "acceptance", "PASS", 1, 1)
    assert part.wall_s == 3.5 and part.problems == ()
    told["problems"] = [{"message": "a node is missing"}]
    assert rows()[1].verdict == "DEGRADED"


def test_each_check_of_nightly_is_one_of_acceptance() -> None:
    checks = "\n".join(each.read_text(encoding="utf-8") for each in (suite_root() / "checks").glob("*.py"))
    tags = re.findall(r"^    tags = (\{.*\})$", checks, re.MULTILINE)
    nightly = [line for line in tags if '"nightly"' in line]
    assert nightly and all('"acceptance"' in line for line in nightly)


def test_links_carry_what_the_emulation_has_them_carry() -> None:
    topology = find_topology("alps", suite_root() / "site_configs")
    share = dict(zip(("copy", "kernel", "ccl"), EFFICIENCY["NVLink"], strict=True))
    for mover in ("copy", "kernel", "ccl"):
        found = with_payload(topology, mover)
        assert found.links[0].total_gbps == pytest.approx(1200 * share[mover])
        assert found.nics[0].rate_gbps == pytest.approx(200 * 0.957)
