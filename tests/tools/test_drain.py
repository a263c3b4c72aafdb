"""ci/drain.py on the verdict of a run over many nodes: what it prints, and what it does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ci.drain import main as drain_main
from fabricheck.suite import suite_root


def bad(node: str, verdict: str, message: str = "it failed twice") -> dict[str, Any]:
    return {"node": node, "verdict": verdict, "evidence": [{"verdict": verdict, "part": node, "message": message}]}


def drain(folder: Path, fleet: dict[str, Any], *options: str) -> subprocess.CompletedProcess[str]:
    file = folder / "verdict.json"
    file.write_text(json.dumps({"rehearsal": False, "runs": [], "fleet": fleet}))
    command = [sys.executable, str(suite_root() / "ci" / "drain.py"), str(file), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


BAD = [bad("nid003", "FAIL"), bad("nid004", "INCOMPLETE"), bad("nid005", "DEGRADED", "loses 50%; really")]


def test_fail_and_degraded_are_drained(tmp_path: Path) -> None:
    done = drain(tmp_path, {"nodes": 8, "bad": BAD})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "scontrol update NodeName=nid003 State=DRAIN 'Reason=fabricheck: nid003: it failed twice'",
        "scontrol update NodeName=nid005 State=DRAIN 'Reason=fabricheck: nid005: loses 50%; really'",
    ]


@pytest.mark.parametrize(
    ("scheduler", "line"),
    [
        ("pbs", "pbsnodes -o -C 'fabricheck: nid003: it failed twice' nid003"),
        ("flux", "flux resource drain nid003 'fabricheck: nid003: it failed twice'"),
    ],
)
def test_other_schedulers(tmp_path: Path, scheduler: str, line: str) -> None:
    done = drain(tmp_path, {"nodes": 8, "bad": BAD[:1]}, f"--scheduler={scheduler}")
    assert done.stdout.splitlines() == [line]


def test_where_most_are_bad_none_is_drained(tmp_path: Path) -> None:
    done = drain(tmp_path, {"nodes": 3, "bad": BAD})
    assert (done.returncode, done.stdout) == (0, "")
    assert "2 of 3 nodes are bad" in done.stderr


def test_a_waiver_holds_until_its_day_ends(tmp_path: Path) -> None:
    waivers = tmp_path / "waivers"
    waivers.write_text("# known\nnid003 ann 2999-12-31 waits for a cable\nnid005 bob 2020-01-01 was to be fixed\n")
    done = drain(tmp_path, {"nodes": 8, "bad": BAD}, f"--waivers={waivers}")
    assert [line.split()[2] for line in done.stdout.splitlines()] == ["NodeName=nid005"]
    assert "nid003: waived by ann until 2999-12-31: waits for a cable: not drained" in done.stderr
    assert "the waiver of nid005 ended on 2020-01-01" in done.stderr


@pytest.mark.parametrize("line", ["nid003 ann", "nid003 ann tomorrow why", "nid003 ann 2999-13-01 why"])
def test_a_waiver_that_is_none_is_one_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "waivers").write_text(f"{line}\n")
    done = drain(tmp_path, {"nodes": 8, "bad": BAD}, f"--waivers={tmp_path / 'waivers'}")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and "LAST-DAY" in done.stderr


@pytest.mark.parametrize(
    ("scheduler", "line"),
    [
        ("slurm", "scontrol update NodeName=nid003 State=UNDRAIN"),
        ("pbs", "pbsnodes -r -C '' nid003"),
        ("flux", "flux resource undrain nid003"),
    ],
)
def test_after_a_clean_retest_a_node_is_undrained(tmp_path: Path, scheduler: str, line: str) -> None:
    before = tmp_path / "before.json"
    earlier = [bad("nid003", "FAIL"), bad("nid005", "FAIL"), bad("nid006", "FAIL"), bad("nid004", "INCOMPLETE")]
    before.write_text(json.dumps({"rehearsal": False, "runs": [], "fleet": {"nodes": 8, "bad": earlier}}))
    now = {"nodes": 8, "good": ["nid001", "nid003", "nid004"], "bad": [bad("nid006", "DEGRADED")]}
    done = drain(tmp_path, now, f"--scheduler={scheduler}", f"--after={before}")
    drained, undrained = done.stdout.splitlines()
    assert ("nid006" in drained, undrained) == (True, line)
    # It was not measured, so nothing is known of it.
    assert done.stderr.splitlines() == [
        f"nid005: was drained before and is not good in {tmp_path / 'verdict.json'}: not undrained"
    ]


def test_an_earlier_verdict_that_is_none_is_one_line(tmp_path: Path) -> None:
    done = drain(tmp_path, {"nodes": 8, "good": [], "bad": BAD}, f"--after={tmp_path / 'none'}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{tmp_path / 'none'}: is no verdict.json")


RUN = {
    "verdict": "FAIL",
    "hosts": ["nid003"],
    "problems": [{"message": "wrong bytes", "verdict": "FAIL"}],
    "metrics": [],
}


@pytest.mark.parametrize(
    "content",
    [
        "[" * 3000,
        '{"a":' * 3000,
        "[]",
        "7",
        json.dumps({"runs": [{**RUN, "hosts": "v"}]}),
        json.dumps({"runs": [{**RUN, "hosts": [None]}]}),
        json.dumps({"runs": [{**RUN, "problems": []}]}),
        json.dumps({"runs": [{**RUN, "problems": [{"message": 7, "verdict": "FAIL"}]}]}),
        json.dumps({"runs": ["FAIL"]}),
        json.dumps({"fleet": {"nodes": float("nan"), "bad": BAD}}),
        json.dumps({"fleet": {"nodes": 8, "bad": [{"node": "", "verdict": "FAIL", "evidence": BAD[0]["evidence"]}]}}),
        json.dumps({"fleet": {"nodes": 8, "bad": [{"node": "nid003", "verdict": "FAIL", "evidence": []}]}}),
    ],
)
@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_a_damaged_verdict_is_one_line_and_drains_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, scheduler: str
) -> None:
    file = tmp_path / "verdict.json"
    file.write_text(content)
    assert drain_main([str(file), f"--scheduler={scheduler}"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1 and said.err.startswith(f"{file}: is no verdict.json")


def test_a_fleet_of_more_nodes_than_a_float_can_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "verdict.json"
    file.write_text(json.dumps({"fleet": {"nodes": 10**400, "bad": BAD}}))
    assert drain_main([str(file)]) == 0
    assert "nid003" in capsys.readouterr().out


def test_what_the_damaged_ones_are_made_of_is_drained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "verdict.json").write_text(json.dumps({"runs": [RUN]}))
    assert drain_main([str(tmp_path / "verdict.json")]) == 0
    assert "NodeName=nid003" in capsys.readouterr().out
